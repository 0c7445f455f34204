//! Reads at line rate in a network with jitter, without congestion control (1RMA paper, Figure 16a, b).

use remora_fault::{Action, Rule, Rules};
use remora_transport::Instant;
use remora_transport::rma::{Settings, Status};
use remora_wire::rma::{Class, Kind, MAX_OPERATION};

use super::path::{MakeCipher, Nodes, Path, Wanted, chunk_ns, line_goodput};

/// Command slots: all that an engine has, and more than can be in use at line rate with these timers.
const SLOTS: u16 = 256;
const WARM_UP_NS: u64 = 50_000;

/// The parameters of the experiment.
#[derive(Copy, Clone, Debug)]
pub struct Jitter {
    /// Size of the solicitation window, in bytes.
    pub window: u32,
    /// Largest additional delay of a data frame in nanoseconds; delays are uniformly distributed from 0.
    pub jitter_ns: u64,
    /// Duration of the measurement.
    pub ns: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// The results of the experiment. All but goodput and trace are shares of all reads.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Shed {
    /// Goodput of the successful reads, as a share of the line's goodput.
    pub goodput: f64,
    /// Reads that were never sent, because the window was full for too long.
    pub dispatch_timeouts: f64,
    /// Reads that were sent but not answered in time.
    pub timeouts: f64,
    /// Reads that the server rejected.
    pub nacks: f64,
    /// Reads for which no slot was free.
    pub unissued: f64,
    /// Hash of all frames and their times.
    pub trace: u64,
}

/// Runs the experiment: a client issues a read of 4 KB in each interval in which the line can carry 4 KB.
pub fn run(jitter: &Jitter, make: MakeCipher<'_>) -> Shed {
    let action = Action::Delay { min_ns: 0, max_ns: jitter.jitter_ns };
    let data = Rule { opcodes: vec![Kind::Data as u8], ..Rule::new(action) };
    let rules = if jitter.jitter_ns > 0 { Rules::of(vec![data]) } else { Rules::default() };
    let settings = Settings { window: jitter.window, ..Settings::paper() };
    let path = Path { rules, settings, ..Path::simulation(jitter.seed) };
    let mut nodes = Nodes::new(&path, SLOTS, make);
    let begin = Instant(WARM_UP_NS);
    let end = Instant(WARM_UP_NS + jitter.ns);
    let mut ended = [0_u64; Status::ALL.len()];
    let mut unissued = 0_u64;
    let mut number = 0_u64;
    // Start of the command in each slot. Commands that started before the measurement do not count.
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
            let now = nodes.world.now();
            let slot = nodes.free.front().copied();
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
