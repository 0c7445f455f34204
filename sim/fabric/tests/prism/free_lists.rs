//! Free lists: which buffers are taken, which are recycled, and when.

use remora_fault::{Action, Rule, Rules};
use remora_nic::prism::{Address, FreeListFacts, Operation, Verdict};
use remora_nic::{Command, NicError, Payload, Status};
use remora_transport::state::State;
use remora_wire::Opcode;

use crate::bench::{Bench, allocate, inline, read};

fn free(bench: &mut Bench, list: &remora_fabric::FreeList) -> (u32, u32) {
    let FreeListFacts { free, resting, .. } = bench.world.free_list_facts(list);
    (free, resting)
}

#[test]
fn an_empty_list_and_too_long_a_value_are_results_and_take_nothing() {
    for mut bench in Bench::arms() {
        let list = bench.list(65536, 300, 2);
        let long = [1; 301];
        let rkey = bench.there.key;
        let requests = [
            bench.ask(0, allocate(&list, rkey, inline(&long))),
            bench.ask(1, allocate(&list, rkey, inline(&long[..300]))),
            bench.ask(2, allocate(&list, rkey, inline(b"b"))),
            bench.ask(3, allocate(&list, rkey, inline(b"c"))),
        ];
        use Verdict::{Done, NoBuffer, TooLong};
        assert_eq!(bench.run(&requests), [(0, TooLong), (1, Done), (2, Done), (3, NoBuffer)]);
        assert_eq!(free(&mut bench, &list), (0, 0));
        assert_ne!(bench.result(1, 8), bench.result(2, 8));
        let buffer = (bench.result(1, 8)[0] - bench.there.address) as usize;
        assert_eq!(bench.there.load(buffer, 300), long[..300]);
    }
}

#[test]
fn posts_of_what_is_no_buffer_or_free_already_are_counted_and_ignored() {
    for mut bench in Bench::arms() {
        let mut list = bench.list(65536, 64, 2);
        assert_eq!(free(&mut bench, &list), (2, 0));
        for addr in [bench.at(65536 + 1).addr, bench.at(65536 + 128).addr] {
            bench.world.post_buffer(&mut list, addr).unwrap();
        }
        assert_eq!(bench.world.free_list_facts(&list).bad_posts, 2);
        bench.world.post_buffer(&mut list, bench.at(65536).addr).unwrap();
        let facts = bench.world.free_list_facts(&list);
        assert_eq!((facts.free, facts.bad_posts, facts.capacity), (2, 3, 2));
    }
}

#[test]
fn what_comes_back_is_taken_before_what_was_never_used() {
    for mut bench in Bench::arms() {
        let mut list = bench.list(65536, 64, 256);
        let mut seen = std::collections::BTreeSet::new();
        // Each buffer is recycled at once, so only few are ever used even if many are posted.
        for _ in 0..1000 {
            let new = bench.ask(0, allocate(&list, bench.there.key, inline(b"new")));
            assert_eq!(bench.run(&[new]), [(0, Verdict::Done)]);
            let buffer = bench.result(0, 8)[0];
            seen.insert(buffer);
            bench.world.post_buffer(&mut list, buffer).unwrap();
        }
        let late = seen.len();
        for _ in 0..200 {
            let new = bench.ask(0, allocate(&list, bench.there.key, inline(b"new")));
            bench.run(&[new]);
            let buffer = bench.result(0, 8)[0];
            seen.insert(buffer);
            bench.world.post_buffer(&mut list, buffer).unwrap();
        }
        assert!(seen.len() <= late + 32 && late < 256, "{late}, {} of 256", seen.len());
    }
}

#[test]
fn a_buffer_that_is_being_read_rests_until_the_answer_can_be_asked_for_no_more() {
    for mut bench in Bench::arms() {
        let mut list = bench.list(65536, 4096, 1);
        let value = [6; 400];
        let new = bench.ask(0, allocate(&list, bench.there.key, inline(&value)));
        bench.run(&[new]);
        let buffer = bench.result(0, 8)[0];
        bench.set(0, &[buffer, 400]);
        let into = [bench.here.sge(0, 4096)];
        let get = bench.ask(1, read(Address::bounded(bench.at(0)), 4096, &into));
        bench.put(&get);
        // Over IRN the client acknowledges an answer; here the server never receives the acknowledgement.
        let unheard = Rule::new(Action::Drop).only(&[Opcode::IRN_READ_ACKNOWLEDGE]);
        bench.world.set_rules(&Rules::of(vec![unheard]), 1);
        bench.world.ring(bench.left);
        // Answered, but for the server the client might not have the answer.
        while bench.world.poll(bench.left_cq).is_none() {
            assert!(bench.world.step());
        }
        bench.world.post_buffer(&mut list, buffer).unwrap();
        assert_eq!(free(&mut bench, &list), (0, 1));
        let again = bench.ask(2, allocate(&list, bench.there.key, inline(b"x")));
        bench.put(&again);
        bench.world.ring(bench.left);
        let ended = loop {
            if let Some(wc) = bench.world.poll(bench.left_cq) {
                break wc;
            }
            assert!(bench.world.step());
        };
        assert_eq!(crate::bench::outcome(&ended), Verdict::NoBuffer);
        // After the client's timeout it can no longer request anything again.
        assert!(bench.world.settle(1_000_000));
        assert_eq!(free(&mut bench, &list), (1, 0));
        // If the client only received nothing, it continues.
        bench.world.set_rules(&Rules::of(vec![]), 1);
        let more = [3, 4].map(|id| bench.ask(id, allocate(&list, bench.there.key, inline(b"y"))));
        assert_eq!(bench.run(&more), [(3, Verdict::Done), (4, Verdict::NoBuffer)]);
    }
}

#[test]
fn eight_later_answers_release_a_buffer_as_well() {
    for mut bench in Bench::arms() {
        let mut list = bench.list(65536, 4096, 1);
        bench.run(&[bench.ask(0, allocate(&list, bench.there.key, inline(b"value")))]);
        let buffer = bench.result(0, 8)[0];
        bench.set(0, &[buffer, 4096]);
        let into = [bench.here.sge(0, 4096)];
        let small = [bench.here.sge(8192, 8)];
        let mut requests = vec![bench.ask(1, read(Address::bounded(bench.at(0)), 4096, &into))];
        let elsewhere = bench.at(64).addr;
        bench.set(128, &[elsewhere]);
        for id in 2..11 {
            requests.push(bench.ask(id, read(Address::indirect(bench.at(128)), 8, &small)));
        }
        for request in &requests {
            bench.put(request);
        }
        bench.world.ring(bench.left);
        bench.world.post_buffer(&mut list, buffer).unwrap();
        let mut ended = 0;
        while ended < 10 {
            ended += std::iter::from_fn(|| bench.world.poll(bench.left_cq)).count();
            assert!(bench.world.step() || ended == 10);
        }
        assert_eq!(free(&mut bench, &list), (1, 0));
    }
}

/// §4.2 does not say what happens if a client dies in the middle.
#[test]
fn the_buffer_of_half_an_allocate_comes_back_when_the_queue_pair_dies() {
    for (end, mut bench) in
        [State::Err, State::Reset].into_iter().flat_map(|end| Bench::arms().map(|bench| (end, bench)))
    {
        let list = bench.list(65536, 4096, 3);
        let last = Rule::new(Action::Drop).only(&[Opcode::RC_RDMA_WRITE_LAST]);
        bench.world.set_rules(&Rules::of(vec![last]), 1);
        let local = [bench.here.sge(0, 2000)];
        let data = remora_nic::prism::Data::Local(Payload::Sges(&local));
        let request = bench.ask(0, Operation::Allocate { list: list.number, rkey: bench.there.key, data });
        bench.put(&request);
        bench.world.ring(bench.left);
        bench.world.run_for(20_000);
        assert_eq!(free(&mut bench, &list), (2, 0), "under way");
        bench.world.bring(bench.right, end);
        assert_eq!(free(&mut bench, &list), (3, 0), "{end:?}");
    }
}

#[test]
fn a_list_that_is_gone_or_of_another_domain_is_a_remote_access_error() {
    for mut bench in Bench::arms() {
        let list = bench.list(65536, 64, 2);
        let number = list.number;
        bench.world.ask::<()>(1, Command::DestroyFreeList { list: number }).unwrap();
        assert_eq!(
            bench.world.ask::<()>(1, Command::DestroyFreeList { list: number }),
            Err(NicError::Unknown)
        );
        let next = bench.list(65536, 64, 2);
        assert_ne!(next.number, number, "the number of a list that is gone names nothing");
        let request = bench.ask(0, allocate(&list, bench.there.key, inline(b"x")));
        assert_eq!(bench.run_all(&[request])[0].status, Status::RemoteAccess);
    }
}

#[test]
fn as_many_lists_as_were_configured_and_no_more() {
    let mut config = remora_fabric::Config::default();
    config.nic.max_free_lists = 2;
    let mut bench = Bench::over(&config, &crate::bench::arms()[0]);
    for index in 0..2 {
        bench.list(65536 + 4096 * index, 64, 1);
    }
    let third = bench.world.create_free_list(&bench.there, 0, 64, 1);
    assert_eq!(third.err(), Some(NicError::Full));
    for (size, count) in [(0, 1), (64, 0), (u32::MAX, (1 << 24) + 1)] {
        let wrong = bench.world.create_free_list(&bench.there, 0, size, count);
        assert_eq!(wrong.err(), Some(NicError::TooSmall), "{size} {count}");
    }
}

/// An ALLOCATE examines a bounded number of posts. A query for taken buffers must not count the remaining
/// ones as taken.
#[test]
fn what_was_posted_is_not_out_however_much_it_is() {
    let [mut bench, _] = Bench::arms();
    let list = bench.list(65536, 64, 200);
    let command = Command::FindBuffers { list: list.number, first: 0, words: 4 };
    assert_eq!(bench.world.ask::<Vec<u64>>(list.node, command).unwrap(), [0; 4]);
    assert_eq!(free(&mut bench, &list), (200, 0));
}
