//! How two flows share a client's port under the executor's congestion control (1RMA paper, Figure 15).
//!
//! A flow is reads of 4 MB from a server of its own, one behind the other without a pause. The second one
//! begins later.

use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_transport::rma::executor::{CongestionSettings, ControlKind};
use remora_wire::rma::{Class, MAX_OPERATION};

use super::client::{Client, Ended, Read};
use super::path::{MakeCipher, Path, REGION, line_goodput};

/// When the second flow begins in the paper.
pub const SECOND_NS: u64 = 400_000;
/// Rates are those of so long a time.
pub const RATE_OVER_NS: u64 = 20_000;
/// Reads of a flow in progress: the second one takes over without a pause.
const IN_PROGRESS: u64 = 2;
const SLOTS: u16 = 128;
const STEP_NS: u64 = 1_000;
/// What holds until the end holds for so long at least.
const HELD_NS: u64 = 2 * RATE_OVER_NS;

/// Two flows.
#[derive(Copy, Clone, Debug)]
pub struct Setup {
    /// How the executor's windows react.
    pub congestion: CongestionSettings,
    /// How long it goes on.
    pub ns: u64,
    /// Seed of everything random.
    pub seed: u64,
}

impl Setup {
    /// With this control and this initial window.
    pub fn new(kind: ControlKind, initial: f64, ns: u64) -> Setup {
        let congestion = Path::simulation(0).congestion();
        Setup { congestion: CongestionSettings { kind, initial, ..congestion }, ns, seed: 0 }
    }
}

/// A command that has ended.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Op {
    /// When, nanoseconds from the beginning.
    pub at_ns: u64,
    /// Of which flow: 0 or 1.
    pub flow: usize,
    /// Until it entered service.
    pub issue_delay: u64,
    /// From then on.
    pub remote_delay: u64,
    /// The smaller of the flow's window and the local one, behind it.
    pub cwnd: f64,
    /// The local window behind it.
    pub local: f64,
}

/// A loss of goodput while two flows find their shares.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Dip {
    /// The least part of the line.
    pub least: f64,
    /// Nanoseconds until it is over; None: not within the time looked at.
    pub again_ns: Option<u64>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Commands that succeeded, in order.
    pub ops: Vec<Op>,
    /// Others.
    pub failures: u64,
    /// How long it went on.
    pub ns: u64,
    /// A hash of every frame and its time.
    pub trace: u64,
}

/// Runs it.
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

    /// Commands that ended within this time.
    pub fn within(&self, from_ns: u64, to_ns: u64) -> &[Op] {
        let at = |ns| self.ops.partition_point(|op| op.at_ns < ns);
        &self.ops[at(from_ns)..at(to_ns.max(from_ns))]
    }

    /// A flow's part of the line, over [`RATE_OVER_NS`] from then on.
    pub fn rate(&self, flow: usize, from_ns: u64) -> f64 {
        let ops = self.within(from_ns, from_ns + RATE_OVER_NS);
        let count = ops.iter().filter(|op| op.flow == flow).count();
        count as f64 * f64::from(MAX_OPERATION) * 8e9 / RATE_OVER_NS as f64 / line_goodput()
    }

    /// The first moment of `from_ns..to_ns` from which on all of it `holds`, if that is no passing state.
    fn since(&self, from_ns: u64, to_ns: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
        let steps = to_ns.checked_sub(from_ns + RATE_OVER_NS)? / STEP_NS;
        let holding = (0..=steps).rev().take_while(|step| holds(from_ns + step * STEP_NS)).last();
        holding.map(|step| step * STEP_NS).filter(|ns| steps * STEP_NS - ns >= HELD_NS)
    }

    /// Nanoseconds until the first flow has 95 % of the line and keeps it until the second one begins.
    pub fn line_rate_ns(&self) -> Option<u64> {
        self.since(0, SECOND_NS.min(self.ns), |at| self.rate(0, at) >= 0.95)
    }

    /// Nanoseconds from the second flow's beginning until each has half of what both have, within 10 %, and
    /// keeps it until the end.
    pub fn fair_ns(&self) -> Option<u64> {
        let share = |at| self.rate(0, at) / (self.rate(0, at) + self.rate(1, at));
        self.since(SECOND_NS, self.ns, |at| (0.45..=0.55).contains(&share(at)))
    }

    /// What both have of the line, at the least, within this time behind the second flow's beginning; and
    /// how long it takes until they have 90 % of it again.
    pub fn dip(&self, ns: u64) -> Dip {
        let both = |at| self.rate(0, at) + self.rate(1, at);
        let times: Vec<u64> = (SECOND_NS..SECOND_NS + ns).step_by(STEP_NS as usize).collect();
        let least = times.iter().map(|at| both(*at)).fold(1.0, f64::min);
        let at_least = times.iter().position(|at| both(*at) <= least).unwrap_or(0);
        let again = times[at_least..].iter().find(|at| both(**at) >= 0.9);
        Dip { least, again_ns: again.map(|at| at - SECOND_NS) }
    }

    /// The smallest and the largest window of the first flow within this time.
    pub fn cwnd(&self, from_ns: u64, to_ns: u64) -> [f64; 2] {
        let own = self.within(from_ns, to_ns).iter().filter(|op| op.flow == 0);
        own.fold([f64::INFINITY, 0.0], |[least, most], op| [least.min(op.cwnd), most.max(op.cwnd)])
    }
}
