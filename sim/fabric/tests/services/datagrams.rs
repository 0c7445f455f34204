//! UD: address handles, Q_Keys, and the 40 bytes before the payload.

use super::{ends, events, forge, opcodes, pattern, receive, request};
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_memory::Key;
use remora_nic::{
    AddressVector, AsyncEvent, Command, CompletionKind, Destination, GRH, NetworkType, NicError, Operation,
    Service, Sge, Status, Target,
};
use remora_transport::state::State;
use remora_wire::frame::Start;
use remora_wire::{Extensions, Opcode, Qpn, deth};

const QKEY: u32 = 0x1111_1111;
const GOOD: Status = Status::Success;

/// Three nodes with a UD queue pair each.
struct Bench {
    world: World,
    qps: Vec<QueuePair>,
    cqs: Vec<CompletionQueue>,
    memory: Vec<Region>,
}

fn over(config: &Config) -> Bench {
    let mut world = World::new(&Config { nodes: 3, ..config.clone() });
    let settings = Settings { mtu: 0, ..Settings::default() };
    let cqs: Vec<_> = (0..3).map(|node| world.create_cq(node, 256)).collect();
    let make = |cq: &CompletionQueue| world.create_qp_of(Service::Ud, *cq, *cq, None, &settings).unwrap();
    let qps: Vec<_> = cqs.iter().map(make).collect();
    qps.iter().for_each(|qp| world.bring_up(*qp, 0xff_ffff, &settings));
    let memory: Vec<_> = (0..3).map(|node| world.register(node, 1 << 16, ALL)).collect();
    memory[0].store(0, &pattern(1 << 13));
    world.tap();
    Bench { world, qps, cqs, memory }
}

fn bench() -> Bench {
    over(&Config::default())
}

impl Bench {
    fn target(&mut self, node: usize) -> Target {
        let handle = self.world.create_address_handle(0, node).unwrap();
        Target::Datagram { handle, to: Destination { qp: self.qps[node].number, qkey: QKEY } }
    }

    fn send(&mut self, id: u64, len: usize, target: &Target) {
        let list = [self.memory[0].sge(0, len)];
        self.world.post_to(self.qps[0], &request(id, Operation::Send, &list), target).unwrap();
    }

    fn receive(&mut self, node: usize, id: u64, len: usize) {
        let list = [self.memory[node].sge(0, len)];
        receive(&mut self.world, self.qps[node], id, &list);
    }

    fn settle(&mut self, node: usize) -> Vec<(u64, Status)> {
        assert!(self.world.settle(1_000_000));
        ends(&self.world.drain(self.cqs[node]))
    }
}

#[test]
fn a_datagram_goes_to_whom_it_names_behind_forty_bytes() {
    for (ipv6, start) in [
        (false, Start::Ip),
        (true, Start::Ip),
        (false, Start::Bth),
        (true, Start::Bth),
        (false, Start::Ethernet),
    ] {
        let mut bench = over(&Config { ipv6, start, ..Config::default() });
        for node in [2, 1] {
            let target = bench.target(node);
            bench.receive(node, 9, 4096);
            let list = [bench.memory[0].sge(10, 700)];
            let operation = Operation::SendImm(5);
            bench.world.post_to(bench.qps[0], &request(3, operation, &list), &target).unwrap();
            assert_eq!(bench.settle(0), [(3, GOOD)]);
            let [done] = bench.world.drain(bench.cqs[node])[..] else { panic!("one completion") };
            assert_eq!((done.id, done.kind, done.byte_len), (9, CompletionKind::Receive, 740));
            let network = if ipv6 { NetworkType::Ipv6 } else { NetworkType::Ipv4 };
            assert_eq!(
                (done.imm, done.src_qp, done.grh),
                (Some(5), bench.qps[0].number.get(), Some(network))
            );
            assert_eq!(done.qp_num, bench.qps[node].number.get());
            assert_eq!(bench.memory[node].load(GRH, 700), bench.memory[0].load(10, 700));
            let grh = bench.memory[node].load(0, GRH);
            let route = bench.world.route(0, node);
            let source = route.source.address;
            let destination = route.destination.address;
            let udp_len = 8 + 12 + 8 + 4 + 700 + 4u16;
            if ipv6 {
                assert_eq!((grh[0] >> 4, &grh[4..6]), (6, &udp_len.to_be_bytes()[..]));
                assert_eq!((&grh[8..24], &grh[24..]), (&source.0[..], &destination.0[..]), "{start:?}");
            } else {
                assert_eq!(grh[..20], [0; 20]);
                assert_eq!((grh[20], &grh[22..24]), (0x45, &(udp_len + 20).to_be_bytes()[..]));
                assert_eq!((&grh[32..36], &grh[36..]), (&source.0[12..], &destination.0[12..]), "{start:?}");
            }
        }
        assert_eq!(bench.world.drain(bench.cqs[1]).len() + bench.world.drain(bench.cqs[2]).len(), 0);
    }
}

#[test]
fn only_the_right_key_opens_and_a_controlled_one_stands_for_the_senders_own() {
    let mut bench = bench();
    let Target::Datagram { handle, to: destination } = bench.target(1) else { panic!("a datagram's") };
    (0..2).for_each(|id| bench.receive(1, id, 4096));
    for (qkey, opens) in
        [(QKEY + 1, false), (0, false), (QKEY, true), (0x8000_0000, true), (0x8000_0001, true)]
    {
        let target = Target::Datagram { handle, to: Destination { qkey, ..destination } };
        let before = bench.world.counters(1).qkey_viol_cntr;
        bench.receive(1, 7, 4096);
        bench.send(1, 8, &target);
        assert_eq!(bench.settle(0), [(1, GOOD)], "a sender is never told");
        assert_eq!(bench.settle(1).len(), usize::from(opens), "{qkey:#x}");
        assert_eq!(bench.world.counters(1).qkey_viol_cntr - before, u64::from(!opens));
    }
}

#[test]
fn what_does_not_fit_or_is_not_awaited_is_dropped_and_touches_nothing() {
    let mut bench = bench();
    let target = bench.target(1);
    bench.send(1, 8, &target);
    assert_eq!((bench.settle(0), bench.settle(1)), (vec![(1, GOOD)], vec![]));
    assert_eq!(bench.world.counters(1).out_of_buffer, 1);
    bench.receive(1, 5, GRH + 99);
    bench.send(2, 100, &target);
    assert_eq!((bench.settle(0), bench.settle(1)), (vec![(2, GOOD)], vec![]));
    assert_eq!(bench.memory[1].load(0, 4096), vec![0; 4096]);
    assert_eq!(bench.world.counters(1).resp_local_length_error, 1);
    bench.send(3, 99, &target);
    assert_eq!((bench.settle(0), bench.settle(1)), (vec![(3, GOOD)], vec![(5, GOOD)]), "the same receive");
    bench.receive(1, 6, GRH - 1);
    bench.send(4, 0, &target);
    assert_eq!((bench.settle(0), bench.settle(1)), (vec![(4, GOOD)], vec![]), "no space for the 40 bytes");
    assert_eq!(bench.world.counters(1).rx_dropped_messages, 3);
    assert_eq!(bench.world.state(bench.qps[1]), Some(State::Rts));
}

#[test]
fn a_datagram_is_one_packet_of_the_port() {
    let mut bench =
        over(&Config { nic: remora_nic::Config { mtu: 1024, ..Config::default().nic }, ..Config::default() });
    let target = bench.target(1);
    bench.receive(1, 1, 4096);
    bench.send(1, 1024, &target);
    assert_eq!((bench.settle(0), bench.settle(1)), (vec![(1, GOOD)], vec![(1, GOOD)]));
    assert_eq!(opcodes(&mut bench.world, 0), [Opcode::UD_SEND_ONLY]);
    bench.send(2, 1025, &target);
    bench.send(3, 8, &target);
    assert_eq!(bench.settle(0), [(2, Status::LocalLength), (3, Status::WrFlushed)]);
    assert_eq!(bench.world.state(bench.qps[0]), Some(State::Sqe));
    bench.world.bring(bench.qps[0], State::Rts);
    bench.receive(1, 4, 4096);
    bench.send(4, 8, &target);
    assert_eq!((bench.settle(0), bench.settle(1)), (vec![(4, GOOD)], vec![(4, GOOD)]));
}

#[test]
fn bad_handles_keys_and_verbs_are_errors_of_the_sender() {
    let wrong = |make: fn(&mut Bench) -> (Operation, Target, Vec<Sge>), expected| {
        let mut bench = bench();
        let (operation, target, list) = make(&mut bench);
        bench.world.post_to(bench.qps[0], &request(1, operation, &list), &target).unwrap();
        assert_eq!(bench.settle(0), [(1, expected)], "{operation:?} to {target:?}");
        assert_eq!(opcodes(&mut bench.world, 0), []);
        assert_eq!(bench.world.state(bench.qps[0]), Some(State::Sqe));
        assert_eq!(events(&mut bench.world, 0), [] as [AsyncEvent; 0]);
    };
    wrong(|bench| (Operation::Send, Target::Peer, vec![bench.memory[0].sge(0, 8)]), Status::LocalQpOperation);
    wrong(
        |bench| {
            let target = bench.target(1);
            let Target::Datagram { handle, .. } = target else { panic!("a datagram's") };
            bench.world.ask::<()>(0, Command::DestroyAddressHandle { handle }).unwrap();
            (Operation::Send, target, vec![bench.memory[0].sge(0, 8)])
        },
        Status::LocalQpOperation,
    );
    wrong(
        |bench| {
            // An address handle of another protection domain.
            let other = bench.world.table(0).alloc_pd().unwrap();
            let address = AddressVector::new(bench.world.peer(1), bench.world.route(0, 1));
            let handle =
                bench.world.ask::<u32>(0, Command::CreateAddressHandle { pd: other, address }).unwrap();
            let destination = Destination { qp: bench.qps[1].number, qkey: QKEY };
            (Operation::Send, Target::Datagram { handle, to: destination }, vec![bench.memory[0].sge(0, 8)])
        },
        Status::LocalQpOperation,
    );
    wrong(
        |bench| {
            let remote = bench.memory[1].remote(0);
            (Operation::Write(remote), bench.target(1), vec![bench.memory[0].sge(0, 8)])
        },
        Status::LocalQpOperation,
    );
    wrong(
        |bench| {
            let list = vec![Sge { lkey: Key::new(0x1234), ..bench.memory[0].sge(0, 8) }];
            (Operation::Send, bench.target(1), list)
        },
        Status::LocalProtection,
    );
}

#[test]
fn address_handles_are_bounded() {
    let config = Config {
        nic: remora_nic::Config { max_address_handles: 2, ..Config::default().nic },
        ..Config::default()
    };
    let mut world = World::new(&config);
    let first = world.create_address_handle(0, 1).unwrap();
    world.create_address_handle(0, 0).unwrap();
    assert_eq!(world.create_address_handle(0, 1), Err(NicError::Full));
    world.ask::<()>(0, Command::DestroyAddressHandle { handle: first }).unwrap();
    assert_eq!(world.ask::<()>(0, Command::DestroyAddressHandle { handle: first }), Err(NicError::Unknown));
    assert_ne!(world.create_address_handle(0, 1), Ok(first));
}

#[test]
fn datagrams_for_connected_queue_pairs_and_others_for_datagram_ones_are_dropped() {
    let mut bench = bench();
    let settings = Settings::default();
    let cq = bench.cqs[1];
    let left = bench.world.create_qp(bench.cqs[0], bench.cqs[0], &settings).unwrap();
    let right = bench.world.create_qp(cq, cq, &settings).unwrap();
    bench.world.connect(left, right, &settings);
    receive(&mut bench.world, right, 1, &[bench.memory[1].sge(0, 4096)]);
    bench.receive(1, 2, 4096);
    let ext = Extensions { deth: Some(deth::Repr { qkey: QKEY, src_qp: Qpn::new(9) }), ..Extensions::NONE };
    forge(&mut bench.world, right, Opcode::UD_SEND_ONLY, 0, ext, &[1; 8]);
    forge(&mut bench.world, bench.qps[1], Opcode::RC_SEND_ONLY, 0, Extensions::NONE, &[1; 8]);
    forge(&mut bench.world, bench.qps[1], Opcode::UC_SEND_ONLY, 0, Extensions::NONE, &[1; 8]);
    assert_eq!((bench.world.counters(1).unknown_qp, bench.settle(1)), (3, vec![]));
    forge(&mut bench.world, bench.qps[1], Opcode::UD_SEND_ONLY, 0, ext, &[1; 8]);
    assert_eq!(bench.settle(1), [(2, GOOD)]);
    // A duplicate is received twice: UD has no sequence.
    bench.receive(1, 3, 4096);
    forge(&mut bench.world, bench.qps[1], Opcode::UD_SEND_ONLY, 0, ext, &[1; 8]);
    assert_eq!(bench.settle(1), [(3, GOOD)]);
}

#[test]
fn a_receive_that_may_not_be_written_ends_its_queue_pair() {
    let mut bench = bench();
    let list = [Sge { lkey: Key::new(0x1234), ..bench.memory[1].sge(0, 4096) }];
    receive(&mut bench.world, bench.qps[1], 1, &list);
    let target = bench.target(1);
    bench.send(1, 8, &target);
    assert_eq!((bench.settle(0), bench.settle(1)), (vec![(1, GOOD)], vec![(1, Status::LocalProtection)]));
    assert_eq!(bench.world.state(bench.qps[1]), Some(State::Err));
}

#[test]
fn a_shared_receive_queue_serves_datagrams_too() {
    let mut bench = bench();
    let settings = Settings { mtu: 0, ..Settings::default() };
    let srq = bench.world.create_srq(1, 8, 2, None).unwrap();
    let cq = bench.cqs[1];
    let two: Vec<_> = (0..2)
        .map(|_| {
            let qp = bench.world.create_qp_of(Service::Ud, cq, cq, Some(srq), &settings).unwrap();
            bench.world.bring_up(qp, 0, &settings);
            qp
        })
        .collect();
    for (id, qp) in [(0, two[1]), (1, two[0]), (2, two[1])] {
        let list = [bench.memory[1].sge(id * 4096, GRH), bench.memory[1].sge(id * 4096 + 100, 64)];
        bench.world.post_shared(srq, &remora_nic::ReceiveRequest { id: id as u64, sges: &list }).unwrap();
        let Target::Datagram { handle, to: destination } = bench.target(1) else { panic!("a datagram's") };
        bench.send(9, 64, &Target::Datagram { handle, to: Destination { qp: qp.number, ..destination } });
        assert_eq!(bench.settle(0), [(9, GOOD)]);
        let done = bench.world.drain(cq);
        assert_eq!((done[0].id, done[0].qp_num, done.len()), (id as u64, qp.number.get(), 1));
        assert_eq!(bench.memory[1].load(id * 4096 + 100, 64), bench.memory[0].load(0, 64));
    }
}

#[test]
fn a_wrong_icrc_is_counted_and_dropped() {
    let mut bench = bench();
    bench.receive(1, 1, 4096);
    let forge = remora_fabric::forge::Forge::new(&bench.world, 0, bench.qps[1]);
    let ext = Extensions { deth: Some(deth::Repr { qkey: QKEY, src_qp: Qpn::new(9) }), ..Extensions::NONE };
    let whole = forge.frame(forge.bth(Opcode::UD_SEND_ONLY, 0), ext, &[1; 8]);
    for bit in [8 * (20 + 8 + 12), 8 * (whole.len() - 1), 8 * (whole.len() - 5) + 3] {
        let mut frame = whole.clone();
        remora_fault::flip(&mut frame, bit as u32);
        forge.send(&mut bench.world, &frame);
        bench.world.run_for(10_000);
    }
    assert_eq!((bench.world.counters(1).rx_icrc_encapsulated, bench.settle(1)), (3, vec![]));
    forge.send(&mut bench.world, &whole);
    bench.world.run_for(10_000);
    assert_eq!(bench.settle(1), [(1, GOOD)]);
}

/// Regression: a datagram in RTR raised the event of an established communication, which UD does not have.
#[test]
fn datagrams_in_rtr_are_taken_and_establish_no_communication() {
    let mut bench = bench();
    let settings = Settings { mtu: 0, ..Settings::default() };
    bench.world.bring(bench.qps[1], State::Reset);
    for change in &bench.world.way_to_rts(bench.qps[1], bench.qps[0], [0, 0], &settings)[..2] {
        bench.world.modify(bench.qps[1], change).unwrap();
    }
    let target = bench.target(1);
    bench.receive(1, 3, 100);
    bench.send(1, 8, &target);
    assert_eq!((bench.settle(0), bench.settle(1)), (vec![(1, GOOD)], vec![(3, GOOD)]));
    assert_eq!(events(&mut bench.world, 1), []);
}
