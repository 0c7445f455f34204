//! Flows that share a bottleneck: the scenario, and samples of rates and of the queue. Each flow is a host
//! that writes without end to the same target, through a switch that marks packets. The flows start one
//! after the other.

use anyhow::{Result, anyhow, ensure};
use remora_fabric::engine::Picos;
use remora_fabric::network::Cause;
use remora_fabric::topology::{Link, NodeKind, Topology};
use remora_scenario::Flow;
use remora_scenario::run::Run;
use remora_scenario::scenario::{
    Buffering, Control, ControlName, Ecn, Mark, Network, Red, Scenario, Switch, Transport, TransportName,
};
use remora_scenario::units::{Size, Time};
use remora_scenario::workload::Workload;
use remora_transport::Counters;

/// The rate of every link in bits per second.
pub(crate) const RATE: u64 = 40_000_000_000;
/// The delay of every link in picoseconds. A round trip takes 8 us.
const DELAY: u64 = 2 * Picos::MICROSECOND;
/// The payload of a packet in bytes.
const MTU: u32 = 1024;
/// The marking thresholds of the DCQCN paper (§5): no packets up to 5 KB, all above 200 KB, and up to 1 %
/// between.
const RED: Red = Red { rate: None, kmin: Size(5_000), kmax: K_MAX, pmax: 0.01 };
const K_MAX: Size = Size(200_000);
/// The buffer of the switch's port in bytes, which is never full.
const BUFFER: u64 = 64 << 20;

/// The parameters of flows that share a bottleneck.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Bottleneck {
    /// Number of flows.
    pub flows: u32,
    /// Congestion control that sets the rates of the flows.
    pub control: ControlName,
    /// Transport that recovers from loss.
    pub transport: TransportName,
    /// The nanoseconds between the starts of two flows.
    pub apart_ns: u64,
    /// The nanoseconds from the start of the last flow to the end.
    pub last_ns: u64,
    /// The nanoseconds between two samples.
    pub sample_ns: u64,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// The traffic in one interval.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// End of the interval in nanoseconds from the start of the run.
    pub at_ns: u64,
    /// Rate of each flow in bits per second, counting the bytes from BTH to ICRC.
    pub rates: Vec<f64>,
    /// The bytes in the queue of the switch at the end of the interval.
    pub queue: u64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// The samples in the order of time.
    pub samples: Vec<Sample>,
    /// The number of packets that the switch dropped because its buffer was full.
    pub lost: u64,
    /// The number of packets that the switch marked.
    pub marked: u64,
    /// The counters of the NICs, summed over all hosts.
    pub counters: Counters,
}

impl Bottleneck {
    /// Returns the scenario of two flows, of which the second starts 2 ms after the first.
    pub(crate) fn of_two(control: ControlName, seed: u64) -> Bottleneck {
        Bottleneck {
            flows: 2,
            control,
            transport: TransportName::Roce,
            apart_ns: 2_000_000,
            last_ns: 40_000_000,
            sample_ns: 250_000,
            seed,
        }
    }

    /// Returns the scenario: hosts `1..=flows` write to host 0, more than they can send before the end.
    fn scenario(&self) -> Scenario {
        let hosts = self.flows + 1;
        let link = |host| Link { a: host, b: hosts, rate: RATE, delay: DELAY, loss: 0.0 };
        let mut nodes = vec![NodeKind::Host; hosts as usize];
        nodes.push(NodeKind::Switch);
        let topology = Topology { nodes, links: (0..hosts).map(link).collect(), places: Vec::new() };
        let bytes = RATE / 8 * self.end_ns().div_ceil(1_000_000_000);
        let start = |host: u32| u64::from(host - 1) * self.apart_ns * Picos::NANOSECOND;
        let flows = (1..hosts).map(|host| Flow::write(u64::from(host), host, 0, bytes, start(host)));
        Scenario {
            seed: self.seed,
            until: Some(Time(self.end_ns() * Picos::NANOSECOND)),
            mtu: MTU,
            transport: Transport { name: self.transport, ..Transport::default() },
            control: Control { name: self.control, ..Control::default() },
            switch: Switch {
                kind: Buffering::Fifo,
                buffer: Size(BUFFER),
                ecn: Some(Ecn { at: Mark::Enqueue, red: vec![RED] }),
                ..Switch::default()
            },
            workloads: vec![Workload::listed(flows.collect())],
            ..Scenario::on(Network::from(&topology))
        }
    }

    fn end_ns(&self) -> u64 {
        self.apart_ns * u64::from(self.flows - 1) + self.last_ns
    }

    /// Runs the simulation.
    ///
    /// # Errors
    /// Fails if a flow ends.
    pub(crate) fn run(&self) -> Result<Outcome> {
        let mut run = Run::new(&self.scenario()).map_err(|says| anyhow!(says))?;
        let switch = self.flows + 1;
        let mut samples = Vec::new();
        let mut sent = vec![0; self.flows as usize];
        for number in 1..=self.end_ns() / self.sample_ns {
            let at_ns = number * self.sample_ns;
            let ended = run.advance(Picos(at_ns * Picos::NANOSECOND));
            ensure!(ended.is_none(), "a flow without end has ended");
            let now: Vec<u64> = (1..=self.flows).map(|host| run.sent_bytes(host)).collect();
            let rate = |(now, before): (&u64, &u64)| (now - before) as f64 * 8e9 / self.sample_ns as f64;
            let rates = now.iter().zip(&sent).map(rate).collect();
            sent = now;
            samples.push(Sample { at_ns, rates, queue: run.waiting_bytes(switch, 0) });
        }
        let totals = run.totals();
        let lost = totals.lost[Cause::Full as usize].packets;
        let marked = totals.marked;
        let mut counters = Counters::default();
        (0..=self.flows).for_each(|host| counters.add(&run.simulation().counters(host)));
        Ok(Outcome { samples, lost, marked, counters })
    }
}

impl Outcome {
    /// Returns the mean rates of the flows over the samples from `from_ns` on.
    pub(crate) fn rates(&self, from_ns: u64) -> Vec<f64> {
        let samples: Vec<&Sample> = self.samples.iter().filter(|sample| sample.at_ns > from_ns).collect();
        let flows = samples.first().map_or(0, |sample| sample.rates.len());
        let sum = |flow: usize| samples.iter().map(|sample| sample.rates[flow]).sum::<f64>();
        (0..flows).map(|flow| sum(flow) / samples.len() as f64).collect()
    }

    /// Returns the longest queue in bytes among the samples from `from_ns` on.
    pub(crate) fn queue(&self, from_ns: u64) -> u64 {
        let late = self.samples.iter().filter(|sample| sample.at_ns > from_ns);
        late.map(|sample| sample.queue).max().unwrap_or(0)
    }
}

/// Returns Jain's fairness index: 1 if all shares are equal, 1/n if one of n has everything (Jain, Chiu,
/// Hawe, 1984). Returns 1 for an empty list or zero shares.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests;
