//! Experiments of loss, in virtual time with the NIC's own code (the IRN paper's §4).
//!
//! In [`exchange`] two nodes write to each other over a path of a given length that loses frames at random.
//! In [`incast`] many nodes write to one through a buffer that overflows.

use remora_nic::{Flags, Operation, Payload, Status, WorkRequest};
use remora_transport::rc::irn;
use remora_transport::{Counters, Instant};

use crate::link::LinkConfig;
use crate::program::{ALL, CompletionQueue, QueuePair, Region, Settings};
use crate::switch::SwitchConfig;
use crate::world::{Config, World};
use remora_fault::{Action, Rule, Rules};

/// Payload of a packet: RoCE's usual path MTU.
pub const MTU: u32 = 1024;
/// Packets of one WRITE.
pub const MESSAGE: u32 = 64;
/// WRITEs that a node keeps posted: more packets than any window of the paper's.
const POSTED: u32 = 64;
/// Headers and trailer of a packet in the middle of a WRITE over IRN: IPv4, UDP, BTH, RETH, ICRC.
const AROUND: u64 = 20 + 8 + 12 + 16 + 4;
/// The paper's links.
const RATE: u64 = 40_000_000_000;
/// Bandwidth-delay product of the path, in packets.
pub const BDP: u64 = 100;
/// Local ACK timeout of queue pairs that go back N: 262 µs, the code next to RTO_high. Over IRN the code only
/// limits the retries, so it is long there.
const TIMEOUTS: [u8; 2] = [6, 14];

/// The method of retransmission.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// A plain reliable connection.
    GoBackN,
    /// IRN with these settings at both ends.
    Irn(irn::Settings),
}

impl Machine {
    fn irn(&self) -> Option<irn::Settings> {
        match self {
            Machine::GoBackN => None,
            Machine::Irn(settings) => Some(*settings),
        }
    }

    fn nic(&self, window: u32) -> remora_nic::Config {
        let irn = self.irn().unwrap_or_default();
        remora_nic::Config { irn, window, ..Config::default().nic }
    }

    fn settings(&self) -> Settings {
        Settings {
            mtu: MTU,
            send_slots: 2 * POSTED,
            receives: 1,
            irn: self.irn().map(|settings| settings.reach()),
            timeout: TIMEOUTS[usize::from(self.irn().is_some())],
            ..Settings::default()
        }
    }
}

/// The result of an experiment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// From the first post to the last completion, nanoseconds.
    pub took_ns: u64,
    /// Payload that was to be carried, all directions together.
    pub bytes: u64,
    /// Everything that the NICs counted, together.
    pub counters: Counters,
    /// Frames lost: by the fault rules, or because a buffer was full.
    pub lost: u64,
    /// A hash of every frame and its time.
    pub trace: u64,
}

impl Outcome {
    /// Payload bits per second.
    pub fn goodput(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.took_ns as f64
    }
}

/// A node that writes to another.
struct Flow {
    pair: QueuePair,
    cq: CompletionQueue,
    from: Region,
    to: Region,
    /// Messages yet to be posted, and to complete.
    unposted: u32,
    unfinished: u32,
}

impl Flow {
    /// Posts until the send queue is full.
    fn post(&mut self, world: &mut World) {
        let most = self.unposted.min(POSTED.saturating_sub(self.unfinished - self.unposted));
        let list = [self.from.sge(0, (MESSAGE * MTU) as usize)];
        for _ in 0..most {
            let request = WorkRequest {
                id: u64::from(self.unposted),
                operation: Operation::Write(self.to.remote(0)),
                payload: Payload::Sges(&list),
                flags: Flags { signaled: true, ..Flags::default() },
            };
            world.post_quietly(self.pair, &request).expect("space for as many as are kept posted");
            self.unposted -= 1;
        }
        if most > 0 {
            world.ring(self.pair);
        }
    }

    /// Takes what has completed.
    fn poll(&mut self, world: &mut World) {
        let mut done = 0;
        while let Some(completion) = world.poll(self.cq) {
            assert_eq!(completion.status, Status::Success, "no experiment loses so much");
            done += 1;
        }
        if done > 0 {
            self.unfinished -= done;
            self.post(world);
        }
    }
}

fn flow(world: &mut World, pair: QueuePair, cq: CompletionQueue, to: usize, packets: u32) -> Flow {
    let len = (MESSAGE * MTU) as usize;
    let (from, to) = (world.register(pair.node, len, ALL), world.register(to, len, ALL));
    let messages = packets.div_ceil(MESSAGE);
    Flow { pair, cq, from, to, unposted: messages, unfinished: messages }
}

/// Runs until every flow has ended.
fn run(mut world: World, mut flows: Vec<Flow>) -> (Outcome, World) {
    let messages: u64 = flows.iter().map(|flow| u64::from(flow.unfinished)).sum();
    flows.iter_mut().for_each(|flow| flow.post(&mut world));
    while flows.iter().any(|flow| flow.unfinished > 0) {
        assert!(world.step(), "it comes to rest with work undone");
        flows.iter_mut().filter(|flow| flow.unfinished > 0).for_each(|flow| flow.poll(&mut world));
    }
    let mut counters = Counters::default();
    (0..world.nodes.len()).for_each(|node| counters.add(&world.counters(node)));
    let outcome = Outcome {
        took_ns: world.now().since(Instant(0)),
        bytes: messages * u64::from(MESSAGE * MTU),
        counters,
        lost: world.faults().dropped,
        trace: world.trace(),
    };
    (outcome, world)
}

/// Two nodes write to each other over a path of [`BDP`] packets, so that both report losses at once. Each
/// frame is lost with probability `loss`. Each node writes `packets` packets, rounded up to whole messages.
///
/// # Panics
/// If a request fails: the links lose nearly everything.
pub fn exchange(machine: &Machine, loss: f64, packets: u32, seed: u64) -> Outcome {
    let rules = if loss > 0.0 { vec![Rule::chance(Action::Drop, loss)] } else { Vec::new() };
    let mut world = World::new(&Config {
        seed,
        // As many frames as keep the link busy: a longer queue would only lengthen the path.
        link: LinkConfig { latency_ns: BDP * transmission_ns() / 2, rate: RATE, queue: 2 },
        rules: Rules::of(rules),
        nic: machine.nic(Config::default().nic.window),
        ..Config::default()
    });
    let [(left, left_cq), (right, right_cq)] = world.pair(0, 1, &machine.settings());
    let flows =
        vec![flow(&mut world, left, left_cq, 1, packets), flow(&mut world, right, right_cq, 0, packets)];
    run(world, flows).0
}

/// Nanoseconds that a full packet takes on a link.
fn transmission_ns() -> u64 {
    (u64::from(MTU) + AROUND) * 8_000_000_000 / RATE
}

/// `senders` nodes write `packets` packets each to one. Its port of the switch holds twice the
/// bandwidth-delay product, as in the paper. `seed` staggers the senders within a round trip.
pub fn incast(machine: &Machine, senders: usize, packets: u32, seed: u64) -> Outcome {
    let path = BDP * transmission_ns();
    let buffer = 2 * BDP as usize * (u64::from(MTU) + AROUND) as usize;
    let mut world = World::new(&Config {
        seed,
        nodes: senders + 1,
        link: LinkConfig { latency_ns: path / 4, rate: RATE, queue: 2 },
        switch: Some(SwitchConfig { latency_ns: path / 4, rate: RATE, buffer, marks: None }),
        // The window that the ablation without BDP-FC has left: what the bitmap remembers.
        nic: machine.nic(irn::Bitmap::BOUNDS.1),
        ..Config::default()
    });
    let ends: Vec<_> = (1..=senders).map(|node| world.pair(node, 0, &machine.settings())[0]).collect();
    let mut random = remora_fault::Random::new(seed);
    let mut flows = Vec::new();
    for (pair, cq) in ends {
        let mut flow = flow(&mut world, pair, cq, 0, packets);
        world.run_for(random.below(path / senders as u64 + 1));
        flow.post(&mut world);
        flows.push(flow);
    }
    let (outcome, world) = run(world, flows);
    Outcome { lost: outcome.lost + world.overflow(0).0, ..outcome }
}

#[cfg(test)]
mod tests;
