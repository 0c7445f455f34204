//! 1RMA of programs whose NIC belongs to a daemon. It works as on a NIC of their own, and users have limits.

use remora_verbs::rma::{
    Client, CongestionSettings, ControlKind, Grant, Portal, RegionKey, Rights, Rma, RmaError, RmaOptions,
    RmaRegion, Status,
};
use remora_verbs::{
    Access, Context, CreateError, Device, Listener, Mode, ProtectionDomain, QpOptions, QueuePair, nicd,
};
use remora_wire::rma::{Class, Kind};
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{LEN, LONG, Lender, Program, SocketPath, open};

/// The user id of `nobody`, an unprivileged user.
const NOBODY: u32 = 65534;

/// A program's 1RMA on any NIC: a region that it exposes, and a portal for its own operations.
pub(crate) struct Peer {
    pub context: Context,
    pub rma: Rma,
    pub domain: ProtectionDomain,
    pub served: RmaRegion,
    pub local: RmaRegion,
    pub portal: Portal,
}

pub(crate) fn bytes(seed: usize) -> Vec<u8> {
    (0..LEN).map(|index| (index / 64 + index + seed) as u8).collect()
}

impl Peer {
    pub(crate) fn new(context: Context, slots: u16) -> Peer {
        let rma = context.open_rma(&RmaOptions::default()).unwrap();
        let domain = context.alloc_pd().unwrap();
        let memory = || domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
        let all = Rights::READ | Rights::WRITE | Rights::REKEY;
        let served = rma.expose(memory(), all, None).unwrap();
        served.memory().write(0, &bytes(0)).unwrap();
        let local = rma.expose(memory(), Rights::NONE, None).unwrap();
        let portal = rma.create_portal(&domain, slots).unwrap();
        Peer { context, rma, domain, served, local, portal }
    }

    pub(crate) fn load(&self, len: usize) -> Vec<u8> {
        let mut loaded = vec![0; len];
        self.local.memory().read(0, &mut loaded).unwrap();
        loaded
    }

    /// Reads, writes and rekeys another peer's region.
    fn uses(&mut self, other: &mut Peer) {
        let grant = other.served.grant(&self.portal.identity());
        for (len, offset) in [(1, 5), (64, 64), (4097, 4000), (300_000, 7)] {
            self.portal.read(&self.local, 0, &grant, offset as u64, len as u64, LONG).unwrap();
            assert!(self.load(len) == bytes(0)[offset..offset + len], "read of {len}");
        }
        let new = bytes(9);
        self.local.memory().write(0, &new).unwrap();
        self.portal.write(&self.local, 0, &grant, 0, 200_000, LONG).unwrap();
        let mut there = vec![0; LEN];
        other.served.memory().read(0, &mut there).unwrap();
        assert!(there[..200_000] == new[..200_000] && there[200_000..] == bytes(0)[200_000..]);
        other.served.memory().write(0, &bytes(0)).unwrap();
        self.local.memory().write(0, &[0x5a; 16]).unwrap();
        self.portal.rekey(&self.local, 0, &grant).unwrap();
        let old = self.portal.read(&self.local, 0, &grant, 0, 64, LONG);
        assert_eq!(old, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
        // The peer's software knows the key that was set by 1RMA.
        let grant = other.served.grant(&self.portal.identity());
        self.portal.read(&self.local, 0, &grant, 0, 64, LONG).unwrap();
        other.served.rekey(RegionKey::new([7; 16])).unwrap();
        let grant = other.served.grant(&self.portal.identity());
        self.portal.read(&self.local, 0, &grant, 0, 64, LONG).unwrap();
    }
}

fn own(port: &str) -> Context {
    super::device(port).mode(Mode::Dedicated).open().unwrap()
}

#[test]
fn what_a_nic_of_ones_own_does_a_lent_one_does_over_udp() {
    let lender = Lender::start("udp", "rma-udp");
    let [mut lent, mut other] = [(); 2].map(|()| Peer::new(open(lender.nic()), 32));
    let mut own = Peer::new(own("udp"), 32);
    lent.uses(&mut own);
    own.uses(&mut lent);
    other.uses(&mut lent);
    assert_eq!(other.rma.endpoint(), lent.rma.endpoint(), "one NIC");
    lent.rma.reach(own.rma.endpoint()).unwrap();
}

#[test]
fn what_a_nic_of_ones_own_does_a_lent_one_does_over_shm() {
    let lender = Lender::start("shm", "rma-shm");
    let [mut lent, mut own] = [open(lender.nic()), own("shm")].map(|context| Peer::new(context, 32));
    // A connection gives both sides their link.
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    let pair = |peer: &Peer| {
        let cq = peer.context.create_cq(4).unwrap();
        peer.domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap()
    };
    let link: (QueuePair, QueuePair) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| pair(&lent).connect(address).unwrap());
        let request = listener.accept(Some(LONG)).unwrap().unwrap();
        (request.accept(pair(&own)).unwrap(), connecting.join().unwrap())
    });
    lent.uses(&mut own);
    own.uses(&mut lent);
    drop(link);
}

/// Runs a daemon for two users, of which each may have 32 slots.
pub(crate) fn lend(path: &Path) {
    let limits = nicd::Limits { rma_slots: 32, rma_regions: 4, ..nicd::Limits::default() };
    let options = nicd::Options { limits, allow: vec![NOBODY], ..nicd::Options::default() };
    let _daemon = nicd::Daemon::open(&Device::udp("127.0.0.1:0").unwrap(), path, &options).unwrap();
    println!("says ready");
    let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|index| u8::from_str_radix(&text[index..index + 2], 16).unwrap()).collect()
}

/// Runs as another program: prints its identity, and reads the region of each grant that it is given.
pub(crate) fn program(nic: &str, slots: u16) {
    let mut peer = Peer::new(Device::nicd(nic).owner(0).open().unwrap(), slots);
    let Client { pid, incarnation, .. } = peer.portal.identity();
    println!("says {pid} {incarnation}");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let Some(grant) = (line.len() == 2 * Grant::LEN).then(|| unhex(&line)) else {
            let more = peer.rma.create_portal(&peer.domain, line.parse().unwrap());
            println!("says {}", more.map_or_else(|error| error.to_string(), |_| "a portal".to_owned()));
            continue;
        };
        let grant = Grant::from_bytes(&grant).unwrap();
        let read = peer.portal.read(&peer.local, 0, &grant, 0, grant.len, LONG);
        let reply = read.map_or_else(|error| error.to_string(), |()| sum(&peer.load(LEN)).to_string());
        println!("says {reply}");
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn identity(server: &Peer, process: &Program) -> Client {
    let (pid, incarnation) = process.first_line.split_once(' ').unwrap();
    let address = server.rma.endpoint().address;
    Client { address, pid: pid.parse().unwrap(), incarnation: incarnation.parse().unwrap() }
}

/// Two users have limits of their own, and a program that is killed leaves nothing behind.
#[test]
fn tenants_of_two_users_have_limits_of_their_own_and_leave_nothing_behind() {
    remora_netns::require!(rustix_is_root(), "only root starts programs of another user");
    let path = SocketPath::new("users");
    let nic = path.0.to_str().unwrap();
    let daemon = Program::start(&["rma-daemon", nic]);
    let server = Peer::new(own("udp"), 1);
    let mut mine = Peer::new(open(nic), 32);
    let words = mine.rma.create_portal(&mine.domain, 1).unwrap_err();
    assert!(matches!(&words, CreateError::Limit(words) if words.contains("user 0")), "{words}");
    for round in 0..3 {
        let mut nobody = Program::start_as(Some(NOBODY), &["rma", nic, "32"]);
        let client = identity(&server, &nobody);
        assert_eq!(client.pid, nobody.process.id(), "the kernel says the process");
        let refused = nobody.ask("8");
        assert!(refused.contains("user 65534") && refused.contains("--rma-slots"), "{refused}");
        let grant = server.served.grant(&client);
        assert_eq!(nobody.ask(&hex(&grant.to_bytes())), sum(&bytes(0)).to_string());
        // Another user's program uses the same grant.
        let stolen = mine.portal.read(&mine.local, 0, &grant, 0, 64, LONG);
        assert_eq!(stolen, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
        if round < 2 {
            nobody.kill();
        } else {
            nobody.end();
        }
    }
    let grant = server.served.grant(&mine.portal.identity());
    mine.portal.read(&mine.local, 0, &grant, 0, LEN as u64, LONG).unwrap();
    daemon.end();
}

fn rustix_is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|facts| std::os::unix::fs::MetadataExt::uid(&facts) == 0)
}

#[test]
fn a_stopped_daemon_ends_a_read_with_a_word() {
    let lender = Lender::start("udp", "rma-stopped");
    let mut lent = Peer::new(open(lender.nic()), 8);
    let own = Peer::new(own("udp"), 1);
    let grant = own.served.grant(&lent.portal.identity());
    lent.portal.read(&lent.local, 0, &grant, 0, 64, LONG).unwrap();
    lender.process.signal("-STOP");
    let ended = lent.portal.read(&lent.local, 0, &grant, 0, 64, Duration::ZERO);
    assert!(matches!(ended, Err(RmaError::Nic(_))), "{ended:?}");
    lender.process.signal("-CONT");
    lent.portal.read(&lent.local, 0, &grant, 0, 64, LONG).unwrap();
}

/// Kept tenants keep their memory. Portals and RegionIds end with their program.
#[test]
fn portals_and_region_ids_end_with_a_program_that_is_kept() {
    let lender = Lender::start("udp", "rma-kept");
    let nic = format!("{}=kept", lender.nic());
    let mut client = Peer::new(own("udp"), 8);
    let context = open(&nic);
    let rma = context.open_rma(&RmaOptions::default()).unwrap();
    let memory = context.alloc_pd().unwrap().allocate_named("table", LEN, Access::LOCAL_WRITE).unwrap();
    memory.write(0, &bytes(0)).unwrap();
    let served = rma.expose(memory, Rights::READ, None).unwrap();
    let grant = served.grant(&client.portal.identity());
    client.portal.read(&client.local, 0, &grant, 0, 64, LONG).unwrap();
    context.leave();
    drop((served, rma, context));
    let context = open(&nic);
    let gone = client.portal.read(&client.local, 0, &grant, 0, 64, LONG);
    assert_eq!(gone, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
    let table = context.kept().unwrap().region("table").unwrap();
    let rma = context.open_rma(&RmaOptions::default()).unwrap();
    let served = rma.expose(table, Rights::READ, None).unwrap();
    let grant = served.grant(&client.portal.identity());
    client.portal.read(&client.local, 0, &grant, 0, LEN as u64, LONG).unwrap();
    assert!(client.load(LEN) == bytes(0));
}

/// Runs a program whose slots are all busy until `over`. Returns the number of operations that have ended.
fn busy(nic: &str, server: &Peer, slots: u16, class: Class, over: &AtomicBool) -> u64 {
    let context = open(nic);
    let congestion = CongestionSettings { kind: ControlKind::None, ..CongestionSettings::software() };
    let rma = context.open_rma(&RmaOptions { congestion, ..RmaOptions::default() }).unwrap();
    let domain = context.alloc_pd().unwrap();
    let local = rma.expose(domain.allocate(LEN, Access::LOCAL_WRITE).unwrap(), Rights::NONE, None).unwrap();
    let mut portal = match class {
        Class::Bulk => rma.create_bulk_portal(&domain, slots).unwrap(),
        Class::Latency => rma.create_portal(&domain, slots).unwrap(),
    };
    let grant = server.served.grant(&portal.identity());
    let mut ended = 0;
    let begin = |portal: &mut Portal| {
        portal.submit(Kind::Read, class, &local, 0, &grant, 0, 4096, Some(LONG)).unwrap();
    };
    (0..2 * slots).for_each(|_| begin(&mut portal));
    while !over.load(Ordering::Acquire) {
        while let Some((_, status)) = portal.poll().unwrap() {
            assert_eq!(status, Status::Ok);
            ended += 1;
            begin(&mut portal);
        }
    }
    ended
}

/// Measures 64-byte reads, one at a time: the median and the 99th percentile of the delay in nanoseconds.
fn small_reads(nic: &str, server: &Peer) -> [u128; 2] {
    let mut peer = Peer::new(open(nic), 1);
    let grant = server.served.grant(&peer.portal.identity());
    let mut delays: Vec<u128> = (0..20_000)
        .map(|_| {
            let begun = std::time::Instant::now();
            peer.portal.read(&peer.local, 0, &grant, 0, 64, LONG).unwrap();
            begun.elapsed().as_nanos()
        })
        .collect();
    delays.sort_unstable();
    [delays[delays.len() / 2], delays[delays.len() * 99 / 100]]
}

/// Shares of users in proportion to their slots, on a real daemon. The results depend on the machine and are
/// printed.
#[test]
#[ignore = "measures: run it alone, on an idle machine"]
fn soak_shares_of_slots_and_delays_beside_bulk() {
    const WHILE: Duration = Duration::from_secs(3);
    let lender = Lender::start("udp", "rma-soak");
    let nic = lender.nic();
    let server = Peer::new(own("udp"), 1);
    let run = |programs: &[(u16, Class)], meanwhile: &mut dyn FnMut()| -> Vec<u64> {
        let over = AtomicBool::new(false);
        let server = &server;
        std::thread::scope(|scope| {
            let program = |(slots, class)| {
                scope.spawn({
                    let over = &over;
                    move || busy(nic, server, slots, class, over)
                })
            };
            let programs: Vec<_> = programs.iter().copied().map(program).collect();
            meanwhile();
            over.store(true, Ordering::Release);
            programs.into_iter().map(|program| program.join().unwrap()).collect()
        })
    };
    let ended = run(&[4, 16, 64].map(|slots| (slots, Class::Latency)), &mut || std::thread::sleep(WHILE));
    println!("4, 16, 64 slots: {ended:?} reads of 4 KB in {WHILE:?}");
    let bulk = run(&[(64, Class::Bulk)], &mut || std::thread::sleep(WHILE));
    println!("a chunk takes {} ns", WHILE.as_nanos() as u64 / bulk[0].max(1));
    println!("64-byte reads alone: median and p99 {:?} ns", small_reads(nic, &server));
    let mut beside = [0; 2];
    run(&[(64, Class::Bulk)], &mut || beside = small_reads(nic, &server));
    println!("64-byte reads beside bulk: median and p99 {beside:?} ns");
    assert!(ended[0] < ended[1] && ended[1] < ended[2], "more slots do not give more reads: {ended:?}");
}
