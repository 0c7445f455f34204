//! The conformance body over real ports, without faults and with faults: random verbs in both directions,
//! compared with a plain model.

use crate::veth::{self, Veth};
use remora_conformance::{Arm, Buffer, Options, Report, Verb, bad_world, run};
use remora_fabric::Settings;
use remora_verbs::{
    Access, CompletionQueue, Context, Counters, Device, EMPTY, MemoryRegion, Mode, Modify, PostError,
    ProtectionDomain, QpOptions, QueueError, QueuePair, ReceiveRequest, Rules, State, Tally, WorkCompletion,
    WorkRequest,
};
use std::time::{Duration, Instant};

/// Two contexts in one process, as an arm of the conformance body.
struct Api {
    sides: [(Context, ProtectionDomain); 2],
    pairs: Vec<[(QueuePair, CompletionQueue); 2]>,
    regions: Vec<Option<MemoryRegion>>,
    /// Upper limit of the time that a frame is on its way while the NICs are driven.
    longest_way: Duration,
}

/// Longer than the rules of `bad_world` delay any frame, there and back, and longer than the thread of an
/// engine with frames waits for a core.
const LONGEST_WAY: Duration = Duration::from_millis(20);

impl Api {
    fn new(devices: [&Device; 2]) -> Api {
        Api::of(devices.map(|device| device.open().unwrap()))
    }

    /// Builds an arm of open contexts.
    fn of(contexts: [Context; 2]) -> Api {
        let sides = contexts.map(|context| {
            let domain = context.alloc_pd().unwrap();
            (context, domain)
        });
        Api { sides, pairs: Vec::new(), regions: Vec::new(), longest_way: Duration::ZERO }
    }

    /// Marks an arm as one over links that delay frames, or with NICs that polling does not drive.
    fn slow(self) -> Api {
        Api { longest_way: LONGEST_WAY, ..self }
    }

    /// Waits until no frame is on its way.
    fn settle(&mut self) {
        let frames = |sides: &[(Context, ProtectionDomain); 2]| {
            sides.each_ref().map(|(context, _)| context.port_counters()).map(|port| port.frames_received)
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
        ..QpOptions::default()
    }
}

fn queue_error(error: PostError) -> QueueError {
    match error {
        PostError::Queue(error) => error,
        other => panic!("{other}"),
    }
}

/// Takes a queue pair from RESET to RTS by the steps of `ibv_modify_qp`, with its earlier peer.
fn bring_up(pair: &mut QueuePair, settings: &Settings, psns: [u32; 2]) {
    let agreement = pair.agreement().unwrap().clone();
    let address = pair.address_vector().unwrap();
    let psn = |number| remora_verbs::Psn::new(number);
    let steps = [
        Modify {
            state: Some(State::Init),
            access: Some(settings.access),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        },
        Modify {
            state: Some(State::Rtr),
            address: Some(address),
            path_mtu: Some(settings.mtu),
            dest_qp: Some(agreement.remote.qp),
            rq_psn: Some(psn(psns[1])),
            max_dest_rd_atomic: Some(settings.max_dest_rd_atomic),
            min_rnr_timer: Some(settings.min_rnr_timer),
            irn: agreement.irn,
            ..Modify::default()
        },
        Modify {
            state: Some(State::Rts),
            sq_psn: Some(psn(psns[0])),
            max_rd_atomic: Some(settings.max_rd_atomic),
            timeout: Some(settings.timeout),
            retry_cnt: Some(settings.retry_cnt),
            rnr_retry: Some(settings.rnr_retry),
            ..Modify::default()
        },
    ];
    for step in &steps {
        pair.modify(step).unwrap();
    }
}

impl Arm for Api {
    fn connect(&mut self, settings: &Settings) -> usize {
        let side = |(context, domain): &(Context, ProtectionDomain)| {
            let cq = context.create_cq(2 * (settings.send_slots + settings.receives)).unwrap();
            (domain.create_qp(&cq, &cq, &options(settings)).unwrap(), cq)
        };
        let [(one, one_cq), (two, two_cq)] = [side(&self.sides[0]), side(&self.sides[1])];
        let (one, two) = QueuePair::connect_pair(one, two).unwrap();
        self.pairs.push([(one, one_cq), (two, two_cq)]);
        self.pairs.len() - 1
    }

    fn reconnect(&mut self, pair: usize, settings: &Settings) {
        for (pair, _) in &mut self.pairs[pair] {
            pair.modify(&Modify { state: Some(State::Reset), ..Modify::default() }).unwrap();
        }
        // Frames that are still on their way belong to the old connection.
        self.settle();
        let [one, two] = &mut self.pairs[pair];
        bring_up(&mut one.0, settings, settings.psn);
        bring_up(&mut two.0, settings, [settings.psn[1], settings.psn[0]]);
    }

    fn fail(&mut self, side: usize, pair: usize) {
        self.pairs[pair][side].0.fail();
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
        self.pairs[pair][side].0.post_send(request).map_err(queue_error)
    }

    fn post_receive(
        &mut self,
        side: usize,
        pair: usize,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), QueueError> {
        self.pairs[pair][side].0.post_recv(request).map_err(queue_error)
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
}

fn body(seeds: std::ops::Range<u64>, arm: impl Fn() -> Api) -> Report {
    body_with(false, seeds, arm)
}

fn body_with(irn: bool, seeds: std::ops::Range<u64>, arm: impl Fn() -> Api) -> Report {
    let options = Options { verbs: 3_000, irn, patience: PATIENCE, ..Options::default() };
    let mut sum = Report::default();
    for seed in seeds {
        sum.add(&run(&mut arm(), seed, &options));
    }
    for verb in Verb::ALL {
        assert!(sum.count(verb) > 0, "no {verb:?}");
    }
    sum
}

/// Turns without progress before a run fails: more than a minute.
const PATIENCE: u64 = 50_000_000;

/// Checks that every case was met, except the cases that need a link that can be cut.
fn complete(report: &Report) {
    let missing: Vec<String> = report.missing();
    let expected = ["Cut", "send RetryExceeded"];
    assert!(missing.iter().all(|what| expected.contains(&what.as_str())), "{missing:?} in {report:?}");
}

fn udp(address: &str) -> Device {
    Device::udp(address).unwrap()
}

/// Runs the body of `random_verbs_over_a_hundred_bad_links` over a real port: every verb takes effect
/// exactly once.
#[test]
fn ten_seeds_over_shm() {
    // More than ten seeds, so that every mishap occurs with any random numbers of the conformance body.
    complete(&body(0..24, || Api::new([&Device::shm(); 2])));
}

#[test]
fn ten_seeds_over_udp() {
    complete(&body(100..124, || Api::new([&udp("127.0.0.1:0"); 2])));
}

#[test]
fn some_seeds_over_udp_over_ipv6() {
    body(200..203, || Api::new([&udp("[::1]:0"); 2]));
}

#[test]
fn some_seeds_with_dedicated_engines() {
    body(300..303, || Api::new([&Device::shm().mode(Mode::Dedicated); 2]).slow());
    body(310..312, || Api::new([&udp("127.0.0.1:0").mode(Mode::Dedicated); 2]).slow());
}

/// The result of a run over bad links.
#[derive(Debug, Default)]
struct Bad {
    report: Report,
    counters: Counters,
    faults: Tally,
}

/// Runs the body over links that lose, duplicate, reorder, delay and corrupt frames, differently for each
/// seed. The port of one side does that to the frames that it sends and receives.
fn bad_body(device: &Device, seeds: std::ops::Range<u64>) -> Bad {
    bad_body_with(false, device, seeds)
}

fn bad_body_with(irn: bool, device: &Device, seeds: std::ops::Range<u64>) -> Bad {
    bad_pair(irn, [device, device], seeds, Api::new)
}

fn bad_pair(
    irn: bool,
    devices: [&Device; 2],
    seeds: std::ops::Range<u64>,
    open: impl Fn([&Device; 2]) -> Api,
) -> Bad {
    // A high rate of mishaps, so that each kind occurs although there are fewer verbs.
    let options = Options { verbs: 2_000, trouble: 0.6, irn, patience: PATIENCE, ..Options::default() };
    let mut sum = Bad::default();
    for seed in seeds {
        let mut devices = devices.map(Device::clone);
        let side = &mut devices[seed as usize % 2];
        *side = side.clone().fault(Rules { seed, ..bad_world(seed).rules });
        let mut arm = open(devices.each_ref()).slow();
        sum.report.add(&run(&mut arm, seed, &options));
        for (context, _) in &arm.sides {
            sum.counters.add(&context.counters());
            sum.faults.sum(&context.port_counters().faults);
        }
    }
    sum
}

/// Checks that each kind of fault was injected, and that each kind of recovery was used.
fn all_bad(bad: &Bad) {
    let counters = &bad.counters;
    all_bad_with(bad, &[("implied NAK", counters.implied_nak_seq_err)]);
}

/// Like [`all_bad`], over IRN, whose recovery has other counters.
fn all_bad_with_irn(bad: &Bad) {
    let counters = &bad.counters;
    let own = [
        ("taken ahead of a gap", counters.irn_ahead_pkts),
        ("recovery", counters.irn_recoveries),
        ("timeout of responses", counters.irn_response_timeouts),
        ("response sent again", counters.irn_responses_repeated),
    ];
    all_bad_with(bad, &own);
    assert_eq!(counters.irn_beyond_pkts, 0, "a peer has more packets in flight than the receiver tracks");
}

fn all_bad_with(bad: &Bad, own: &[(&str, u64)]) {
    println!("{bad:?}");
    let Bad { report, counters, faults } = bad;
    complete(report);
    let counted = [
        ("dropped", faults.dropped),
        ("duplicated", faults.duplicated),
        ("reordered", faults.reordered),
        ("delayed", faults.delayed),
        ("corrupted", faults.corrupted),
        ("timeout", counters.local_ack_timeout_err),
        ("sequence NAK", counters.packet_seq_err),
        ("RNR", counters.rnr_nak_retry_err),
        ("duplicate", counters.duplicate_request),
        ("gap", counters.out_of_sequence),
    ];
    let counted = counted.iter().chain(own);
    let never: Vec<&str> = counted.filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect();
    assert_eq!(never, Vec::<&str>::new());
}

/// Runs the same body with faults on the link. Each kind of fault occurs.
#[test]
fn bad_links_over_shm() {
    let bad = bad_body(&Device::shm(), 400..416);
    all_bad(&bad);
    // Frames without an ICRC cannot be recognised as corrupted, so the port drops them instead.
    assert_eq!(bad.counters.rx_icrc_encapsulated, 0);
}

#[test]
fn bad_links_over_udp() {
    let bad = bad_body(&udp("127.0.0.1:0"), 500..516);
    all_bad(&bad);
    assert!(bad.counters.rx_icrc_encapsulated > 0);
}

#[test]
fn bad_links_with_dedicated_engines() {
    for (device, seed) in [(Device::shm(), 600), (udp("127.0.0.1:0"), 601)] {
        let bad = bad_body(&device.mode(Mode::Dedicated), seed..seed + 1);
        assert!(bad.faults.faults() > 0 && bad.counters.local_ack_timeout_err > 0, "{bad:?}");
    }
}

#[test]
fn ten_seeds_over_shm_with_irn() {
    complete(&body_with(true, 700..724, || Api::new([&Device::shm(); 2])));
}

#[test]
fn ten_seeds_over_udp_with_irn() {
    complete(&body_with(true, 800..824, || Api::new([&udp("127.0.0.1:0"); 2])));
}

#[test]
fn bad_links_over_shm_with_irn() {
    all_bad_with_irn(&bad_body_with(true, &Device::shm(), 900..916));
}

#[test]
fn bad_links_over_udp_with_irn() {
    all_bad_with_irn(&bad_body_with(true, &udp("127.0.0.1:0"), 1000..1016));
}

/// AF_XDP between two network namespaces.
struct Wire(Veth);

impl Wire {
    /// Describes NICs on both ends with these addresses.
    fn devices(&self, hosts: [&str; 2]) -> [Device; 2] {
        [0, 1].map(|end| Device::xdp(self.0.interface(end), Some(hosts[end].parse().unwrap())))
    }

    /// Opens each device in its namespace.
    fn api(&self, devices: [&Device; 2]) -> Api {
        Api::of([0, 1].map(|end| self.0.open(end, devices[end])))
    }
}

#[test]
fn ten_seeds_over_xdp() {
    let Some(wire) = Veth::new().map(Wire) else { return };
    let devices = wire.devices(veth::V4);
    complete(&body(700..724, || wire.api(devices.each_ref())));
    complete(&body_with(true, 1200..1224, || wire.api(devices.each_ref())));
}

#[test]
fn some_seeds_over_xdp_over_ipv6_and_with_dedicated_engines() {
    let Some(wire) = Veth::new().map(Wire) else { return };
    let devices = wire.devices(veth::V6);
    body(730..733, || wire.api(devices.each_ref()));
    let dedicated = wire.devices(veth::V4).map(|device| device.mode(Mode::Dedicated));
    body(740..742, || wire.api(dedicated.each_ref()).slow());
}

#[test]
fn some_seeds_between_xdp_and_udp() {
    let Some(wire) = Veth::new().map(Wire) else { return };
    for (hosts, at, seeds) in
        [(veth::V4, "10.213.7.2:4791", 750..754), (veth::V6, "[fd00:7::2]:4791", 760..763)]
    {
        let [xdp, _] = wire.devices(hosts);
        body(seeds, || wire.api([&xdp, &udp(at)]));
    }
}

#[test]
fn bad_links_over_xdp() {
    let Some(wire) = Veth::new().map(Wire) else { return };
    let bad = bad_pair(false, wire.devices(veth::V4).each_ref(), 800..816, |devices| wire.api(devices));
    all_bad(&bad);
    assert!(bad.counters.rx_icrc_encapsulated > 0);
    let bad = bad_pair(true, wire.devices(veth::V4).each_ref(), 1100..1116, |devices| wire.api(devices));
    all_bad_with_irn(&bad);
}
