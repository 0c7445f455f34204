//! The interruption of a client's repeated reads by a key change (1RMA paper, Figure 14): the time from the
//! last read with the old key to the first read with the new one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use remora_grants::{Channel, Credential, Pin};
use remora_verbs::rma::{Grant, Portal, RmaError, Status};
use remora_verbs::{QpOptions, work};
use remora_wire::rma::{Class, Kind};

use super::client::{Client, PATIENCE, check, expose};
use super::lent::Lent;
use super::place::{Granting, under};
use super::single::trip;
use super::{Bench, path};
use crate::testbed::pair::Peer;
use crate::testbed::protocol::{Command, NicCommand, RmaCommand};
use crate::{PortName, Row, SHORTER, histogram, median};
use remora_options::device::LOOPBACK;

/// The paths of the cases.
pub(crate) const CASE: &str = "rekey";
pub(crate) const OTHERS: &str = "rekey/other-region";

/// The length of a read in bytes.
const LEN: u64 = 64;
/// The offset of a new key in the local region.
const KEY_AT: u64 = 1 << 16;
/// Number of key changes in a round, and number of the slower changes.
const KEYS: usize = 200;
const SLOW: usize = 10;
/// The command slots of the client that changes keys.
const OWNER: u16 = 16;
/// The number of reads of another region in a round, and the number of reads between two changes.
const READS: usize = 4000 / SHORTER as usize;
const APART: usize = 20;
/// Largest ratio of the latency of reads of another region during key changes to their latency without
/// changes.
const UNDISTURBED: f64 = 1.1;

/// A client that reads a region, and the owner that changes the region's key.
struct Reader<'a> {
    peer: &'a Peer,
    client: &'a mut Client,
    owner: Portal,
    granting: Granting,
    /// The region that is granted over TLS.
    granted: Grant,
}

/// Measures the gaps for each way of changing a key.
pub(crate) fn run(bench: &mut Bench<'_>, peer: &Peer, client: &mut Client) -> Result<()> {
    if ![CASE, OTHERS].iter().any(|case| bench.wants(&path(PortName::Udp, case))) {
        return Ok(());
    }
    let mut reader = Reader::open(peer, client)?;
    gaps(bench, &mut reader)?;
    others(bench, &mut reader)
}

fn gaps(bench: &mut Bench<'_>, reader: &mut Reader<'_>) -> Result<()> {
    let case = path(PortName::Udp, CASE);
    let keys = bench.part().of(KEYS);
    let slow = bench.part().of(SLOW);
    let mut lent = Lent::open(reader.client, bench.cores)?;
    let rounds = bench.rounds(&case, || {
        reader.peer.run(reader.client.end.command(NicCommand::ServeAndAccept { reads: 16 }))?;
        let read = trip(reader.client, Kind::Read)?;
        let announced = typical(keys, || reader.announced())?;
        let grant = typical(slow, || reader.ask().map(|(_, took)| took))?;
        let unannounced = typical(slow, || reader.unannounced())?;
        let registered = typical(slow, || reader.registered_anew())?;
        let reconnected = typical(slow, || reader.reconnected())?;
        reader.peer.run(Command::Sleep)?;
        let lent = typical(slow, || lent.registered_anew(reader.client))?;
        // A read is a round trip and one operation.
        Ok([announced, 3.0 * read, unannounced, 3.0 * read + grant, grant, registered, lent, reconnected])
    })?;
    let Some([announced, bound, unannounced, with_grant, grant, registered, lent, reconnected]) = rounds
    else {
        return Ok(());
    };
    let gap = |way: &str, rounds: &[f64]| Row::new("rma", format!("{case}/{way}"), "gap", "ns", rounds);
    bench.add(gap("announced", &announced).against("2 round trips + 1 operation", &bound).within(1.0));
    let row = gap("unannounced", &unannounced);
    bench.add(row.against("2 round trips + 1 operation + 1 grant", &with_grant).within(1.0));
    bench.add(gap("one-grant", &grant));
    bench.add(gap("deregister-and-register", &registered).against("announced", &announced));
    bench.add(gap("deregister-and-register/nicd", &lent).against("announced", &announced));
    bench.add(gap("rc-reconnect", &reconnected).against("announced", &announced));
    Ok(())
}

/// Measures reads of another region while keys change, compared to reads without changes.
fn others(bench: &mut Bench<'_>, reader: &mut Reader<'_>) -> Result<()> {
    let case = path(PortName::Udp, OTHERS);
    let rounds = bench.rounds(&case, || {
        let key = reader.client.keys.fresh();
        let Client { end, portal, .. } = &mut *reader.client;
        let other = expose(reader.peer, end, portal, 1, key)?;
        let (alone, alone_p99) = reader.read_other(&other, false)?;
        let (beside, p99) = reader.read_other(&other, true)?;
        reader.peer.run(Command::Sleep)?;
        Ok([beside, alone, p99, alone_p99])
    })?;
    let Some([p50, alone, p99, alone_p99]) = rounds else { return Ok(()) };
    let row = |metric, rounds: &[f64]| Row::new("rma", &case, metric, "ns", rounds);
    bench.add(row("latency_p50", &p50).against("no key changes", &alone).within(UNDISTURBED));
    bench.add(row("latency_p99", &p99).against("no key changes", &alone_p99));
    Ok(())
}

fn typical(times: usize, mut gap: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let gaps = (0..times).map(|_| Ok(gap()?.as_nanos() as f64)).collect::<Result<Vec<f64>>>()?;
    Ok(median(&gaps))
}

impl<'a> Reader<'a> {
    fn open(peer: &'a Peer, client: &'a mut Client) -> Result<Reader<'a>> {
        let owner = client.rma.create_portal(&client.end.domain, OWNER)?;
        let answer = peer.ask_bytes(client.end.command(NicCommand::Rma(RmaCommand::Granting)))?;
        let granting = Granting::from_bytes(&answer)?;
        let granted = client.grant;
        let mut reader = Reader { peer, client, owner, granting, granted };
        (reader.granted, _) = reader.ask()?;
        Ok(reader)
    }

    /// Returns the current grant of the region that is granted over TLS, and the duration of the request.
    fn ask(&self) -> Result<(Grant, Duration)> {
        let Granting { port, fingerprint, token } = &self.granting;
        let pin = Pin { address: SocketAddr::from((LOOPBACK, *port)), fingerprint: *fingerprint };
        let credential = Credential::Token(token.clone());
        let started = Instant::now();
        let (_, grants) = Channel::open(pin, &credential, &self.client.portal.identity(), PATIENCE)?;
        let took = started.elapsed();
        Ok((grants.first().context("the peer's server grants no region")?.grant, took))
    }

    /// Starts a change of a region's key and returns the new key.
    fn begin(&mut self, grant: &Grant) -> Result<[u8; 16]> {
        let key = self.client.keys.fresh();
        let local = &self.client.local;
        local.memory().write(KEY_AT as usize, &key)?;
        self.owner.submit(Kind::Rekey, Class::Latency, local, KEY_AT, grant, 0, 16, None)?;
        Ok(key)
    }

    /// Waits until the owner knows that the key has changed.
    fn end(&mut self) -> Result<()> {
        loop {
            if let Some((_, status)) = self.owner.poll()? {
                return check(status);
            }
        }
    }

    /// Reads with a grant until the server refuses it. Returns the time of the last successful read.
    fn read_until_refused(&mut self, grant: &Grant) -> Result<Instant> {
        let mut last = Instant::now();
        loop {
            match self.client.portal.read(&self.client.local, 0, grant, 0, LEN, PATIENCE) {
                Ok(()) => last = Instant::now(),
                Err(RmaError::Failed(Status::RemoteAuthenticationFailure)) => return Ok(last),
                Err(other) => return Err(other.into()),
            }
        }
    }

    fn read(&mut self, grant: &Grant) -> Result<()> {
        Ok(self.client.portal.read(&self.client.local, 0, grant, 0, LEN, PATIENCE)?)
    }

    /// Measures the gap in the reads if the client has the next grant before the key changes.
    fn announced(&mut self) -> Result<Duration> {
        let old = self.client.grant;
        let key = self.begin(&old)?;
        let next = under(&old, &key, &self.client.portal.identity())?;
        let last = self.read_until_refused(&old)?;
        self.read(&next)?;
        let gap = last.elapsed();
        (self.client.grant, self.client.key) = (next, key);
        self.end()?;
        Ok(gap)
    }

    /// Measures the gap in reads if the client must request the new grant after the change.
    fn unannounced(&mut self) -> Result<Duration> {
        let old = self.granted;
        self.begin(&old)?;
        let last = self.read_until_refused(&old)?;
        let (next, _) = self.ask()?;
        self.read(&next)?;
        let gap = last.elapsed();
        self.granted = next;
        self.end()?;
        Ok(gap)
    }

    /// Measures the gap in the reads if the server's program deregisters the region and registers another
    /// one.
    fn registered_anew(&mut self) -> Result<Duration> {
        let old = self.client.grant;
        self.read(&old)?;
        let last = Instant::now();
        let key = self.client.keys.fresh();
        let Client { end, portal, .. } = &mut *self.client;
        let next = expose(self.peer, end, portal, 0, key)?;
        self.read(&next)?;
        let gap = last.elapsed();
        (self.client.grant, self.client.key) = (next, key);
        Ok(gap)
    }

    /// Measures the gap in an RC client's READs while its queue pair is closed and connected again.
    fn reconnected(&mut self) -> Result<Duration> {
        self.peer.run(self.client.end.command(NicCommand::ServeAndAccept { reads: 16 }))?;
        let address = self.peer.addresses.udp;
        let end = &mut self.client.end;
        let list = [end.local.sge(0, LEN as usize)];
        let request = work::read(1, &list, end.remote.at(0));
        end.one(&request)?;
        let last = Instant::now();
        end.qps.clear();
        let options =
            QpOptions { max_send_wr: 256, max_recv_wr: 16, max_rd_atomic: 16, ..QpOptions::default() };
        let qp = end.domain.create_qp(&end.cq, &end.cq, &options)?.connect(address)?;
        end.qps.push(qp);
        end.one(&request)?;
        Ok(last.elapsed())
    }

    /// Measures the median and the 99th percentile of reads of another region, with or without key changes.
    fn read_other(&mut self, other: &Grant, changes: bool) -> Result<(f64, f64)> {
        let mut histogram = histogram()?;
        for number in 0..self.client.part.of(READS) {
            let changing = changes && number % APART == 0;
            let old = self.client.grant;
            let key = if changing { Some(self.begin(&old)?) } else { None };
            let started = Instant::now();
            self.read(other)?;
            histogram.saturating_record(started.elapsed().as_nanos() as u64);
            if let Some(key) = key {
                self.end()?;
                self.client.grant = under(&old, &key, &self.client.portal.identity())?;
                self.client.key = key;
            }
        }
        Ok((histogram.value_at_quantile(0.5) as f64, histogram.value_at_quantile(0.99) as f64))
    }
}
