//! Reads at line rate through a network with jitter, without congestion control (1RMA paper, Figure 16a, b).

use remora_fault::{Action, Rule, Rules};
use remora_transport::Instant;
use remora_transport::rma::{Settings, Status};
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::path::{MakeCipher, Nodes, Path, Wanted, chunk_ns, line_goodput};

/// Command slots: all of an engine. More than the timers let be in use at line rate.
const SLOTS: u16 = 256;
const WARM_UP_NS: u64 = 50_000;

/// A solicitation window, and how late data comes.
#[derive(Copy, Clone, Debug)]
pub struct Jitter {
    /// Bytes of the window.
    pub window: u32,
    /// Each frame of data comes later by up to so many nanoseconds, evenly distributed.
    pub jitter_ns: u64,
    /// How long it is counted.
    pub ns: u64,
    /// Seed of everything random.
    pub seed: u64,
}

/// What became of the reads, in parts of those that were issued.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Shed {
    /// Part of the line's goodput that succeeded.
    pub goodput: f64,
    /// Never sent: the window was full for too long.
    pub dispatch_timeouts: f64,
    /// Sent, and not answered in time.
    pub timeouts: f64,
    /// Refused by the server.
    pub nacks: f64,
    /// Found no free slot.
    pub unissued: f64,
    /// A hash of every frame and its time.
    pub trace: u64,
}

/// A client issues a read of 4 KB each time that 4 KB cross the line.
pub fn run(jitter: &Jitter, make: MakeCipher<'_>) -> Shed {
    let action = Action::Delay { min_ns: 0, max_ns: jitter.jitter_ns };
    let data = Rule { opcodes: vec![Kind::Data as u8], ..Rule::new(action) };
    let rules = if jitter.jitter_ns > 0 { Rules::of(vec![data]) } else { Rules::default() };
    let settings = Settings { window: jitter.window, ..Settings::paper() };
    let path = Path { rules, settings, ..Path::simulation(jitter.seed) };
    let mut nodes = Nodes::new(&path, SLOTS, make);
    let (begin, end) = (Instant(WARM_UP_NS), Instant(WARM_UP_NS + jitter.ns));
    let (mut ended, mut unissued, mut number) = ([0_u64; Status::ALL.len()], 0_u64, 0_u64);
    // When each command that has a slot was issued: what was issued earlier does not count.
    let mut begun = vec![Instant(0); usize::from(SLOTS)];
    let mut done = 0_u64;
    while nodes.world.now() < end {
        while let Some(completion) = nodes.poll() {
            nodes.free.push_back(completion.slot);
            done += u64::from(nodes.world.now() >= begin && completion.status == Status::Ok);
            if begun[usize::from(completion.slot)] >= begin {
                ended[completion.status as usize] += 1;
            }
        }
        if nodes.world.now().0 >= number * chunk_ns() {
            let offset = number * u64::from(MAX_OPERATION);
            let (now, slot) = (nodes.world.now(), nodes.free.front().copied());
            let class = Class::Latency;
            let wanted = Wanted { server: 0, kind: Kind::Read, class, size: MAX_OPERATION, offset };
            if let Some(slot) = slot.filter(|_| nodes.issue_any(&wanted)) {
                begun[usize::from(slot)] = now;
            } else if now >= begin {
                unissued += 1;
            }
            number += 1;
        }
        nodes.world.step_until(end.min(Instant(number * chunk_ns())));
    }
    let all = (ended.iter().sum::<u64>() + unissued).max(1) as f64;
    let part = |status: Status| ended[status as usize] as f64 / all;
    let bits = done as f64 * f64::from(MAX_OPERATION) * 8e9;
    Shed {
        goodput: bits / jitter.ns as f64 / line_goodput(),
        dispatch_timeouts: part(Status::DispatchTimeout),
        timeouts: part(Status::Timeout),
        nacks: part(Status::Nack),
        unissued: unissued as f64 / all,
        trace: nodes.world.trace(),
    }
}
