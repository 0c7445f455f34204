//! Messages that are altered, truncated, reflected or sent in masses.

use remora_transport::rma::{Settings, Status};
use remora_wire::rma::{Kind, TagSequence};

use super::{Forger, Taken, patient, request};
use crate::bed::{Bed, CLIENT, LEN, SERVER, key};

/// Returns all alterations of a message: each bit flipped, each shorter length, and additional bytes.
fn bent(message: &[u8]) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..message.len()).map(|len| message[..len].to_vec()).collect();
    for bit in 0..message.len() * 8 {
        let mut flipped = message.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        all.push(flipped);
    }
    all.push([message, &[0]].concat());
    for length in [0_u32, 4097, u32::MAX] {
        let mut changed = message.to_vec();
        changed[16..20].copy_from_slice(&length.to_be_bytes());
        all.push(changed);
    }
    for offset in [u64::MAX, u64::MAX - 63, 1 << 63] {
        let mut changed = message.to_vec();
        changed[8..16].copy_from_slice(&offset.to_be_bytes());
        all.push(changed);
    }
    all
}

/// Returns the messages of an operation up to the first of this kind, which is held back.
fn held(bed: &mut Bed, operation: Kind, kind: Kind) -> Taken {
    bed.world.tap();
    bed.taken();
    bed.cut_both(true);
    let command = bed.command(0, operation, 16, [0, 0]);
    bed.world.issue(&mut bed.portal, &command);
    let deliver: Vec<Kind> = Kind::ALL.into_iter().filter(|other| *other != kind).collect();
    let taken = bed.until(kind, &deliver);
    taken.into_iter().find(|taken| taken.kind() == kind).unwrap()
}

/// Attack 5: altered messages are neither accepted nor answered like valid ones, and the original is still
/// accepted.
#[test]
fn no_bent_message_of_any_kind_is_accepted() {
    let cases = [
        (Kind::Read, Kind::Read),
        (Kind::Read, Kind::Data),
        (Kind::Write, Kind::Write),
        (Kind::Write, Kind::Solicit),
        (Kind::Write, Kind::Data),
        (Kind::Write, Kind::Completion),
        (Kind::Rekey, Kind::Rekey),
        (Kind::Rekey, Kind::Solicit),
        (Kind::Rekey, Kind::Data),
        (Kind::Rekey, Kind::Completion),
    ];
    for (operation, kind) in cases {
        let settings = Settings { served: 4096, ..patient() };
        let mut bed = Bed::new(&settings);
        let message = held(&mut bed, operation, kind);
        let before = [bed.local.memory.load(0, LEN), bed.served.memory.load(0, LEN)];
        let served = bed.world.counters(SERVER).rma_served;
        let key_before = bed.world.regions(SERVER).get(bed.served.id).unwrap().region_key;
        for bytes in bent(&message.bytes) {
            bed.inject(message.from, message.to, &bytes);
        }
        assert_eq!(bed.world.poll_rma(bed.cq), None, "{operation:?} ended by a bent {kind:?}");
        assert_eq!(bed.world.counters(SERVER).rma_served, served, "a bent {kind:?} is served");
        assert!(bed.local.memory.load(0, LEN) == before[0] && bed.served.memory.load(0, LEN) == before[1]);
        let key_after = bed.world.regions(SERVER).get(bed.served.id).unwrap().region_key;
        assert!(key_before == key_after, "{operation:?} by a bent {kind:?}");
        // The original message is still valid.
        bed.cut_both(false);
        bed.again(&message);
        assert_eq!(bed.wait().status, Status::Ok, "{operation:?} {kind:?}");
    }
}

/// Attack 10: messages are reflected, or sent as another kind.
#[test]
fn reflected_messages_fit_nowhere() {
    let mut bed = Bed::new(&patient());
    // The client serves a region with the same RegionId under the same key.
    let own = bed.world.expose(&bed.local.memory, crate::bed::ALL, key(1)).unwrap();
    assert_eq!(bed.world.regions(CLIENT).get(own.id).unwrap().region_key, key(1));
    for (operation, kinds) in [
        (Kind::Read, &[Kind::Read, Kind::Data][..]),
        (Kind::Write, &[Kind::Write, Kind::Solicit, Kind::Data]),
    ] {
        for kind in kinds {
            let message = held(&mut bed, operation, *kind);
            let before = [bed.local.memory.load(0, LEN), bed.served.memory.load(0, LEN)];
            let served = [SERVER, CLIENT].map(|node| bed.world.counters(node).rma_served);
            // Back to its sender, unchanged and as any other kind.
            for other in Kind::ALL {
                let mut bytes = message.bytes.clone();
                bytes[0] = other as u8;
                bytes[4..8].copy_from_slice(&own.id.to_be_bytes());
                bed.inject(message.to, message.from, &bytes);
                bytes[4..8].copy_from_slice(&message.bytes[4..8]);
                bed.inject(message.to, message.from, &bytes);
                if other != message.kind() {
                    bed.inject(message.from, message.to, &bytes);
                }
            }
            assert_eq!([SERVER, CLIENT].map(|node| bed.world.counters(node).rma_served), served);
            assert!(
                bed.local.memory.load(0, LEN) == before[0] && bed.served.memory.load(0, LEN) == before[1]
            );
            assert_eq!(bed.world.poll_rma(bed.cq), None, "{operation:?} {kind:?}");
            bed.cut_both(false);
            bed.again(&message);
            assert_eq!(bed.wait().status, Status::Ok);
            bed.world.run_for(100_000);
        }
    }
}

/// Attack 13: a victim whose address is spoofed gets no more bytes from a server than the attacker sent, and
/// failures only at a limited rate.
#[test]
fn a_stranger_gets_no_more_than_it_sends_and_failures_at_a_limited_rate() {
    let settings = Settings { failures_per_second: 100_000, ..patient() };
    let mut bed = Bed::new(&settings);
    bed.world.tap();
    let mut forger = Forger::new();
    let began = bed.world.now();
    let mut asked = 0;
    for round in 0..5_000_u32 {
        let (header, body) = request(Kind::Read, 1 + round % 70, 0, 4096);
        let (bytes, _) = forger.seal(header, body, &TagSequence::EMPTY, &[round as u8; 16], &[]);
        asked += bytes.len();
        bed.inject(CLIENT, SERVER, &bytes);
    }
    bed.world.run_for(10_000);
    let answers: Vec<Taken> = bed.taken().into_iter().filter(|taken| taken.from == SERVER).collect();
    let answered: usize = answers.iter().map(|taken| taken.bytes.len()).sum();
    assert!(answers.iter().all(|taken| taken.kind() == Kind::AuthenticationFailure));
    assert!(answered <= asked, "{answered} bytes for {asked}");
    let allowed = 64 + bed.world.now().since(began) * 100_000 / 1_000_000_000 + 1;
    assert!(answers.len() as u64 <= allowed, "{} failures, {allowed} allowed", answers.len());
    assert!(answers.len() >= 64, "{} failures", answers.len());
    let counters = bed.world.counters(SERVER);
    assert_eq!(counters.rma_failures_suppressed + answers.len() as u64, 5_000);
    // A replayed read is authentic, so it is served: this is the most that a victim can be made to receive.
    let command = bed.command(0, Kind::Read, 4096, [0, 0]);
    assert_eq!(bed.run(&command).status, Status::Ok);
    let read = bed.taken().into_iter().find(|taken| taken.kind() == Kind::Read).unwrap();
    bed.again(&read);
    bed.world.run_for(10_000);
    let data: usize =
        bed.taken().iter().filter(|taken| taken.from == SERVER).map(|taken| taken.bytes.len()).sum();
    println!("a replayed read of {} bytes is answered by {data} bytes", read.bytes.len());
    assert_eq!(data, 4096 + 48);
}

/// Attack 15: a flood by one initiator is refused, and the reads of another one continue.
#[test]
fn a_flood_of_writes_and_bad_requests_keeps_nobody_elses_reads_out() {
    let settings = Settings { served: 64, ..Settings::paper() };
    let mut bed = Bed::new(&settings);
    let mut forger = Forger::new();
    let identity = remora_nic::rma::Identity {
        address: bed.world.endpoint(CLIENT).address,
        pid: 17,
        incarnation: 0x1234_5678,
        kind: Kind::Write,
    };
    let mine = forger.derive(&[1; 16], &identity);
    let mut ok = 0;
    for round in 0..300_u32 {
        for _ in 0..8 {
            let (header, body) = request(Kind::Write, bed.served.id, 0, 4096);
            let (bytes, _) = forger.seal(header, body, &TagSequence::EMPTY, &mine, &[]);
            bed.inject(CLIENT, SERVER, &bytes);
            let (bytes, _) = forger.seal(header, body, &TagSequence::EMPTY, &[round as u8; 16], &[]);
            bed.inject(CLIENT, SERVER, &bytes);
        }
        if round % 10 == 0 {
            let command = bed.command(0, Kind::Read, 64, [0, 0]);
            ok += u32::from(bed.run(&command).status == Status::Ok);
        }
        bed.world.run_for(1_000);
    }
    let counters = bed.world.counters(SERVER);
    assert!(counters.rma_nacks_sent > 0 && counters.rma_bad_requests == 2_400, "{counters:?}");
    println!("{ok} of 30 reads beside the flood; {} NACKs", counters.rma_nacks_sent);
    assert!(ok >= 10, "{ok} of 30 reads");
    bed.assert_idle(&settings);
}

/// Random bytes after each possible first byte, and random changes of valid messages.
#[test]
fn no_random_forgery_is_accepted() {
    let mut bed = Bed::new(&Settings { served: 4096, ..patient() });
    let mut random = remora_fault::Random::new(1);
    let message = held(&mut bed, Kind::Write, Kind::Data);
    let before = [bed.local.memory.load(0, LEN), bed.served.memory.load(0, LEN)];
    let served = bed.world.counters(SERVER).rma_served;
    let forgeries = if std::env::var_os("REMORA_WHOLE").is_some() { 10_000_000 } else { 200_000 };
    for _ in 0..forgeries {
        let (receiver, sender) = if random.chance(0.5) { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
        let mut bytes = message.bytes.clone();
        if random.chance(0.5) {
            bytes.resize(random.between(32, 120) as usize, 0);
            random.fill(&mut bytes);
            (bytes[0], bytes[1]) = (0xe0 | bytes[0] & 7, bytes[1] & 1);
            bytes[2] &= 0x80;
        } else {
            for _ in 0..random.between(1, 4) {
                let index = random.below(bytes.len() as u64) as usize;
                bytes[index] ^= random.between(1, 255) as u8;
            }
            // Two changes of a byte may cancel out.
            if bytes == message.bytes {
                continue;
            }
        }
        let route = bed.world.route(sender, receiver);
        let mut frame = vec![0; 28];
        route.emit(remora_wire::frame::Start::Ip, 0, bytes.len() as u16, &mut frame);
        frame.extend_from_slice(&bytes);
        bed.world.inject(sender, receiver, &frame);
        if random.chance(0.01) {
            bed.world.run_for(2);
        }
    }
    bed.world.run_for(100);
    assert_eq!(bed.world.poll_rma(bed.cq), None);
    assert_eq!(bed.world.counters(SERVER).rma_served, served);
    assert!(bed.local.memory.load(0, LEN) == before[0] && bed.served.memory.load(0, LEN) == before[1]);
    assert!(
        bed.world.counters(SERVER).rma_bad_requests > 0 && bed.world.counters(SERVER).rma_bad_responses > 0
    );
}
