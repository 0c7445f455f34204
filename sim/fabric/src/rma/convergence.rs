//! Two flows that share a client's port under the executor's congestion control (1RMA paper, Figure 15).
//!
//! A flow consists of reads of 4 MB from its own server, one after the other without a gap. The second flow
//! starts later.

use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_transport::rma::executor::{CongestionSettings, ControlKind};
use remora_wire::rma::{Class, MAX_OPERATION};

use super::client::{Client, Ended, Read};
use super::path::{MakeCipher, Path, REGION, line_goodput};

/// Start of the second flow in the paper.
pub const SECOND_NS: u64 = 400_000;
/// Interval over which rates are averaged.
pub const RATE_OVER_NS: u64 = 20_000;
/// Number of reads of a flow in progress, so that the next one continues without a gap.
const IN_PROGRESS: u64 = 2;
const SLOTS: u16 = 128;
const STEP_NS: u64 = 1_000;
/// Shortest time for which a condition must hold up to the end to count.
const HELD_NS: u64 = 2 * RATE_OVER_NS;

/// The parameters of the experiment.
#[derive(Copy, Clone, Debug)]
pub struct Setup {
    /// Settings of the executor's congestion control.
    pub congestion: CongestionSettings,
    /// Duration of the experiment.
    pub ns: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Setup {
    /// Returns the experiment with this control and this initial window.
    pub fn new(kind: ControlKind, initial: f64, ns: u64) -> Setup {
        let congestion = Path::simulation(0).congestion();
        Setup { congestion: CongestionSettings { kind, initial, ..congestion }, ns, seed: 0 }
    }
}

/// A command that has succeeded.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Op {
    /// Time of its end, in nanoseconds from the start.
    pub at_ns: u64,
    /// Number of the flow: 0 or 1.
    pub flow: usize,
    /// Time in nanoseconds from the start of the command until it entered service.
    pub issue_delay: u64,
    /// Time in nanoseconds that the command was in service.
    pub remote_delay: u64,
    /// Window that was effective after the command: the smaller of the flow's window and the local window.
    pub cwnd: f64,
    /// Local window after the command.
    pub local: f64,
}

/// The loss of goodput while two flows converge.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Dip {
    /// Lowest goodput, as a share of the line's.
    pub least: f64,
    /// Nanoseconds until the goodput has recovered, or `None` if it did not within the examined time.
    pub again_ns: Option<u64>,
}

/// The results of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Commands that succeeded, in the order of their ends.
    pub ops: Vec<Op>,
    /// Number of failed commands.
    pub failures: u64,
    /// Duration of the experiment.
    pub ns: u64,
    /// Hash of all frames and their times.
    pub trace: u64,
}

/// Runs the experiment.
pub fn run(setup: &Setup, make: MakeCipher<'_>) -> Outcome {
    let path = Path { servers: 2, ..Path::simulation(setup.seed) };
    let mut client = Client::new(&path, SLOTS, &setup.congestion, make);
    let read = |server| Read { id: 0, server, class: Class::Latency, size: REGION as u64 };
    let mut outcome = Outcome { ops: Vec::new(), failures: 0, ns: setup.ns, trace: 0 };
    for (server, until) in [(0, SECOND_NS.min(setup.ns)), (1, setup.ns)] {
        (0..IN_PROGRESS).for_each(|_| client.submit(read(server)));
        while let Some(ended) = client.advance(Instant(until)) {
            if ended.transfer.is_some() {
                client.submit(read(ended.server));
            }
            outcome.take(&client, &ended);
        }
    }
    outcome.trace = client.nodes.world.trace();
    outcome
}

impl Outcome {
    fn take(&mut self, client: &Client, ended: &Ended) {
        if ended.completion.status != Status::Ok {
            self.failures += 1;
            return;
        }
        let server = client.nodes.world.endpoint(ended.server + 1).address;
        let local = client.executor.local_window();
        let remote = client.executor.remote_window(server, true, Class::Latency).unwrap_or(f64::INFINITY);
        self.ops.push(Op {
            at_ns: client.now().0,
            flow: ended.server,
            issue_delay: ended.completion.issue_delay,
            remote_delay: ended.completion.remote_delay(),
            cwnd: local.min(remote),
            local,
        });
    }

    /// Returns the commands that ended within this time.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> &[Op] {
        let index = |ns| self.ops.partition_point(|op| op.at_ns < ns);
        &self.ops[index(from_ns)..index(to_ns.max(from_ns))]
    }

    /// Returns the rate of a flow, as a share of the line's goodput, averaged over [`RATE_OVER_NS`] from
    /// `from_ns` on.
    pub fn rate(&self, flow: usize, from_ns: u64) -> f64 {
        let ops = self.within(from_ns, from_ns + RATE_OVER_NS);
        let count = ops.iter().filter(|op| op.flow == flow).count();
        count as f64 * f64::from(MAX_OPERATION) * 8e9 / RATE_OVER_NS as f64 / line_goodput()
    }

    /// Returns the first time in `from_ns..to_ns`, relative to `from_ns`, from which on the condition `holds`
    /// until the end. Returns `None` if it holds for less than [`HELD_NS`].
    fn since(&self, from_ns: u64, to_ns: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
        let steps = to_ns.checked_sub(from_ns + RATE_OVER_NS)? / STEP_NS;
        let holding = (0..=steps).rev().take_while(|step| holds(from_ns + step * STEP_NS)).last();
        holding.map(|step| step * STEP_NS).filter(|ns| steps * STEP_NS - ns >= HELD_NS)
    }

    /// Returns the nanoseconds until the first flow has 95 % of the line's goodput and keeps it until the
    /// second flow starts.
    pub fn line_rate_ns(&self) -> Option<u64> {
        self.since(0, SECOND_NS.min(self.ns), |time| self.rate(0, time) >= 0.95)
    }

    /// Returns the nanoseconds from the start of the second flow until each flow has 45 to 55 % of their
    /// joint rate and keeps it until the end.
    pub fn fair_ns(&self) -> Option<u64> {
        let share = |time| self.rate(0, time) / (self.rate(0, time) + self.rate(1, time));
        self.since(SECOND_NS, self.ns, |time| (0.45..=0.55).contains(&share(time)))
    }

    /// Returns the lowest joint rate of both flows within `ns` nanoseconds after the start of the second
    /// flow, and the time until they have 90 % of the line's goodput after that.
    pub fn dip(&self, ns: u64) -> Dip {
        let both = |time| self.rate(0, time) + self.rate(1, time);
        let times: Vec<u64> = (SECOND_NS..SECOND_NS + ns).step_by(STEP_NS as usize).collect();
        let least = times.iter().map(|time| both(*time)).fold(1.0, f64::min);
        let at_least = times.iter().position(|time| both(*time) <= least).unwrap_or(0);
        let again = times[at_least..].iter().find(|time| both(**time) >= 0.9);
        Dip { least, again_ns: again.map(|time| time - SECOND_NS) }
    }

    /// Returns the smallest and the largest window of the first flow within this time.
    pub fn cwnd(&self, from_ns: u64, to_ns: u64) -> [f64; 2] {
        let own = self.within(from_ns, to_ns).iter().filter(|op| op.flow == 0);
        own.fold([f64::INFINITY, 0.0], |[least, most], op| [least.min(op.cwnd), most.max(op.cwnd)])
    }
}
