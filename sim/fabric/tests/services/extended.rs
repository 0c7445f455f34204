//! XRC: an initiator, a target, and the shared receive queue that each request names.

use super::{ends, events, forge, opcodes, pattern, request};
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, SharedQueue, World};
use remora_memory::{Access, Bytes, Key, Range};
use remora_nic::{
    AsyncEvent, Command, CompletionKind, NicError, Operation, PostError, ReceiveRequest, Remote, Service,
    SrqInit, Status, Target, XrcSrq,
};
use remora_transport::state::State;
use remora_wire::{Extensions, Opcode, Qpn, reth, xrceth};

/// Two initiators on node 0, each with a target on node 1. The targets' XRC domain has two shared receive
/// queues and another domain has one, each with its own completion queue.
struct Bench {
    world: World,
    pairs: Vec<(QueuePair, QueuePair)>,
    cq: CompletionQueue,
    srqs: Vec<(SharedQueue, CompletionQueue)>,
    domains: [u32; 2],
    here: Region,
    there: Region,
}

const GOOD: Status = Status::Success;

fn bench(settings: &Settings) -> Bench {
    let mut world = World::new(&Config::default());
    let domains = [0, 1].map(|_| world.ask::<u32>(1, Command::AllocXrcDomain).unwrap());
    let cq = world.create_cq(0, 256);
    let srqs = [0, 0, 1]
        .map(|domain| {
            let cq = world.create_cq(1, 64);
            let xrc = XrcSrq { domain: domains[domain], cq: cq.number };
            (world.create_srq(1, 16, 3, Some(xrc)).unwrap(), cq)
        })
        .to_vec();
    let pairs = (0..2)
        .map(|_| {
            let left = world.create_qp_of(Service::XrcInitiator, cq, cq, None, settings).unwrap();
            let right = world.create_xrc_target(1, domains[0]).unwrap();
            world.connect(left, right, settings);
            (left, right)
        })
        .collect();
    let here = world.register(0, 1 << 20, ALL);
    let there = world.register(1, 1 << 20, ALL);
    here.store(0, &pattern(1 << 16));
    world.tap();
    Bench { world, pairs, cq, srqs, domains, here, there }
}

impl Bench {
    fn post(&mut self, pair: usize, id: u64, operation: Operation, len: usize, srq: usize) {
        let list = [self.here.sge(0, len)];
        let target = Target::Srq(self.srqs[srq].0.number);
        self.world.post_to(self.pairs[pair].0, &request(id, operation, &list), &target).unwrap();
    }

    fn receive(&mut self, srq: usize, id: u64) {
        let list = [self.there.sge(id as usize * 8192, 8192)];
        self.world.post_shared(self.srqs[srq].0, &ReceiveRequest { id, sges: &list }).unwrap();
    }

    /// Runs the world and returns the completions of the initiators.
    fn settle(&mut self) -> Vec<(u64, Status)> {
        assert!(self.world.settle(1_000_000));
        ends(&self.world.drain(self.cq))
    }

    fn received(&mut self, srq: usize) -> Vec<(u64, Status)> {
        ends(&self.world.drain(self.srqs[srq].1))
    }
}

#[test]
fn each_message_goes_to_the_shared_receive_queue_that_it_names() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    (0..2).for_each(|srq| (0..4).for_each(|id| bench.receive(srq, 4 * srq as u64 + id)));
    for (turn, (pair, srq, id)) in [(0, 1, 4), (1, 0, 0), (0, 0, 1), (1, 1, 5)].into_iter().enumerate() {
        bench.post(pair, turn as u64, Operation::SendImm(7), 700 + turn, srq);
        assert_eq!(bench.settle(), [(turn as u64, GOOD)]);
        let [done] = bench.world.drain(bench.srqs[srq].1)[..] else { panic!("one completion") };
        assert_eq!((done.id, done.status, done.byte_len as usize), (id, GOOD, 700 + turn));
        assert_eq!((done.imm, done.qp_num), (Some(7), bench.pairs[pair].1.number.get()));
        assert_eq!(bench.there.load(id as usize * 8192, 700 + turn), bench.here.load(0, 700 + turn));
    }
    use Opcode as O;
    let sent = opcodes(&mut bench.world, 0);
    assert_eq!(sent[..3], [O::XRC_SEND_FIRST, O::XRC_SEND_MIDDLE, O::XRC_SEND_LAST_IMM]);
}

#[test]
fn every_verb_of_rc_and_its_answers_have_op_codes_of_xrc() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    bench.receive(0, 1);
    bench.receive(0, 2);
    bench.there.store(64, &5u64.to_ne_bytes());
    let remote = bench.there.remote(64);
    let open = bench.world.table(1).clone();
    let bytes = Bytes::heap(64).unwrap();
    let spent = open.register(bench.world.pd(1), &[Range::at(&bytes, 0)], ALL | Access::INVALIDATE).unwrap();
    bench.post(0, 1, Operation::Write(bench.there.remote(1000)), 600, 0);
    assert_eq!(bench.settle(), [(1, GOOD)]);
    bench.post(0, 2, Operation::WriteImm(bench.there.remote(2000), 9), 8, 0);
    bench.post(0, 3, Operation::SendInv(spent), 8, 0);
    bench.post(0, 4, Operation::FetchAdd { remote, add: 2 }, 8, 0);
    assert_eq!(bench.settle(), [(2, GOOD), (3, GOOD), (4, GOOD)]);
    assert_eq!(bench.here.load(0, 8), 5u64.to_ne_bytes());
    bench.post(0, 5, Operation::CompareSwap { remote, compare: 7, swap: 1 }, 8, 0);
    bench.post(0, 6, Operation::Read(bench.there.remote(64)), 600, 0);
    assert_eq!(bench.settle(), [(5, GOOD), (6, GOOD)]);
    assert_eq!(bench.here.load(0, 8), 1u64.to_ne_bytes());
    let done = bench.world.drain(bench.srqs[0].1);
    assert_eq!((done[0].kind, done[0].imm), (CompletionKind::ReceiveWriteImm, Some(9)));
    assert_eq!(done[1].invalidated, Some(spent));
    let start = bench.world.start();
    let sent = bench.world.sent();
    for frame in &sent {
        let packet = remora_fabric::forge::transport(start, &frame.bytes).unwrap();
        assert_eq!(packet.bth.opcode.service(), Some(remora_wire::Service::Xrc));
        let named = packet.ext.xrceth.map(|header| header.srq);
        assert_eq!(named, (frame.from == 0).then_some(bench.srqs[0].0.number), "{packet}");
    }
    let answers: Vec<Opcode> = sent
        .iter()
        .filter(|sent| sent.from == 1)
        .map(|sent| remora_fabric::forge::transport(start, &sent.bytes).unwrap().bth.opcode)
        .collect();
    for expected in
        [Opcode::XRC_ACKNOWLEDGE, Opcode::XRC_ATOMIC_ACKNOWLEDGE, Opcode::XRC_RDMA_READ_RESPONSE_LAST]
    {
        assert!(answers.contains(&expected), "{expected} in {answers:?}");
    }
}

#[test]
fn an_empty_shared_receive_queue_makes_the_initiator_wait() {
    let mut bench = bench(&Settings::default());
    bench.receive(1, 1);
    bench.post(0, 1, Operation::Send, 8, 0);
    bench.world.run_for(200_000);
    assert!(bench.world.counters(1).send_rnr_err > 0);
    assert_eq!(bench.received(1), []);
    bench.receive(0, 2);
    assert_eq!((bench.settle(), bench.received(0)), (vec![(1, GOOD)], vec![(2, GOOD)]));
}

#[test]
fn a_queue_that_is_not_there_not_of_the_domain_or_not_for_xrc_is_an_invalid_request() {
    let cases: [fn(&mut Bench) -> Qpn; 4] = [
        |bench| Qpn::new(bench.srqs[0].0.number.get() + 77),
        |bench| bench.srqs[2].0.number,
        |bench| bench.world.create_srq(1, 4, 1, None).unwrap().number,
        |_| Qpn::new(0xff_ffff),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        for operation in [Operation::Send, Operation::Write(Remote { addr: 0, rkey: Key::new(1) })] {
            let mut bench = bench(&Settings::default());
            let wrong = case(&mut bench);
            let list = [bench.here.sge(0, 8)];
            let left = bench.pairs[0].0;
            bench.world.post_to(left, &request(1, operation, &list), &Target::Srq(wrong)).unwrap();
            assert_eq!(bench.settle(), [(1, Status::RemoteInvalidRequest)], "case {number}, {operation:?}");
            assert_eq!(bench.world.counters(1).resp_remote_invalid_request, 1);
            let target = bench.pairs[0].1;
            assert_eq!(bench.world.state(target), Some(State::Err));
            assert_eq!(events(&mut bench.world, 1), [AsyncEvent::QpRequest(target.number)]);
        }
    }
}

#[test]
fn memory_is_accessed_in_the_domain_of_the_queue_that_is_named() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    // A shared receive queue and a region of a second protection domain.
    let table = bench.world.table(1).clone();
    let pd = table.alloc_pd().unwrap();
    let xrc = XrcSrq { domain: bench.domains[0], cq: bench.srqs[0].1.number };
    let ring = bench.world.hand(1, remora_nic::Ring::heap(16).unwrap());
    let other =
        bench.world.ask::<Qpn>(1, Command::CreateSrq(SrqInit { pd, ring, max_sge: 1, xrc: Some(xrc) }));
    let other = Target::Srq(other.unwrap());
    let bytes = Bytes::heap(4096).unwrap();
    let key = table.register(pd, &[Range::at(&bytes, 0)], ALL).unwrap();
    let remote = Remote { addr: 0, rkey: key };
    let list = [bench.here.sge(0, 1000)];
    let left = bench.pairs[0].0;
    bench.world.post_to(left, &request(1, Operation::Write(remote), &list), &other).unwrap();
    bench.world.post_to(left, &request(2, Operation::Read(remote), &list), &other).unwrap();
    bench.post(0, 3, Operation::Write(bench.there.remote(0)), 8, 0);
    assert_eq!(bench.settle(), [(1, GOOD), (2, GOOD), (3, GOOD)]);
    bench.post(0, 4, Operation::Write(remote), 8, 0);
    assert_eq!(bench.settle(), [(4, Status::RemoteAccess)], "by the other queue's domain");
}

#[test]
fn a_message_cannot_change_its_queue_on_the_way() {
    let mut bench = bench(&Settings { mtu: 256, ..Settings::default() });
    (0..2).for_each(|srq| bench.receive(srq, srq as u64));
    let [first, second] = [0, 1].map(|srq| Extensions {
        xrceth: Some(xrceth::Repr { srq: bench.srqs[srq].0.number }),
        ..Extensions::NONE
    });
    let target = bench.pairs[0].1;
    forge(&mut bench.world, target, Opcode::XRC_SEND_FIRST, 0, first, &[1; 256]);
    assert_eq!(bench.world.counters(1).resp_remote_invalid_request, 0);
    forge(&mut bench.world, target, Opcode::XRC_SEND_LAST, 1, second, &[1; 8]);
    assert_eq!(bench.world.counters(1).resp_remote_invalid_request, 1);
    assert_eq!(bench.received(0), [(0, Status::WrFlushed)], "what it had taken");
    assert_eq!(bench.received(1), []);
}

#[test]
fn packets_of_rc_responses_to_targets_and_requests_to_initiators_are_dropped() {
    let mut bench = bench(&Settings::default());
    let (left, right) = bench.pairs[0];
    let reth = reth::Repr { va: bench.there.address, rkey: bench.there.key.get(), dma_len: 8 };
    let plain = Extensions { reth: Some(reth), ..Extensions::NONE };
    forge(&mut bench.world, right, Opcode::RC_RDMA_WRITE_ONLY, 0, plain, &[1; 8]);
    assert_eq!(bench.world.counters(1).unknown_qp, 1);
    let ack = Extensions {
        aeth: Some(remora_wire::aeth::Repr { syndrome: remora_wire::Syndrome::ack(31), msn: 0 }),
        ..Extensions::NONE
    };
    forge(&mut bench.world, right, Opcode::XRC_ACKNOWLEDGE, 0, ack, &[]);
    assert_eq!(bench.world.counters(1).unknown_qp, 2);
    let forge = remora_fabric::forge::Forge::new(&bench.world, 1, left);
    let named = Extensions { xrceth: Some(xrceth::Repr { srq: Qpn::new(0) }), ..plain };
    let frame = forge.frame(forge.bth(Opcode::XRC_RDMA_WRITE_ONLY, 0), named, &[1; 8]);
    forge.send(&mut bench.world, &frame);
    bench.world.run_for(10_000);
    assert_eq!(bench.world.counters(0).unknown_qp, 1);
    assert_eq!(bench.there.load(0, 8), [0; 8]);
    bench.receive(0, 1);
    bench.post(0, 1, Operation::Send, 8, 0);
    assert_eq!(bench.settle(), [(1, GOOD)], "the connection lives on");
}

#[test]
fn an_initiator_has_no_receives_a_target_no_sends_and_domains_are_busy_while_used() {
    let mut bench = bench(&Settings::default());
    let cq = bench.cq;
    let own = bench.world.create_srq(0, 4, 1, None).unwrap();
    let with_srq = bench.world.create_qp_of(Service::XrcInitiator, cq, cq, Some(own), &Settings::default());
    assert_eq!(with_srq, Err(NicError::NotThisService));
    let right = bench.pairs[0].1;
    let list = [bench.there.sge(0, 8)];
    let post = bench.world.post(right, &request(1, Operation::Send, &list));
    assert_eq!(post, Err(PostError::TooManySges));
    let free = |bench: &mut Bench, index: usize| {
        let domain = bench.domains[index];
        bench.world.ask::<()>(1, Command::FreeXrcDomain { domain })
    };
    assert_eq!(free(&mut bench, 1), Err(NicError::Busy), "a shared receive queue is in it");
    let (third, third_cq) = bench.srqs[2];
    let busy = bench.world.ask::<()>(1, Command::DestroyCq { cq: third_cq.number });
    assert_eq!(busy, Err(NicError::Busy), "it completes there");
    bench.world.ask::<()>(1, Command::DestroySrq(third.number)).unwrap();
    bench.world.ask::<()>(1, Command::DestroyCq { cq: third_cq.number }).unwrap();
    free(&mut bench, 1).unwrap();
    assert_eq!(bench.world.create_xrc_target(1, bench.domains[1]), Err(NicError::Unknown));
    // A queue that packets name may be destroyed at any time.
    let (first, _) = bench.srqs[0];
    bench.world.ask::<()>(1, Command::DestroySrq(first.number)).unwrap();
    bench.post(1, 1, Operation::Send, 8, 0);
    assert_eq!(bench.settle(), [(1, Status::RemoteInvalidRequest)]);
    assert_eq!(free(&mut bench, 0), Err(NicError::Busy));
    for (_, target) in bench.pairs.clone() {
        bench.world.ask::<()>(1, Command::DestroyQp(target.number)).unwrap();
    }
    bench.world.ask::<()>(1, Command::DestroySrq(bench.srqs[1].0.number)).unwrap();
    free(&mut bench, 0).unwrap();
}
