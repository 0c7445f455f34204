//! Unreliable connections: a message arrives whole or not at all, and its sender learns nothing about it.

use super::{ends, events, forge, opcodes, pattern, receive, request};
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_fault::{Action, Rule, Rules};
use remora_memory::{Access, Key};
use remora_nic::{
    AsyncEvent, Command, CompletionKind, Modify, Operation, PostError, QueuePairFacts, Remote, Service, Sge,
    Status,
};
use remora_transport::state::State;
use remora_wire::{Extensions, Opcode, reth};

struct Bench {
    world: World,
    ends: [QueuePair; 2],
    cqs: [CompletionQueue; 2],
    here: Region,
    there: Region,
}

fn bench(settings: &Settings) -> Bench {
    over(&Config::default(), settings)
}

fn over(config: &Config, settings: &Settings) -> Bench {
    let mut world = World::new(config);
    let cqs = [0, 1].map(|node| world.create_cq(node, 256));
    let ends = cqs.map(|cq| world.create_qp_of(Service::Uc, cq, cq, None, settings).unwrap());
    world.connect(ends[0], ends[1], settings);
    let here = world.register(0, 1 << 20, ALL);
    let there = world.register(1, 1 << 20, ALL);
    here.store(0, &pattern(1 << 16));
    world.tap();
    Bench { world, ends, cqs, here, there }
}

impl Bench {
    fn post(&mut self, id: u64, operation: Operation, len: usize) {
        let list = [self.here.sge(0, len)];
        self.world.post(self.ends[0], &request(id, operation, &list)).unwrap();
    }

    fn receive(&mut self, id: u64, len: usize) {
        let list = [self.there.sge(id as usize * 8192, len)];
        receive(&mut self.world, self.ends[1], id, &list);
    }

    /// Runs the world and returns the completions on the left and on the right.
    fn settle(&mut self) -> [Vec<(u64, Status)>; 2] {
        assert!(self.world.settle(1_000_000));
        self.cqs.map(|cq| ends(&self.world.drain(cq)))
    }
}

const GOOD: Status = Status::Success;

#[test]
fn messages_of_every_length_arrive_and_are_not_answered() {
    for mtu in [256, 512, 1024, 2048, 4096] {
        let mut bench = bench(&Settings { mtu, psn: [0xff_fffe, 5], ..Settings::default() });
        let mtu = mtu as usize;
        for (id, len) in [0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 2 * mtu + 3, 8000].into_iter().enumerate() {
            bench.receive(id as u64, 8195);
            bench.post(id as u64, Operation::SendImm(77), len);
            assert!(bench.world.settle(100_000));
            assert_eq!(ends(&bench.world.drain(bench.cqs[0])), [(id as u64, GOOD)]);
            let [done] = bench.world.drain(bench.cqs[1])[..] else {
                panic!("one completion of {len}, MTU {mtu}")
            };
            assert_eq!((done.id, done.status, done.byte_len as usize), (id as u64, GOOD, len));
            assert_eq!((done.kind, done.imm), (CompletionKind::Receive, Some(77)));
            assert_eq!(bench.there.load(id * 8192, len), bench.here.load(0, len));
        }
        assert_eq!(opcodes(&mut bench.world, 1), [], "nothing came back");
    }
}

#[test]
fn writes_are_placed_and_with_immediate_data_announced() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    let remote = bench.there.remote(100);
    bench.post(1, Operation::Write(remote), 1000);
    assert_eq!(bench.settle(), [vec![(1, GOOD)], vec![]]);
    assert_eq!(bench.there.load(100, 1000), bench.here.load(0, 1000));
    use Opcode as O;
    let first = O::UC_RDMA_WRITE_FIRST;
    let middle = O::UC_RDMA_WRITE_MIDDLE;
    assert_eq!(opcodes(&mut bench.world, 0), [first, middle, middle, O::UC_RDMA_WRITE_LAST]);
    bench.receive(9, 0);
    bench.post(2, Operation::WriteImm(bench.there.remote(5000), 3), 300);
    assert!(bench.world.settle(1000));
    let done = bench.world.drain(bench.cqs[1]);
    assert_eq!((done[0].id, done[0].kind, done[0].imm), (9, CompletionKind::ReceiveWriteImm, Some(3)));
    assert_eq!((done[0].byte_len, done[0].src_qp, done[0].grh), (300, 0, None));
}

#[test]
fn a_message_that_misses_a_packet_is_dropped_and_its_receive_serves_the_next() {
    for lost in 0..3 {
        let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
        bench.receive(4, 8192);
        let rule = Rule::new(Action::Drop).after(lost).at_most(1);
        bench.world.set_rules(&Rules::of(vec![rule]), 0);
        bench.post(1, Operation::Send, 700);
        assert_eq!(bench.settle(), [vec![(1, GOOD)], vec![]], "packet {lost} of 3: the sender is not told");
        bench.post(2, Operation::Send, 600);
        assert_eq!(bench.settle(), [vec![(2, GOOD)], vec![(4, GOOD)]]);
        assert_eq!(bench.there.load(4 * 8192, 600), bench.here.load(0, 600));
        // If the first packet is lost, the receiver never knew of a message.
        assert_eq!(bench.world.counters(1).rx_dropped_messages, u64::from(lost > 0));
    }
}

#[test]
fn without_a_receive_or_with_too_short_a_one_a_message_is_dropped_in_silence() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    bench.post(1, Operation::Send, 700);
    assert_eq!(bench.settle(), [vec![(1, GOOD)], vec![]]);
    assert_eq!(bench.world.counters(1).out_of_buffer, 1);
    bench.post(2, Operation::WriteImm(bench.there.remote(0), 3), 300);
    assert_eq!(bench.settle(), [vec![(2, GOOD)], vec![]]);
    assert_eq!(bench.world.counters(1).out_of_buffer, 2);
    bench.receive(0, 600);
    bench.post(3, Operation::Send, 601);
    assert_eq!(bench.settle(), [vec![(3, GOOD)], vec![]]);
    assert_eq!(bench.world.counters(1).resp_local_length_error, 1);
    bench.post(4, Operation::Send, 600);
    assert_eq!(bench.settle(), [vec![(4, GOOD)], vec![(0, GOOD)]], "the same receive");
    assert_eq!(bench.world.state(bench.ends[1]), Some(State::Rts));
    assert_eq!(opcodes(&mut bench.world, 1), []);
}

#[test]
fn a_write_with_immediate_data_takes_the_receive_that_a_dropped_message_left() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    bench.receive(0, 10);
    bench.receive(1, 8192);
    bench.post(1, Operation::Send, 11);
    bench.post(2, Operation::WriteImm(bench.there.remote(60_000), 3), 300);
    bench.post(3, Operation::Send, 600);
    let sent = vec![(1, GOOD), (2, GOOD), (3, GOOD)];
    assert_eq!(bench.settle(), [sent, vec![(0, GOOD), (1, GOOD)]], "in the order of their posting");
}

#[test]
fn what_the_peer_may_not_do_is_dropped_in_silence() {
    let refused = |access, operation: fn(&Bench) -> Operation| {
        let mut bench = bench(&Settings { access, ..Settings::default() });
        let operation = operation(&bench);
        bench.post(1, operation, 64);
        assert_eq!(bench.settle(), [vec![(1, GOOD)], vec![]]);
        assert_eq!(bench.world.counters(1).rx_dropped_messages, 1);
        assert_eq!(bench.there.load(0, 1 << 16), vec![0; 1 << 16]);
        assert_eq!(bench.world.state(bench.ends[1]), Some(State::Rts));
    };
    refused(Access::NONE, |bench| Operation::Write(bench.there.remote(0)));
    refused(ALL, |bench| Operation::Write(Remote { rkey: Key::new(0x1234), ..bench.there.remote(0) }));
    refused(ALL, |bench| Operation::Write(bench.there.remote((1 << 20) - 63)));
}

#[test]
fn a_receive_that_may_not_be_written_ends_its_queue_pair() {
    let mut bench = bench(&Settings::default());
    let list = [Sge { lkey: Key::new(0x1234), ..bench.there.sge(0, 64) }];
    receive(&mut bench.world, bench.ends[1], 1, &list);
    bench.receive(2, 64);
    bench.post(1, Operation::Send, 8);
    assert_eq!(bench.settle(), [vec![(1, GOOD)], vec![(1, Status::LocalProtection), (2, Status::WrFlushed)]]);
    assert_eq!(bench.world.state(bench.ends[1]), Some(State::Err));
    assert_eq!(events(&mut bench.world, 1), [AsyncEvent::QpFatal(bench.ends[1].number)]);
}

#[test]
fn a_failed_send_brings_the_queue_pair_to_sqe_where_it_still_receives() {
    let mut bench = bench(&Settings::default());
    let left = bench.ends[0];
    let bad = [Sge { lkey: Key::new(0x1234), ..bench.here.sge(0, 64) }];
    bench.world.post_quietly(left, &request(1, Operation::Send, &bad)).unwrap();
    let good = [bench.here.sge(0, 64)];
    bench.world.post(left, &request(2, Operation::Send, &good)).unwrap();
    assert_eq!(bench.settle()[0], [(1, Status::LocalProtection), (2, Status::WrFlushed)]);
    assert_eq!(bench.world.state(left), Some(State::Sqe));
    bench.world.post(left, &request(3, Operation::Send, &good)).unwrap();
    assert_eq!(bench.settle()[0], [(3, Status::WrFlushed)]);
    let list = [bench.here.sge(4096, 64)];
    receive(&mut bench.world, left, 9, &list);
    let back = [bench.there.sge(0, 64)];
    bench.world.post(bench.ends[1], &request(4, Operation::Send, &back)).unwrap();
    assert_eq!(bench.settle(), [vec![(9, GOOD)], vec![(4, GOOD)]]);
    // The program recovers the queue pair.
    bench.world.bring(left, State::Rts);
    bench.receive(5, 64);
    bench.world.post(left, &request(5, Operation::Send, &good)).unwrap();
    assert_eq!(bench.settle(), [vec![(5, GOOD)], vec![(5, GOOD)]]);
}

#[test]
fn verbs_that_the_service_lacks_are_refused_when_executed() {
    for operation in [
        Operation::Read(Remote { addr: 0, rkey: Key::new(1) }),
        Operation::SendInv(Key::new(1)),
        Operation::FetchAdd { remote: Remote { addr: 0, rkey: Key::new(1) }, add: 1 },
        Operation::CompareSwap { remote: Remote { addr: 0, rkey: Key::new(1) }, compare: 0, swap: 1 },
    ] {
        let mut bench = bench(&Settings::default());
        bench.post(1, operation, 8);
        assert_eq!(bench.settle()[0], [(1, Status::LocalQpOperation)], "{operation:?}");
        assert_eq!(opcodes(&mut bench.world, 0), []);
    }
    let mut bench = bench(&Settings::default());
    let mut list = vec![bench.here.sge(0, 1 << 20); 16];
    list.truncate(16);
    let too_long: Vec<Sge> = list.iter().map(|sge| Sge { len: u32::MAX / 2, ..*sge }).collect();
    bench.world.post(bench.ends[0], &request(1, Operation::Send, &too_long)).unwrap();
    assert_eq!(bench.settle()[0], [(1, Status::LocalLength)]);
}

#[test]
fn unsignaled_work_is_silent_and_sqd_ends_what_was_begun() {
    let link = remora_fabric::LinkConfig { queue: 4, ..Default::default() };
    let settings = Settings { mtu: 256, send_slots: 16, ..Settings::default() };
    let mut bench = over(&Config { link, ..Config::default() }, &settings);
    (0..4).for_each(|id| bench.receive(id, 8192));
    let list = [bench.here.sge(0, 8000)];
    let silent =
        remora_nic::WorkRequest { flags: remora_nic::Flags::default(), ..request(1, Operation::Send, &list) };
    bench.world.post(bench.ends[0], &silent).unwrap();
    bench.world.run_for(100);
    let left = bench.ends[0];
    bench.world.bring(left, State::Sqd);
    assert_eq!(events(&mut bench.world, 0), [], "it is under way");
    bench.world.post(left, &request(2, Operation::Nop, &[])).unwrap();
    assert_eq!(bench.settle(), [vec![], vec![(0, GOOD)]]);
    assert_eq!(events(&mut bench.world, 0), [AsyncEvent::SqDrained(left.number)]);
    bench.world.bring(left, State::Rts);
    assert_eq!(bench.settle(), [vec![(2, GOOD)], vec![]], "what was held goes on");
    for _ in 0..100 {
        bench.world.post(left, &silent).unwrap();
        assert!(bench.world.settle(100_000));
    }
    let posted = (0..100).take_while(|_| bench.world.post_quietly(left, &silent).is_ok()).count();
    assert_eq!((posted, bench.world.post_quietly(left, &silent)), (16, Err(PostError::QueueFull)));
}

#[test]
fn packets_of_other_services_and_of_strangers_are_dropped() {
    let mut world = World::new(&Config { nodes: 3, ..Config::default() });
    let settings = Settings::default();
    let cqs = [0, 1].map(|node| world.create_cq(node, 256));
    let uc = cqs.map(|cq| world.create_qp_of(Service::Uc, cq, cq, None, &settings).unwrap());
    world.connect(uc[0], uc[1], &settings);
    let sink = world.register(1, 4096, ALL);
    let reth = reth::Repr { va: sink.address, rkey: sink.key.get(), dma_len: 8 };
    let write = Extensions { reth: Some(reth), ..Extensions::NONE };
    forge(&mut world, uc[1], Opcode::RC_RDMA_WRITE_ONLY, 0, write, &[1; 8]);
    assert_eq!((world.counters(1).unknown_qp, world.counters(1).rcvd_pkts), (1, 0));
    let stranger = remora_fabric::forge::Forge::new(&world, 2, uc[1]);
    let frame = stranger.frame(stranger.bth(Opcode::UC_RDMA_WRITE_ONLY, 0), write, &[2; 8]);
    stranger.send(&mut world, &frame);
    world.run_for(10_000);
    assert_eq!((world.counters(1).unknown_qp, world.counters(1).rcvd_pkts), (2, 0));
    assert_eq!(sink.load(0, 8), [0; 8]);
    forge(&mut world, uc[1], Opcode::UC_RDMA_WRITE_ONLY, 7, write, &[3; 8]);
    assert_eq!(sink.load(0, 8), [3; 8], "any PSN may begin a message");
    let facts = world.ask::<QueuePairFacts>(1, Command::QueryQp(uc[1].number)).unwrap().attributes;
    assert_eq!((facts.state, facts.path_mtu), (Some(State::Rts), Some(1024)));
    let excess = Modify { timeout: Some(3), ..Modify::default() };
    assert!(world.modify(uc[1], &excess).is_err(), "an unreliable queue pair has no timeout");
}

#[test]
fn the_first_message_in_rtr_is_announced_once() {
    let settings = Settings::default();
    let mut bench = bench(&settings);
    bench.world.bring(bench.ends[1], State::Reset);
    for change in &bench.world.way_to_rts(bench.ends[1], bench.ends[0], [0, 0], &settings)[..2] {
        bench.world.modify(bench.ends[1], change).unwrap();
    }
    for id in 1..3 {
        bench.receive(id, 64);
        bench.post(id, Operation::Send, 8);
        assert_eq!(bench.settle(), [vec![(id, GOOD)], vec![(id, GOOD)]]);
    }
    assert_eq!(events(&mut bench.world, 1), [AsyncEvent::CommunicationEstablished(bench.ends[1].number)]);
}
