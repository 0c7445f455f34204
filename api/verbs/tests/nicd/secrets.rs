//! Keys and plaintext of 1RMA exist only where they are needed: not in shared rings, not in the memory of
//! another tenant, and not in printed, counted or captured data.

use remora_verbs::rma::{Grant, RegionKey, Rights, RmaError, RmaOptions, RmaRegion, Settings, Status};
use remora_verbs::{Access, Context, Device, Mode, QpOptions, QueuePair, Rules, nicd};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::rma::{Peer, hex};
use super::{LEN, LONG, Lender, Program, SocketPath, open};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Returns the names of a process's mappings that contain these bytes. The search text itself is not in a
/// memfd.
fn mappings_with(pid: &str, needle: &[u8], named: impl Fn(&str) -> bool) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut buffer = vec![0; CHUNK + needle.len()];
    let mut names = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let range = words.next().unwrap();
        let rights = words.next().unwrap();
        let name = words.nth(3).unwrap_or_default().to_owned();
        if !rights.starts_with('r') || !named(&name) {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let stands = (start..end).step_by(CHUNK).any(|chunk| {
            let wanted = buffer.len().min((end - chunk) as usize);
            // A mapping may disappear while it is read.
            let read = memory.read_at(&mut buffer[..wanted], chunk).unwrap_or(0);
            // Comparing the first byte first is fast, because most bytes are zeros.
            let mut windows = buffer[..read].windows(needle.len());
            windows.any(|bytes| bytes[0] == needle[0] && bytes == needle)
        });
        if stands {
            names.push(name);
        }
    }
    names
}

/// Returns the names of memory with this mark that the process shares with others: regions and queues that a
/// daemon lends, and links.
fn shared_memory_with(mark: &[u8]) -> Vec<String> {
    let mut names = mappings_with("self", mark, |name| name.starts_with("/memfd:remora"));
    names.dedup();
    names
}

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap().mode(Mode::Dedicated)
}

/// Runs a daemon in this process.
fn daemon(device: &Device, test: &str, rma: Settings) -> (nicd::Daemon, SocketPath) {
    let path = SocketPath::new(test);
    let options = nicd::Options { rma, ..nicd::Options::default() };
    (nicd::Daemon::open(device, &path.0, &options).unwrap(), path)
}

/// Exposes a region filled with a mark, on a NIC of this process.
fn marked(device: &Device, mark: &[u8; 16], key: Option<RegionKey>) -> (Context, RmaRegion) {
    let context = device.open().unwrap();
    let rma = context.open_rma(&RmaOptions::default()).unwrap();
    let memory = context.alloc_pd().unwrap().allocate(LEN, Access::LOCAL_WRITE).unwrap();
    memory.write(0, &mark.repeat(LEN / 16)).unwrap();
    let region = rma.expose(memory, Rights::READ, key).unwrap();
    (context, region)
}

fn counted(daemon: &nicd::Daemon, name: &str) -> f64 {
    let text = remora_host::metrics::write(&daemon.metrics());
    let values = text.lines().filter(|line| line.contains(name) && !line.starts_with('#'));
    values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Attack 17: data with wrong tags arrives. Its plaintext must not be in memory that other processes share,
/// the target region included.
#[test]
fn rma_attack_17_no_plaintext_stands_in_shared_memory_before_its_tag_was_right() {
    let mark = *b"plaintext of 17!";
    let short = Settings { timeout: 100_000_000, dispatch_timeout: 40_000_000, ..Settings::software() };
    let (daemon, path) = daemon(&udp(), "rma-plaintext", short);
    let rules = "[[rule]]\nfault = \"corrupt\"\ndirection = \"out\"\nopcodes = [0xe4]\n";
    let (_bad, broken) = marked(&udp().fault(Rules::parse(rules).unwrap()), &mark, None);
    let (_good, whole) = marked(&udp(), &mark, None);
    let mut peer = Peer::new(open(path.0.to_str().unwrap()), 32);
    let grant = broken.grant(&peer.portal.identity());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scan = scope.spawn(|| {
            let mut scans = 0;
            while !over.load(Ordering::Acquire) || scans < 2 {
                assert_eq!(
                    shared_memory_with(&mark),
                    Vec::<String>::new(),
                    "data was in shared memory before its tag was checked"
                );
                scans += 1;
            }
        });
        for _ in 0..5 {
            let ended = peer.portal.read(&peer.local, 0, &grant, 0, 100_000, Duration::ZERO);
            assert_eq!(ended, Err(RmaError::Failed(Status::Timeout)));
        }
        over.store(true, Ordering::Release);
        scan.join().unwrap();
    });
    assert!(counted(&daemon, "rma_bad_responses") > 0.0, "data with bad tags has arrived");
    // With right tags, the plaintext is in the region and nowhere else.
    let grant = whole.grant(&peer.portal.identity());
    peer.portal.read(&peer.local, 0, &grant, 0, 100_000, LONG).unwrap();
    let mappings = shared_memory_with(&mark);
    assert!(
        !mappings.is_empty() && mappings.iter().all(|name| name.starts_with("/memfd:remora-region")),
        "{mappings:?}"
    );
}

/// The rings of a link contain only ciphertext.
#[test]
fn rma_attack_17_no_plaintext_stands_in_the_rings_of_a_link() {
    let mark = *b"mark in no link!";
    let shm = Device::shm().mode(Mode::Dedicated);
    let (_daemon, path) = daemon(&Device::shm(), "rma-link", Settings::software());
    let (context, served) = marked(&shm, &mark, None);
    let mut peer = Peer::new(open(path.0.to_str().unwrap()), 32);
    let _link = link(&context, &peer);
    let grant = served.grant(&peer.portal.identity());
    for _ in 0..2 {
        peer.portal.read(&peer.local, 0, &grant, 0, LEN as u64, LONG).unwrap();
        let mappings = shared_memory_with(&mark);
        assert!(mappings.iter().all(|name| name.starts_with("/memfd:remora-region")), "{mappings:?}");
    }
    let links = mappings_with("self", &[0; 8], |name| name.starts_with("/memfd:remora-link"));
    assert!(!links.is_empty(), "the scan has found no link");
}

fn link(context: &Context, peer: &Peer) -> (QueuePair, QueuePair) {
    let listener = remora_verbs::Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    let pair = |context: &Context| {
        let cq = context.create_cq(4).unwrap();
        context.alloc_pd().unwrap().create_qp(&cq, &cq, &QpOptions::default()).unwrap()
    };
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| pair(&peer.context).connect(address).unwrap());
        let request = listener.accept(Some(LONG)).unwrap().unwrap();
        (request.accept(pair(context)).unwrap(), connecting.join().unwrap())
    })
}

/// The three derived keys of a grant, which are the end of its encoded form.
fn keys(grant: &Grant) -> Vec<[u8; 16]> {
    grant.to_bytes()[Grant::LEN - 48..].chunks(16).map(|key| key.try_into().unwrap()).collect()
}

/// Attack 20: the memory of another tenant's program, as in a core dump, contains no key and no data of this
/// one.
#[test]
fn rma_attack_20_the_memory_of_another_tenant_holds_no_secret() {
    let lender = Lender::start("udp", "rma-core");
    let mark = *b"data of a tenant";
    let (context, served) = marked(&udp(), &mark, None);
    let endpoint = context.port().endpoint;
    let [mut one, mut other] = [(); 2].map(|()| Program::start(&["rma", lender.nic(), "16"]));
    let grant = |process: &Program| {
        let (pid, incarnation) = process.first_line.split_once(' ').unwrap();
        let pid = pid.parse().unwrap();
        let incarnation = incarnation.parse().unwrap();
        served.grant(&remora_verbs::rma::Client { address: endpoint.address, pid, incarnation })
    };
    let grants = [grant(&one), grant(&other)];
    let restricted = grant(&other).restricted(Rights::NONE);
    assert!(one.ask(&hex(&grants[0].to_bytes())).parse::<u64>().is_ok());
    // The other program works, too, with a grant under which it may not read.
    assert!(other.ask(&hex(&restricted.to_bytes())).contains("authentication failure"));
    let stands = |process: &Program, needle: &[u8]| {
        !mappings_with(&process.process.id().to_string(), needle, |_| true).is_empty()
    };
    assert!(
        stands(&one, &keys(&grants[0])[0]) && stands(&one, &mark),
        "the scan does not find the secrets in their own process"
    );
    for key in keys(&grants[0]) {
        assert!(!stands(&other, &key));
        assert!(!stands(&other, hex(&key).as_bytes()));
    }
    // The text of the other program itself contains the mark once. The region contains it repeatedly.
    assert!(stands(&one, &mark.repeat(4)) && !stands(&other, &mark.repeat(4)));
    one.end();
    other.end();
}

/// Attack 20: printed, counted and captured data contains no key and no plaintext.
#[test]
fn rma_attack_20_debug_metrics_and_captures_hold_no_secret() {
    let mark = *b"none may see it!";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcapng");
    let device = Device::udp("127.0.0.1:0").unwrap().capture(&file);
    let (daemon, path) = daemon(&device, "rma-secrets", Settings::software());
    let region_key = [0x93; 16];
    let (_context, table) = marked(&udp(), &mark, RegionKey::new(region_key));
    let mut peer = Peer::new(open(path.0.to_str().unwrap()), 16);
    let grant = table.grant(&peer.portal.identity());
    peer.portal.read(&peer.local, 0, &grant, 0, 50_000, LONG).unwrap();
    // A region of the program under a key of its own, which a client on another NIC uses.
    peer.served.rekey(RegionKey::new([0x94; 16])).unwrap();
    let mut client = Peer::new(udp().open().unwrap(), 16);
    let own = peer.served.grant(&client.portal.identity());
    peer.served.memory().write(0, &mark.repeat(64)).unwrap();
    client.portal.read(&client.local, 0, &own, 0, 1024, LONG).unwrap();
    let printed = format!(
        "{grant:?} {own:?} {:?} {:?} {:?} {:?} {:?}",
        peer.served,
        peer.portal,
        peer.rma,
        daemon,
        daemon.tenants()
    );
    let metrics = remora_host::metrics::write(&daemon.metrics());
    assert!(metrics.contains("rma_served"));
    drop((client, peer, daemon));
    let capture = std::fs::read(&file).unwrap();
    assert!(capture.len() > 50_000, "the operations are in it");
    let secrets = keys(&grant).into_iter().chain(keys(&own)).chain([region_key, [0x94; 16], mark]);
    for secret in secrets {
        let listed = format!("{secret:?}");
        for text in [hex(&secret), listed[1..listed.len() - 1].to_owned()] {
            assert!(!printed.contains(&text) && !metrics.contains(&text), "{text}: {printed} {metrics}");
        }
        assert!(!capture.windows(16).any(|bytes| bytes == secret), "{secret:?}");
    }
}
