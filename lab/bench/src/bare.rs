//! Measurements of single bare verbs over a port, which are the lower bound for operations made of round
//! trips.

use anyhow::{Context, Result};
use remora_store::ycsb::fnv;
use remora_verbs::work;

use super::echo::Echo;
use super::typical;
use crate::SHORTER;
use crate::testbed::Testbed;
use crate::testbed::pair::{End, Peer};
use crate::testbed::protocol::{Command, NicCommand, TARGET};

/// Number of round trips in a measurement, and in the warm-up before each measurement.
const TRIPS: u64 = 4000 / SHORTER;
const WARM_UP: u64 = 400 / SHORTER;
/// The size of a cache line in bytes.
const LINE: usize = 64;

/// A process that answers bare verbs on the other core. It is stopped except during its measurements, so
/// that another process can use that core in alternate rounds.
pub struct Bare {
    end: End,
    echo: Echo,
    peer: Peer,
}

impl Bare {
    /// Starts the process, pins this one to its own core, and connects.
    ///
    /// # Errors
    /// The other process does not start.
    pub fn open(testbed: &Testbed) -> Result<Bare> {
        let peer = Peer::start(testbed)?;
        let end = End::open(&peer, testbed.port())?;
        let echo = Echo::new(&end.local, end.remote);
        peer.process().stop()?;
        Ok(Bare { end, echo, peer })
    }

    /// Measures the mean round trip of a READ of `len` bytes, in nanoseconds. The READs visit the `places` of
    /// the peer's memory in turn.
    pub fn read(&mut self, len: usize, places: &[usize]) -> Result<f64> {
        let mut places = places.iter().cycle();
        self.turn(NicCommand::Serve, |end, _| {
            let list = [end.local.sge(0, len)];
            let place = places.next().context("a place to read")?;
            end.one(&work::read(0, &list, end.remote.at(*place as u64)))
        })
    }

    /// Returns cache-line addresses for READs of at most `longest` bytes. The `numbers` select them within
    /// `span` bytes, or within all of the peer's memory if that is less.
    pub fn places(numbers: impl Iterator<Item = u64>, span: usize, longest: usize) -> Vec<usize> {
        let lines = (span.min(TARGET) / LINE).saturating_sub(longest / LINE).max(1);
        numbers.map(|number| fnv(number) as usize % lines * LINE).collect()
    }

    /// Measures the round trip of a message of `there` bytes to a program that polls and answers with `back`
    /// bytes, in nanoseconds.
    pub fn echo(&mut self, there: usize, back: usize) -> Result<f64> {
        self.start_echo()?;
        self.turn(NicCommand::Echo { answer: back }, |end, echo| {
            echo.round_trip(&mut end.qps[0], &mut end.cq, there)
        })
    }

    /// Lets the peer's NIC execute a command while `trip` is measured.
    fn turn(
        &mut self,
        command: NicCommand,
        mut trip: impl FnMut(&mut End, &mut Echo) -> Result<()>,
    ) -> Result<f64> {
        self.measure(command, |end, echo| {
            (0..WARM_UP).try_for_each(|_| trip(end, echo))?;
            typical(TRIPS, || trip(end, echo))
        })
    }

    /// Runs `measured` while the peer's NIC alone uses the peer's core for the given command.
    ///
    /// # Errors
    /// Fails if `measured` fails or if the peer process has died.
    pub(crate) fn measure(
        &mut self,
        command: NicCommand,
        measured: impl FnOnce(&mut End, &mut Echo) -> Result<f64>,
    ) -> Result<f64> {
        let Bare { end, echo, peer } = self;
        peer.process().go_on()?;
        peer.run(end.command(command))?;
        let value = measured(end, echo)?;
        end.settle()?;
        peer.run(Command::Sleep)?;
        peer.process().stop()?;
        Ok(value)
    }

    /// Posts the receive requests for the first answer, which must exist before messages are exchanged.
    ///
    /// # Errors
    /// Fails if the queue refuses a request.
    pub(crate) fn start_echo(&mut self) -> Result<()> {
        self.echo.start(&mut self.end.qps[0])
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // The peer ends at its own command, for which it must run.
        let _ = self.peer.process().go_on();
    }
}
