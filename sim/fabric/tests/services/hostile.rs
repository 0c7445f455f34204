//! Hostile packets to live queue pairs of the other services, to their shared receive queues and to multicast
//! groups.

use super::{pattern, request};
use remora_fabric::forge::Forge;
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, SharedQueue, World};
use remora_fault::Random;
use remora_memory::{Access, Key};
use remora_nic::{
    Command, Destination, MULTICAST_QPN, Operation, ReceiveRequest, Service, Sge, Status, Target, XrcSrq,
};
use remora_transport::state::State;
use remora_wire::aeth::Syndrome;
use remora_wire::frame::{Address, Start};
use remora_wire::{
    Extensions, Opcode, Qpn, aeth, atomic_ack, atomic_eth, bth, deth, ieth, immdt, reth, xrceth,
};
use std::net::Ipv4Addr;

/// Live queue pairs of every service but RC between node 0 and node 1, and RC with a shared receive queue.
struct Bench {
    world: World,
    cqs: [CompletionQueue; 2],
    /// All queue pairs to which packets can be sent.
    victims: Vec<QueuePair>,
    uc: QueuePair,
    ud: [QueuePair; 2],
    initiator: QueuePair,
    rc: QueuePair,
    srqs: [SharedQueue; 2],
    here: Region,
    there: Region,
    /// Region that no packet may change.
    guard: Region,
    group: Address,
}

fn settings() -> Settings {
    Settings { mtu: 256, timeout: 1, retry_cnt: 1, ..Settings::default() }
}

fn bench(config: &Config) -> Bench {
    let mut world = World::new(config);
    let settings = settings();
    let cqs = [world.create_cq(0, 512), world.create_cq(1, 512)];
    let domain = world.ask::<u32>(1, Command::AllocXrcDomain).unwrap();
    let beside = XrcSrq { domain, cq: cqs[1].number };
    let srqs = [None, Some(beside)].map(|xrc| world.create_srq(1, 64, 1, xrc).unwrap());
    let mut make = |service, node: usize, srq| {
        world.create_qp_of(service, cqs[node], cqs[node], srq, &settings).unwrap()
    };
    let uc = [make(Service::Uc, 0, None), make(Service::Uc, 1, None)];
    let ud = [make(Service::Ud, 0, None), make(Service::Ud, 1, Some(srqs[0]))];
    let rc = [make(Service::Rc, 0, None), make(Service::Rc, 1, Some(srqs[0]))];
    let initiator = make(Service::XrcInitiator, 0, None);
    let target = world.create_xrc_target(1, domain).unwrap();
    for (left, right) in [(uc[0], uc[1]), (rc[0], rc[1]), (initiator, target)] {
        world.connect(left, right, &Settings { psn: [0, 0], ..settings });
    }
    ud.iter().for_each(|qp| world.bring_up(*qp, 0, &settings));
    let group = Address::from(Ipv4Addr::new(239, 7, 7, 7));
    world.ask::<()>(1, Command::AttachMulticast { qp: ud[1].number, group }).unwrap();
    let here = world.register(0, 1 << 16, ALL);
    let there = world.register(1, 1 << 16, ALL);
    let guard = world.register(1, 1 << 12, Access::LOCAL_WRITE);
    here.store(0, &pattern(1 << 12));
    let victims = vec![uc[0], uc[1], ud[0], ud[1], rc[1], initiator, target];
    Bench { world, cqs, victims, uc: uc[0], ud, initiator, rc: rc[0], srqs, here, there, guard, group }
}

impl Bench {
    /// Posts receives everywhere, and a request on each connection.
    fn work(&mut self) {
        let place = [self.there.sge(1 << 15, 4096)];
        for (id, srq) in self.srqs.into_iter().enumerate() {
            for turn in 0..8 {
                let id = (100 + id * 8 + turn) as u64;
                self.world.post_shared(srq, &ReceiveRequest { id, sges: &place }).unwrap();
            }
        }
        let list = [self.here.sge(0, 700)];
        let remote = self.there.remote(0);
        let to_srq = Target::Srq(self.srqs[1].number);
        for (qp, operation, target) in [
            (self.uc, Operation::Write(remote), Target::Peer),
            (self.rc, Operation::Send, Target::Peer),
            (self.initiator, Operation::Send, to_srq),
            (self.initiator, Operation::Read(remote), to_srq),
        ] {
            self.world.post_to(qp, &request(1, operation, &list), &target).unwrap();
        }
    }

    /// Returns a packet with this opcode; each header is as often valid as invalid.
    fn any(&self, random: &mut Random, forge: &Forge, opcode: Opcode) -> Vec<u8> {
        let keys = [self.there.key, self.guard.key, Key::new(7)].map(Key::get);
        let va = self.there.address + random.below(1 << 17);
        let rkey = random.pick(&keys);
        let srqs = [self.srqs[0].number, self.srqs[1].number, Qpn::new(9)];
        let ext = Extensions {
            xrceth: opcode.has_xrceth().then(|| xrceth::Repr { srq: random.pick(&srqs) }),
            deth: opcode.has_deth().then(|| {
                let qkey = if random.chance(0.7) { settings().qkey } else { 3 };
                deth::Repr { qkey, src_qp: Qpn::new(5) }
            }),
            reth: opcode.has_reth().then(|| reth::Repr { va, rkey, dma_len: random.below(600) as u32 }),
            atomic: opcode.has_atomic_eth().then_some(atomic_eth::Repr { va, rkey, swap_add: 1, compare: 0 }),
            aeth: opcode.has_aeth().then_some(aeth::Repr { syndrome: Syndrome::ack(31), msn: 1 }),
            atomic_ack: opcode.has_atomic_ack().then_some(atomic_ack::Repr { original: 5 }),
            imm: opcode.has_imm().then_some(immdt::Repr { value: 1 }),
            ieth: opcode.has_ieth().then_some(ieth::Repr { rkey }),
        };
        let any = random.below(300) as usize;
        let payload = vec![0xee; random.pick(&[0, 8, 255, 256, 257, any])];
        forge.frame(forge.bth(opcode, random.below(8) as u32), ext, &payload)
    }
}

#[test]
fn random_and_mutated_packets_of_every_service_never_panic_and_open_nothing() {
    let mut random = Random::new(0x5e41);
    let spoken: Vec<Opcode> = (0..=255).map(Opcode).filter(|op| op.service().is_some()).collect();
    let mut seen = remora_transport::Counters::default();
    for round in 0..300 {
        let start = random.pick(&[Start::Ip, Start::Bth, Start::Ethernet]);
        let mut bench = bench(&Config { seed: round, start, ..Config::default() });
        bench.work();
        for _ in 0..60 {
            let victim = random.pick(&bench.victims);
            let mut forge = Forge::new(&bench.world, 1 - victim.node, victim);
            if random.chance(0.15) {
                forge = Forge::new(&bench.world, 0, bench.ud[1]).to_group(bench.group);
            }
            let opcode = random.pick(&spoken);
            let mut frame = if random.chance(0.2) {
                let mut transport = vec![0; 12 + 4 * random.between(1, 60) as usize];
                random.fill(&mut transport);
                bth::Repr { pad: 0, ..forge.bth(opcode, random.below(8) as u32) }.emit(&mut transport);
                forge.wrap(transport)
            } else {
                bench.any(&mut random, &forge, opcode)
            };
            if random.chance(0.2) {
                let bits = frame.len() as u64 * 8;
                remora_fault::flip(&mut frame, random.below(bits) as u32);
            }
            forge.send(&mut bench.world, &frame);
            bench.world.run_for(random.below(3_000));
        }
        assert!(bench.world.settle(1_000_000), "round {round} never rests");
        assert_eq!(bench.guard.load(0, 1 << 12), vec![0; 1 << 12], "a region without rights changed");
        seen.add(&bench.world.counters(1));
        still_there(&mut bench);
    }
    let met = [
        ("dropped messages", seen.rx_dropped_messages),
        ("wrong Q_Key", seen.qkey_viol_cntr),
        ("gap", seen.out_of_sequence),
        ("remote access NAK", seen.resp_remote_access_errors),
        ("invalid request NAK", seen.resp_remote_invalid_request),
        ("wrong ICRC", seen.rx_icrc_encapsulated),
        ("malformed", seen.malformed_pkts),
        ("nobody's", seen.unknown_qp),
        ("SENDs taken", seen.rx_send_requests),
        ("WRITEs taken", seen.rx_write_requests),
    ];
    let never: Vec<&str> = met.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect();
    assert_eq!(never, Vec::<&str>::new());
}

/// Checks that datagrams still pass: no packet has ended their queue pairs.
fn still_there(bench: &mut Bench) {
    let states = bench.ud.map(|qp| bench.world.state(qp));
    assert_eq!(states, [Some(State::Rts); 2]);
    bench.cqs.iter().for_each(|cq| drop(bench.world.drain(*cq)));
    let place: [Sge; 1] = [bench.there.sge(0, 4096)];
    bench.world.post_shared(bench.srqs[0], &ReceiveRequest { id: 500, sges: &place }).unwrap();
    let handle = bench.world.create_address_handle(0, 1).unwrap();
    let list = [bench.here.sge(0, 64)];
    for qp in [bench.ud[1].number.get(), MULTICAST_QPN] {
        let destination = Destination { qp: Qpn::new(qp), qkey: settings().qkey };
        let target = Target::Datagram { handle, to: destination };
        bench.world.post_to(bench.ud[0], &request(9, Operation::Send, &list), &target).unwrap();
    }
    assert!(bench.world.settle(100_000));
    let sent = bench.world.drain(bench.cqs[0]);
    assert!(sent.iter().all(|wc| wc.status == Status::Success) && sent.len() == 2, "{sent:?}");
    let came = bench.world.drain(bench.cqs[1]);
    assert_eq!(came.len(), 1, "the one that named it, not the one to no group: {came:?}");
    assert_eq!((came[0].status, came[0].src_qp), (Status::Success, bench.ud[0].number.get()));
}
