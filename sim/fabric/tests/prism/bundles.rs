//! Bundles: packets that are sent in one frame and lost together, and malformed bundles. Over IRN each packet
//! has its own frame.

use remora_fabric::forge::Forge;
use remora_fabric::{Config, FreeList, Settings};
use remora_fault::{Action, Rule, Rules};
use remora_nic::prism::{Address, Mode, SCRATCH, Verdict, WorkRequest};
use remora_nic::{Flags, Payload, Remote, Status};
use remora_wire::prism::bundle::{HEAD, emit_head};
use remora_wire::{Extensions, Opcode, Qpn, bth, icrc, packet, reth};

use crate::bench::{Bench, all_done, allocate, arms, inline, read, swap, write};

fn bench_with(change: impl FnOnce(&mut Settings)) -> Bench {
    let mut settings = arms()[0];
    change(&mut settings);
    Bench::over(&Config::default(), &settings)
}

fn bench() -> Bench {
    bench_with(|_| {})
}

/// Posts a plain WRITE to scratch memory, an ALLOCATE of a buffer with this value whose address is stored
/// beside it, and a CAS that swaps `new_word` in.
fn chain(bench: &mut Bench, list: &FreeList, value: &[u8], new_word: u64) -> Vec<(u64, Verdict)> {
    let rkey = bench.there.key;
    let bound = remora_nic::WorkRequest {
        id: 0,
        operation: remora_nic::Operation::Write(Remote { addr: SCRATCH + 8, rkey }),
        payload: Payload::Inline(&[7; 8]),
        flags: Flags { signaled: true, ..Flags::default() },
    };
    bench.world.post_quietly(bench.left, &bound).unwrap();
    let new = bench.ask(1, allocate(list, rkey, inline(value)));
    let new = WorkRequest { conditional: true, redirect: Some(SCRATCH), ..new };
    let link = bench.ask(2, swap(Mode::Equal, Address::direct(bench.at(0)), 0, new_word));
    bench.run(&[new, WorkRequest { conditional: true, ..link }])
}

/// Returns the number of frames sent since `before`: requests, and responses.
fn frames(bench: &Bench, before: [u64; 2]) -> [u64; 2] {
    [0, 1].map(|node| bench.world.counters(node).sent_pkts - before[node])
}

#[test]
fn a_chain_leaves_in_one_frame_and_so_do_its_answers() {
    let mut bench = bench_with(|settings| settings.mtu = 1024);
    let list = bench.list(65536, 512, 2);
    assert_eq!(chain(&mut bench, &list, &[9; 512], 5), all_done(0..3));
    assert_eq!(frames(&bench, [0, 0]), [1, 1]);
    assert_eq!((bench.word(0), bench.there.load(65536 + 512, 512)), (5, vec![9; 512]));
    // No operation depends on another, so each has its own frame and its own answer.
    let cell = Address::direct(bench.at(8));
    let alone: Vec<_> = (0..3).map(|id| bench.ask(id, swap(Mode::Equal, cell, id, id + 1))).collect();
    let before = frames(&bench, [0, 0]);
    assert_eq!(bench.run(&alone), all_done(0..3));
    assert_eq!(frames(&bench, before)[0], 3);
}

#[test]
fn what_does_not_fit_the_path_mtu_travels_alone() {
    // With a path MTU of 256 bytes, only the WRITE and half of the ALLOCATE could share a frame.
    let mut bench = bench();
    let list = bench.list(65536, 512, 2);
    assert_eq!(chain(&mut bench, &list, &[9; 240], 5), all_done(0..3));
    assert_eq!(frames(&bench, [0, 0])[0], 3);
    assert_eq!(chain(&mut bench, &list, &[9; 512], 6)[2], (2, Verdict::NotSwapped));
    assert_eq!(frames(&bench, [0, 0])[0], 7, "an ALLOCATE of two packets begins no bundle and joins none");
}

#[test]
fn what_is_lost_together_is_sent_again_together_and_executed_once() {
    // Loses the request, the answer, or both.
    for (after, at_most) in [(0, 1), (1, 1), (0, 3)] {
        let mut bench = bench_with(|settings| settings.mtu = 1024);
        let list = bench.list(65536, 512, 3);
        let lost = Rule::new(Action::Drop).after(after).at_most(at_most);
        let together = [Opcode::BUNDLE, Opcode::OPERATION_LIST, Opcode::OPERATION_LIST_ANSWER];
        bench.world.set_rules(&Rules::of(vec![lost.only(&together)]), 1);
        assert_eq!(chain(&mut bench, &list, &[9; 100], 5), all_done(0..3));
        assert_eq!(bench.world.free_list_facts(&list).free, 2, "one buffer was taken");
        assert_eq!(bench.word(0), 5);
    }
}

/// Posts two READs through pointers, an operation list that takes a buffer and swaps, two READs, and an
/// operation list.
///
/// While an operation list is in progress, all requests share frames with it, and so do their answers,
/// including those from memory. READs without an operation list have their own frames.
#[test]
fn reads_between_chains_travel_with_them() {
    let mut bench = bench_with(|settings| settings.mtu = 4096);
    let list = bench.list(65536, 512, 4);
    bench.there.store(4096, &[3; 300]);
    let target = bench.there.remote(4096).addr;
    bench.set(64, &[target]);
    let into = [bench.here.sge(8192, 300)];
    let pointer = Address::indirect(bench.at(64));
    let look = |bench: &Bench, id| bench.ask(id, read(pointer, 300, &into));
    let value = [9; 400];
    let change = |bench: &Bench, id, old| {
        let new = bench.ask(id, allocate(&list, bench.there.key, inline(&value)));
        let link = bench.ask(id + 1, swap(Mode::Equal, Address::direct(bench.at(0)), old, old + 1));
        [WorkRequest { redirect: Some(SCRATCH), ..new }, WorkRequest { conditional: true, ..link }]
    };
    let mut all = Vec::new();
    for turn in 0..2 {
        all.extend([look(&bench, 4 * turn), look(&bench, 4 * turn + 1)]);
        all.extend(change(&bench, 4 * turn + 2, turn));
    }
    assert_eq!(bench.run(&all), all_done(0..8));
    let [asked, answered] = frames(&bench, [0, 0]);
    assert_eq!((asked, answered), (1, 1));
    assert_eq!((bench.word(0), bench.here.load(8192, 300)), (2, vec![3; 300]));
    let before = frames(&bench, [0, 0]);
    let alone: Vec<_> = (0..4).map(|id| look(&bench, id)).collect();
    assert_eq!(bench.run(&alone), all_done(0..4));
    assert_eq!(frames(&bench, before), [4, 4]);
}

#[test]
fn what_is_refused_in_a_bundle_ends_the_connection_and_what_stands_behind_it_is_not_done() {
    let mut bench = bench_with(|settings| settings.mtu = 4096);
    let guarded = bench.world.register(1, 4096, remora_fabric::ALL);
    let reads = Address::direct(Remote { addr: guarded.address, rkey: guarded.key });
    let into = [bench.here.sge(8192, 100)];
    let cell = Address::direct(bench.at(0));
    let wrong = Address::direct(Remote { addr: guarded.address + 4096, rkey: guarded.key });
    let steps = [
        bench.ask(0, read(reads, 100, &into)),
        bench.ask(1, swap(Mode::Equal, cell, 0, 1)),
        WorkRequest { conditional: true, ..bench.ask(2, swap(Mode::Equal, cell, 1, 2)) },
        bench.ask(3, read(wrong, 100, &into)),
        bench.ask(4, swap(Mode::Equal, cell, 2, 3)),
    ];
    let ended: Vec<Status> = bench.run_all(&steps).iter().map(|completion| completion.status).collect();
    let [done, refused, flushed] = [Status::Success, Status::RemoteAccess, Status::WrFlushed];
    assert_eq!(ended, [done, done, done, refused, flushed]);
    assert_eq!(bench.word(0), 2);
}

/// The peer answers only `most` operations at a time. An operation list waits until all of it fits, unless it
/// never does.
#[test]
fn a_chain_of_more_operations_than_may_be_outstanding_goes_on_in_pieces() {
    for most in 1..=4 {
        let mut bench = bench_with(|settings| {
            (settings.max_rd_atomic, settings.max_dest_rd_atomic) = (most, most);
        });
        let cell = Address::direct(bench.at(0));
        let steps: Vec<_> = (0..9)
            .map(|id| {
                let step = bench.ask(id, swap(Mode::Equal, cell, id, id + 1));
                WorkRequest { conditional: id % 3 != 0, ..step }
            })
            .collect();
        assert_eq!(bench.run(&steps), all_done(0..9), "{most}");
        assert_eq!(bench.word(0), 9);
        let [asked, _] = frames(&bench, [0, 0]);
        assert_eq!(asked, [9, 5, 3, 3][usize::from(most) - 1], "{most}");
    }
}

/// Returns a WRITE of 8 bytes to the start of the server's memory, as a part of a bundle.
fn part(bench: &Bench, bth: bth::Repr) -> Vec<u8> {
    let reth = reth::Repr { va: bench.there.address, rkey: bench.there.key.get(), dma_len: 8 };
    let ext = Extensions { reth: Some(reth), ..Extensions::default() };
    let ext = if bth.opcode.has_reth() { ext } else { Extensions::default() };
    let payload: &[u8] = if bth.opcode.has_reth() { &[0xee; 8] } else { &[] };
    let packet = packet::Packet::new(bth, ext, payload);
    let mut bytes = vec![0; HEAD + packet.buffer_len() - icrc::LEN];
    emit_head(bytes.len() - HEAD, &mut bytes);
    packet.emit(&mut bytes[HEAD..]);
    bytes
}

#[test]
fn a_bundle_that_makes_no_sense_is_counted_and_goes_no_further() {
    let good = |bench: &Bench, forge: &Forge, psn| part(bench, forge.bth(Opcode::RC_RDMA_WRITE_ONLY, psn));
    type Bad = fn(&Bench, &Forge) -> Vec<u8>;
    let bad: [Bad; 4] = [
        |bench, forge| {
            let other = Qpn::new(bench.right.number.get() ^ 1);
            part(bench, bth::Repr { dest_qp: other, ..forge.bth(Opcode::RC_RDMA_WRITE_ONLY, 0) })
        },
        |bench, forge| {
            let mut bytes = part(bench, forge.bth(Opcode::RC_RDMA_WRITE_ONLY, 0));
            bytes[HEAD] = Opcode::UC_RDMA_WRITE_ONLY.0;
            bytes
        },
        |bench, forge| part(bench, forge.bth(Opcode::BUNDLE, 0)),
        |_, _| vec![0xff; 64],
    ];
    for (number, bad) in bad.iter().enumerate() {
        let mut bench = bench();
        let forge = Forge::new(&bench.world, 0, bench.right);
        let payload = [bad(&bench, &forge), good(&bench, &forge, 0)].concat();
        let frame = forge.frame(forge.bth(Opcode::BUNDLE, 0), Extensions::default(), &payload);
        forge.send(&mut bench.world, &frame);
        bench.world.run_for(10_000);
        assert_eq!(bench.world.counters(1).malformed_pkts, 1, "{number}");
        assert_eq!(bench.there.load(0, 8), [0; 8], "{number}: what stands behind it is not looked at");
        let id = bench.ask(1, write(Address::direct(bench.at(0)), b"alive"));
        assert_eq!(bench.run(&[id]), [(1, Verdict::Done)], "{number}");
    }
    // The parts before the malformed one are executed.
    for cut in [0, 4, 20] {
        let mut bench = bench();
        let forge = Forge::new(&bench.world, 0, bench.right);
        let rest = if cut == 0 { vec![0xff; 64] } else { good(&bench, &forge, 1)[..cut].to_vec() };
        let payload = [good(&bench, &forge, 0), rest].concat();
        let frame = forge.frame(forge.bth(Opcode::BUNDLE, 0), Extensions::default(), &payload);
        forge.send(&mut bench.world, &frame);
        bench.world.run_for(10_000);
        assert_eq!((bench.world.counters(1).malformed_pkts, bench.there.load(0, 8)), (1, vec![0xee; 8]));
    }
}
