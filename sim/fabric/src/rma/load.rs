//! Offered and accepted load without the executor (1RMA paper, Figure 11).

use remora_fault::Random;
use remora_transport::Instant;
use remora_transport::rma::{Settings, Status, WriteDebit};
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::path::{MakeCipher, Nodes, Path, Wanted, line_goodput};

/// Command slots of the program: all that an engine has.
const SLOTS: u16 = 256;
/// Time before the measurement starts.
const WARM_UP_NS: u64 = 50_000;

/// The parameters of the experiment: commands of 4 KB that arrive as a Poisson process.
#[derive(Copy, Clone, Debug)]
pub struct Load {
    /// Kind of the commands: reads or writes.
    pub kind: Kind,
    /// Windows that a write debits.
    pub debit: WriteDebit,
    /// Latency of a read of 4 KB in an idle network, in nanoseconds.
    pub rtt_ns: u64,
    /// Offered load, as a share of the line's goodput.
    pub offered: f64,
    /// Duration of the measurement.
    pub ns: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// The results of the experiment. Loads are shares of the line's goodput.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Accepted {
    /// Load of the commands that arrived.
    pub offered: f64,
    /// Load of the successful commands.
    pub accepted: f64,
    /// Number of commands for which no slot was free, or that failed, for instance because the window was
    /// full for too long.
    pub shed: u64,
    /// Hash of all frames and their times.
    pub trace: u64,
}

/// Draws the time in nanoseconds until the next event of a Poisson process with this mean distance.
pub(super) fn gap_ns(random: &mut Random, mean_ns: f64) -> u64 {
    // Uniform from 2⁻⁵³ to 1, with the 53 bits that a double holds.
    let uniform = ((random.bits() >> 11) + 1) as f64 / 9_007_199_254_740_992.0;
    (-uniform.ln() * mean_ns).round() as u64
}

/// Measures a load from one host to another.
pub fn accepted(load: &Load, make: MakeCipher<'_>) -> Accepted {
    let settings = Settings { write_debit: load.debit, ..Settings::paper() };
    let path = Path { settings, rtt_ns: load.rtt_ns, ..Path::simulation(load.seed) };
    let mut nodes = Nodes::new(&path, SLOTS, make);
    let mut random = Random::new(load.seed ^ 0x11a);
    let mean = f64::from(MAX_OPERATION) * 8e9 / (line_goodput() * load.offered);
    let begin = Instant(WARM_UP_NS);
    let end = Instant(WARM_UP_NS + load.ns);
    let mut offered = 0_u64;
    let mut done = 0_u64;
    let mut shed = 0_u64;
    let mut next = Instant(gap_ns(&mut random, mean));
    let mut number = 0;
    while nodes.world.now() < end {
        while let Some(completion) = nodes.poll() {
            nodes.free.push_back(completion.slot);
            let counted = u64::from(nodes.world.now() >= begin);
            done += counted * u64::from(completion.status == Status::Ok);
            shed += counted * u64::from(completion.status != Status::Ok);
        }
        while next <= nodes.world.now() {
            let offset = number * u64::from(MAX_OPERATION);
            let kind = load.kind;
            let size = MAX_OPERATION;
            let issued = nodes.issue_any(&Wanted { server: 0, kind, class: Class::Latency, size, offset });
            let counted = u64::from(next >= begin);
            (offered, shed) = (offered + counted, shed + counted * u64::from(!issued));
            number += 1;
            next = next.after(gap_ns(&mut random, mean));
        }
        nodes.world.step_until(next.min(end));
    }
    let part =
        |commands: u64| commands as f64 * f64::from(MAX_OPERATION) * 8e9 / load.ns as f64 / line_goodput();
    Accepted { offered: part(offered), accepted: part(done), shed, trace: nodes.world.trace() }
}

/// Returns the rate of 64-byte reads, per second, of a program that keeps all of its slots in use.
pub fn rate_of_slots(slots: u16, ns: u64, make: MakeCipher<'_>) -> f64 {
    let mut nodes = Nodes::new(&Path::simulation(0), slots, make);
    let wanted = Wanted { server: 0, kind: Kind::Read, class: Class::Latency, size: 64, offset: 0 };
    let begin = Instant(WARM_UP_NS);
    let end = Instant(WARM_UP_NS + ns);
    while nodes.issue_any(&wanted) {}
    let mut done = 0_u64;
    while nodes.world.step_until(end) {
        while let Some(completion) = nodes.poll() {
            debug_assert_eq!(completion.status, Status::Ok, "nothing is lost");
            done += u64::from(nodes.world.now() > begin);
            nodes.issue(completion.slot, &wanted);
        }
    }
    done as f64 * 1e9 / ns as f64
}
