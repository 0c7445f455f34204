//! The conformance body of 1RMA over real ports, without faults and with faults. The ciphers of both ends
//! are recorded: a nonce that is used twice under a key is a panic.

use crate::bed::{Bed, LEN, MS, devices, link, options, share, short_timers, wait_until_free};
use crate::veth::{self, Veth};
use remora_cipher::{Aes, Record};
use remora_conformance::bad_world;
use remora_conformance::rma::{
    LOCAL_LEN, Operation, OperationEnd, REGION_LEN, REGIONS, RmaArm, RmaReport, run_rma,
};
use remora_verbs::nicd::{self, Daemon};
use remora_verbs::rma::{Facts, Grant, Portal, Rights, Rma, RmaRegion, Settings, Status, WriteDebit};
use remora_verbs::{Access, CompletionQueue, Context, Counters, Device, Mode, QueuePair, Rules, Tally};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Operations over each port in a whole run.
const OPERATIONS: u64 = 60_000;
/// Longer than the rules of `bad_world` delay any frame, there and back.
const LONGEST_WAY: Duration = Duration::from_millis(20);

/// Two contexts in one process, as an arm of the conformance body.
struct Ports {
    _rma: [Rma; 2],
    served: Vec<RmaRegion>,
    grants: Vec<Grant>,
    local: RmaRegion,
    portal: Portal,
    server_cq: CompletionQueue,
    /// The NICs as their owners see them.
    nics: [Context; 2],
    facts: Box<dyn Fn() -> [Facts; 2]>,
    /// The slot of each transfer in progress, by the transfer's number.
    slots: BTreeMap<u64, usize>,
    _link: Option<(QueuePair, QueuePair)>,
}

fn settings(seed: u64) -> Settings {
    Settings {
        window: [16 << 10, 64 << 10][seed as usize % 2],
        served: [4, 64, 16][seed as usize % 3],
        write_debit: [WriteDebit::Both, WriteDebit::ServerOnly][seed as usize / 2 % 2],
        ..short_timers()
    }
}

impl Ports {
    /// Ports of NICs of the process, with ciphers that enter each nonce in `record`.
    fn own(contexts: [Context; 2], seed: u64, record: &Record) -> Ports {
        let options = options(settings(seed));
        let rma = [0, 1]
            .map(|side| contexts[side].open_rma_with(&options, Box::new(record.wrap(Aes::new(64)))).unwrap());
        let engines = rma.clone();
        let facts = move || engines.each_ref().map(|rma| rma.facts().unwrap());
        let nics = contexts.clone();
        Ports::new(contexts, rma, nics, Box::new(facts))
    }

    /// Ports of the NICs of two daemons. `enter` is called before each is opened, with its number.
    fn lent(devices: &[Device; 2], seed: u64, enter: impl Fn(usize)) -> Ports {
        let folder = tempfile::tempdir().unwrap();
        let path = |side: usize| folder.path().join(format!("{side}.sock"));
        let given = nicd::Options::default();
        let settings = Settings { slots: given.rma.slots, ..settings(seed) };
        let lending = nicd::Options { rma: settings, ..given };
        let daemons = [0, 1].map(|side| {
            enter(side);
            Arc::new(Daemon::open(&devices[side], &path(side), &lending).unwrap())
        });
        let contexts = [0, 1].map(|side| Device::nicd(path(side)).open().unwrap());
        let rma = contexts.each_ref().map(|context| context.open_rma(&options(settings)).unwrap());
        let nics = daemons.each_ref().map(|daemon| daemon.context().clone());
        let facts = move || daemons.each_ref().map(|daemon| daemon.rma_facts().unwrap());
        Ports::new(contexts, rma, nics, Box::new(facts))
    }

    fn new(
        contexts: [Context; 2],
        rma: [Rma; 2],
        nics: [Context; 2],
        facts: Box<dyn Fn() -> [Facts; 2]>,
    ) -> Ports {
        let link = link([&contexts[0], &contexts[1]]);
        let [serving, client] = &rma;
        client.reach(serving.endpoint()).unwrap();
        let domains = contexts.each_ref().map(|context| context.alloc_pd().unwrap());
        let memory = |side: usize, len: usize| {
            let memory = domains[side].allocate(len, Access::LOCAL_WRITE).unwrap();
            let bytes: Vec<u8> = (0..len).map(|index| (index * 7 + index / 256 + side * 101) as u8).collect();
            memory.write(0, &bytes).unwrap();
            memory
        };
        let served: Vec<RmaRegion> = (0..REGIONS)
            .map(|_| serving.expose(memory(0, REGION_LEN), crate::bed::ALL, None).unwrap())
            .collect();
        let local = client.expose(memory(1, LOCAL_LEN), Rights::NONE, None).unwrap();
        let portal = client.create_portal(&domains[1], remora_conformance::rma::SLOTS as u16).unwrap();
        let grants = served.iter().map(|region| region.grant(&portal.identity())).collect();
        let server_cq = contexts[0].create_cq(4).unwrap();
        let slots = BTreeMap::new();
        Ports { _rma: rma, served, grants, local, portal, server_cq, nics, facts, slots, _link: link }
    }

    fn frames(&self) -> [u64; 2] {
        self.nics.each_ref().map(|context| context.port_counters().frames_received)
    }
}

impl RmaArm for Ports {
    fn issue(&mut self, operation: &Operation) {
        let Operation { slot, kind, class, region, remote, local, len } = *operation;
        let grant = &self.grants[region];
        let submitted = self.portal.submit(kind, class, &self.local, local, grant, remote, len.into(), None);
        self.slots.insert(submitted.unwrap(), slot);
    }

    fn poll(&mut self) -> Option<OperationEnd> {
        let (id, status) = self.portal.poll().unwrap()?;
        let slot = self.slots.remove(&id).expect("a transfer ends once");
        Some(OperationEnd { slot, kind: None, status })
    }

    fn pass(&mut self) {
        // Polling drives the server's NIC, unless its own threads do.
        self.server_cq.poll(&mut []).unwrap();
    }

    fn quiesce(&mut self) {
        let Ports { facts, server_cq, portal, .. } = self;
        wait_until_free(
            || facts().to_vec(),
            || {
                server_cq.poll(&mut []).unwrap();
                assert_eq!(portal.poll(), Ok(None), "all have ended");
            },
        );
        let mut seen = self.frames();
        let mut over = Instant::now() + LONGEST_WAY;
        while Instant::now() < over {
            self.pass();
            assert_eq!(self.portal.poll(), Ok(None), "all have ended");
            if seen != self.frames() {
                (seen, over) = (self.frames(), Instant::now() + LONGEST_WAY);
            }
            std::thread::yield_now();
        }
    }

    fn load_served(&mut self, region: usize, offset: usize, out: &mut [u8]) {
        self.served[region].memory().read(offset, out).unwrap();
    }

    fn load_local(&mut self, offset: usize, out: &mut [u8]) {
        self.local.memory().read(offset, out).unwrap();
    }

    fn store_local(&mut self, offset: usize, bytes: &[u8]) {
        self.local.memory().write(offset, bytes).unwrap();
    }

    fn renew(&mut self, region: usize) {
        self.grants[region] = self.served[region].grant(&self.portal.identity());
    }

    fn facts(&mut self) -> [Facts; 2] {
        (self.facts)()
    }
}

/// The sum of some runs over one kind of port.
#[derive(Debug, Default)]
struct Outcome {
    report: RmaReport,
    counters: Counters,
    faults: Tally,
    pairs: usize,
}

/// Runs the body seed by seed. For every second seed, the port of one side loses, duplicates, reorders,
/// delays and corrupts messages.
fn body(seeds: std::ops::Range<u64>, mut open: impl FnMut([Option<Rules>; 2]) -> [Context; 2]) -> Outcome {
    let mut pairs = 0;
    let mut sum = each_seed(seeds, |rules, seed, run| {
        let record = Record::new();
        run(&mut Ports::own(open(rules), seed, &record));
        pairs += record.pairs();
    });
    sum.pairs = pairs;
    println!("{sum:?}");
    sum
}

/// Like [`body`], over the NICs of daemons, whose ciphers are not recorded.
fn lent_body(
    seeds: std::ops::Range<u64>,
    devices: impl Fn([Option<Rules>; 2]) -> [Device; 2],
    enter: impl Fn(usize),
) {
    let sum = each_seed(seeds, |rules, seed, run| run(&mut Ports::lent(&devices(rules), seed, &enter)));
    let Outcome { report, counters, faults, .. } = &sum;
    let counted = [report.count(Status::Ok), counters.rma_rekeys, faults.dropped, faults.duplicated];
    assert!(counted.iter().all(|count| *count > 0), "{sum:?}");
}

/// Has `open` run the body on an arm for each seed.
fn each_seed(
    seeds: std::ops::Range<u64>,
    mut open: impl FnMut([Option<Rules>; 2], u64, &mut dyn FnMut(&mut Ports)),
) -> Outcome {
    let mut sum = Outcome::default();
    let operations = share(OPERATIONS) / (seeds.end - seeds.start);
    for seed in seeds {
        let mut rules = [None, None];
        if seed % 2 == 1 {
            rules[seed as usize / 2 % 2] = Some(Rules { seed, ..bad_world(seed).rules });
        }
        open(rules, seed, &mut |arm| {
            sum.report.add(&run_rma(arm, seed, operations));
            for nic in &arm.nics {
                sum.counters.add(&nic.counters());
                sum.faults.sum(&nic.port_counters().faults);
            }
        });
    }
    sum
}

fn opened(devices: [Device; 2], rules: [Option<Rules>; 2]) -> [Device; 2] {
    let [one, two] = devices;
    let with = |device: Device, rules: Option<Rules>| match rules {
        Some(rules) => device.fault(rules),
        None => device,
    };
    let [first, second] = rules;
    [with(one, first), with(two, second)]
}

/// Checks that everything happened that this body is meant to exercise.
fn assert_complete(outcome: &Outcome) {
    let Outcome { report, counters, faults, pairs } = outcome;
    let counted = [
        ("OK", report.count(Status::Ok)),
        ("authentication failure", report.count(Status::RemoteAuthenticationFailure)),
        ("NACK", report.count(Status::Nack)),
        ("timeout", report.count(Status::Timeout)),
        ("rekey", counters.rma_rekeys),
        ("bad request", counters.rma_bad_requests),
        ("unexpected", counters.rma_unexpected),
        ("served timeout", counters.rma_served_timeouts),
        ("dropped", faults.dropped),
        ("duplicated", faults.duplicated),
        ("reordered", faults.reordered),
        ("delayed", faults.delayed),
        ("corrupted", faults.corrupted),
        ("sealed", *pairs as u64),
    ];
    let never: Vec<&str> = counted.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect();
    assert_eq!(never, Vec::<&str>::new());
    assert_eq!((report.count(Status::LocalError), report.count(Status::RemoteAccessError)), (0, 0));
}

#[test]
fn random_operations_over_shm() {
    let outcome = body(0..6, |rules| opened(devices("shm"), rules).map(|device| device.open().unwrap()));
    assert_complete(&outcome);
}

#[test]
fn random_operations_over_udp() {
    let open = |rules| opened(devices("127.0.0.1:0"), rules).map(|device| device.open().unwrap());
    let outcome = body(10..16, open);
    assert_complete(&outcome);
    assert!(outcome.counters.rma_bad_responses > 0, "no answer with a wrong tag was counted");
}

#[test]
fn random_operations_over_udp_with_ipv6_and_dedicated_engines() {
    let open = |rules| {
        let devices = opened(devices("[::1]:0"), rules);
        devices.map(|device| device.mode(Mode::Dedicated).open().unwrap())
    };
    assert!(body(21..22, open).report.count(Status::Ok) > 0);
}

#[test]
fn random_operations_over_xdp() {
    let wire = remora_netns::require!(Veth::new());
    let device = |end: usize| Device::xdp(wire.interface(end), Some(veth::V4[end].parse().unwrap()));
    let outcome = body(30..36, |rules| {
        let devices = opened([device(0), device(1)], rules);
        [0, 1].map(|end| wire.open(end, &devices[end]))
    });
    assert_complete(&outcome);
}

#[test]
fn random_operations_over_daemons_on_shm_and_udp() {
    lent_body(40..42, |rules| opened(devices("shm"), rules), |_| ());
    lent_body(50..52, |rules| opened(devices("127.0.0.1:0"), rules), |_| ());
}

#[test]
fn random_operations_over_daemons_on_xdp() {
    let wire = remora_netns::require!(Veth::new());
    let device = |end: usize| Device::xdp(wire.interface(end), Some(veth::V4[end].parse().unwrap()));
    lent_body(60..62, |rules| opened([device(0), device(1)], rules), |side| wire.enter(side));
}

/// After a write has ended with TIMEOUT, a successful settle means that nothing changes any more, and all
/// resources are freed.
#[test]
fn a_settle_is_an_answer_of_the_same_engine() {
    let mut bed = Bed::new("127.0.0.1:0", short_timers(), [(); 2].map(|()| Box::new(Aes::new(64)) as _));
    let grant = bed.grant();
    let patience = Duration::from_secs(20);
    bed.portal.settle(&bed.local, 0, &grant, patience).unwrap();
    // A client that may not read is answered, too. A client that the server cannot authenticate is not.
    let memory = bed.contexts[0].alloc_pd().unwrap().allocate(64, Access::LOCAL_WRITE).unwrap();
    let write_only = bed.serving.expose(memory, Rights::WRITE, None).unwrap();
    let other = write_only.grant(&bed.portal.identity());
    bed.portal.settle(&bed.local, 0, &other, patience).unwrap();
    bed.portal.settle(&bed.local, 0, &other.restricted(Rights::WRITE), patience).unwrap_err();
    let mut nobody = grant;
    nobody.server.udp_port = 1;
    bed.portal.settle(&bed.local, LEN as u64, &grant, patience).unwrap_err();
    let silent = bed.portal.settle(&bed.local, 0, &nobody, Duration::from_nanos(MS));
    assert_eq!(silent, Err(remora_verbs::rma::RmaError::Failed(Status::Timeout)));
    bed.wait_until_idle();
}
