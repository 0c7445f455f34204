//! `remora bench verbs`: latency, rate, bandwidth, many queue pairs and idle load, each compared with its
//! lower bound.

mod bandwidth;
mod bench;
mod latency;
mod many;
pub(crate) mod rate;
mod verb;
mod xdp;

use anyhow::Result;

use super::{Args, PortName, Report};
use crate::testbed::Testbed;
use crate::testbed::pair::{End, Peer, Raw};
use bench::Bench;
use remora_options::cores::two_cores;
use remora_options::progress;
pub(crate) use verb::Verb;

/// Runs `remora bench verbs`: adds a row for each result to the report, and draws the plots.
///
/// # Errors
/// A process does not start or ends early, an answer is wrong, or a file cannot be written.
pub(crate) fn run(args: &Args, report: &mut Report) -> Result<()> {
    let cores = two_cores(&args.cores)?;
    // The peer has a NIC on each port.
    let peer = Peer::start(&Testbed::loopback(PortName::Shm, cores))?;
    let raw = Raw::open(&peer)?;
    let mut bench =
        Bench { args, report, bar: progress::bar(0, "rounds")?, peer, raw, cores, had_many: false };
    latency::floors(&mut bench)?;
    for port in [PortName::Shm, PortName::Udp] {
        if !args.wants(port) {
            continue;
        }
        let mut end = End::open(&bench.peer, port)?;
        latency::run(&mut bench, &mut end)?;
        latency::sends(&mut bench, &mut end)?;
        rate::run(&mut bench, &mut end)?;
        bandwidth::run(&mut bench, &mut end)?;
        latency::sleeping(&mut bench, &mut end)?;
        many::idle(&mut bench, &end)?;
        many::run(&mut bench, &mut end)?;
    }
    if args.wants(PortName::Xdp) {
        xdp::run(&mut bench)?;
    }
    bench.bar.finish_and_clear();
    if args.only.is_some() { args.check_found(bench.report) } else { Ok(()) }
}

impl Bench<'_> {
    /// Runs `round` as often as requested and displays progress. The results of a round are interleaved,
    /// since `round` measures all of them.
    fn rounds<const N: usize>(
        &mut self,
        case: &str,
        mut round: impl FnMut(&Peer, &mut Raw) -> Result<[f64; N]>,
    ) -> Result<Option<[Vec<f64>; N]>> {
        if !self.args.wants_case(case) {
            return Ok(None);
        }
        self.bar.set_message(case.to_owned());
        self.bar.set_length(u64::from(self.args.rounds));
        let mut all: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
        for number in 0..self.args.rounds {
            self.bar.set_position(u64::from(number));
            for (values, value) in all.iter_mut().zip(round(&self.peer, &mut self.raw)?) {
                values.push(value);
            }
        }
        Ok(Some(all))
    }
}
