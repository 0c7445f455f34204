//! The cases: a program of perftest, and the same operation through the native API.

use std::time::Instant;

use anyhow::Result;

use super::perftest::Column;
use crate::PortName;
use crate::Row;
use crate::SHORTER;
use crate::bare::Bare;
use crate::testbed::pair::End;
use crate::testbed::protocol::NicCommand;
use crate::typical;
use crate::verbs::{Verb, rate};

/// The lengths in bytes of the short messages (latency and rate) and of the long ones.
const SHORT: usize = 64;
const LONG: usize = 1 << 16;
/// The number of long messages in flight, as in perftest.
const DEPTH: usize = 128;
/// Number of messages in a round: of latency, of long messages, and of short messages in batches. `BY_LINKS`
/// multiplies them on port shm, whose links are faster.
const TRIPS: usize = 20_000 / SHORTER as usize;
const LONGS: usize = 10_000 / SHORTER as usize;
const SHORTS: usize = 400_000 / SHORTER as usize;
const BY_LINKS: usize = 3;

/// The largest ratio of a program's latency over `udp` to that of the native API.
const LATENCY: f64 = 1.15;
/// Latency in nanoseconds that a program may add to the native latency over links of port shm.
const ADDED: f64 = 150.0;
/// Least ratios of a program's bandwidth and message rate to those of the native API.
const BANDWIDTH: f64 = 0.9;
const RATE: f64 = 0.8;

/// A measurement, made by a perftest program and by the native API.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// A single READ at a time.
    ReadLatency,
    /// A single SEND at a time, answered by another.
    SendLatency,
    /// Long WRITEs or READs, each posted alone.
    Bandwidth(Verb),
    /// Short WRITEs, posted in batches of 16.
    Rate,
}

impl Case {
    /// The list of all cases.
    pub(crate) const ALL: [Case; 5] = [
        Case::ReadLatency,
        Case::SendLatency,
        Case::Bandwidth(Verb::Write),
        Case::Bandwidth(Verb::Read),
        Case::Rate,
    ];

    /// Returns the name of perftest's program.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Case::ReadLatency => "ib_read_lat",
            Case::SendLatency => "ib_send_lat",
            Case::Bandwidth(Verb::Write) | Case::Rate => "ib_write_bw",
            Case::Bandwidth(Verb::Read) => "ib_read_bw",
        }
    }

    fn len(self) -> usize {
        if matches!(self, Case::Bandwidth(_)) { LONG } else { SHORT }
    }

    /// Returns the path of the case over a port.
    pub(crate) fn path(self, port: PortName) -> String {
        let batch = if self == Case::Rate { format!("/batch-{}", rate::SHORT_BATCH) } else { String::new() };
        format!("{}/{}/{}{batch}", port.name(), self.program(), self.len())
    }

    /// Returns the number of messages in a round: all, divided by `part`.
    fn count(self, port: PortName, part: u32) -> usize {
        let all = match self {
            Case::ReadLatency | Case::SendLatency => TRIPS,
            Case::Bandwidth(_) => LONGS,
            Case::Rate => SHORTS,
        };
        let times = if port == PortName::Shm { BY_LINKS } else { 1 };
        // A round consists of whole batches, and at least ten times the messages in flight.
        (all * times / part as usize).max(10 * DEPTH).next_multiple_of(rate::SHORT_BATCH)
    }

    /// Returns the program's own arguments; arguments common to all programs are added elsewhere.
    pub(crate) fn words(self, port: PortName, part: u32) -> Vec<String> {
        let words = ["-s", &self.len().to_string(), "-n", &self.count(port, part).to_string()];
        let depth = DEPTH.to_string();
        let batch = rate::SHORT_BATCH.to_string();
        let own: &[&str] = match self {
            Case::ReadLatency => &[],
            // This option sends inline, as the native measurement does. perftest sends nothing inline on an
            // unknown device.
            Case::SendLatency => &["-I", "64"],
            // -N: perftest reads no clock for each message.
            Case::Bandwidth(_) => &["-N", "--report_gbits", "-t", &depth],
            Case::Rate => &["-N", "--report_gbits", "-t", &depth, "-l", &batch],
        };
        words.into_iter().chain(own.iter().copied()).map(str::to_owned).collect()
    }

    /// Returns the column of the program's output that holds the result.
    pub(crate) fn column(self) -> Column {
        match self {
            Case::ReadLatency | Case::SendLatency => Column::Typical,
            Case::Bandwidth(_) => Column::Bandwidth,
            Case::Rate => Column::Rate,
        }
    }

    /// Measures the same case through the native API, in the same unit.
    ///
    /// # Errors
    /// Fails if the NIC reports an error or the peer has died.
    pub(crate) fn native(self, bare: &mut Bare, port: PortName, part: u32) -> Result<f64> {
        let count = self.count(port, part);
        match self {
            Case::ReadLatency => bare.measure(NicCommand::Serve, |end, _| {
                let list = [end.local.sge(0, SHORT)];
                let remote = end.remote.at(0);
                let mut trip = || end.one(&Verb::Read.request(0, &list, remote));
                (0..count / 20).try_for_each(|_| trip())?;
                typical(count as u64, trip)
            }),
            Case::SendLatency => {
                bare.start_echo()?;
                let trip = bare.measure(NicCommand::Echo { answer: SHORT }, |end, echo| {
                    let mut trip = || echo.round_trip(&mut end.qps[0], &mut end.cq, SHORT);
                    (0..count / 20).try_for_each(|_| trip())?;
                    typical(count as u64, trip)
                })?;
                Ok(trip / 2.0)
            }
            Case::Bandwidth(verb) => bare.measure(NicCommand::Serve, |end, _| long(end, verb, count)),
            Case::Rate => bare.measure(NicCommand::Serve, |end, _| {
                rate::batches(end, Verb::Write, rate::SHORT_BATCH, count)
            }),
        }
    }

    /// Returns the rows of the rounds with the bounds for this port.
    pub(crate) fn rows(self, port: PortName, program: &[f64], native: &[f64]) -> Vec<Row> {
        let (metric, unit) = match self {
            Case::ReadLatency | Case::SendLatency => ("latency_p50", "ns"),
            Case::Bandwidth(_) => ("bandwidth", "B/s"),
            Case::Rate => ("rate", "1/s"),
        };
        let case = self.path(port);
        let baseline = self.baseline(port);
        let row = Row::new("dropin", &case, metric, unit, program).against(&baseline, native);
        let own = Row::new("dropin", format!("{case}/native"), metric, unit, native);
        let added: Vec<f64> = program.iter().zip(native).map(|(program, native)| program - native).collect();
        let added = Row::new("dropin", &case, "latency_over_native", "ns", &added);
        match (self, port) {
            (Case::ReadLatency | Case::SendLatency, PortName::Udp) => vec![row.within(LATENCY), own],
            (Case::ReadLatency | Case::SendLatency, _) => vec![row, added.at_most(ADDED), own],
            (Case::Bandwidth(_), _) => vec![row.at_least(BANDWIDTH), own],
            (Case::Rate, _) => vec![row.at_least(RATE), own],
        }
    }

    /// Returns the name of the native measurement.
    fn baseline(self, port: PortName) -> String {
        let operation = match self {
            Case::ReadLatency | Case::Bandwidth(Verb::Read) => "read",
            Case::SendLatency => "send",
            Case::Bandwidth(Verb::Write) | Case::Rate => "write",
        };
        format!("native-{}-{operation}", port.name())
    }
}

/// Measures the bandwidth of long requests between the same two buffers, as perftest does.
fn long(end: &mut End, verb: Verb, count: usize) -> Result<f64> {
    let started = Instant::now();
    end.stream(count, DEPTH, |end, number| {
        let list = [end.local.sge(0, LONG)];
        Ok(end.qps[0].post_send(&verb.request(number as u64, &list, end.remote.at(0)))?)
    })?;
    Ok((count * LONG) as f64 / started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_judged_by_what_is_asked_of_it() {
        let judged = |case: Case, port, program: f64, native: f64| {
            let rows = case.rows(port, &[program], &[native]);
            assert_eq!(
                rows.last().map(|row| (row.value, row.holds)),
                Some((native, None)),
                "the native measurement has its own row"
            );
            rows.iter().filter_map(|row| row.holds).collect::<Vec<bool>>()
        };
        let latency = Case::ReadLatency;
        assert_eq!(judged(latency, PortName::Udp, 114.0, 100.0), [true]);
        assert_eq!(judged(latency, PortName::Udp, 116.0, 100.0), [false]);
        assert_eq!(judged(latency, PortName::Shm, 549.0, 400.0), [true], "the bound is the added time");
        assert_eq!(judged(Case::SendLatency, PortName::Shm, 551.0, 400.0), [false]);
        assert_eq!(judged(Case::Bandwidth(Verb::Read), PortName::Udp, 89.0, 100.0), [false]);
        assert_eq!(judged(Case::Bandwidth(Verb::Write), PortName::Shm, 91.0, 100.0), [true]);
        assert_eq!(judged(Case::Rate, PortName::Shm, 81.0, 100.0), [true]);
    }

    #[test]
    fn a_round_is_whole_batches_and_both_sides_have_as_many_messages() {
        for case in Case::ALL {
            for (port, part) in [(PortName::Udp, 1), (PortName::Shm, 7), (PortName::Udp, 1000)] {
                let count = case.count(port, part);
                let words = case.words(port, part);
                assert!(count.is_multiple_of(rate::SHORT_BATCH) && count >= 10 * DEPTH, "{case:?}");
                let index = words.iter().position(|word| word == "-n").unwrap();
                assert_eq!(words[index + 1], count.to_string());
            }
        }
        assert_eq!(Case::Rate.path(PortName::Shm), "shm/ib_write_bw/64/batch-16");
    }
}
