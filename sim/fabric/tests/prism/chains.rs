//! Chains: conditional operations, redirected outputs, and the two chains of the paper's stores.

use remora_nic::prism::{Address, Mode, Operand, Operands, Operation, SCRATCH, Verdict, WorkRequest};
use remora_nic::{Flags, Payload, Remote};

use remora_fabric::Config;
use remora_fault::{Action, Rule, Rules};

use crate::bench::{Bench, all_done, allocate, arms, inline, read, swap, write};

#[test]
fn what_is_conditional_on_a_failed_comparison_is_skipped_to_the_end_of_the_chain() {
    for mut bench in Bench::arms() {
        bench.set(0, &[5]);
        let cell = Address::direct(bench.at(0));
        let into = [bench.here.sge(0, 64)];
        let then = |request: WorkRequest<'static>| WorkRequest { conditional: true, ..request };
        let fails = bench.ask(0, swap(Mode::Equal, cell, 6, 7));
        let skipped = then(bench.ask(1, write(Address::direct(bench.at(64)), b"never")));
        let also = then(bench.ask(2, swap(Mode::Equal, cell, 5, 8)));
        let last = WorkRequest { conditional: true, ..bench.ask(3, read(cell, 8, &into)) };
        let new_chain = bench.ask(4, swap(Mode::Equal, cell, 5, 9));
        let done = then(bench.ask(5, write(Address::direct(bench.at(128)), b"at last")));
        let ended = bench.run_all(&[fails, skipped, also, last, new_chain, done]);
        let outcomes: Vec<_> = ended.iter().map(crate::bench::outcome).collect();
        use Verdict::{Done, NotSwapped, Skipped};
        assert_eq!(outcomes, [NotSwapped, Skipped, Skipped, Skipped, Done, Done]);
        assert_eq!(ended[3].byte_len, 0);
        assert_eq!((bench.word(0), bench.word(64), bench.there.load(128, 7)), (9, 0, b"at last".to_vec()));
    }
}

#[test]
fn a_plain_verb_between_two_operations_succeeds_and_so_lets_the_second_go_on() {
    for mut bench in Bench::arms() {
        let cell = Address::direct(bench.at(0));
        let fails = bench.ask(0, swap(Mode::Equal, cell, 6, 7));
        bench.put(&fails);
        let plain = remora_nic::WorkRequest {
            id: 1,
            operation: remora_nic::Operation::Write(bench.at(64)),
            payload: Payload::Inline(b"plain"),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        bench.world.post_quietly(bench.left, &plain).unwrap();
        let then =
            WorkRequest { conditional: true, ..bench.ask(2, write(Address::direct(bench.at(128)), b"on")) };
        let ended: Vec<_> = bench.run_all(&[then]).iter().map(|wc| wc.outcome).collect();
        assert_eq!(ended, [Verdict::NotSwapped, Verdict::Done, Verdict::Done]);
        assert_eq!(bench.there.load(128, 2), b"on");
    }
}

#[test]
fn outputs_go_where_they_are_redirected_to() {
    for mut bench in Bench::arms() {
        bench.there.store(4096, &[9; 3000]);
        bench.set(0, &[77]);
        let copy = bench.at(10_000).addr;
        let old = bench.at(64).addr;
        let list = bench.list(65536, 512, 2);
        let moved = WorkRequest {
            redirect: Some(copy),
            ..bench.ask(0, read(Address::direct(bench.at(4096)), 3000, &[]))
        };
        let moved = WorkRequest { result: Some(bench.sge(0)), ..moved };
        let swapped = bench.ask(1, swap(Mode::Equal, Address::direct(bench.at(0)), 77, 78));
        let swapped = WorkRequest { redirect: Some(old), ..swapped };
        let new = bench.ask(2, allocate(&list, bench.there.key, inline(b"buffer")));
        let new = WorkRequest { redirect: Some(bench.at(72).addr), ..new };
        assert_eq!(bench.run(&[moved, swapped, new]), all_done(0..3));
        // Number of bytes written, and for the ALLOCATE also the address.
        assert_eq!([0, 1, 2].map(|id| bench.result(id, 8)[0]), [3000, 8, bench.word(72)]);
        assert_eq!(bench.there.load(10_000, 3001), [[9; 3000].as_slice(), &[0]].concat());
        assert_eq!((bench.word(64), bench.word(0)), (77, 78));
        let buffer = bench.word(72) - bench.there.address;
        assert_eq!(bench.there.load(buffer as usize, 6), b"buffer");
    }
}

/// §6.1: the bound goes to scratch memory, with the address of a new buffer beside it. Both are swapped into
/// the slot if it is unchanged. Then the client learns which buffer is not in the table: the old or the new
/// one.
#[test]
fn a_put_of_prism_kv_is_one_round_trip() {
    for mut bench in Bench::arms() {
        let list = bench.list(65536, 1024, 4);
        let slot = bench.at(0);
        let rkey = bench.there.key;
        let scratch = |offset: u64| SCRATCH + offset;
        let at_scratch = |offset: u64| Address::direct(Remote { addr: SCRATCH + offset, rkey });
        let put = |bench: &Bench, id: u64, old: u64, value: &'static [u8], len: &'static [u8]| {
            let bound = bench.ask(id, write(at_scratch(8), len));
            let mut new = bench.ask(id + 1, allocate(&list, rkey, inline(value)));
            new.redirect = Some(scratch(0));
            let operands = Operands {
                mode: Mode::Equal,
                size: 16,
                compare_mask: [u64::MAX, 0, 0, 0],
                swap_mask: [u64::MAX, u64::MAX, 0, 0],
                compare: Operand::Immediate([old, 0, 0, 0]),
                swap_add: Operand::At(scratch(0)),
            };
            let mut swap = bench.ask(id + 2, Operation::CompareSwap { at: Address::direct(slot), operands });
            swap.conditional = true;
            [bound, new, swap]
        };
        let first = put(&bench, 0, 0, b"first value", &[11, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bench.run(&first), all_done(0..3));
        let into = [bench.here.sge(0, 64)];
        let get = bench.ask(9, read(Address::bounded(slot), 64, &into));
        let ended = bench.run_all(&[get]);
        assert_eq!((ended[0].byte_len, bench.here.load(0, 11)), (11, b"first value".to_vec()));

        // A client that expects the slot to be empty fails, and learns which buffer it has to recycle.
        let late = put(&bench, 10, 0, b"late", &[4, 0, 0, 0, 0, 0, 0, 0]);
        let mine = WorkRequest { result: None, ..bench.ask(13, read(at_scratch(0), 8, &into)) };
        let ended = bench.run(&[late[0], late[1], late[2], WorkRequest { conditional: false, ..mine }]);
        assert_eq!(ended[2], (12, Verdict::NotSwapped));
        let lost = u64::from_le_bytes(bench.here.load(0, 8).try_into().unwrap());
        assert_eq!(bench.there.load((lost - bench.there.address) as usize, 4), b"late");
        assert_ne!(bench.word(0), lost);
    }
}

/// A chain leaves a result in scratch memory for its client to READ. The chain directly after it must not
/// overwrite that result before the READ.
#[test]
fn a_read_of_scratch_memory_brings_what_was_there_when_its_turn_came() {
    for settings in arms() {
        for seed in 0..20 {
            let mut bench = Bench::over(&Config { seed, ..Config::default() }, &settings);
            let lossy = [Rule::chance(Action::Drop, 0.03), Rule::chance(Action::Reorder { frames: 3 }, 0.1)];
            bench.world.set_rules(&Rules::of(lossy.to_vec()), seed);
            let rkey = bench.there.key;
            let scratch = Address::direct(Remote { addr: SCRATCH, rkey });
            let numbers: Vec<_> = (1..=12u64).map(u64::to_le_bytes).collect();
            let places: Vec<_> = (0..12).map(|index| [bench.here.sge(8 * index, 8)]).collect();
            let chains = numbers.iter().zip(&places).enumerate();
            let requests: Vec<_> = chains
                .flat_map(|(index, (number, landing))| {
                    let id = 2 * index as u64;
                    [bench.ask(id, write(scratch, number)), bench.ask(id + 1, read(scratch, 8, landing))]
                })
                .collect();
            let ended = bench.run_all(&requests);
            assert!(
                ended.iter().all(|wc| wc.status == remora_nic::Status::Success),
                "seed {seed}: {ended:?}"
            );
            assert_eq!(bench.here.load(0, 96), numbers.concat(), "seed {seed}");
        }
    }
}
