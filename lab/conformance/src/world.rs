//! The simulated world as an arm of the conformance test.

use remora_memory::Access;
use remora_nic::{
    Command, Destination, GRH, PostError, ReceiveRequest, Service, Target, WorkCompletion, WorkRequest,
    XrcSrq,
};
use remora_transport::state::State;
use remora_wire::frame::Start;

use super::{Arm, Buffer};
use remora_fabric::LinkConfig;
use remora_fabric::program::{CompletionQueue, QueuePair, Region, Settings, SharedQueue};
use remora_fabric::{Config, World};
use remora_fault::Random;
use remora_fault::{Action, Rule, Rules};

/// An end of a pair: its sending queue pair, the queue pair that responds to the peer (the same, except for
/// XRC), and its receive queue.
#[derive(Copy, Clone)]
struct Endpoint {
    sender: QueuePair,
    server: QueuePair,
    srq: Option<SharedQueue>,
    cq: CompletionQueue,
    /// Address handle for the other side (datagrams).
    handle: u32,
}

/// A simulated world of two nodes, side 0 and side 1, with queue pairs of one service.
pub struct WorldArm {
    /// The simulated world.
    pub world: World,
    service: Service,
    /// XRC domain of each side.
    domains: [u32; 2],
    pairs: Vec<[Endpoint; 2]>,
    regions: Vec<Region>,
    /// Time between a post and the program's next action, in nanoseconds.
    head_start: u64,
}

impl WorldArm {
    /// Returns an arm over a world of two nodes, with reliable connections.
    pub fn new(world: World) -> WorldArm {
        WorldArm::of(Service::Rc, world)
    }

    /// Returns an arm with queue pairs of this service; for XRC, the service of the initiators.
    ///
    /// # Panics
    /// If a NIC has no XRC domain left.
    pub fn of(service: Service, mut world: World) -> WorldArm {
        let domains = [0, 1].map(|node| {
            world.ask::<u32>(node, Command::AllocXrcDomain).expect("an XRC domain for each side")
        });
        WorldArm { world, service, domains, pairs: Vec::new(), regions: Vec::new(), head_start: 0 }
    }

    /// Returns the arm with NICs that are faster than their program: `head_start` nanoseconds pass between a
    /// post and the program's next action.
    #[must_use]
    pub fn quicker_by(self, head_start: u64) -> WorldArm {
        WorldArm { head_start, ..self }
    }

    fn is_extended(&self) -> bool {
        self.service == Service::XrcInitiator
    }

    fn end(&mut self, side: usize, settings: &Settings) -> Endpoint {
        // Slots are freed as soon as the NIC has executed them, so there may be more completions than slots.
        let cq = self.world.create_cq(side, 2 * (settings.send_slots + settings.receives));
        let made = self.world.create_qp_of(self.service, cq, cq, None, settings);
        let sender = made.expect("space for a queue pair");
        let server = match self.is_extended() {
            true => self.world.create_xrc_target(side, self.domains[side]).expect("space for a target"),
            false => sender,
        };
        let srq = self.is_extended().then(|| self.shared_queue(side, cq, settings));
        let handle = match self.service {
            Service::Ud => self.world.create_address_handle(side, 1 - side).expect("space for a handle"),
            _ => 0,
        };
        Endpoint { sender, server, srq, cq, handle }
    }

    fn shared_queue(&mut self, side: usize, cq: CompletionQueue, settings: &Settings) -> SharedQueue {
        let xrc = XrcSrq { domain: self.domains[side], cq: cq.number };
        let made = self.world.create_srq(side, settings.receives, settings.receive_max_sge, Some(xrc));
        made.expect("space for a shared receive queue")
    }

    fn join(&mut self, ends: &[Endpoint; 2], settings: &Settings) {
        if self.service == Service::Ud {
            ends.iter()
                .zip(settings.psn)
                .for_each(|(end, psn)| self.world.bring_up(end.sender, psn, settings));
            return;
        }
        self.world.connect(ends[0].sender, ends[1].server, settings);
        if self.is_extended() {
            let psn = [settings.psn[1], settings.psn[0]];
            self.world.connect(ends[1].sender, ends[0].server, &Settings { psn, ..*settings });
        }
    }
}

/// Returns the configuration of a world with random faults: loss up to 10 %, duplication, reordering, delay
/// and corruption. Rate, latency, IP version and the start of frames are random too.
pub fn bad_world(seed: u64) -> Config {
    let mut random = Random::new(seed ^ 0x0bad_0bad);
    let mut rate =
        |most: f64| if random.chance(0.8) { random.below(1000) as f64 / 1000.0 * most } else { 0.0 };
    let mut rules = vec![
        Rule::chance(Action::Drop, rate(0.1)),
        Rule::chance(Action::Duplicate, rate(0.05)),
        Rule::chance(Action::Reorder { frames: 3 }, rate(0.05)),
        Rule::chance(Action::Delay { min_ns: 500, max_ns: 40_000 }, rate(0.02)),
        // A delay longer than the ACK timeout.
        Rule::chance(Action::Delay { min_ns: 3_000_000, max_ns: 6_000_000 }, rate(0.002)),
        Rule::chance(Action::Corrupt, rate(0.03)),
    ];
    rules.retain(|rule| rule.occasions.probability > 0.0);
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
        nic: remora_nic::Config { window, read_piece: random.pick(&[4, 16, 64]), ..Config::default().nic },
        ..Config::default()
    }
}

impl Arm for WorldArm {
    fn connect(&mut self, settings: &Settings) -> usize {
        let ends = [self.end(0, settings), self.end(1, settings)];
        self.join(&ends, settings);
        self.pairs.push(ends);
        self.pairs.len() - 1
    }

    fn reconnect(&mut self, pair: usize, settings: &Settings) {
        let mut ends = self.pairs[pair];
        for end in &ends {
            self.world.bring(end.sender, State::Reset);
            self.world.bring(end.server, State::Reset);
        }
        // Frames in flight belong to the old connection.
        self.world.run_for(20_000_000);
        for (side, end) in ends.iter_mut().enumerate() {
            if let Some(srq) = end.srq {
                self.world
                    .ask::<()>(side, Command::DestroySrq(srq.number))
                    .expect("no queue pair uses the queue");
                end.srq = Some(self.shared_queue(side, end.cq, settings));
            }
        }
        self.join(&ends, settings);
        self.pairs[pair] = ends;
    }

    fn fail(&mut self, side: usize, pair: usize) {
        let end = self.pairs[pair][side];
        self.world.bring(end.sender, State::Err);
        self.world.bring(end.server, State::Err);
    }

    fn register(&mut self, side: usize, len: usize, access: Access) -> Buffer {
        let region = self.world.register(side, len, access);
        let key = region.key;
        let address = region.address;
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
        let own = self.pairs[pair][side];
        let peer = self.pairs[pair][1 - side];
        let target = match (self.service, peer.srq) {
            (Service::Ud, _) => {
                let destination = Destination { qp: peer.sender.number, qkey: Settings::default().qkey };
                Target::Datagram { handle: own.handle, to: destination }
            }
            (_, Some(srq)) => Target::Srq(srq.number),
            _ => Target::Peer,
        };
        self.world.post_to(own.sender, request, &target)?;
        if self.head_start > 0 {
            self.world.run_for(self.head_start);
        }
        Ok(())
    }

    fn post_receive(
        &mut self,
        side: usize,
        pair: usize,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError> {
        let end = self.pairs[pair][side];
        match end.srq {
            Some(srq) => self.world.post_shared(srq, request),
            None => self.world.post_receive(end.sender, request),
        }
    }

    fn poll(&mut self, side: usize, pair: usize) -> Option<WorkCompletion> {
        self.world.poll(self.pairs[pair][side].cq)
    }

    fn shares_receives(&self) -> bool {
        self.is_extended()
    }

    fn resume(&mut self, side: usize, pair: usize) {
        self.world.bring(self.pairs[pair][side].sender, State::Rts);
    }

    fn prefix(&self) -> usize {
        if self.service == Service::Ud { GRH } else { 0 }
    }

    fn longest(&self) -> Option<usize> {
        (self.service == Service::Ud).then_some(remora_nic::Config::default().mtu as usize)
    }

    fn pass(&mut self) {
        // If no event is pending, time still passes, because the program may act next.
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
