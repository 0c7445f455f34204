//! Multicast: a message to a group goes to every datagram queue pair that is attached to it.

use super::{ends, pattern, receive, request};
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Settings, World};
use remora_memory::Access;
use remora_nic::{
    AddressVector, Command, Destination, GRH, MULTICAST_QPN, NicError, Operation, Service, Status, Target,
};
use remora_transport::state::State;
use remora_wire::Qpn;
use remora_wire::frame::{Address, Endpoint, Route, Start};
use std::net::IpAddr;

const GOOD: Status = Status::Success;

/// A sender on node 0, and three queue pairs of node 1 with a receive each.
struct Bench {
    world: World,
    sender: QueuePair,
    cqs: [CompletionQueue; 2],
    receivers: Vec<QueuePair>,
    memory: [Region; 2],
    group: Address,
}

fn settings() -> Settings {
    Settings { mtu: 0, ..Settings::default() }
}

fn over(config: &Config) -> Bench {
    let mut world = World::new(config);
    let cqs = [world.create_cq(0, 64), world.create_cq(1, 64)];
    let mut make = |cq: CompletionQueue| {
        let qp = world.create_qp_of(Service::Ud, cq, cq, None, &settings()).unwrap();
        world.bring_up(qp, 7, &settings());
        qp
    };
    let sender = make(cqs[0]);
    let receivers = (0..3).map(|_| make(cqs[1])).collect();
    let memory = [0, 1].map(|node| world.register(node, 1 << 14, ALL));
    memory[0].store(0, &pattern(1 << 12));
    let group: IpAddr = if config.ipv6 { "ff12::47:91" } else { "239.1.2.3" }.parse().unwrap();
    let mut bench = Bench { world, sender, cqs, receivers, memory, group: group.into() };
    (0..3).for_each(|place| bench.receive(place));
    bench
}

impl Bench {
    fn attach(&mut self, place: usize) -> Result<(), NicError> {
        let number = self.receivers[place].number;
        let group = self.group;
        self.world.ask::<()>(1, Command::AttachMulticast { qp: number, group })
    }

    fn receive(&mut self, place: usize) {
        let list = [self.memory[1].sge(place * 4096, 4096)];
        receive(&mut self.world, self.receivers[place], place as u64, &list);
    }

    /// Sends `len` bytes to a queue pair number in a group, by way of node 1. Returns the completions there.
    fn send(&mut self, group: Address, qp: u32, qkey: u32, len: usize) -> Vec<(u64, Status)> {
        let own = self.world.route(0, 1).source;
        let route = Route::new(own, Endpoint { address: group, udp_port: remora_wire::ROCE_PORT });
        let pd = self.world.pd(0);
        let address = AddressVector::new(self.world.peer(1), route);
        let handle = self.world.ask::<u32>(0, Command::CreateAddressHandle { pd, address }).unwrap();
        let target = Target::Datagram { handle, to: Destination { qp: Qpn::new(qp), qkey } };
        let list = [self.memory[0].sge(0, len)];
        self.world.post_to(self.sender, &request(9, Operation::Send, &list), &target).unwrap();
        assert!(self.world.settle(1_000_000));
        assert_eq!(ends(&self.world.drain(self.cqs[0])), [(9, GOOD)]);
        let mut came = ends(&self.world.drain(self.cqs[1]));
        came.sort_unstable_by_key(|(id, _)| *id);
        came
    }

    fn cast(&mut self, len: usize) -> Vec<(u64, Status)> {
        self.send(self.group, MULTICAST_QPN, settings().qkey, len)
    }
}

#[test]
fn a_group_is_whoever_is_attached_behind_the_header_that_names_it() {
    for (ipv6, start) in [(false, Start::Ip), (true, Start::Ip), (false, Start::Ethernet)] {
        let mut bench = over(&Config { ipv6, start, ..Config::default() });
        assert_eq!(bench.cast(10), [], "nobody is attached");
        assert_eq!(bench.world.counters(1).unknown_qp, 1);
        bench.attach(0).unwrap();
        bench.attach(2).unwrap();
        assert_eq!(bench.attach(2), Err(NicError::Busy), "once");
        assert_eq!(bench.cast(1000), [(0, GOOD), (2, GOOD)]);
        for place in [0, 2] {
            assert_eq!(bench.memory[1].load(place * 4096 + GRH, 1000), bench.memory[0].load(0, 1000));
            let grh = bench.memory[1].load(place * 4096, GRH);
            let named = if ipv6 { &bench.group.0[..] } else { &bench.group.0[12..] };
            assert_eq!(&grh[GRH - named.len()..], named);
        }
        let number = bench.receivers[2].number;
        let group = bench.group;
        bench.world.ask::<()>(1, Command::DetachMulticast { qp: number, group }).unwrap();
        let again = bench.world.ask::<()>(1, Command::DetachMulticast { qp: number, group });
        assert_eq!(again, Err(NicError::Unknown));
        (0..3).for_each(|place| bench.receive(place));
        assert_eq!(bench.cast(20), [(0, GOOD)]);
    }
}

#[test]
fn each_member_has_its_own_key_receives_and_state() {
    let mut bench = over(&Config::default());
    (0..3).for_each(|place| bench.attach(place).unwrap());
    let other = remora_nic::Modify { qkey: Some(5), ..remora_nic::Modify::default() };
    bench.world.modify(bench.receivers[0], &other).unwrap();
    assert_eq!(bench.cast(100), [(1, GOOD), (2, GOOD)]);
    assert_eq!(bench.world.counters(1).qkey_viol_cntr, 1);
    // A queue pair without a receive misses the message, one in ERR does not count, and the third gets it.
    bench.receive(2);
    bench.world.bring(bench.receivers[0], State::Err);
    bench.world.drain(bench.cqs[1]);
    assert_eq!(bench.cast(100), [(2, GOOD)]);
    assert_eq!(bench.world.counters(1).out_of_buffer, 1);
    // A receive into memory without write access ends only its own queue pair.
    let closed = bench.world.register(1, 4096, Access::NONE);
    receive(&mut bench.world, bench.receivers[1], 4, &[closed.sge(0, 4096)]);
    bench.receive(2);
    assert_eq!(bench.cast(100), [(2, GOOD), (4, Status::LocalProtection)]);
    assert_eq!(bench.world.state(bench.receivers[1]), Some(State::Err));
    assert_eq!(bench.world.state(bench.receivers[2]), Some(State::Rts));
}

#[test]
fn only_all_ones_at_the_groups_own_address_reaches_it() {
    let mut bench = over(&Config::default());
    bench.attach(0).unwrap();
    let qkey = settings().qkey;
    let group = bench.group;
    let stranger = Address::from("239.1.2.4".parse::<IpAddr>().unwrap());
    let host = bench.world.route(0, 1).destination.address;
    assert_eq!(bench.send(stranger, MULTICAST_QPN, qkey, 8), []);
    assert_eq!(bench.send(host, MULTICAST_QPN, qkey, 8), []);
    assert_eq!(bench.send(group, MULTICAST_QPN - 1, qkey, 8), []);
    assert_eq!(bench.world.counters(1).unknown_qp, 3);
    assert_eq!(bench.send(group, MULTICAST_QPN, qkey, 8), [(0, GOOD)]);
}

#[test]
fn groups_take_datagram_queue_pairs_which_are_busy_meanwhile() {
    let mut bench = over(&Config {
        nic: remora_nic::Config { max_groups: 1, max_group_members: 2, ..Config::default().nic },
        ..Config::default()
    });
    let connected = bench.world.create_qp(bench.cqs[1], bench.cqs[1], &Settings::default()).unwrap();
    let group = bench.group;
    let refused = bench.world.ask::<()>(1, Command::AttachMulticast { qp: connected.number, group });
    assert_eq!(refused, Err(NicError::NotThisService));
    let nobody = bench.world.ask::<()>(1, Command::AttachMulticast { qp: Qpn::new(0x12_3456), group });
    assert_eq!(nobody, Err(NicError::Unknown));
    bench.attach(0).unwrap();
    bench.attach(1).unwrap();
    assert_eq!(bench.attach(2), Err(NicError::Full));
    let number = bench.receivers[0].number;
    let destroy = |world: &mut World| world.ask::<()>(1, Command::DestroyQp(number));
    assert_eq!(destroy(&mut bench.world), Err(NicError::Busy));
    bench.world.ask::<()>(1, Command::DetachMulticast { qp: number, group }).unwrap();
    destroy(&mut bench.world).unwrap();
    bench.attach(2).unwrap();
}
