//! The conformance bodies of XRC, UC and UD over real ports, without faults and with faults. XRC delivers
//! exactly once, as RC does. A message of UC or UD arrives whole or not at all.

use crate::veth::{self, Veth};
use remora_conformance::{
    Arm, Buffer, Mishap, Options, Report, UnreliableReport, bad_world, run, run_unreliable,
};
use remora_fabric::Settings;
use remora_verbs::{
    Access, CompletionQueue, Context, Counters, CreateError, DatagramQueuePair, Device, EMPTY, Endpoint, GRH,
    MemoryRegion, Mode, Modify, PostError, ProtectionDomain, QpOptions, QueueError, QueuePair,
    ReceiveRequest, RemoteQueue, Rules, Service, Srq, SrqOptions, State, Status, Tally, WorkCompletion,
    WorkRequest, XrcDomain, XrcInitiator, XrcTarget,
};
use remora_wire::Qpn;
use remora_wire::frame::{Peer, Route};
use std::time::{Duration, Instant};

/// An end of a pair, by the kind of service.
#[allow(clippy::large_enum_variant, reason = "there are six of them")]
enum Ends {
    Connected(QueuePair),
    Datagrams(DatagramQueuePair, RemoteQueue),
    Extended(XrcInitiator, XrcTarget, Srq),
}

/// Two contexts in one process, whose queue pairs have one service.
struct Services {
    service: Service,
    sides: [(Context, ProtectionDomain, XrcDomain); 2],
    pairs: Vec<[(Ends, CompletionQueue); 2]>,
    regions: Vec<Option<MemoryRegion>>,
    /// Upper limit of the time that a frame is on its way while the NICs are driven.
    longest_way: Duration,
}

/// Longer than the rules of `bad_world` delay any frame, and longer than the thread of an engine with frames
/// waits for a core.
const LONGEST_WAY: Duration = Duration::from_millis(20);

impl Services {
    fn new(service: Service, devices: [&Device; 2]) -> Services {
        Services::of(service, devices.map(|device| device.open().unwrap()))
    }

    /// Builds an arm of open contexts.
    fn of(service: Service, contexts: [Context; 2]) -> Services {
        let sides = contexts.map(|context| {
            let domain = context.alloc_pd().unwrap();
            let xrc = context.open_xrc_domain(0).unwrap();
            (context, domain, xrc)
        });
        Services { service, sides, pairs: Vec::new(), regions: Vec::new(), longest_way: Duration::ZERO }
    }

    /// Marks an arm as one over links that delay frames, or with NICs that polling does not drive.
    fn slow(self) -> Services {
        Services { longest_way: LONGEST_WAY, ..self }
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.sides.iter().for_each(|(context, _, _)| sum.add(&context.counters()));
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
            Ends::Connected(pair) => pair.modify(change),
            Ends::Datagrams(pair, _) => pair.modify(change),
            Ends::Extended(initiator, target, _) => {
                initiator.modify(change).and_then(|()| target.modify(change))
            }
        }
    }

    /// The numbers of the sending and the serving queue pair.
    fn numbers(&self) -> [u32; 2] {
        match self {
            Ends::Connected(pair) => [pair.number(); 2],
            Ends::Datagrams(pair, _) => [pair.number(); 2],
            Ends::Extended(initiator, target, _) => [initiator.number(), target.number()],
        }
    }

    /// Takes the queue pairs from RESET to RTS by the steps of `ibv_modify_qp`, with their earlier peers.
    fn bring_up(&mut self, peer: [u32; 2], psn: [u32; 2], settings: &Settings) {
        let [sender, server] = peer.map(Qpn::new);
        let nowhere = Route::new(Endpoint::default(), Endpoint::default());
        let nowhere = remora_verbs::AddressVector::new(Peer(0), nowhere);
        let up = |service, address: Option<_>, to, modify: &mut dyn FnMut(&Modify)| {
            remora_fabric::changes(service, address.unwrap(), to, psn, settings).iter().for_each(modify);
        };
        match self {
            Ends::Connected(pair) => up(Service::Uc, pair.address_vector(), server, &mut |change| {
                pair.modify(change).unwrap();
            }),
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
            Service::Uc => {
                let make = |side: usize| {
                    self.sides[side].1.create_unreliable_qp(&cqs[side], &cqs[side], &options).unwrap()
                };
                let (one, two) = QueuePair::connect_pair(make(0), make(1)).unwrap();
                [Ends::Connected(one), Ends::Connected(two)]
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
        self.pairs[pair][side].0.modify(&to(State::Err)).unwrap();
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
            Ends::Connected(pair) => pair.post_send(request),
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
            Ends::Connected(pair) => pair.post_recv(request),
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

/// Turns without progress before a run fails: more than a minute.
const PATIENCE: u64 = 50_000_000;

/// The results of the seeds of one service.
#[derive(Debug, Default)]
struct Outcome {
    reliable: Report,
    unreliable: UnreliableReport,
    counters: Counters,
    faults: Tally,
}

/// Runs the body of a service, seed by seed. With `bad` links, the port of one side loses, duplicates,
/// reorders, delays and corrupts frames in both directions, differently for each seed.
fn body(service: Service, device: &Device, bad: bool, seeds: std::ops::Range<u64>, verbs: u64) -> Outcome {
    let open = |devices: [&Device; 2]| devices.map(|device| device.open().unwrap());
    body_between(service, [device, device], open, bad, seeds, verbs)
}

/// Runs the body between two devices, which `open` opens in their namespaces.
fn body_between(
    service: Service,
    devices: [&Device; 2],
    open: impl Fn([&Device; 2]) -> [Context; 2],
    bad: bool,
    seeds: std::ops::Range<u64>,
    verbs: u64,
) -> Outcome {
    // A high rate of mishaps, so that each kind occurs although there are few verbs.
    let options = Options { verbs, trouble: 0.6, patience: PATIENCE, ..Options::default() };
    let mut sum = Outcome::default();
    // Over a real port, timing decides which mishaps a seed meets. If ten seeds do not meet each kind, more
    // seeds are run.
    let others = seeds.end + 5_000..seeds.end + 5_015;
    for seed in seeds.clone().chain(others) {
        if seed >= seeds.end && met_all(service, &sum) {
            break;
        }
        let mut devices = devices.map(Device::clone);
        if bad {
            let side = &mut devices[seed as usize % 2];
            *side = side.clone().fault(Rules { seed, ..bad_world(seed).rules });
        }
        let arm = Services::of(service, open(devices.each_ref()));
        let mut arm = if bad { arm.slow() } else { arm };
        if service == Service::XrcInitiator {
            sum.reliable.add(&run(&mut arm, seed, &options));
        } else {
            sum.unreliable.add(&run_unreliable(&mut arm, seed, &options));
        }
        sum.counters.add(&arm.counters());
        for (context, _, _) in &arm.sides {
            sum.faults.sum(&context.port_counters().faults);
        }
    }
    sum
}

/// Returns whether each mishap that the service can have was met.
fn met_all(service: Service, outcome: &Outcome) -> bool {
    let met =
        |mishaps: &[Mishap]| mishaps.iter().all(|mishap| outcome.unreliable.mishaps.contains_key(mishap));
    match service {
        Service::Uc => met(&Mishap::ALL),
        Service::Ud => met(&Mishap::OF_DATAGRAMS),
        _ => unmet_of_xrc(outcome).is_empty(),
    }
}

/// Returns the cases that XRC did not meet, except those that need a link that can be cut, or a target that
/// ends in the middle of a message. Only in the latter case a receive of a shared queue is flushed.
fn unmet_of_xrc(outcome: &Outcome) -> Vec<String> {
    let mut missing: Vec<String> = outcome.reliable.missing();
    missing.retain(|what| !["Cut", "send RetryExceeded", "receive WrFlushed"].contains(&what.as_str()));
    missing
}

fn never(counted: &[(&'static str, u64)]) -> Vec<&'static str> {
    counted.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect()
}

const NOTHING: Vec<&str> = Vec::new();

/// Checks that each kind of fault was injected.
fn all_faults(faults: &Tally) {
    let counted = [
        ("dropped", faults.dropped),
        ("duplicated", faults.duplicated),
        ("reordered", faults.reordered),
        ("delayed", faults.delayed),
        ("corrupted", faults.corrupted),
    ];
    assert_eq!(never(&counted), NOTHING);
}

/// Checks that every case of XRC was met.
fn all_of_xrc(outcome: &Outcome, bad: bool) {
    println!("{outcome:?}");
    assert_eq!(unmet_of_xrc(outcome), NOTHING);
    let counters = &outcome.counters;
    if bad {
        all_faults(&outcome.faults);
        let counted = [
            ("timeout", counters.local_ack_timeout_err),
            ("sequence NAK", counters.packet_seq_err),
            ("RNR", counters.rnr_nak_retry_err),
            ("duplicate", counters.duplicate_request),
            ("gap", counters.out_of_sequence),
        ];
        assert_eq!(never(&counted), NOTHING);
    }
}

/// Checks that each verb was sent and has arrived, and that each mishap was met.
fn all_of(outcome: &Outcome, verbs: &[&str], mishaps: &[Mishap], bad: bool) {
    println!("{outcome:?}");
    let report = &outcome.unreliable;
    assert!(verbs.iter().all(|verb| report.sent.contains_key(verb)), "{:?}", report.sent);
    assert!(verbs.iter().all(|verb| *verb == "Write" || report.arrived.contains_key(verb)));
    let unmet: Vec<&Mishap> = mishaps.iter().filter(|mishap| !report.mishaps.contains_key(mishap)).collect();
    assert_eq!(unmet, Vec::<&Mishap>::new());
    for status in [Status::Success, Status::LocalProtection, Status::LocalQpOperation, Status::WrFlushed] {
        assert!(report.statuses.contains_key(&status), "no {status:?}");
    }
    assert!(report.arrivals() > report.messages() / 10);
    if bad {
        all_faults(&outcome.faults);
        assert!(outcome.counters.rx_dropped_messages > 0 && report.arrivals() < report.messages());
    }
}

const OF_UC: [&str; 4] = ["Send", "SendImm", "Write", "WriteImm"];
const OF_UD: [&str; 2] = ["Send", "SendImm"];

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap()
}

#[test]
fn xrc_over_shm() {
    all_of_xrc(&body(Service::XrcInitiator, &Device::shm(), false, 0..10, 1_500), false);
    all_of_xrc(&body(Service::XrcInitiator, &Device::shm(), true, 10..20, 1_500), true);
}

#[test]
fn xrc_over_udp() {
    all_of_xrc(&body(Service::XrcInitiator, &udp(), false, 100..110, 1_500), false);
    all_of_xrc(&body(Service::XrcInitiator, &udp(), true, 110..120, 1_500), true);
}

#[test]
fn uc_over_shm() {
    all_of(&body(Service::Uc, &Device::shm(), false, 200..210, 1_000), &OF_UC, &Mishap::ALL, false);
    all_of(&body(Service::Uc, &Device::shm(), true, 210..220, 1_000), &OF_UC, &Mishap::ALL, true);
}

#[test]
fn uc_over_udp() {
    all_of(&body(Service::Uc, &udp(), false, 300..310, 1_000), &OF_UC, &Mishap::ALL, false);
    let bad = body(Service::Uc, &udp(), true, 310..320, 1_000);
    all_of(&bad, &OF_UC, &Mishap::ALL, true);
    assert!(bad.counters.rx_icrc_encapsulated > 0 && bad.counters.out_of_sequence > 0);
}

#[test]
fn ud_over_shm() {
    let mishaps = &Mishap::OF_DATAGRAMS;
    all_of(&body(Service::Ud, &Device::shm(), false, 400..410, 1_000), &OF_UD, mishaps, false);
    all_of(&body(Service::Ud, &Device::shm(), true, 410..420, 1_000), &OF_UD, mishaps, true);
}

#[test]
fn ud_over_udp() {
    let mishaps = &Mishap::OF_DATAGRAMS;
    all_of(&body(Service::Ud, &udp(), false, 500..510, 1_000), &OF_UD, mishaps, false);
    let bad = body(Service::Ud, &udp(), true, 510..520, 1_000);
    all_of(&bad, &OF_UD, mishaps, true);
    assert!(bad.counters.rx_icrc_encapsulated > 0);
}

/// Runs a service between two network namespaces, with AF_XDP at both ends of a veth pair. Returns `None` if
/// the namespaces cannot be created.
fn over_xdp(service: Service, seeds: std::ops::Range<u64>, verbs: u64) -> Option<[Outcome; 2]> {
    let veth = Veth::new()?;
    let devices = [0, 1].map(|end| Device::xdp(veth.interface(end), Some(veth::V4[end].parse().unwrap())));
    let open = |devices: [&Device; 2]| [0, 1].map(|end| veth.open(end, devices[end]));
    let middle = (seeds.start + seeds.end) / 2;
    let run = |bad, seeds| body_between(service, devices.each_ref(), open, bad, seeds, verbs);
    Some([run(false, seeds.start..middle), run(true, middle..seeds.end)])
}

#[test]
fn xrc_over_xdp() {
    let Some([good, bad]) = over_xdp(Service::XrcInitiator, 700..720, 1_500) else { return };
    all_of_xrc(&good, false);
    all_of_xrc(&bad, true);
}

#[test]
fn uc_over_xdp() {
    let Some([good, bad]) = over_xdp(Service::Uc, 800..820, 1_000) else { return };
    all_of(&good, &OF_UC, &Mishap::ALL, false);
    all_of(&bad, &OF_UC, &Mishap::ALL, true);
}

#[test]
fn ud_over_xdp() {
    let Some([good, bad]) = over_xdp(Service::Ud, 900..920, 1_000) else { return };
    all_of(&good, &OF_UD, &Mishap::OF_DATAGRAMS, false);
    all_of(&bad, &OF_UD, &Mishap::OF_DATAGRAMS, true);
}

#[test]
fn some_seeds_with_dedicated_engines() {
    for (seed, service) in [(600, Service::XrcInitiator), (601, Service::Uc), (602, Service::Ud)] {
        for device in [Device::shm(), udp()] {
            let options = Options { verbs: 400, patience: PATIENCE, ..Options::default() };
            let device = device.mode(Mode::Dedicated);
            let mut arm = Services::new(service, [&device, &device]).slow();
            if service == Service::XrcInitiator {
                assert!(run(&mut arm, seed, &options).verbs() >= 400);
            } else {
                assert!(run_unreliable(&mut arm, seed, &options).messages() >= 400);
            }
        }
    }
}
