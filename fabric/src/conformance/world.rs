//! The simulated world as an arm of the body.

use memory::Access;
use nic::{PostError, ReceiveRequest, WorkCompletion, WorkRequest};
use transport::state::State;
use wire::frame::Start;

use super::{Arm, Buffer};
use crate::Random;
use crate::fault::{Action, Rule, Rules};
use crate::link::LinkConfig;
use crate::program::{CompletionQueue, QueuePair, Region, Settings};
use crate::world::{Config, World};

/// A world of two nodes, side 0 and side 1.
pub struct WorldArm {
    /// The world.
    pub world: World,
    pairs: Vec<[(QueuePair, CompletionQueue); 2]>,
    regions: Vec<Region>,
}

impl WorldArm {
    /// Over a world of two nodes.
    pub fn new(world: World) -> WorldArm {
        WorldArm { world, pairs: Vec::new(), regions: Vec::new() }
    }
}

/// A world that is bad in a way of its own: loss up to 10 %, duplication, reordering, delay and corruption, any rate and
/// latency, IPv4 or IPv6, frames that begin anywhere.
pub fn bad_world(seed: u64) -> Config {
    let mut random = Random::new(seed ^ 0x0bad_0bad);
    let mut rate =
        |most: f64| if random.chance(0.8) { random.below(1000) as f64 / 1000.0 * most } else { 0.0 };
    let mut rules = vec![
        Rule::chance(Action::Drop, rate(0.1)),
        Rule::chance(Action::Duplicate, rate(0.05)),
        Rule::chance(Action::Reorder { frames: 3 }, rate(0.05)),
        Rule::chance(Action::Delay { min_ns: 500, max_ns: 40_000 }, rate(0.02)),
        // Later than the timeout.
        Rule::chance(Action::Delay { min_ns: 3_000_000, max_ns: 6_000_000 }, rate(0.002)),
        Rule::chance(Action::Corrupt, rate(0.03)),
    ];
    rules.retain(|rule| rule.probability > 0.0);
    let window = random.pick(&[16, 64, 256]);
    Config {
        seed,
        link: LinkConfig {
            latency_ns: random.between(200, 4000),
            rate: random.pick(&[0, 10_000_000_000, 100_000_000_000]),
            queue: random.pick(&[4, 16, 64]),
        },
        rules: Rules::of(rules),
        start: random.pick(&[Start::Ip, Start::Ip, Start::Bth, Start::Ethernet]),
        ipv6: random.chance(0.3),
        nic: nic::Config { window, read_piece: random.pick(&[4, 16, 64]), ..Config::default().nic },
        ..Config::default()
    }
}

impl Arm for WorldArm {
    fn connect(&mut self, settings: &Settings) -> usize {
        self.pairs.push(self.world.pair(0, 1, settings));
        self.pairs.len() - 1
    }

    fn reconnect(&mut self, pair: usize, settings: &Settings) {
        let [(left, _), (right, _)] = self.pairs[pair];
        for qp in [left, right] {
            self.world.bring(qp, State::Reset);
        }
        // What is still on its way belongs to the old connection.
        self.world.run_for(20_000_000);
        self.world.connect(left, right, settings);
    }

    fn fail(&mut self, side: usize, pair: usize) {
        self.world.bring(self.pairs[pair][side].0, State::Err);
    }

    fn register(&mut self, side: usize, len: usize, access: Access) -> Buffer {
        let region = self.world.register(side, len, access);
        let (key, address) = (region.key, region.address);
        self.regions.push(region);
        Buffer { handle: self.regions.len() - 1, side, key, address, len }
    }

    fn deregister(&mut self, buffer: &Buffer) {
        self.world.deregister(&self.regions[buffer.handle]);
    }

    fn store(&mut self, buffer: &Buffer, offset: usize, bytes: &[u8]) {
        self.regions[buffer.handle].store(offset, bytes);
    }

    fn load(&mut self, buffer: &Buffer, offset: usize, out: &mut [u8]) {
        self.regions[buffer.handle].bytes.read(offset, out).expect("within the region");
    }

    fn post(&mut self, side: usize, pair: usize, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.world.post(self.pairs[pair][side].0, request)
    }

    fn post_receive(
        &mut self,
        side: usize,
        pair: usize,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        self.world.post_receive(self.pairs[pair][side].0, request)
    }

    fn poll(&mut self, side: usize, pair: usize) -> Option<WorkCompletion> {
        self.world.poll(self.pairs[pair][side].1)
    }

    fn pass(&mut self) {
        // When nothing happens by itself, a moment passes all the same: the program may be about to do something.
        if !self.world.step() {
            self.world.run_for(1_000);
        }
    }

    fn cut(&mut self, cut: bool) -> bool {
        self.world.cut(0, 1, cut);
        self.world.cut(1, 0, cut);
        true
    }
}
