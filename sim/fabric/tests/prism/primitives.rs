//! Tests of single primitives.

use remora_fault::{Action, Rule, Rules};
use remora_nic::prism::{Address, Data, Mode, Operand, Operands, Operation, SCRATCH, Verdict};
use remora_nic::{Remote, Status};

use crate::bench::{Bench, all_done, inline, read, swap, write};

#[test]
fn an_indirect_read_follows_the_pointer_and_a_bound_limits_it() {
    for mut bench in Bench::arms() {
        let value: Vec<u8> = (0..1000).map(|index| index as u8).collect();
        bench.there.store(4096, &value);
        bench.set(0, &[bench.at(4096).addr, 700]);
        let pointer = bench.at(0);
        let cases = [
            (Address::indirect(pointer), 1000, 1000),
            (Address::bounded(pointer), 1000, 700),
            (Address::bounded(pointer), 300, 300),
            (Address::direct(bench.at(4096)), 600, 600),
            (Address::bounded(pointer), 20, 20),
            (Address::indirect(pointer), 0, 0),
        ];
        for (id, (from, asked, got)) in cases.into_iter().enumerate() {
            bench.here.store(0, &[0xee; 1024]);
            let into = [bench.here.sge(0, 1024)];
            let request = bench.ask(id as u64, read(from, asked, &into));
            // A plain READ uses another code path.
            let ended = bench.run_all(&[WorkRequestOf(request).conditional()]);
            assert_eq!((ended[0].status, ended[0].byte_len), (Status::Success, got), "{from:?} {asked}");
            let mut expected = value[..got as usize].to_vec();
            expected.resize(1024, 0xee);
            assert_eq!(bench.here.load(0, 1024), expected, "{from:?} {asked}");
        }
    }
}

/// A request that is conditional although nothing precedes it, so that its flags are not all clear.
struct WorkRequestOf<'a>(remora_nic::prism::WorkRequest<'a>);

impl<'a> WorkRequestOf<'a> {
    fn conditional(self) -> remora_nic::prism::WorkRequest<'a> {
        remora_nic::prism::WorkRequest { conditional: true, ..self.0 }
    }
}

#[test]
fn what_follows_a_read_that_ended_early_is_not_confused_by_it() {
    for mut bench in Bench::arms() {
        bench.there.store(4096, &[7; 4096]);
        bench.set(0, &[bench.at(4096).addr, 300]);
        bench.set(64, &[11]);
        let into = [bench.here.sge(0, 4096)];
        let mut requests = Vec::new();
        for id in 0..10 {
            requests.push(bench.ask(2 * id, read(Address::bounded(bench.at(0)), 4096, &into)));
            let next = swap(Mode::Equal, Address::direct(bench.at(64)), 11 + id, 12 + id);
            requests.push(bench.ask(2 * id + 1, next));
        }
        let ended = bench.run_all(&requests);
        let lens: Vec<u32> = ended.iter().map(|wc| wc.byte_len).step_by(2).collect();
        assert_eq!((ended.len(), lens, bench.word(64)), (20, vec![300; 10], 21));
    }
}

#[test]
fn writes_go_where_a_pointer_leads_and_as_far_as_its_bound() {
    for mut bench in Bench::arms() {
        bench.set(0, &[bench.at(4096).addr, 300]);
        let bytes: Vec<u8> = (0..600).map(|index| index as u8).collect();
        bench.here.store(0, &bytes);
        let list = [bench.here.sge(0, 600)];
        let local = Data::Local(remora_nic::Payload::Sges(&list));
        let bounded = Operation::Write { to: Address::bounded(bench.at(0)), data: local };
        let indirect = write(Address::indirect(bench.at(0)), b"short");
        assert_eq!(bench.run(&[bench.ask(0, bounded), bench.ask(1, indirect)]), all_done(0..2));
        assert_eq!((bench.result(0, 8)[0], bench.result(1, 8)[0]), (300, 5));
        assert_eq!(bench.there.load(4096, 5), b"short");
        assert_eq!(bench.there.load(4101, 295), bytes[5..300]);
        assert_eq!(bench.there.load(4396, 300), [0; 300], "beyond the bound");
    }
}

#[test]
fn a_write_may_take_its_bytes_from_the_server() {
    for mut bench in Bench::arms() {
        bench.there.store(4096, &[3; 5000]);
        let data = Data::There { addr: bench.at(4096).addr, len: 5000 };
        let copy = Operation::Write { to: Address::direct(bench.at(20_000)), data };
        assert_eq!(bench.run(&[bench.ask(0, copy)]), all_done(0..1));
        assert_eq!(
            (bench.result(0, 8)[0], bench.there.load(20_000, 5001)),
            (5000, [[3; 5000].as_slice(), &[0]].concat())
        );
    }
}

#[test]
fn compare_and_swap_has_six_modes_and_gives_the_old_value() {
    for mut bench in Bench::arms() {
        let cases = [
            (Mode::Equal, [false, true, false]),
            (Mode::NotEqual, [true, false, true]),
            (Mode::Less, [true, false, false]),
            (Mode::LessEqual, [true, true, false]),
            (Mode::Greater, [false, false, true]),
            (Mode::GreaterEqual, [false, true, true]),
        ];
        for (mode, expected) in cases {
            for (operand, swaps) in [4, 5, 6].into_iter().zip(expected) {
                bench.set(0, &[5]);
                let request = bench.ask(0, swap(mode, Address::direct(bench.at(0)), operand, 99));
                let outcome = if swaps { Verdict::Done } else { Verdict::NotSwapped };
                assert_eq!(bench.run(&[request]), [(0, outcome)], "{operand} {mode:?} 5");
                let now = if swaps { 99 } else { 5 };
                assert_eq!((bench.result(0, 8)[0], bench.word(0)), (5, now));
            }
        }
    }
}

/// The swaps of PRISM-KV's pointer (§6.1) and PRISM-RS's tag (§7.3): one field is compared, all fields are
/// swapped, and the new value is at the server.
#[test]
fn wide_swaps_compare_one_field_and_take_another_from_memory() {
    for mut bench in Bench::arms() {
        bench.set(0, &[1, 2, 3, 10]);
        bench.set(64, &[7, 8, 9, 11]);
        let operands = Operands {
            mode: Mode::Greater,
            size: 32,
            compare_mask: [0, 0, 0, u64::MAX],
            swap_mask: [u64::MAX, 0, 0, u64::MAX],
            compare: Operand::At(bench.at(64).addr),
            swap_add: Operand::At(bench.at(64).addr),
        };
        let again = Operation::CompareSwap { at: Address::direct(bench.at(0)), operands };
        assert_eq!(
            bench.run(&[bench.ask(0, again), bench.ask(1, again)]),
            [(0, Verdict::Done), (1, Verdict::NotSwapped)]
        );
        assert_eq!([0, 8, 16, 24].map(|offset| bench.word(offset)), [7, 2, 3, 11]);
        assert_eq!((bench.result(0, 32), bench.result(1, 32)), ([1, 2, 3, 10], [7, 2, 3, 11]));
    }
}

#[test]
fn fetch_and_add_carries_nothing_out_of_a_field() {
    for mut bench in Bench::arms() {
        bench.set(0, &[0xffff_ffff, 5]);
        let fields = [0x8000_0000_8000_0000, 0x8000_0000_8000_0000, 0, 0];
        let operands = |size, boundaries, add| Operands {
            mode: Mode::Equal,
            size,
            compare_mask: boundaries,
            swap_mask: [0; 4],
            compare: Operand::default(),
            swap_add: Operand::Immediate(add),
        };
        let address = Address::direct(bench.at(0));
        let within = Operation::FetchAdd { at: address, operands: operands(16, fields, [1, 2 << 32, 0, 0]) };
        let whole = Operation::FetchAdd { at: address, operands: operands(8, [0; 4], [u64::MAX, 0, 0, 0]) };
        assert_eq!(bench.run(&[bench.ask(0, within), bench.ask(1, whole)]), all_done(0..2));
        assert_eq!([0, 8].map(|offset| bench.word(offset)), [u64::MAX, 5 + (2 << 32)]);
        assert_eq!((bench.result(0, 16), bench.result(1, 8)[0]), ([0xffff_ffff, 5, 0, 0], 0));
    }
}

#[test]
fn atomics_find_their_target_behind_a_pointer() {
    for mut bench in Bench::arms() {
        bench.set(0, &[bench.at(512).addr]);
        bench.set(512, &[40]);
        let request = bench.ask(0, swap(Mode::Less, Address::indirect(bench.at(0)), 39, 41));
        assert_eq!(bench.run(&[request]), all_done(0..1));
        assert_eq!(bench.word(512), 41);
    }
}

#[test]
fn scratch_memory_is_the_connections_own() {
    for mut bench in Bench::arms() {
        let scratch = Remote { addr: SCRATCH, ..bench.at(0) };
        let into = [bench.here.sge(0, 32)];
        let put = bench.ask(0, write(Address::direct(scratch), &[5; 32]));
        let mut get = bench.ask(1, read(Address::direct(scratch), 32, &into));
        get.conditional = true;
        assert_eq!(bench.run(&[put, get]), all_done(0..2));
        assert_eq!(bench.here.load(0, 32), [5; 32]);

        // Another connection to the same server has its own scratch memory, which is empty.
        let [(other, other_cq), _] = bench.world.pair(0, 1, &bench.settings);
        bench.here.store(0, &[0xee; 32]);
        bench.world.post_prism(other, &get).unwrap();
        bench.world.ring(other);
        assert!(bench.world.settle(1_000_000));
        let ended = bench.world.drain(other_cq);
        assert_eq!((ended[0].status, bench.here.load(0, 32)), (Status::Success, vec![0; 32]));
    }
}

#[test]
fn what_the_peer_has_not_agreed_to_fails_here_and_is_never_sent() {
    for settings in crate::bench::arms() {
        let plain = remora_fabric::Settings { prism: false, ..settings };
        let mut bench = Bench::over(&remora_fabric::Config::default(), &plain);
        bench.world.tap();
        let request =
            bench.ask(0, Operation::Write { to: Address::indirect(bench.at(0)), data: inline(b"x") });
        let ended = bench.run_all(&[request]);
        assert_eq!(ended[0].status, Status::LocalQpOperation);
        assert_eq!(bench.world.sent().len(), 0);
    }
}

/// A long answer whose packets are lost one after the other: each new request continues where the answer
/// stopped.
#[test]
fn a_long_read_through_a_pointer_goes_on_where_its_answer_broke_off() {
    for mut bench in Bench::arms() {
        let value: Vec<u8> =
            (0..400 * 256u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        bench.there.store(4096, &value);
        bench.set(0, &[bench.at(4096).addr, value.len() as u64]);
        let middle = [remora_wire::Opcode::RC_RDMA_READ_RESPONSE_MIDDLE];
        let lost = Rule::every(Action::Drop, 90).only(&middle).at_most(3);
        bench.world.set_rules(&Rules::of(vec![lost]), 1);
        bench.world.tap();
        let into = [bench.here.sge(0, value.len())];
        let get = bench.ask(0, read(Address::bounded(bench.at(0)), value.len() as u32, &into));
        let ended = bench.run_all(&[get]);
        assert_eq!((ended[0].status, ended[0].byte_len as usize), (Status::Success, value.len()));
        assert!(bench.here.load(0, value.len()) == value);
        let answers = bench.world.sent().into_iter().filter(|sent| sent.from == 1).count();
        // If every request restarted at the beginning, this would be 1600.
        assert!(answers < 1200, "{answers} packets for 400");
    }
}
