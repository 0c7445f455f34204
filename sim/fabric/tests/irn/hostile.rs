//! Invalid input over IRN: packets that no correct requester or responder sends are dropped or refused,
//! without a panic.

use crate::bench::good;
use crate::{bench, settings};
use remora_fabric::Settings;
use remora_fabric::forge::Forge;
use remora_fault::Random;
use remora_nic::Status;
use remora_transport::state::State;
use remora_wire::irn::{Additions, fetch, message, sack};
use remora_wire::{
    Extensions, NakCode, Opcode, Psn, Syndrome, aeth, atomic_ack, atomic_eth, bth, ieth, immdt, reth,
};

/// Returns a random packet with an RC opcode, IRN headers that may or may not fit, and a PSN near the
/// expected one or any.
fn random_packet(random: &mut Random, forge: &Forge, near: u32, key: u32, va: u64) -> Vec<u8> {
    let opcode = loop {
        let opcode = Opcode(random.below(32) as u8);
        if opcode.is_known() {
            break opcode;
        }
    };
    let number = |random: &mut Random| match random.below(4) {
        0 => random.bits() as u32 & 0x00ff_ffff,
        _ => near.wrapping_add(random.below(12) as u32).wrapping_sub(3) & 0x00ff_ffff,
    };
    let len = random.pick(&[0, 1, 8, 255, 256, 257, 300]);
    let dma_len = random.pick(&[0, 8, 256, 300, 1 << 20, u32::MAX]);
    let reth =
        reth::Repr { va: va + random.below(64), rkey: if random.chance(0.8) { key } else { 7 }, dma_len };
    let any = [random.below(32) as u8, random.bits() as u8];
    let syndrome = random.pick(&[
        Syndrome::ack(31),
        Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR),
        Syndrome::nak(NakCode(any[0])),
        Syndrome::rnr(1),
        Syndrome(any[1]),
    ]);
    let ext = Extensions {
        reth: opcode.has_reth().then_some(reth),
        atomic: opcode.has_atomic_eth().then_some(atomic_eth::Repr {
            va: va + random.below(4) * 4,
            rkey: key,
            swap_add: 1,
            compare: 0,
        }),
        aeth: opcode.has_aeth().then_some(aeth::Repr { syndrome, msn: 0 }),
        atomic_ack: opcode.has_atomic_ack().then_some(atomic_ack::Repr { original: 5 }),
        imm: opcode.has_imm().then_some(immdt::Repr { value: 1 }),
        ieth: opcode.has_ieth().then_some(ieth::Repr { rkey: key }),
        ..Extensions::NONE
    };
    let additions = Additions {
        reth: random.chance(0.5).then_some(reth),
        message: random
            .chance(0.5)
            .then(|| message::Repr { number: number(random), offset: random.pick(&[0, 256, 300, u32::MAX]) }),
        fetch: random.chance(0.5).then(|| fetch::Repr { number: number(random) }),
        sack: random.chance(0.5).then(|| sack::Repr { psn: Psn::new(number(random)) }),
    };
    let mut payload = vec![0; additions.len()];
    additions.emit(&mut payload);
    payload.extend(vec![0xee; len]);
    let bth = bth::Repr { ack_req: random.chance(0.5), ..forge.bth(opcode, number(random)) };
    forge.frame(bth, ext, &payload)
}

#[test]
fn thirty_thousand_packets_of_a_peer_gone_mad_break_nothing_but_its_own_queue_pair() {
    let mut random = Random::new(7);
    let mut ended = 0;
    for _ in 0..150 {
        let mut bench = crate::bench::Bench::new(&Settings { max_dest_rd_atomic: 3, ..settings() });
        let guard = bench.world.register(1, 4096, remora_memory::Access::LOCAL_WRITE);
        let forge = Forge::new(&bench.world, 0, bench.right);
        (0..4).for_each(|id| bench.receive(id, 300));
        for round in 0..200 {
            let key = bench.there.key.get();
            let va = bench.there.address;
            let frame = random_packet(&mut random, &forge, round / 20, key, va);
            forge.send(&mut bench.world, &frame);
            if round % 10 == 0 {
                bench.world.run_for(3_000);
            }
        }
        bench.world.run_for(50_000_000);
        assert_eq!(guard.load(0, 4096), vec![0; 4096], "memory that no key of the peer's reaches");
        ended += u32::from(bench.world.state(bench.right) == Some(State::Err));
    }
    assert!(ended > 30, "{ended} queue pairs were ended by a bad request");
}

#[test]
fn a_requester_survives_answers_of_a_peer_gone_mad() {
    let mut random = Random::new(8);
    let mut alive = 0;
    for _ in 0..100 {
        let mut bench = bench();
        let forge = Forge::new(&bench.world, 1, bench.left);
        bench.world.cut(0, 1, true);
        bench.read(1, 700);
        bench.write(2, 700);
        bench.send(3, 10);
        bench.world.run_for(100);
        for round in 0..100 {
            let key = bench.here.key.get();
            let va = bench.here.address + (3 << 20);
            let frame = random_packet(&mut random, &forge, round / 25, key, va);
            forge.send(&mut bench.world, &frame);
        }
        bench.world.run_for(50_000_000);
        alive += u32::from(bench.world.state(bench.left) == Some(State::Rts));
    }
    assert!(alive < 100, "some answers end a queue pair");
}

#[test]
fn packets_without_their_additions_are_invalid_requests() {
    for opcode in [Opcode::RC_SEND_ONLY, Opcode::RC_RDMA_WRITE_LAST, Opcode::RC_RDMA_READ_REQUEST] {
        let mut bench = bench();
        let forge = Forge::new(&bench.world, 0, bench.right);
        let reth = reth::Repr { va: bench.there.address, rkey: bench.there.key.get(), dma_len: 4 };
        let ext = Extensions { reth: opcode.has_reth().then_some(reth), ..Extensions::NONE };
        let frame = forge.frame(forge.bth(opcode, 0), ext, &[]);
        forge.send(&mut bench.world, &frame);
        bench.world.run_for(10_000);
        assert_eq!(bench.world.counters(1).resp_remote_invalid_request, 1, "{opcode}");
        assert_eq!(bench.world.state(bench.right), Some(State::Err), "{opcode}");
    }
}

#[test]
fn irns_own_packets_mean_nothing_to_a_queue_pair_without_irn() {
    let mut bench = crate::bench::Bench::new(&Settings { irn: None, ..settings() });
    let forge = Forge::new(&bench.world, 0, bench.right);
    let aeth = Some(aeth::Repr { syndrome: Syndrome::nak(NakCode::PSN_SEQUENCE_ERROR), msn: 0 });
    for payload in [&[][..], &[0, 0, 0, 3]] {
        let frame = forge.frame(
            forge.bth(Opcode::IRN_READ_ACKNOWLEDGE, 0),
            Extensions { aeth, ..Extensions::NONE },
            payload,
        );
        forge.send(&mut bench.world, &frame);
    }
    bench.world.run_for(10_000);
    assert_eq!(bench.world.state(bench.right), Some(State::Rts));
    bench.write(1, 64);
    assert_eq!(bench.settle(), good([1]));
}

#[test]
fn what_is_further_ahead_than_the_bitmap_reaches_is_dropped() {
    let mut bench = bench();
    let forge = Forge::new(&bench.world, 0, bench.right);
    let reth = reth::Repr { va: bench.there.address, rkey: bench.there.key.get(), dma_len: 8 };
    let ext = Extensions { reth: Some(reth), ..Extensions::NONE };
    for (psn, placed) in [(128, false), (127, true)] {
        let frame = forge.frame(forge.bth(Opcode::RC_RDMA_WRITE_ONLY, psn), ext, &[0xee; 8]);
        forge.send(&mut bench.world, &frame);
        bench.world.run_for(10_000);
        assert_eq!(bench.there.load(0, 1), [if placed { 0xee } else { 0 }], "psn {psn}");
    }
    let counters = bench.world.counters(1);
    assert_eq!((counters.irn_beyond_pkts, counters.irn_ahead_pkts), (1, 1));
}

/// All unacknowledged packets are reported as arrived. So nothing needs retransmission, and nothing starts
/// the timer.
///
/// Regression: a peer that acknowledged what it could not take left a request without a timer.
#[test]
fn a_peer_that_acknowledges_what_it_could_not_take_is_given_up_by_the_timer() {
    let short = Settings { retry_cnt: 1, rnr_retry: 1, timeout: 1, ..settings() };
    let mut bench = crate::bench::Bench::new(&short);
    // No receive is posted for the SEND. The three packets of the WRITE arrive before it could be placed.
    bench.send(1, 0);
    bench.write(2, 594);
    let forge = Forge::new(&bench.world, 1, bench.left);
    let ext =
        Extensions { aeth: Some(aeth::Repr { syndrome: Syndrome::rnr(17), msn: 0 }), ..Extensions::NONE };
    let lie = forge.frame(forge.bth(Opcode::RC_ACKNOWLEDGE, 1), ext, &[]);
    bench.world.run_for(100);
    forge.send(&mut bench.world, &lie);
    assert_eq!(bench.settle(), [(1, Status::Success), (2, Status::RetryExceeded)]);
}
