//! Attacks that need real memory and more than one engine, numbered as in the list of
//! `docs/reference/rma.md`.

use crate::bed::{ALL, Bed, MS, SetAtEnd, devices, options, share, short_timers};
use remora_cipher::Aes;
use remora_nic::rma::cipher::{KEY_LEN, NONCE_LEN, TAG_LEN};
use remora_verbs::rma::{
    Cipher, Grant, Portal, RegionKey, Rights, Rma, RmaError, RmaOptions, RmaRegion, Settings, Status,
};
use remora_verbs::{Access, Device, Mode};
use remora_wire::rma::{Class, Kind};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of messages whose tags are spoiled, bytes of other messages, and the initial bytes of their target
/// regions.
const SECRET: u8 = 0x5a;
const OTHER: u8 = 0x33;
const EMPTY: u8 = 0xa5;
const PART: usize = 64 << 10;

/// A cipher that gives a wrong tag to data that begins with [`SECRET`].
struct Spoiled(Aes);

impl Cipher for Spoiled {
    fn places(&self) -> usize {
        self.0.places()
    }

    fn load(&mut self, place: usize, key: &[u8; KEY_LEN]) {
        self.0.load(place, key);
    }

    fn wipe(&mut self, place: usize) {
        self.0.wipe(place);
    }

    fn seal(&mut self, place: usize, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let spoil = text.first() == Some(&SECRET);
        let mut tag = self.0.seal(place, nonce, aad, text);
        tag[nonce[11] as usize % TAG_LEN] ^= u8::from(spoil);
        tag
    }

    fn open(
        &mut self,
        place: usize,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        self.0.open(place, nonce, aad, text, tag)
    }

    fn derive(&mut self, key: &[u8; KEY_LEN], identity: &[u8; 32]) -> [u8; KEY_LEN] {
        self.0.derive(key, identity)
    }
}

fn filled(region: &RmaRegion, parts: [u8; 4]) {
    for (part, byte) in parts.into_iter().enumerate() {
        region.memory().write(part * PART, &vec![byte; PART]).unwrap();
    }
}

/// The number of bytes other than `byte` in a part of a region.
fn strangers(region: &RmaRegion, part: usize, byte: u8) -> usize {
    let mut bytes = vec![0; PART];
    region.memory().read(part * PART, &mut bytes).unwrap();
    bytes.iter().filter(|other| **other != byte).count()
}

/// Returns whether a run of secret bytes is in memory that this process shares with others.
fn stands_in_shared_rings() -> bool {
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rings: Vec<&str> = maps.lines().filter(|line| line.contains("remora-link")).collect();
    assert!(!rings.is_empty(), "there are rings between the two");
    rings.iter().any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        let mut bytes = vec![0; (end - start) as usize];
        let read = memory.read_at(&mut bytes, start).unwrap_or(0);
        bytes[..read].windows(16).any(|run| run == [SECRET; 16] || run == [OTHER; 16])
    })
}

/// Reads and writes data with wrong tags, together with data whose tags are right. The four parts of each
/// region hold secret bytes, other bytes, and the targets of both.
fn plaintext_stays_hidden(port: &str, rounds: u64) {
    let spoiled = || Box::new(Spoiled(Aes::new(64))) as Box<dyn Cipher>;
    let mut bed = Bed::new(port, short_timers(), [spoiled(), spoiled()]);
    filled(&bed.served, [SECRET, OTHER, EMPTY, EMPTY]);
    filled(&bed.local, [SECRET, OTHER, EMPTY, EMPTY]);
    let grant = bed.grant();
    let part = PART as u64;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = |region: &RmaRegion| {
            while !over.load(Ordering::Acquire) {
                assert_eq!(strangers(region, 2, EMPTY), 0, "{port}: bytes whose tag was wrong");
            }
        };
        let served = &bed.served;
        let local = &bed.local;
        scope.spawn(move || watch(served));
        scope.spawn(move || watch(local));
        let _ends = SetAtEnd(&over);
        let portal = &mut bed.portal;
        for round in 0..rounds {
            let offset = round * 64 % (part - 4096);
            for (kind, [source, target]) in
                [Kind::Read, Kind::Write].iter().flat_map(|kind| [(kind, [0, 2]), (kind, [1, 3])])
            {
                let (mine, theirs) = if *kind == Kind::Read { (target, source) } else { (source, target) };
                let [mine, theirs] = [mine, theirs].map(|index| index * part + offset);
                portal.submit(*kind, Class::Latency, local, mine, &grant, theirs, 4096, None).unwrap();
            }
            let mut statuses = Vec::new();
            while statuses.len() < 4 {
                statuses.extend(portal.poll().unwrap().map(|(_, status)| status));
                bed.server_cq.poll(&mut []).unwrap();
            }
            let failed = statuses.iter().filter(|status| **status != Status::Ok).count();
            assert!(failed >= 2, "{port}: data with a wrong tag is no data: {statuses:?}");
        }
    });
    let bad: u64 = bed.contexts.iter().map(|context| context.counters().rma_bad_responses).sum();
    assert!(bad > rounds / 2, "{port}: {bad} wrong tags");
    assert!(port != "shm" || !stands_in_shared_rings(), "plaintext in a shared ring");
    bed.wait_until_idle();
}

/// Runs the same transfers with right tags. The search must find their bytes.
fn with_right_tags_the_bytes_come(port: &str) {
    let plain = || Box::new(Aes::new(64)) as Box<dyn Cipher>;
    let mut bed = Bed::new(port, short_timers(), [plain(), plain()]);
    filled(&bed.served, [SECRET, OTHER, EMPTY, EMPTY]);
    filled(&bed.local, [SECRET, OTHER, EMPTY, EMPTY]);
    let grant = bed.grant();
    let part = PART as u64;
    bed.portal.read(&bed.local, 2 * part, &grant, 0, 4096, PATIENCE).unwrap();
    bed.portal.write(&bed.local, 0, &grant, 2 * part, 4096, PATIENCE).unwrap();
    assert_eq!((strangers(&bed.local, 2, EMPTY), strangers(&bed.served, 2, EMPTY)), (4096, 4096));
}

#[test]
fn rma_attack_17_plaintext_shows_only_when_its_tag_was_right_over_udp() {
    plaintext_stays_hidden("127.0.0.1:0", share(600));
    with_right_tags_the_bytes_come("127.0.0.1:0");
}

#[test]
fn rma_attack_17_plaintext_shows_only_when_its_tag_was_right_over_shm() {
    plaintext_stays_hidden("shm", share(600));
    with_right_tags_the_bytes_come("shm");
}

/// A client that writes to one engine of the server until it is told to stop.
struct Writer {
    portal: Portal,
    local: RmaRegion,
}

/// Timeouts for a network that loses nothing: a late thread only waits for a core.
fn patient() -> RmaOptions {
    let settings = Settings {
        dispatch_timeout: 1_000 * MS,
        timeout: 2_000 * MS,
        max_server_timeout: 2_000 * MS,
        ..short_timers()
    };
    options(settings)
}

impl Writer {
    fn new(device: &Device) -> Writer {
        let context = device.open().unwrap();
        let rma = context.open_rma(&patient()).unwrap();
        let domain = context.alloc_pd().unwrap();
        let memory = domain.allocate(PART, Access::LOCAL_WRITE).unwrap();
        let local = rma.expose(memory, Rights::NONE, None).unwrap();
        let portal = rma.create_portal(&domain, 32).unwrap();
        Writer { portal, local }
    }

    fn grant(&self, region: &RmaRegion, key: &RegionKey, engine: &Rma) -> Grant {
        let mut grant = region.grant_under(&self.portal.identity(), key);
        grant.server = engine.endpoint();
        grant
    }
}

fn key(number: u64) -> RegionKey {
    RegionKey::new([number as u8 % 250 + 1; 16]).unwrap()
}

/// The shared state of the three threads. Keys are numbered.
#[derive(Default)]
struct Shared {
    /// The number of the newest key that writers may know.
    known: AtomicU64,
    /// The number of the key whose rekey has completed.
    completed: AtomicU64,
    /// For each writer, the number of the newest key such that no operation under an older key is in
    /// progress.
    ended: [AtomicU64; 2],
    over: AtomicBool,
}

/// A writer's transfers in progress. The value is true for a transfer that began after the rekey that
/// replaced its key.
type Begun = BTreeMap<u64, bool>;

/// Takes the end of a transfer, if there is one. Returns whether the transfer must not succeed.
fn take_end(portal: &mut Portal, begun: &mut Begun) -> Option<bool> {
    let (id, status) = portal.poll().unwrap()?;
    let is_late = begun.remove(&id).expect("a transfer has ended twice");
    assert!(!is_late || status != Status::Ok, "a transfer under an old key succeeded");
    Some(is_late)
}

/// Keeps 32 operations of 4 KB in progress under the newest key that the writer knows. Operations that began
/// after a rekey had completed must not succeed.
fn write_on(writer: &mut Writer, index: usize, served: &RmaRegion, engine: &Rma, shared: &Shared) {
    let _ends = SetAtEnd(&shared.over);
    let mut round = 0_u64;
    let mut begun = Begun::new();
    let mut late = 0;
    while !shared.over.load(Ordering::Acquire) {
        let known = shared.known.load(Ordering::Acquire);
        let completed = shared.completed.load(Ordering::Acquire);
        let grant = writer.grant(served, &key(known), engine);
        let Writer { portal, local, .. } = writer;
        while begun.len() < 32 {
            round += 1;
            local.memory().write(0, &round.to_le_bytes()).unwrap();
            let offset = (index as u64) * 2 * PART as u64 + round % 16 * 4096;
            let kind = if round.is_multiple_of(3) { Kind::Read } else { Kind::Write };
            let local_offset = if kind == Kind::Read { 4096 } else { 0 };
            let id =
                portal.submit(kind, Class::Latency, local, local_offset, &grant, offset, 4096, None).unwrap();
            begun.insert(id, completed > known);
        }
        while let Some(is_late) = take_end(portal, &mut begun) {
            late += u64::from(is_late);
        }
        if completed > known {
            while !begun.is_empty() {
                late += u64::from(take_end(portal, &mut begun) == Some(true));
            }
            shared.ended[index].store(completed, Ordering::Release);
            while shared.known.load(Ordering::Acquire) < completed && !shared.over.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        }
    }
    assert!(late > 0, "an operation under an old key was begun and refused");
}

/// Changes the key by 1RMA, alternately through both engines. After each completion the region must not
/// change until the writers learn the new key.
fn rekey_on(writer: &mut Writer, served: &RmaRegion, engines: [&Rma; 2], shared: &Shared, rounds: u64) {
    let mut image = vec![0; crate::bed::LEN];
    let mut after = image.clone();
    let mut failed = 0;
    let mut number = 0;
    while number < rounds {
        let next = number + 1;
        writer.local.memory().write(0, key(next).bytes()).unwrap();
        let grant = writer.grant(served, &key(number), engines[number as usize % 2]);
        let ended = writer.portal.rekey(&writer.local, 0, &grant);
        assert!(matches!(ended, Ok(()) | Err(RmaError::Failed(_))), "{ended:?}");
        let present = served.grant(&writer.portal.identity());
        let is_key = |number| present == served.grant_under(&writer.portal.identity(), &key(number));
        assert!(is_key(number) || is_key(next), "the key is a mixture of two keys");
        if !is_key(next) {
            failed += 1;
            continue;
        }
        served.memory().read(0, &mut image).unwrap();
        shared.completed.store(next, Ordering::Release);
        while shared.ended.iter().any(|ended| ended.load(Ordering::Acquire) < next) {
            assert!(!shared.over.load(Ordering::Acquire), "a writer ended early");
            std::thread::yield_now();
        }
        served.memory().read(0, &mut after).unwrap();
        // A rekey that did not complete leaves a copy in progress possible.
        assert!(ended.is_err() || image == after, "the region changed under an old key");
        number = next;
        shared.known.store(number, Ordering::Release);
        failed += u64::from(ended.is_err());
    }
    assert!(failed < rounds, "all rekeys have failed");
}

fn rekey_under_load(server: &Device, client: &Device, rounds: u64) {
    let context = server.clone().engines(2).mode(Mode::Dedicated).open().unwrap();
    let first = context.open_rma(&patient()).unwrap();
    let second = first.on_engine(1).unwrap();
    assert_ne!(first.endpoint(), second.endpoint());
    let memory = context.alloc_pd().unwrap().allocate(crate::bed::LEN, Access::LOCAL_WRITE).unwrap();
    let served = first.expose(memory, ALL, Some(key(0))).unwrap();
    let [mut one, mut two, mut three] = [(); 3].map(|()| Writer::new(client));
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let served = &served;
        let shared = &shared;
        let first = &first;
        let second = &second;
        scope.spawn(move || write_on(&mut one, 0, served, first, shared));
        scope.spawn(move || write_on(&mut two, 1, served, second, shared));
        let _ends = SetAtEnd(&shared.over);
        rekey_on(&mut three, served, [first, second], shared, rounds);
    });
    let counters = context.counters();
    assert!(counters.rma_rekeys >= rounds && counters.rma_revoked > 0, "{counters:?}");
}

#[test]
fn rma_attack_18_a_rekey_under_load_ends_all_under_the_old_key_on_two_engines() {
    let [server, client] = devices("127.0.0.1:0");
    rekey_under_load(&server, &client, share(200));
}
