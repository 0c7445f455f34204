//! The arm of the conformance bodies over real ports: two contexts in one process, whose queue pairs have one
//! service.

use remora_conformance::{Arm, Buffer};
use remora_fabric::Settings;
use remora_verbs::{
    Access, CompletionQueue, Context, Counters, CreateError, DatagramQueuePair, Device, EMPTY, Endpoint, GRH,
    MemoryRegion, Modify, PostError, ProtectionDomain, QpOptions, QueueError, QueuePair, ReceiveRequest,
    RemoteQueue, Service, Srq, SrqOptions, State, Tally, WorkCompletion, WorkRequest, XrcDomain,
    XrcInitiator, XrcTarget,
};
use remora_wire::Qpn;
use remora_wire::frame::{Peer, Route};
use std::time::{Duration, Instant};

/// Turns without progress before a run fails: more than a minute.
pub(crate) const PATIENCE: u64 = 50_000_000;

/// An end of a pair, by the kind of service.
#[allow(clippy::large_enum_variant, reason = "there are six of them")]
pub(crate) enum Ends {
    Connected(Service, QueuePair),
    Datagrams(DatagramQueuePair, RemoteQueue),
    Extended(XrcInitiator, XrcTarget, Srq),
}

/// Two contexts in one process, whose queue pairs have one service.
pub(crate) struct Services {
    service: Service,
    pub sides: [(Context, ProtectionDomain, XrcDomain); 2],
    pairs: Vec<[(Ends, CompletionQueue); 2]>,
    regions: Vec<Option<MemoryRegion>>,
    /// Upper limit of the time that a frame is on its way while the NICs are driven.
    longest_way: Duration,
}

/// Longer than the rules of `bad_world` delay any frame, and longer than the thread of an engine with frames
/// waits for a core.
const LONGEST_WAY: Duration = Duration::from_millis(20);

impl Services {
    pub(crate) fn new(service: Service, devices: [&Device; 2]) -> Services {
        Services::of(service, devices.map(|device| device.open().unwrap()))
    }

    /// Builds an arm of open contexts.
    pub(crate) fn of(service: Service, contexts: [Context; 2]) -> Services {
        let sides = contexts.map(|context| {
            let domain = context.alloc_pd().unwrap();
            let xrc = context.open_xrc_domain(0).unwrap();
            (context, domain, xrc)
        });
        Services { service, sides, pairs: Vec::new(), regions: Vec::new(), longest_way: Duration::ZERO }
    }

    /// Marks an arm as one over links that delay frames, or with NICs that polling does not drive.
    pub(crate) fn slow(self) -> Services {
        Services { longest_way: LONGEST_WAY, ..self }
    }

    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.sides.iter().for_each(|(context, _, _)| sum.add(&context.counters()));
        sum
    }

    /// Returns the sum of the faults that both ports injected.
    pub(crate) fn faults(&self) -> Tally {
        let mut sum = Tally::default();
        self.sides.iter().for_each(|(context, _, _)| sum.sum(&context.port_counters().faults));
        sum
    }

    fn extended(&self, cqs: &[CompletionQueue; 2], settings: &Settings) -> [Ends; 2] {
        let options = options(settings);
        let make = |side: usize| {
            let (_, domain, xrc) = &self.sides[side];
            let initiator = domain.create_xrc_initiator(&cqs[side], &options).unwrap();
            (initiator, xrc.create_target(&options).unwrap(), self.queue(side, &cqs[side], settings))
        };
        let (first, first_target, first_srq) = make(0);
        let (second, second_target, second_srq) = make(1);
        let (first, second_target) = XrcInitiator::connect_pair(first, second_target).unwrap();
        let (second, first_target) = XrcInitiator::connect_pair(second, first_target).unwrap();
        [Ends::Extended(first, first_target, first_srq), Ends::Extended(second, second_target, second_srq)]
    }

    fn queue(&self, side: usize, cq: &CompletionQueue, settings: &Settings) -> Srq {
        let (_, domain, xrc) = &self.sides[side];
        let options = SrqOptions { max_wr: settings.receives, max_sge: settings.receive_max_sge, engine: 0 };
        domain.create_xrc_srq(xrc, cq, &options).unwrap()
    }
}

fn options(settings: &Settings) -> QpOptions {
    QpOptions {
        max_send_wr: settings.send_slots,
        max_recv_wr: settings.receives,
        max_send_sge: settings.max_sge,
        max_recv_sge: settings.receive_max_sge,
        max_inline: settings.max_inline,
        signal_all: settings.signal_all,
        access: settings.access,
        path_mtu: settings.mtu,
        max_rd_atomic: settings.max_rd_atomic,
        max_dest_rd_atomic: settings.max_dest_rd_atomic,
        timeout: settings.timeout,
        retry_cnt: settings.retry_cnt,
        rnr_retry: settings.rnr_retry,
        min_rnr_timer: settings.min_rnr_timer,
        irn: settings.irn.is_some(),
        qkey: settings.qkey,
        ..QpOptions::default()
    }
}

fn queue_error(error: PostError) -> QueueError {
    match error {
        PostError::Queue(error) => error,
        other => panic!("{other}"),
    }
}

fn to(state: State) -> Modify {
    Modify { state: Some(state), ..Modify::default() }
}

impl Ends {
    /// Applies a change to each queue pair of this end.
    fn modify(&mut self, change: &Modify) -> Result<(), CreateError> {
        match self {
            Ends::Connected(_, pair) => pair.modify(change),
            Ends::Datagrams(pair, _) => pair.modify(change),
            Ends::Extended(initiator, target, _) => {
                initiator.modify(change).and_then(|()| target.modify(change))
            }
        }
    }

    /// The numbers of the sending and the serving queue pair.
    fn numbers(&self) -> [u32; 2] {
        match self {
            Ends::Connected(_, pair) => [pair.number(); 2],
            Ends::Datagrams(pair, _) => [pair.number(); 2],
            Ends::Extended(initiator, target, _) => [initiator.number(), target.number()],
        }
    }

    /// Takes the queue pairs from RESET to RTS by the steps of `ibv_modify_qp`, with their earlier peers.
    fn bring_up(&mut self, peer: [u32; 2], psn: [u32; 2], settings: &Settings) {
        let [sender, server] = peer.map(Qpn::new);
        let nowhere = Route::new(Endpoint::default(), Endpoint::default());
        let nowhere = remora_verbs::AddressVector::new(Peer(0), nowhere);
        let up = |service, address: Option<_>, dest_qp, modify: &mut dyn FnMut(&Modify)| {
            remora_fabric::changes(service, address.unwrap(), dest_qp, psn, settings).iter().for_each(modify);
        };
        match self {
            Ends::Connected(service, pair) => {
                // IRN's reach is that of the peer.
                let irn = pair.agreement().and_then(|agreement| agreement.irn);
                let settings = Settings { irn, ..*settings };
                let changes =
                    remora_fabric::changes(*service, pair.address_vector().unwrap(), server, psn, &settings);
                changes.iter().for_each(|change| pair.modify(change).unwrap());
            }
            Ends::Datagrams(pair, _) => up(Service::Ud, Some(nowhere), server, &mut |change| {
                pair.modify(change).unwrap();
            }),
            Ends::Extended(initiator, target, _) => {
                up(Service::XrcInitiator, initiator.address_vector(), server, &mut |change| {
                    initiator.modify(change).unwrap();
                });
                up(Service::XrcTarget, target.address_vector(), sender, &mut |change| {
                    target.modify(change).unwrap();
                });
            }
        }
    }
}

impl Arm for Services {
    fn connect(&mut self, settings: &Settings) -> usize {
        let depth = 2 * (settings.send_slots + settings.receives);
        let cqs = self.sides.each_ref().map(|(context, _, _)| context.create_cq(depth).unwrap());
        let options = options(settings);
        let ends = match self.service {
            Service::Ud => {
                let make = |side: usize| {
                    self.sides[side].1.create_datagram_qp(&cqs[side], &cqs[side], &options).unwrap()
                };
                let one = make(0);
                let two = make(1);
                let (to_two, to_one) = DatagramQueuePair::resolve_pair(&one, &two).unwrap();
                [Ends::Datagrams(one, to_two), Ends::Datagrams(two, to_one)]
            }
            service @ (Service::Rc | Service::Uc) => {
                let make = |side: usize| {
                    let (_, domain, _) = &self.sides[side];
                    let cq = &cqs[side];
                    match service {
                        Service::Rc => domain.create_qp(cq, cq, &options).unwrap(),
                        _ => domain.create_unreliable_qp(cq, cq, &options).unwrap(),
                    }
                };
                let (one, two) = QueuePair::connect_pair(make(0), make(1)).unwrap();
                [Ends::Connected(service, one), Ends::Connected(service, two)]
            }
            _ => self.extended(&cqs, settings),
        };
        let [one, two] = ends;
        let [one_cq, two_cq] = cqs;
        self.pairs.push([(one, one_cq), (two, two_cq)]);
        self.pairs.len() - 1
    }

    fn reconnect(&mut self, pair: usize, settings: &Settings) {
        for (ends, _) in &mut self.pairs[pair] {
            ends.modify(&to(State::Reset)).unwrap();
        }
        // Frames that are still on their way belong to the old connection.
        self.settle();
        let numbers = self.pairs[pair].each_ref().map(|(ends, _)| ends.numbers());
        for side in 0..2 {
            let fresh = self.queue_again(side, pair, settings);
            let (ends, _) = &mut self.pairs[pair][side];
            if let (Ends::Extended(_, _, srq), Some(fresh)) = (&mut *ends, fresh) {
                *srq = fresh;
            }
            ends.bring_up(numbers[1 - side], [settings.psn[side], settings.psn[1 - side]], settings);
        }
    }

    fn fail(&mut self, side: usize, pair: usize) {
        match &mut self.pairs[pair][side].0 {
            Ends::Connected(Service::Rc, pair) => pair.fail(),
            ends => ends.modify(&to(State::Err)).unwrap(),
        }
    }

    fn register(&mut self, side: usize, len: usize, access: Access) -> Buffer {
        let region = self.sides[side].1.allocate(len, access).unwrap();
        let key = region.rkey();
        let address = region.address();
        self.regions.push(Some(region));
        Buffer { handle: self.regions.len() - 1, side, key, address, len }
    }

    fn deregister(&mut self, buffer: &Buffer) {
        self.regions[buffer.handle] = None;
    }

    fn store(&mut self, buffer: &Buffer, offset: usize, bytes: &[u8]) {
        self.regions[buffer.handle].as_ref().unwrap().write(offset, bytes).unwrap();
    }

    fn load(&mut self, buffer: &Buffer, offset: usize, out: &mut [u8]) {
        self.regions[buffer.handle].as_ref().unwrap().read(offset, out).unwrap();
    }

    fn post(&mut self, side: usize, pair: usize, request: &WorkRequest<'_>) -> Result<(), QueueError> {
        let theirs = match &self.pairs[pair][1 - side].0 {
            Ends::Extended(_, _, srq) => srq.number(),
            _ => 0,
        };
        let posted = match &mut self.pairs[pair][side].0 {
            Ends::Connected(_, pair) => pair.post_send(request),
            Ends::Datagrams(pair, peer) => pair.post_send_to(request, peer),
            Ends::Extended(initiator, _, _) => initiator.post_send(request, theirs),
        };
        posted.map_err(queue_error)
    }

    fn post_receive(
        &mut self,
        side: usize,
        pair: usize,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), QueueError> {
        let posted = match &mut self.pairs[pair][side].0 {
            Ends::Connected(_, pair) => pair.post_recv(request),
            Ends::Datagrams(pair, _) => pair.post_recv(request),
            Ends::Extended(_, _, srq) => srq.post_recv(request),
        };
        posted.map_err(queue_error)
    }

    fn poll(&mut self, side: usize, pair: usize) -> Option<WorkCompletion> {
        let mut done = [EMPTY; 1];
        (self.pairs[pair][side].1.poll(&mut done).unwrap() == 1).then_some(done[0])
    }

    fn pass(&mut self) {
        // Polling for nothing drives the NICs.
        for (_, cq) in self.pairs.iter_mut().flatten() {
            cq.poll(&mut []).unwrap();
        }
    }

    fn cut(&mut self, _: bool) -> bool {
        false
    }

    fn path_mtu(&self) -> u32 {
        self.sides.iter().map(|(context, _, _)| context.port().path_mtu).fold(4096, u32::min)
    }

    fn shares_receives(&self) -> bool {
        self.service == Service::XrcInitiator
    }

    fn resume(&mut self, side: usize, pair: usize) {
        self.pairs[pair][side].0.modify(&to(State::Rts)).unwrap();
    }

    fn prefix(&self) -> usize {
        if self.service == Service::Ud { GRH } else { 0 }
    }

    fn longest(&self) -> Option<usize> {
        (self.service == Service::Ud).then(|| self.sides[0].0.port().path_mtu as usize)
    }

    fn settle(&mut self) {
        let frames = |sides: &[(Context, ProtectionDomain, XrcDomain); 2]| {
            sides.each_ref().map(|(context, _, _)| context.port_counters().frames_received)
        };
        let mut seen = frames(&self.sides);
        let mut over = Instant::now() + self.longest_way;
        loop {
            for _ in 0..1000 {
                self.pass();
            }
            if seen != frames(&self.sides) {
                (seen, over) = (frames(&self.sides), Instant::now() + self.longest_way);
            } else if Instant::now() >= over {
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl Services {
    /// Creates a shared receive queue for a new connection, because nothing flushes the receives of the old
    /// queue.
    fn queue_again(&self, side: usize, pair: usize, settings: &Settings) -> Option<Srq> {
        let (ends, cq) = &self.pairs[pair][side];
        matches!(ends, Ends::Extended(..)).then(|| self.queue(side, cq, settings))
    }
}
