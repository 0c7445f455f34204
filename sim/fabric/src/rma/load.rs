//! Load offered and accepted, without the executor (1RMA paper, Figure 11).

use remora_fault::Random;
use remora_transport::Instant;
use remora_transport::rma::{Settings, Status, WriteDebit};
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::path::{MakeCipher, Nodes, Path, Wanted, line_goodput};

/// Slots of the program that offers load: as many as an engine has.
const SLOTS: u16 = 256;
/// Before anything is counted.
const WARM_UP_NS: u64 = 50_000;

/// Commands of 4 KB that come by a Poisson process.
#[derive(Copy, Clone, Debug)]
pub struct Load {
    /// Reads or writes.
    pub kind: Kind,
    /// Which windows a write debits.
    pub debit: WriteDebit,
    /// An idle read, nanoseconds.
    pub rtt_ns: u64,
    /// Part of the line's goodput that is offered.
    pub offered: f64,
    /// How long it is counted.
    pub ns: u64,
    /// Seed of everything random.
    pub seed: u64,
}

/// What came of a load, in parts of the line's goodput.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Accepted {
    /// What came.
    pub offered: f64,
    /// What succeeded.
    pub accepted: f64,
    /// Commands that found no free slot, or no window in time.
    pub shed: u64,
    /// A hash of every frame and its time.
    pub trace: u64,
}

/// Nanoseconds until the next of events that come by a Poisson process, `mean_ns` apart.
pub(super) fn gap_ns(random: &mut Random, mean_ns: f64) -> u64 {
    // From 2^-53 to 1: 53 bits, as many as a double holds.
    let uniform = ((random.bits() >> 11) + 1) as f64 / 9_007_199_254_740_992.0;
    (-uniform.ln() * mean_ns).round() as u64
}

/// Offers a load from one host to another.
pub fn accepted(load: &Load, make: MakeCipher<'_>) -> Accepted {
    let settings = Settings { write_debit: load.debit, ..Settings::paper() };
    let path = Path { settings, rtt_ns: load.rtt_ns, ..Path::simulation(load.seed) };
    let mut nodes = Nodes::new(&path, SLOTS, make);
    let mut random = Random::new(load.seed ^ 0x11a);
    let mean = f64::from(MAX_OPERATION) * 8e9 / (line_goodput() * load.offered);
    let (begin, end) = (Instant(WARM_UP_NS), Instant(WARM_UP_NS + load.ns));
    let (mut offered, mut done, mut shed) = (0_u64, 0_u64, 0_u64);
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
            let (kind, size) = (load.kind, MAX_OPERATION);
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

/// Reads of 64 bytes in a second of a program that keeps all of its slots in use.
pub fn rate_of_slots(slots: u16, ns: u64, make: MakeCipher<'_>) -> f64 {
    let mut nodes = Nodes::new(&Path::simulation(0), slots, make);
    let wanted = Wanted { server: 0, kind: Kind::Read, class: Class::Latency, size: 64, offset: 0 };
    let (begin, end) = (Instant(WARM_UP_NS), Instant(WARM_UP_NS + ns));
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
