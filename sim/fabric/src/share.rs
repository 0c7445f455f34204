//! How flows share a bottleneck, in virtual time with the NIC's own code. Each flow is a node that writes
//! without end to the same target, through a switch that marks. Flows begin one after the other.

use remora_nic::{Flags, Modify, Operation, Payload, Status, WorkRequest};
use remora_transport::congestion;
use remora_transport::rc::irn;
use remora_transport::{Counters, Instant};

use crate::link::LinkConfig;
use crate::program::{ALL, CompletionQueue, QueuePair, Region, Settings};
use crate::switch::{Marks, SwitchConfig};
use crate::world::{Config, World};

/// Payload of a packet.
pub const MTU: u32 = 1024;
/// The links of [`Scenario::two_flows`], bits per second.
pub const RATE: u64 = 40_000_000_000;
/// Bytes of one WRITE, and how many a flow keeps posted.
const MESSAGE: usize = 64 << 10;
const POSTED: u64 = 16;

/// The parameters of a scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of flows.
    pub flows: usize,
    /// How all of them control their rate.
    pub congestion: congestion::Settings,
    /// IRN at both ends, instead of going back N.
    pub irn: Option<irn::Settings>,
    /// The flows' links; the switch's port has the same rate.
    pub link: LinkConfig,
    /// The switch between the flows.
    pub switch: SwitchConfig,
    /// Nanoseconds from one flow's beginning to the next one's.
    pub apart_ns: u64,
    /// Nanoseconds from the last flow's beginning to the end.
    pub last_ns: u64,
    /// Nanoseconds between two samples.
    pub sample_ns: u64,
    /// Seed of everything random.
    pub seed: u64,
}

impl Scenario {
    /// Two flows, the second 2 ms behind the first, over a switch with 8 MiB and default [`Marks`]. A round
    /// trip takes 8 µs, and links have [`RATE`].
    pub fn two_flows(algorithm: congestion::Algorithm, seed: u64) -> Scenario {
        let latency_ns = 2_000;
        Scenario {
            flows: 2,
            congestion: congestion::Settings { algorithm, ..congestion::Settings::default() },
            irn: None,
            link: LinkConfig { latency_ns, rate: RATE, queue: 4 },
            switch: SwitchConfig { latency_ns, rate: RATE, buffer: 8 << 20, marks: Some(Marks::default()) },
            apart_ns: 2_000_000,
            last_ns: 40_000_000,
            sample_ns: 250_000,
            seed,
        }
    }
}

/// The traffic between two moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The later of them, nanoseconds from the beginning.
    pub at_ns: u64,
    /// What each flow sent, bits per second from BTH to ICRC.
    pub rates: Vec<f64>,
    /// Bytes that wait in the switch at that moment.
    pub queue: usize,
}

/// The result of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// One after the other.
    pub samples: Vec<Sample>,
    /// Most bytes that ever waited.
    pub most_queue: usize,
    /// Frames lost because the switch's buffer was full.
    pub dropped: u64,
    /// Frames that the switch marked.
    pub marked: u64,
    /// What all NICs counted.
    pub counters: Counters,
    /// A hash of every frame and its time.
    pub trace: u64,
}

impl Outcome {
    /// The flows' rates over the samples from `from_ns` on.
    pub fn rates(&self, from_ns: u64) -> Vec<f64> {
        let samples: Vec<&Sample> = self.samples.iter().filter(|sample| sample.at_ns > from_ns).collect();
        let flows = samples.first().map_or(0, |sample| sample.rates.len());
        let sum = |flow: usize| samples.iter().map(|sample| sample.rates[flow]).sum::<f64>();
        (0..flows).map(|flow| sum(flow) / samples.len() as f64).collect()
    }

    /// Most bytes that waited at a sample from `from_ns` on.
    pub fn queue(&self, from_ns: u64) -> usize {
        self.samples
            .iter()
            .filter(|sample| sample.at_ns > from_ns)
            .map(|sample| sample.queue)
            .max()
            .unwrap_or(0)
    }
}

/// Jain's index: 1 if all have the same, 1/n if one has all (Jain, Chiu, Hawe, 1984). 1 for nothing at all.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

struct Flow {
    pair: QueuePair,
    cq: CompletionQueue,
    from: Region,
    to: Region,
    posted: u64,
}

impl Flow {
    fn new(world: &mut World, node: usize, settings: &Settings) -> Flow {
        let [(pair, cq), _] = world.pair(node, 0, settings);
        let (from, to) = (world.register(node, MESSAGE, ALL), world.register(0, MESSAGE, ALL));
        Flow { pair, cq, from, to, posted: 0 }
    }

    /// Keeps as many WRITEs posted as there may be.
    fn go_on(&mut self, world: &mut World) {
        while let Some(completion) = world.poll(self.cq) {
            assert_eq!(completion.status, Status::Success, "no scenario loses so much");
            self.posted -= 1;
        }
        if self.posted == POSTED {
            return;
        }
        let list = [self.from.sge(0, MESSAGE)];
        while self.posted < POSTED {
            let request = WorkRequest {
                id: 0,
                operation: Operation::Write(self.to.remote(0)),
                payload: Payload::Sges(&list),
                flags: Flags { signaled: true, ..Flags::default() },
            };
            world.post_quietly(self.pair, &request).expect("space for as many as are kept posted");
            self.posted += 1;
        }
        world.ring(self.pair);
    }
}

/// Runs it.
///
/// # Panics
/// If a WRITE fails: the switch's buffer loses all but everything.
pub fn run(scenario: &Scenario) -> Outcome {
    let defaults = Config::default().nic;
    let mut world = World::new(&Config {
        seed: scenario.seed,
        nodes: scenario.flows + 1,
        link: scenario.link,
        switch: Some(scenario.switch),
        nic: remora_nic::Config {
            congestion: congestion::Settings {
                algorithm: congestion::Algorithm::None,
                ..scenario.congestion
            },
            irn: scenario.irn.unwrap_or_default(),
            window: 1024,
            ..defaults
        },
        ..Config::default()
    });
    let settings = Settings {
        mtu: MTU,
        send_slots: 2 * POSTED as u32,
        receives: 1,
        irn: scenario.irn.map(|settings| settings.reach()),
        timeout: 12,
        ..Settings::default()
    };
    let mut flows = Vec::new();
    for node in 1..=scenario.flows {
        let flow = Flow::new(&mut world, node, &settings);
        let change = Modify { congestion: Some(scenario.congestion.algorithm), ..Modify::default() };
        world.modify(flow.pair, &change).expect("a control for a queue pair that is connected");
        flows.push(flow);
    }
    let mut samples = Vec::new();
    let mut sent = vec![0; scenario.flows];
    let end = scenario.apart_ns * (scenario.flows as u64 - 1) + scenario.last_ns;
    for number in 1..=end / scenario.sample_ns {
        let at_ns = number * scenario.sample_ns;
        let begun = ((at_ns - scenario.sample_ns) / scenario.apart_ns.max(1) + 1).min(scenario.flows as u64);
        advance(&mut world, &mut flows[..begun as usize], Instant(at_ns));
        let now: Vec<u64> = (1..=scenario.flows).map(|node| world.counters(node).sent_bytes).collect();
        let rate = |(now, before): (&u64, &u64)| (now - before) as f64 * 8e9 / scenario.sample_ns as f64;
        let rates = now.iter().zip(&sent).map(rate).collect();
        sent = now;
        samples.push(Sample { at_ns, rates, queue: world.queue(0).0 });
    }
    let mut counters = Counters::default();
    (0..=scenario.flows).for_each(|node| counters.add(&world.counters(node)));
    let ((dropped, most_queue), (_, marked)) = (world.overflow(0), world.queue(0));
    Outcome { samples, most_queue, dropped, marked, counters, trace: world.trace() }
}

/// Time advances to `until`, and the flows that have begun make progress.
fn advance(world: &mut World, flows: &mut [Flow], until: Instant) {
    flows.iter_mut().for_each(|flow| flow.go_on(world));
    while world.step_until(until) {
        flows.iter_mut().for_each(|flow| flow.go_on(world));
    }
}

#[cfg(test)]
mod tests;
