//! Invalid input from the wire: each packet is counted and dropped or refused, and no byte changes that
//! should not.

use crate::bench::{Bench, good};
use remora_fabric::forge::Forge;
use remora_fabric::{Config, Settings};
use remora_fault::Random;
use remora_transport::Counters;
use remora_transport::state::State;
use remora_wire::frame::Start;
use remora_wire::{
    Extensions, Opcode, Psn, Qpn, Syndrome, aeth, atomic_ack, atomic_eth, bth, ieth, immdt, reth,
};

fn bench() -> (Bench, Forge) {
    let bench = Bench::new(&Settings { mtu: 256, ..Settings::default() });
    let forge = Forge::new(&bench.world, 0, bench.right);
    (bench, forge)
}

/// Sends frames to the right and returns the change of its counters.
fn after(bench: &mut Bench, forge: &Forge, frames: &[Vec<u8>]) -> Counters {
    let before = bench.world.counters(1);
    frames.iter().for_each(|frame| forge.send(&mut bench.world, frame));
    bench.world.run_for(10_000);
    let mut moved = Counters::default();
    let now = bench.world.counters(1);
    macro_rules! difference {
        ($($name:ident)*) => { $(moved.$name = now.$name - before.$name;)* };
    }
    difference!(malformed_pkts rx_icrc_encapsulated unknown_qp rcvd_pkts out_of_sequence duplicate_request);
    difference!(resp_remote_invalid_request resp_remote_access_errors sent_pkts);
    moved
}

/// Returns a WRITE of 8 bytes of 0xee to the start of the right's region.
fn write(bench: &Bench, forge: &Forge, psn: u32) -> (bth::Repr, Extensions, [u8; 8]) {
    let reth = reth::Repr { va: bench.there.address, rkey: bench.there.key.get(), dma_len: 8 };
    let ext = Extensions { reth: Some(reth), ..Extensions::NONE };
    (bth::Repr { ack_req: true, ..forge.bth(Opcode::RC_RDMA_WRITE_ONLY, psn) }, ext, [0xee; 8])
}

fn untouched(bench: &mut Bench) {
    assert_eq!(bench.there.load(0, 4096), vec![0; 4096]);
    bench.world.sent();
    bench.write(1, 300);
    assert_eq!(bench.settle(), good([1]), "the connection lives on");
}

#[test]
fn the_forged_packet_of_these_tests_is_a_good_one() {
    let (mut bench, forge) = bench();
    let (bth, ext, payload) = write(&bench, &forge, 0);
    let moved = after(&mut bench, &forge, &[forge.frame(bth, ext, &payload)]);
    assert_eq!((moved.rcvd_pkts, moved.sent_pkts), (1, 1));
    assert_eq!(bench.there.load(0, 9), [&[0xee; 8][..], &[0]].concat());
}

#[test]
fn truncated_and_oversized_frames_are_malformed() {
    let (mut bench, forge) = bench();
    let (bth, ext, payload) = write(&bench, &forge, 0);
    let whole = forge.frame(bth, ext, &payload);
    let cut: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].to_vec()).collect();
    let moved = after(&mut bench, &forge, &cut);
    assert_eq!((moved.malformed_pkts, moved.rcvd_pkts), (whole.len() as u64, 0));
    // Bytes beyond the length in the IP header are padding of a lower layer. A frame longer than the path MTU
    // is an invalid request.
    let padded = [whole.clone(), vec![0; 40]].concat();
    let moved = after(&mut bench, &forge, &[padded]);
    assert_eq!((moved.malformed_pkts, moved.rcvd_pkts), (0, 1));
    bench.there.store(0, &[0; 8]);
    let reth = reth::Repr { va: bench.there.address, rkey: bench.there.key.get(), dma_len: 4096 };
    let ext = Extensions { reth: Some(reth), ..Extensions::NONE };
    let huge = forge.frame(forge.bth(Opcode::RC_RDMA_WRITE_ONLY, 1), ext, &[0xee; 4096]);
    let moved = after(&mut bench, &forge, &[huge]);
    assert_eq!(moved.resp_remote_invalid_request, 1);
    assert_eq!(bench.there.load(0, 4096), vec![0; 4096]);
    assert_eq!(bench.world.state(bench.right), Some(State::Err));
}

#[test]
fn a_wrong_icrc_is_counted_and_dropped_whichever_bit_is_wrong() {
    let (mut bench, forge) = bench();
    let (bth, ext, payload) = write(&bench, &forge, 0);
    let whole = forge.frame(bth, ext, &payload);
    let from_bth = Start::Ip.overhead(true);
    // Every bit from the BTH on; byte 4 of the BTH is not covered.
    let bits = (from_bth * 8..whole.len() * 8).filter(|bit| bit / 8 != from_bth + 4);
    let turned: Vec<Vec<u8>> = bits
        .map(|bit| {
            let mut frame = whole.clone();
            remora_fault::flip(&mut frame, bit as u32);
            frame
        })
        .collect();
    let moved = after(&mut bench, &forge, &turned);
    assert_eq!(moved.rcvd_pkts, 0);
    let counted = moved.rx_icrc_encapsulated + moved.malformed_pkts + moved.unknown_qp;
    assert_eq!(counted, turned.len() as u64);
    assert!(moved.rx_icrc_encapsulated > 200);
    untouched(&mut bench);
}

#[test]
fn unknown_and_foreign_op_codes_are_dropped() {
    let (mut bench, forge) = bench();
    let body = [0u8; 64];
    for opcode in 0..=255u8 {
        // CNPs are for every connected queue pair (`congestion.rs`).
        if matches!(Opcode(opcode).service(), Some(remora_wire::Service::Rc | remora_wire::Service::Cnp)) {
            continue;
        }
        let mut transport = body.to_vec();
        forge.bth(Opcode(opcode), 0).emit(&mut transport);
        let moved = after(&mut bench, &forge, &[forge.wrap(transport)]);
        let counted = moved.malformed_pkts + moved.unknown_qp;
        assert_eq!((counted, moved.rcvd_pkts), (1, 0), "op-code {opcode:#x}");
    }
    untouched(&mut bench);
}

#[test]
fn a_wrong_queue_pair_number_address_key_or_version_is_dropped() {
    let (mut bench, forge) = bench();
    let (bth, ext, payload) = write(&bench, &forge, 0);
    let wrong = [
        bth::Repr { dest_qp: Qpn::new(bth.dest_qp.get() + 1), ..bth },
        bth::Repr { dest_qp: Qpn::new(0), ..bth },
        bth::Repr { dest_qp: Qpn::new(0xff_ffff), ..bth },
        bth::Repr { pkey: 0x1234, ..bth },
        bth::Repr { tver: 1, ..bth },
    ];
    let frames: Vec<_> = wrong.iter().map(|bth| forge.frame(*bth, ext, &payload)).collect();
    let moved = after(&mut bench, &forge, &frames);
    assert_eq!((moved.unknown_qp, moved.rcvd_pkts), (5, 0));

    // A third node that knows everything but has another address.
    let mut bench = Bench::over(&Config { nodes: 3, ..Config::default() }, &Settings::default());
    let stranger = Forge::new(&bench.world, 2, bench.right);
    let (bth, ext, payload) = write(&bench, &stranger, 0);
    let moved = after(&mut bench, &stranger, &[stranger.frame(bth, ext, &payload)]);
    assert_eq!((moved.unknown_qp, moved.rcvd_pkts), (1, 0));
    untouched(&mut bench);
}

#[test]
fn packets_out_of_the_window_are_gaps_or_duplicates_and_execute_nothing() {
    let (mut bench, forge) = bench();
    for (psn, gap) in [(5, true), (1000, true), (0x7f_ffff, true), (0x80_0000, false), (0xff_ffff, false)] {
        let (bth, ext, payload) = write(&bench, &forge, psn);
        let moved = after(&mut bench, &forge, &[forge.frame(bth, ext, &payload)]);
        assert_eq!(
            (moved.out_of_sequence, moved.duplicate_request),
            (u64::from(gap), u64::from(!gap)),
            "{psn:#x}"
        );
    }
    untouched(&mut bench);
}

#[test]
fn op_codes_out_of_order_are_invalid_requests() {
    let only = |opcodes: &[Opcode]| opcodes.to_vec();
    use Opcode as O;
    let sequences = [
        only(&[O::RC_SEND_MIDDLE]),
        only(&[O::RC_SEND_LAST]),
        only(&[O::RC_SEND_LAST_IMM]),
        only(&[O::RC_RDMA_WRITE_MIDDLE]),
        only(&[O::RC_RDMA_WRITE_LAST]),
        only(&[O::RC_RDMA_WRITE_FIRST, O::RC_RDMA_WRITE_FIRST]),
        only(&[O::RC_RDMA_WRITE_FIRST, O::RC_RDMA_WRITE_ONLY]),
        only(&[O::RC_RDMA_WRITE_FIRST, O::RC_SEND_MIDDLE]),
        only(&[O::RC_RDMA_WRITE_FIRST, O::RC_RDMA_READ_REQUEST]),
        only(&[O::RC_RDMA_WRITE_FIRST, O::RC_FETCH_ADD]),
        only(&[O::RC_SEND_FIRST, O::RC_SEND_FIRST]),
        only(&[O::RC_SEND_FIRST, O::RC_SEND_ONLY]),
        only(&[O::RC_SEND_FIRST, O::RC_RDMA_WRITE_LAST]),
        only(&[O::RC_SEND_FIRST, O::RC_COMPARE_SWAP]),
    ];
    for sequence in sequences {
        let (mut bench, forge) = bench();
        bench.receive(1, 4096);
        let frames: Vec<_> = sequence
            .iter()
            .enumerate()
            .map(|(psn, opcode)| any(&bench, &forge, *opcode, psn as u32, 256, 768))
            .collect();
        let moved = after(&mut bench, &forge, &frames);
        assert_eq!(moved.resp_remote_invalid_request, 1, "{sequence:?}");
        assert_eq!(bench.world.state(bench.right), Some(State::Err));
    }
}

#[test]
fn lengths_that_do_not_add_up_are_invalid_requests() {
    use Opcode as O;
    // Op-code, payload, RETH length.
    let cases = [
        (O::RC_RDMA_WRITE_ONLY, 8, 9),
        (O::RC_RDMA_WRITE_ONLY, 8, 7),
        (O::RC_RDMA_WRITE_FIRST, 255, 600),
        (O::RC_RDMA_WRITE_FIRST, 256, 256),
        (O::RC_RDMA_WRITE_FIRST, 256, 100),
        (O::RC_RDMA_WRITE_ONLY, 0, u32::MAX),
        (O::RC_SEND_FIRST, 100, 0),
        (O::RC_SEND_ONLY, 260, 0),
        (O::RC_RDMA_READ_REQUEST, 0, u32::MAX),
        (O::RC_RDMA_READ_REQUEST, 8, 8),
        (O::RC_FETCH_ADD, 8, 0),
    ];
    for (opcode, payload, dma_len) in cases {
        let (mut bench, forge) = bench();
        bench.receive(1, 4096);
        let frame = any(&bench, &forge, opcode, 0, payload, dma_len);
        let moved = after(&mut bench, &forge, &[frame]);
        assert_eq!(moved.resp_remote_invalid_request, 1, "{opcode} with {payload} of {dma_len}");
        assert_eq!(bench.there.load(0, 4096), vec![0; 4096]);
    }
}

#[test]
fn more_reads_at_once_than_were_agreed_are_an_invalid_request() {
    let settings = Settings { mtu: 256, max_dest_rd_atomic: 4, ..Settings::default() };
    let mut bench = Bench::new(&settings);
    let forge = Forge::new(&bench.world, 0, bench.right);
    let reads = |bench: &Bench, count: u32| -> Vec<Vec<u8>> {
        (0..count).map(|psn| any(bench, &forge, Opcode::RC_RDMA_READ_REQUEST, psn, 0, 8)).collect()
    };
    let frames = reads(&bench, 4);
    let moved = after(&mut bench, &forge, &frames);
    assert_eq!((moved.resp_remote_invalid_request, moved.sent_pkts), (0, 4));
    let mut bench = Bench::new(&settings);
    let frames = reads(&bench, 5);
    let moved = after(&mut bench, &forge, &frames);
    assert_eq!(moved.resp_remote_invalid_request, 1, "five that arrive before the first is answered");
    assert_eq!(bench.world.state(bench.right), Some(State::Err));
}

#[test]
fn answers_to_nothing_and_answers_of_the_wrong_kind_do_no_harm() {
    let (mut bench, forge) = bench();
    for opcode in [
        Opcode::RC_ACKNOWLEDGE,
        Opcode::RC_ATOMIC_ACKNOWLEDGE,
        Opcode::RC_RDMA_READ_RESPONSE_FIRST,
        Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
        Opcode::RC_RDMA_READ_RESPONSE_LAST,
        Opcode::RC_RDMA_READ_RESPONSE_ONLY,
    ] {
        for psn in [0, 1, 77, 0x80_0000, 0xff_ffff] {
            let frame = any(&bench, &forge, opcode, psn, 8, 0);
            let moved = after(&mut bench, &forge, &[frame]);
            assert_eq!((moved.rcvd_pkts, moved.sent_pkts), (1, 0));
        }
    }
    untouched(&mut bench);
}

#[test]
fn a_response_of_the_wrong_length_or_kind_is_a_bad_response() {
    for (opcode, len) in [
        (Opcode::RC_RDMA_READ_RESPONSE_ONLY, 99),
        (Opcode::RC_RDMA_READ_RESPONSE_ONLY, 101),
        (Opcode::RC_ATOMIC_ACKNOWLEDGE, 0),
    ] {
        let mut bench = Bench::new(&Settings { mtu: 256, ..Settings::default() });
        let forge = Forge::new(&bench.world, 1, bench.left);
        bench.world.cut(0, 1, true);
        bench.read(1, 100);
        bench.world.run_for(100);
        let frame = any(&bench, &forge, opcode, 0, len, 0);
        forge.send(&mut bench.world, &frame);
        assert_eq!(bench.settle(), [(1, remora_nic::Status::BadResponse)], "{opcode} of {len} bytes");
        assert_eq!(bench.here.load(1 << 20, 256), bench.there.load(0, 256), "nothing was placed");
    }
}

/// Returns a packet of any RC opcode whose remote address is the start of the right's region.
fn any(bench: &Bench, forge: &Forge, opcode: Opcode, psn: u32, payload: usize, dma_len: u32) -> Vec<u8> {
    let va = bench.there.address;
    let rkey = bench.there.key.get();
    let ext = Extensions {
        reth: opcode.has_reth().then_some(reth::Repr { va, rkey, dma_len }),
        atomic: opcode.has_atomic_eth().then_some(atomic_eth::Repr { va, rkey, swap_add: 1, compare: 0 }),
        aeth: opcode.has_aeth().then_some(aeth::Repr { syndrome: Syndrome::ack(31), msn: 1 }),
        atomic_ack: opcode.has_atomic_ack().then_some(atomic_ack::Repr { original: 5 }),
        imm: opcode.has_imm().then_some(immdt::Repr { value: 1 }),
        ieth: opcode.has_ieth().then_some(ieth::Repr { rkey: 1 }),
        ..Extensions::NONE
    };
    forge.frame(forge.bth(opcode, psn), ext, &vec![0xee; payload])
}

#[test]
fn random_and_mutated_packets_against_live_queue_pairs_never_panic() {
    let mut random = Random::new(99);
    let rc: Vec<Opcode> =
        (0..=255).map(Opcode).filter(|op| op.service() == Some(remora_wire::Service::Rc)).collect();
    for round in 0..400 {
        let start = random.pick(&[Start::Ip, Start::Bth, Start::Ethernet]);
        let config = Config { seed: round, start, ipv6: random.chance(0.3), ..Config::default() };
        let mut bench =
            Bench::over(&config, &Settings { mtu: 256, timeout: 1, retry_cnt: 1, ..Settings::default() });
        let guard = bench.world.register(1, 1 << 16, remora_memory::Access::LOCAL_WRITE);
        bench.receive(1, 2000);
        bench.write(1, 1000);
        bench.read(2, 1000);
        bench.send(3, 500);
        for _ in 0..60 {
            let (sender, victim) = random.pick(&[(0, bench.right), (1, bench.left)]);
            let forge = Forge::new(&bench.world, sender, victim);
            let opcode = random.pick(&rc);
            let psn = random.below(8) as u32;
            let mut frame = match random.below(4) {
                0 => {
                    let mut bytes = vec![0; random.below(200) as usize];
                    random.fill(&mut bytes);
                    bytes
                }
                // Random bytes after a valid header, with a valid ICRC.
                1 => {
                    let mut transport = vec![0; 12 + 4 * random.between(1, 60) as usize];
                    random.fill(&mut transport);
                    let opcode = Opcode(random.bits() as u8);
                    bth::Repr { psn: Psn::new(psn), ..forge.bth(opcode, psn) }.emit(&mut transport);
                    forge.wrap(transport)
                }
                _ => any(&bench, &forge, opcode, psn, random.below(300) as usize, random.below(600) as u32),
            };
            if random.chance(0.3) && !frame.is_empty() {
                let bits = frame.len() as u64 * 8;
                remora_fault::flip(&mut frame, random.below(bits) as u32);
            }
            forge.send(&mut bench.world, &frame);
            bench.world.run_for(random.below(3_000));
        }
        assert!(bench.world.settle(1_000_000), "round {round} never rests");
        assert_eq!(guard.load(0, 1 << 16), vec![0; 1 << 16], "a region without rights changed");
    }
}
