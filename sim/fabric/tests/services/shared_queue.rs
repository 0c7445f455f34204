//! Shared receive queues: which queue pairs use them, their limit events, empty queues, and the end of a
//! queue pair.

use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, SharedQueue, World};
use remora_memory::Access;
use remora_nic::{
    AsyncEvent, Command, CompletionKind, Flags, NicError, Operation, Payload, PostError, ReceiveRequest,
    Service, Sge, SrqFacts, Status, WorkRequest,
};
use remora_transport::state::State;

const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };

/// Three queue pairs from node 0 to node 1, where they share a receive queue.
struct Bench {
    world: World,
    pairs: Vec<(QueuePair, QueuePair)>,
    cqs: [CompletionQueue; 2],
    srq: SharedQueue,
    source: Region,
    sink: Region,
}

const MAX_WR: u32 = 16;

fn bench(settings: &Settings) -> Bench {
    let mut world = World::new(&Config::default());
    let cqs = [world.create_cq(0, 512), world.create_cq(1, 512)];
    let srq = world.create_srq(1, MAX_WR, 5, None).unwrap();
    let pairs = (0..3)
        .map(|_| {
            let left = world.create_qp(cqs[0], cqs[0], settings).unwrap();
            let right = world.create_qp_of(Service::Rc, cqs[1], cqs[1], Some(srq), settings).unwrap();
            world.connect(left, right, settings);
            (left, right)
        })
        .collect();
    let source = world.register(0, 1 << 20, ALL);
    let sink = world.register(1, 1 << 20, ALL);
    source.store(0, &(0..1 << 16).map(|index: u32| (index >> 8 ^ index) as u8).collect::<Vec<u8>>());
    Bench { world, pairs, cqs, srq, source, sink }
}

impl Bench {
    fn send(&mut self, pair: usize, id: u64, len: usize) {
        let list = [self.source.sge(pair * 100, len)];
        let request =
            WorkRequest { id, operation: Operation::Send, payload: Payload::Sges(&list), flags: SIGNALED };
        self.world.post(self.pairs[pair].0, &request).unwrap();
    }

    fn receive(&mut self, id: u64) -> Result<(), PostError> {
        let list = [self.sink.sge(id as usize * 8192, 8192)];
        self.world.post_shared(self.srq, &ReceiveRequest { id, sges: &list })
    }

    /// Returns the completions on the right: id, status and number of the pair.
    fn received(&mut self) -> Vec<(u64, Status, usize)> {
        assert!(self.world.settle(1_000_000));
        let done = self.world.drain(self.cqs[1]);
        done.iter()
            .map(|wc| {
                let pair = self.pairs.iter().position(|(_, right)| right.number.get() == wc.qp_num);
                (wc.id, wc.status, pair.expect("a completion of ours"))
            })
            .collect()
    }

    fn events(&mut self) -> Vec<AsyncEvent> {
        self.world.with_nic(1, |nic, _| std::iter::from_fn(|| nic.event()).collect())
    }
}

#[test]
fn any_queue_pair_takes_the_next_work_request_whoever_came_first() {
    let mut bench = bench(&Settings::default());
    (0..6).for_each(|id| bench.receive(id).unwrap());
    for (turn, pair) in [2, 0, 0, 1, 2, 1].into_iter().enumerate() {
        bench.send(pair, turn as u64, 700 + pair);
        assert_eq!(bench.received(), [(turn as u64, Status::Success, pair)]);
        let offset = turn * 8192;
        assert_eq!(bench.sink.load(offset, 700 + pair), bench.source.load(pair * 100, 700 + pair));
    }
    assert_eq!(bench.world.drain(bench.cqs[0]).len(), 6);
}

#[test]
fn a_long_message_holds_its_work_request_while_others_come_and_go() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    (0..4).for_each(|id| bench.receive(id).unwrap());
    // A turn of the long message is sent, then the short messages of the others, then the rest of the long
    // one.
    bench.send(0, 10, 8000);
    bench.send(1, 11, 10);
    bench.send(2, 12, 20);
    let mut received = bench.received();
    assert_eq!(received.pop(), Some((0, Status::Success, 0)), "the long one is the last to end");
    received.sort_by_key(|done| done.2);
    assert_eq!(received, [(1, Status::Success, 1), (2, Status::Success, 2)]);
    assert_eq!(bench.sink.load(0, 8000), bench.source.load(0, 8000));
}

#[test]
fn lists_of_several_elements_are_kept_whole() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    let cut = |bench: &Bench, id: usize| -> Vec<Sge> {
        [(0, 100), (200, 1), (300, 500), (1000, 0), (2000, 3000)]
            .map(|(offset, len)| bench.sink.sge(id * 8192 + offset, len))
            .to_vec()
    };
    for id in 0..3 {
        let list = cut(&bench, id);
        bench.world.post_shared(bench.srq, &ReceiveRequest { id: id as u64, sges: &list }).unwrap();
    }
    let six = [bench.sink.sge(0, 1); 6];
    let refused = bench.world.post_shared(bench.srq, &ReceiveRequest { id: 9, sges: &six });
    assert_eq!(refused, Err(PostError::TooManySges));
    (0..3).for_each(|pair| bench.send(pair, pair as u64, 1500));
    let received = bench.received();
    assert_eq!(received.len(), 3);
    for (id, status, pair) in received {
        assert_eq!(status, Status::Success);
        let content: Vec<u8> = [(0, 100), (200, 1), (300, 500), (2000, 899)]
            .into_iter()
            .flat_map(|(offset, len)| bench.sink.load(id as usize * 8192 + offset, len))
            .collect();
        assert_eq!(content, bench.source.load(pair * 100, 1500));
    }
}

#[test]
fn a_full_queue_refuses_and_an_empty_one_lets_its_peers_wait() {
    let mut bench = bench(&Settings::default());
    let posted = (0..1000).take_while(|id| bench.receive(id % 64).is_ok()).count();
    assert!(posted >= MAX_WR as usize);
    assert_eq!(bench.receive(0), Err(PostError::QueueFull));
    let facts = bench.world.ask::<SrqFacts>(1, Command::QuerySrq(bench.srq.number)).unwrap();
    assert_eq!((facts.max_wr, facts.waiting), (posted as u32, posted as u32));
    bench.send(0, 1, 8);
    assert_eq!(bench.received().len(), 1);
    assert_eq!(bench.receive(0), Ok(()), "one was taken");
    for _ in 0..posted {
        bench.send(1, 2, 8);
        assert_eq!(bench.received().len(), 1);
    }
    let before = bench.world.counters(1).out_of_buffer;
    bench.send(2, 3, 8);
    bench.world.run_for(100_000);
    assert!(bench.world.counters(1).out_of_buffer > before, "nothing is there");
    bench.receive(5).unwrap();
    assert_eq!(bench.received(), [(5, Status::Success, 2)], "and the message came again");
}

#[test]
fn the_limit_event_comes_once_for_each_time_that_it_is_armed() {
    let mut bench = bench(&Settings::default());
    (0..6).for_each(|id| bench.receive(id).unwrap());
    let number = bench.srq.number;
    let arm = |bench: &mut Bench, limit| bench.world.ask::<()>(1, Command::ArmSrq { srq: number, limit });
    let limit = |bench: &mut Bench| bench.world.ask::<SrqFacts>(1, Command::QuerySrq(number)).unwrap().limit;
    arm(&mut bench, 4).unwrap();
    for id in 0..2 {
        bench.send(0, id, 8);
        bench.received();
        assert_eq!(bench.events(), [], "four are left, not fewer");
    }
    assert_eq!(limit(&mut bench), 4);
    bench.send(1, 2, 8);
    bench.received();
    assert_eq!((bench.events(), limit(&mut bench)), (vec![AsyncEvent::SrqLimit(number)], 0));
    bench.send(1, 3, 8);
    bench.received();
    assert_eq!(bench.events(), [], "disarmed");
    arm(&mut bench, 3).unwrap();
    assert_eq!(bench.events(), [AsyncEvent::SrqLimit(number)], "two are left: reached at once");
    arm(&mut bench, 2).unwrap();
    arm(&mut bench, 0).unwrap();
    bench.send(2, 4, 8);
    bench.received();
    assert_eq!(bench.events(), [], "0 disarms");
    assert_eq!(arm(&mut bench, 1 << 20), Err(NicError::TooSmall));
    let unknown = remora_wire::Qpn::new(number.get() + 1);
    let refused = bench.world.ask::<()>(1, Command::ArmSrq { srq: unknown, limit: 1 });
    assert_eq!(refused, Err(NicError::Unknown));
}

#[test]
fn a_queue_pair_in_error_says_that_it_took_its_last_work_request() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    (0..3).for_each(|id| bench.receive(id).unwrap());
    bench.send(0, 1, 8000);
    bench.world.run_for(1_400);
    let right = bench.pairs[0].1;
    bench.world.bring(right, State::Err);
    assert_eq!(bench.events(), [AsyncEvent::LastWqe(right.number)]);
    // Receives that the queue pair had taken are flushed, but not those that wait in the shared queue.
    assert_eq!(
        bench.world.drain(bench.cqs[1]).iter().map(|wc| (wc.id, wc.status)).collect::<Vec<_>>(),
        [(0, Status::WrFlushed)]
    );
    bench.world.bring(right, State::Err);
    assert_eq!(bench.events(), [], "once");
    bench.send(1, 2, 8);
    assert_eq!(bench.received(), [(1, Status::Success, 1)]);
    // A queue pair with a message that is too long ends in the same way.
    bench.send(2, 3, 8193);
    assert_eq!(bench.received(), [(2, Status::LocalLength, 2)]);
    let two = bench.pairs[2].1.number;
    assert_eq!(bench.events(), [AsyncEvent::QpRequest(two), AsyncEvent::LastWqe(two)]);
}

#[test]
fn work_requests_are_of_the_queues_domain_not_of_the_queue_pairs() {
    let mut bench = bench(&Settings::default());
    let table = bench.world.table(1).clone();
    let other = table.alloc_pd().unwrap();
    let bytes = remora_memory::Bytes::heap(64).unwrap();
    let key = table.register(other, &[remora_memory::Range::at(&bytes, 0)], Access::LOCAL_WRITE).unwrap();
    let list = [Sge { addr: 0, len: 64, lkey: key }];
    bench.world.post_shared(bench.srq, &ReceiveRequest { id: 1, sges: &list }).unwrap();
    bench.send(0, 1, 8);
    assert_eq!(bench.received(), [(1, Status::LocalProtection, 0)]);
    let done = bench.world.drain(bench.cqs[0]);
    assert_eq!(done[0].status, Status::RemoteOperation);
}

#[test]
fn a_write_with_immediate_data_takes_one_too() {
    let mut bench = bench(&Settings::default());
    bench.receive(7).unwrap();
    let list = [bench.source.sge(0, 64)];
    let remote = bench.sink.remote(60_000);
    let operation = Operation::WriteImm(remote, 99);
    let request = WorkRequest { id: 1, operation, payload: Payload::Sges(&list), flags: SIGNALED };
    bench.world.post(bench.pairs[1].0, &request).unwrap();
    assert!(bench.world.settle(1_000_000));
    let done = bench.world.drain(bench.cqs[1]);
    assert_eq!((done[0].id, done[0].kind, done[0].imm), (7, CompletionKind::ReceiveWriteImm, Some(99)));
    assert_eq!(bench.sink.load(60_000, 64), bench.source.load(0, 64));
}

#[test]
fn a_resized_queue_keeps_what_waits_in_it() {
    let mut bench = bench(&Settings::default());
    (0..10).for_each(|id| bench.receive(id).unwrap());
    for id in 0..3 {
        bench.send(0, id, 8);
        bench.received();
    }
    assert_eq!(bench.world.resize_srq(bench.srq, 2), Err(NicError::TooSmall), "seven wait");
    bench.world.resize_srq(bench.srq, 64).unwrap();
    (10..60).for_each(|id| bench.receive(id).unwrap());
    for id in 3..60 {
        bench.send(id as usize % 3, 1, 8);
        assert_eq!(bench.received(), [(id, Status::Success, id as usize % 3)]);
    }
    bench.world.resize_srq(bench.srq, 1).unwrap();
    assert_eq!(bench.receive(1), Ok(()));
}

#[test]
fn queues_are_bounded_busy_while_used_and_numbered_anew() {
    let config = Config {
        nic: remora_nic::Config { max_srqs: 2, max_xrc_domains: 1, ..Config::default().nic },
        ..Config::default()
    };
    let mut world = World::new(&config);
    let cq = world.create_cq(0, 16);
    let first = world.create_srq(0, 4, 1, None).unwrap();
    let second = world.create_srq(0, 4, 1, None).unwrap();
    assert_eq!(world.create_srq(0, 4, 1, None), Err(NicError::Full));
    let settings = Settings::default();
    let qp = world.create_qp_of(Service::Rc, cq, cq, Some(first), &settings).unwrap();
    let destroy = |world: &mut World, srq: SharedQueue| world.ask::<()>(0, Command::DestroySrq(srq.number));
    assert_eq!(destroy(&mut world, first), Err(NicError::Busy));
    world.ask::<()>(0, Command::DestroyQp(qp.number)).unwrap();
    destroy(&mut world, first).unwrap();
    assert_eq!(destroy(&mut world, first), Err(NicError::Unknown));
    let again = world.create_srq(0, 4, 1, None).unwrap();
    assert!(![first.number, second.number].contains(&again.number));
    let gone = world.create_qp_of(Service::Rc, cq, cq, Some(first), &settings);
    assert_eq!(gone, Err(NicError::Unknown));
    // A rejected queue pair leaves nothing behind.
    world.ask::<()>(0, Command::DestroyCq { cq: cq.number }).unwrap();
    let domain = world.ask::<u32>(0, Command::AllocXrcDomain).unwrap();
    assert_eq!(world.ask::<u32>(0, Command::AllocXrcDomain), Err(NicError::Full));
    world.ask::<()>(0, Command::FreeXrcDomain { domain }).unwrap();
    assert_eq!(world.ask::<()>(0, Command::FreeXrcDomain { domain }), Err(NicError::Unknown));
}
