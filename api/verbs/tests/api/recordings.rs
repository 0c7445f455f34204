//! Recordings of NICs under loss, replayed to the same counters and completions, and the first difference of
//! those that were changed.

use crate::lent_conformance::{Lent, each_service};
use crate::veth::{self, Veth};
use remora_host::recording::{self, End, Event, Feature, Header, MAGIC, Reader, ReplayError};
use remora_host::{Report, Rules, replay};
use remora_memory::{Access, Config as MemoryConfig, Range};
use remora_nic::Config as NicConfig;
use remora_verbs::{
    CompletionQueue, Context, Device, EMPTY, MemoryRegion, ProtectionDomain, QpOptions, QueuePair,
    ReceiveRequest, Status, WindowType, work,
};
use remora_wire::bth;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
/// Number of messages of each kind.
const ROUNDS: u64 = 40;
/// Length of a message: three packets.
const LEN: usize = 9000;

struct Side {
    context: Context,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pair: QueuePair,
    _domain: ProtectionDomain,
}

impl Side {
    fn wait(&mut self, count: usize) {
        let mut done = [EMPTY; 1];
        for _ in 0..count {
            assert_eq!(self.cq.wait(&mut done, LONG), Ok(1));
            assert_eq!(done[0].status, Status::Success);
        }
    }
}

/// Opens two connected NICs, each of which records itself in a file of `folder`.
fn sides(folder: &Path, device: impl Fn() -> Device, options: &QpOptions) -> [Side; 2] {
    let make = |name: &str| {
        let context = device().record(folder.join(name)).open().unwrap();
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let memory = domain.allocate(1 << 16, all | Access::MW_BIND).unwrap();
        let pair = domain.create_qp(&cq, &cq, options).unwrap();
        (context, domain, cq, memory, pair)
    };
    let [one, other] = ["client", "server"].map(make);
    let (one_pair, other_pair) = QueuePair::connect_pair(one.4, other.4).unwrap();
    let side = |context, _domain, cq, memory, pair| Side { context, cq, memory, pair, _domain };
    [side(one.0, one.1, one.2, one.3, one_pair), side(other.0, other.1, other.2, other.3, other_pair)]
}

fn lossy() -> Device {
    let rules = "seed = 7\n[[rule]]\nfault = \"drop\"\nprobability = 0.05\n\n[[rule]]\nfault = \"corrupt\"\nprobability = 0.02\n";
    Device::udp("127.0.0.1:0").unwrap().fault(Rules::parse(rules).unwrap())
}

/// Sends, writes, reads and adds, in batches.
fn run([client, server]: &mut [Side; 2]) {
    let list = [server.memory.sge(0, LEN)];
    for round in 0..ROUNDS {
        server.pair.post_recv(&ReceiveRequest { id: round, sges: &list }).unwrap();
        let own = client.memory.sge(0, LEN);
        client.pair.post_send(&work::send(round, &[own])).unwrap();
        client.pair.post_send(&work::write(round, &[own], server.memory.remote(100))).unwrap();
        client.pair.post_send(&work::write_inline(round, &[0xa5; 100], server.memory.remote(0))).unwrap();
        client.pair.post_send(&work::read(round, &[own], server.memory.remote(0))).unwrap();
        let word = [client.memory.sge(0, 8)];
        client.pair.post_send(&work::fetch_add(round, &word, server.memory.remote(8), 3)).unwrap();
        client.wait(5);
        server.wait(1);
    }
}

fn replayed(path: &Path) -> Report {
    replay(fs::File::open(path).unwrap()).unwrap()
}

/// Runs a workload, and returns the folder of the recordings.
fn recorded(device: impl Fn() -> Device, options: &QpOptions) -> (tempfile::TempDir, [Report; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let mut sides = sides(folder.path(), device, options);
    run(&mut sides);
    let counters = [0, 1].map(|side| sides[side].context.counters());
    drop(sides);
    let reports = ["client", "server"].map(|name| replayed(&folder.path().join(name)));
    for (report, counters) in reports.iter().zip(counters) {
        assert_eq!(report.difference, None);
        assert_eq!(report.end, Some(End::Closed));
        // Destroying the queue pairs sends nothing, but frames may arrive until then.
        assert_eq!(report.counters.sent_pkts, counters.sent_pkts);
        assert_eq!(report.counters.retransmitted_pkts, counters.retransmitted_pkts);
    }
    assert_eq!(reports[0].tally.completions, 5 * ROUNDS);
    assert_eq!(reports[1].tally.completions, ROUNDS);
    (folder, reports)
}

#[test]
fn a_recorded_run_with_loss_is_replayed_to_the_same_counters_and_completions() {
    let (folder, [client, server]) = recorded(lossy, &QpOptions::default());
    assert!(client.counters.retransmitted_pkts > 0 && server.counters.rx_icrc_encapsulated > 0);
    for name in ["client", "server"] {
        let bytes = fs::read(folder.path().join(name)).unwrap();
        assert!(!bytes.windows(16).any(|window| window == [0xa5; 16]), "inline data is left out");
    }
}

#[test]
fn irn_and_other_ports_are_replayed_to_the_same_counters_and_completions() {
    let irn = QpOptions { irn: true, ..QpOptions::default() };
    let (_folder, [client, _]) = recorded(lossy, &irn);
    assert!(client.counters.retransmitted_pkts > 0);
    let _shared_memory = recorded(Device::shm, &QpOptions::default());
}

/// Runs random verbs of each service on two devices, whose NICs `open` opens and keeps open meanwhile. Their
/// recordings show no difference.
fn each_service_is_replayed<T>(devices: [Device; 2], open: impl FnOnce([Device; 2]) -> (T, [Context; 2])) {
    let folder = tempfile::tempdir().unwrap();
    let files = ["first", "second"].map(|name| folder.path().join(name));
    let [first, second] = devices;
    let (nics, contexts) = open([first.record(&files[0]), second.record(&files[1])]);
    each_service(contexts, 1);
    drop(nics);
    for file in &files {
        let report = replayed(file);
        assert_eq!((report.difference, report.end), (None, Some(End::Closed)));
        assert!(report.tally.completions > 1000, "{:?}", report.tally);
    }
}

#[test]
fn uc_ud_xrc_and_shared_receive_queues_are_replayed() {
    let own = |devices: [Device; 2]| ((), devices.map(|device| device.open().unwrap()));
    each_service_is_replayed([lossy(), lossy()], own);
    each_service_is_replayed([Device::shm(), Device::shm()], own);
}

#[test]
fn the_nics_of_daemons_are_replayed() {
    let lent = |devices: [Device; 2]| {
        let lent = Lent::new(&devices, |_| ());
        let contexts = lent.contexts.clone();
        (lent, contexts)
    };
    each_service_is_replayed([lossy(), lossy()], lent);
}

#[test]
fn nics_on_xdp_are_replayed() {
    let veth = remora_netns::require!(Veth::new());
    let devices = [0, 1].map(|end| Device::xdp(veth.interface(end), Some(veth::V4[end].parse().unwrap())));
    each_service_is_replayed(devices, |devices| ((), [0, 1].map(|end| veth.open(end, &devices[end]))));
}

/// Changes an event of a recording: the first of which `change` returns true. Returns its number.
fn edit(path: &Path, mut change: impl FnMut(&mut Event) -> bool) -> u64 {
    let mut reader = Reader::new(fs::File::open(path).unwrap()).unwrap();
    let mut bytes = MAGIC.as_bytes().to_vec();
    recording::append(&mut bytes, reader.header());
    let mut changed = None;
    while let Some(mut event) = reader.read().unwrap() {
        if changed.is_none() && change(&mut event) {
            changed = Some(reader.count());
        }
        recording::append(&mut bytes, &event);
    }
    fs::write(path, bytes).unwrap();
    changed.unwrap()
}

#[test]
fn a_fault_of_the_responder_is_named_at_its_first_difference() {
    let (folder, [_, before]) = recorded(lossy, &QpOptions::default());
    let path = folder.path().join("server");
    let mut sent = 0;
    let number = edit(&path, |event| match event {
        Event::Sent { frame, .. } => {
            sent += 1;
            // The last byte of the PSN.
            frame.head[bth::LEN - 1] ^= 1;
            if sent < 50 {
                frame.head[bth::LEN - 1] ^= 1;
            }
            sent == 50
        }
        _ => false,
    });
    let difference = replayed(&path).difference.unwrap();
    assert_eq!((difference.event, difference.kind), (number, "sent frame"));
    assert!(difference.qp.is_some() && difference.time.0 > 0);
    assert!(difference.expected.contains("PSN") && difference.expected != difference.found, "{difference:?}");
    assert!(before.events > number);
}

#[test]
fn a_fault_of_the_peer_is_found_in_the_answers_to_it() {
    let (folder, _) = recorded(lossy, &QpOptions::default());
    let path = folder.path().join("client");
    let mut received = 0;
    let number = edit(&path, |event| match event {
        Event::Received { frame, .. } => {
            received += 1;
            frame.is_corrupt |= received == 20;
            received == 20
        }
        _ => false,
    });
    let difference = replayed(&path).difference.unwrap();
    assert!(difference.event >= number, "{difference:?}");
}

/// Returns the events of a recording.
fn events(path: &Path) -> (Header, Vec<Event>) {
    let mut reader = Reader::new(fs::File::open(path).unwrap()).unwrap();
    let header = reader.header().clone();
    let events = std::iter::from_fn(|| reader.read().unwrap()).collect();
    (header, events)
}

fn folder_with(device: Device, with: impl FnOnce(&Context)) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic.rec");
    let context = device.record(&path).open().unwrap();
    with(&context);
    drop(context);
    (folder, path)
}

#[test]
fn a_recording_at_its_limit_says_so_and_the_nic_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let device = || lossy().record_limit(20_000);
    let mut sides = sides(folder.path(), device, &QpOptions::default());
    run(&mut sides);
    drop(sides);
    for name in ["client", "server"] {
        let path = folder.path().join(name);
        let size = fs::metadata(&path).unwrap().len();
        assert!((20_000..25_000).contains(&size), "{size}");
        let report = replayed(&path);
        assert_eq!((report.difference, report.end), (None, Some(End::Limit(20_000))));
        assert!(matches!(events(&path).1.last(), Some(Event::End(End::Limit(20_000)))));
    }
}

#[test]
fn a_recording_ends_where_a_feature_begins_that_is_not_recorded() {
    let (_folder, path) = folder_with(Device::shm(), |context| {
        let rma = context.open_rma(&remora_verbs::rma::RmaOptions::default()).unwrap();
        drop(rma);
    });
    let report = replayed(&path);
    assert_eq!((report.difference, report.end), (None, Some(End::Feature(Feature::Rma))));

    let (_folder, path) = folder_with(Device::shm(), |context| {
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(8).unwrap();
        let pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        domain.register_ranges(&[Range { iova: 0, ..pair.code() }], Access::LOCAL_WRITE).unwrap();
    });
    assert_eq!(replayed(&path).end, Some(End::Feature(Feature::Chains)));
}

#[test]
fn windows_and_queues_that_come_and_go_are_replayed() {
    let (_folder, path) = folder_with(Device::shm(), |context| {
        let domain = context.alloc_pd().unwrap();
        for _ in 0..3 {
            let cq = context.create_cq(8).unwrap();
            let memory = domain.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
            let mut window = domain.allocate_window(WindowType::Type2B).unwrap();
            let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
            let (mut one, other) = QueuePair::connect_pair(pair(), pair()).unwrap();
            one.post_send(&window.bind(1, &memory, 0, 64, Access::REMOTE_READ)).unwrap();
            let mut done = [EMPTY; 1];
            let mut cq = cq;
            assert_eq!(cq.wait(&mut done, LONG), Ok(1));
            drop((one, other, window));
        }
    });
    let report = replayed(&path);
    assert_eq!((report.difference, report.end), (None, Some(End::Closed)));
    assert_eq!(report.tally.completions, 3);
}

#[test]
fn two_nics_that_are_given_one_name_have_a_file_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nic.rec");
    let open = || Device::shm().record(&path).open().unwrap();
    let both = [open(), open()];
    drop(both);
    assert_eq!(replayed(&path).end, Some(End::Closed));
    assert_eq!(replayed(&folder.path().join("nic.2.rec")).end, Some(End::Closed));
    let several = Device::shm().engines(2).record(&path).open().unwrap_err().to_string();
    assert!(several.contains("one engine"), "{several}");
}

#[test]
fn a_file_that_is_cut_or_changed_anywhere_is_named_in_one_line() {
    // A small NIC is replayed quickly.
    let nic = NicConfig {
        max_qps: 4,
        max_cqs: 4,
        max_srqs: 4,
        max_xrc_domains: 1,
        max_address_handles: 4,
        max_groups: 1,
        max_kernels: 1,
        max_free_lists: 1,
        max_events: 4,
        ..NicConfig::default()
    };
    let memory = MemoryConfig { max_regions: 15, max_windows: 0, ..MemoryConfig::default() };
    let small = Device::shm().nic_limits(nic).memory_limits(memory);
    let (_folder, path) = folder_with(small, |context| {
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(8).unwrap();
        let _memory = domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
        let _pair = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    });
    let bytes = fs::read(&path).unwrap();
    // The places between two events.
    let mut ends = Vec::new();
    let mut at = MAGIC.len();
    while at < bytes.len() {
        at += 8 + u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        ends.push(at);
    }
    for cut in 0..bytes.len() {
        match replay(&bytes[..cut]) {
            Ok(report) => {
                assert!(ends.contains(&cut), "cut at {cut}");
                assert_eq!((report.end, report.difference), (None, None), "cut at {cut}");
            }
            Err(error) => {
                assert!(!ends.contains(&cut), "cut at {cut}: {error}");
                assert!(!error.to_string().contains('\n'));
            }
        }
    }
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 0x10;
        assert!(replay(&changed[..]).is_err(), "byte {place}");
    }
    assert!(matches!(replay(&b"GIF89a"[..]), Err(ReplayError::NotARecording)));
    let next = String::from_utf8_lossy(&bytes[..MAGIC.len()]).replace("recording 1", "recording 2");
    assert!(matches!(replay(next.as_bytes()), Err(ReplayError::Version)));
}
