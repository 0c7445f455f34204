//! The conformance body over the real ports: random verbs in both directions against a plain model.

use fabric::Settings;
use fabric::conformance::{Arm, Buffer, Options, Report, Verb, run};
use remora_verbs::{
    Access, CompletionQueue, Context, Device, EMPTY, MemoryRegion, Mode, Modify, PostError, ProtectionDomain,
    QpOptions, QueueError, QueuePair, ReceiveRequest, State, WorkCompletion, WorkRequest,
};

/// Two contexts in one process, as an arm.
struct Api {
    sides: [(Context, ProtectionDomain); 2],
    pairs: Vec<[(QueuePair, CompletionQueue); 2]>,
    regions: Vec<Option<MemoryRegion>>,
}

impl Api {
    fn new(device: &Device) -> Api {
        let side = || {
            let context = device.open().unwrap();
            let domain = context.alloc_pd().unwrap();
            (context, domain)
        };
        Api { sides: [side(), side()], pairs: Vec::new(), regions: Vec::new() }
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
        ..QpOptions::default()
    }
}

fn queue_error(error: PostError) -> QueueError {
    match error {
        PostError::Queue(error) => error,
        other => panic!("{other}"),
    }
}

/// RESET to RTS by `ibv_modify_qp`'s own steps, with the peer that it had.
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
        // What is still on its way belongs to the old connection.
        for _ in 0..1000 {
            self.pass();
        }
        let [one, two] = &mut self.pairs[pair];
        bring_up(&mut one.0, settings, settings.psn);
        bring_up(&mut two.0, settings, [settings.psn[1], settings.psn[0]]);
    }

    fn fail(&mut self, side: usize, pair: usize) {
        self.pairs[pair][side].0.fail();
    }

    fn register(&mut self, side: usize, len: usize, access: Access) -> Buffer {
        let region = self.sides[side].1.allocate(len, access).unwrap();
        let (key, address) = (region.rkey(), region.address());
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

fn body(device: &Device, seeds: std::ops::Range<u64>) -> Report {
    let options = Options { verbs: 3_000, patience: 50_000_000, ..Options::default() };
    let mut sum = Report::default();
    for seed in seeds {
        let report = run(&mut Api::new(device), seed, &options);
        sum.add(&report);
    }
    for verb in Verb::ALL {
        assert!(sum.count(verb) > 0, "no {verb:?}");
    }
    sum
}

/// Everything has happened but what takes a link that can be cut.
fn complete(report: &Report) {
    let missing: Vec<String> = report.missing();
    let expected = ["Cut", "send RetryExceeded"];
    assert!(missing.iter().all(|what| expected.contains(&what.as_str())), "{missing:?} in {report:?}");
}

fn udp(address: &str) -> Device {
    Device::udp(address).unwrap()
}

#[test]
fn ten_seeds_over_shm() {
    // More than ten, so that every trouble comes up whatever the body's random numbers lead to.
    complete(&body(&Device::shm(), 0..24));
}

#[test]
fn ten_seeds_over_udp() {
    complete(&body(&udp("127.0.0.1:0"), 100..124));
}

#[test]
fn some_seeds_over_udp_over_ipv6() {
    body(&udp("[::1]:0"), 200..203);
}

#[test]
fn some_seeds_with_dedicated_engines() {
    body(&Device::shm().mode(Mode::Dedicated), 300..303);
    body(&udp("127.0.0.1:0").mode(Mode::Dedicated), 310..312);
}
