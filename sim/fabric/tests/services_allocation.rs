//! The data path of the services other than RC does not allocate after set-up: UC, UD and multicast, XRC,
//! shared receive queues, and windows. Every allocation of the thread is counted: program, NIC, memory and
//! simulated link.

use allocation_counter::measure;
use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, REMOTE, Region, Settings, SharedQueue, World};
use remora_fault::{Action, Rule, Rules};
use remora_memory::{Access, Binding, Key, WindowType};
use remora_nic::{
    AddressVector, Command, Destination, Flags, MULTICAST_QPN, Operation, Payload, ReceiveRequest, Remote,
    Service, Sge, Status, Target, WorkRequest, XrcSrq,
};
use remora_wire::frame::{Endpoint, Route};

/// A sender on node 0 and its receivers on node 1.
struct Steady {
    world: World,
    cqs: [CompletionQueue; 2],
    sender: QueuePair,
    receiver: QueuePair,
    target: Target,
    srq: Option<SharedQueue>,
    here: Region,
    there: Region,
    /// True if messages may be lost.
    lossy: bool,
}

fn steady(service: Service, shared: bool, rules: Vec<Rule>) -> Steady {
    let lossy = !rules.is_empty() && service != Service::XrcInitiator;
    let mut world = World::new(&Config { rules: Rules::of(rules), ..Config::default() });
    let settings = Settings { mtu: 1024, ..Settings::default() };
    let cqs = [world.create_cq(0, 256), world.create_cq(1, 256)];
    let here = world.register(0, 1 << 16, ALL | Access::MW_BIND);
    let there = world.register(1, 1 << 16, ALL | Access::MW_BIND);
    let sender = world.create_qp_of(service, cqs[0], cqs[0], None, &settings).unwrap();
    let mut srq = None;
    let receiver = if service == Service::XrcInitiator {
        let domain = world.ask::<u32>(1, Command::AllocXrcDomain).unwrap();
        srq = Some(world.create_srq(1, 64, 2, Some(XrcSrq { domain, cq: cqs[1].number })).unwrap());
        world.create_xrc_target(1, domain).unwrap()
    } else {
        if shared {
            srq = Some(world.create_srq(1, 64, 2, None).unwrap());
        }
        world.create_qp_of(service, cqs[1], cqs[1], srq, &settings).unwrap()
    };
    let target = match service {
        Service::Ud => {
            world.bring_up(sender, 1, &settings);
            world.bring_up(receiver, 1, &settings);
            let handle = world.create_address_handle(0, 1).unwrap();
            Target::Datagram { handle, to: Destination { qp: receiver.number, qkey: settings.qkey } }
        }
        _ => {
            world.connect(sender, receiver, &settings);
            srq.filter(|_| service == Service::XrcInitiator)
                .map_or(Target::Peer, |srq| Target::Srq(srq.number))
        }
    };
    Steady { world, cqs, sender, receiver, target, srq, here, there, lossy }
}

impl Steady {
    fn receive(&mut self, id: u64, offset: usize) {
        let list = [self.there.sge(offset, 4096)];
        let request = ReceiveRequest { id, sges: &list };
        // If messages are lost, receives may remain posted.
        let _ = match self.srq {
            Some(srq) => self.world.post_shared(srq, &request),
            None => self.world.post_receive(self.receiver, &request),
        };
    }

    /// Posts eight requests and polls their completions.
    fn batch(&mut self, operation: Operation, list: &[Sge]) {
        for id in 0..8 {
            self.receive(id, 16384);
            let flags = Flags { signaled: true, ..Flags::default() };
            let request = WorkRequest { id, operation, payload: Payload::Sges(list), flags };
            self.world.post_to(self.sender, &request, &self.target).unwrap();
        }
        assert!(self.world.settle(1_000_000));
        let mut sent = 0;
        while let Some(wc) = self.world.poll(self.cqs[0]) {
            assert_eq!(wc.status, Status::Success);
            sent += 1;
        }
        assert_eq!(sent, 8);
        let mut came = 0;
        while let Some(wc) = self.world.poll(self.cqs[1]) {
            assert_eq!(wc.status, Status::Success);
            came += 1;
        }
        assert!(self.lossy || matches!(operation, Operation::Write(_) | Operation::Read(_)) || came == 8);
    }

    fn allocates_nothing(&mut self, label: &str, operations: &[(Operation, Vec<Sge>)]) {
        let rounds = |steady: &mut Steady, count: usize| {
            for (operation, list) in operations {
                (0..count).for_each(|_| steady.batch(*operation, list));
            }
        };
        rounds(self, 40);
        let counted = measure(|| rounds(self, 50));
        assert_eq!(counted.count_total, 0, "{label}: {counted:?}");
    }
}

fn drops() -> Vec<Rule> {
    vec![Rule::chance(Action::Drop, 0.05), Rule::chance(Action::Duplicate, 0.05)]
}

#[test]
fn unreliable_connections_allocate_nothing() {
    for rules in [vec![], drops()] {
        let mut steady = steady(Service::Uc, false, rules);
        let small = vec![steady.here.sge(0, 64)];
        let long = vec![steady.here.sge(0, 3000)];
        let there = steady.there.remote(0);
        let operations = [
            (Operation::Send, small.clone()),
            (Operation::SendImm(1), long.clone()),
            (Operation::Write(there), long),
            (Operation::WriteImm(there, 2), small),
        ];
        steady.allocates_nothing("UC", &operations);
    }
}

#[test]
fn datagrams_to_one_and_to_a_group_allocate_nothing() {
    for (rules, shared) in [(vec![], false), (vec![], true), (drops(), false)] {
        let mut steady = steady(Service::Ud, shared, rules);
        let list = vec![steady.here.sge(0, 1000)];
        let operations = [(Operation::Send, list.clone()), (Operation::SendImm(3), list)];
        steady.allocates_nothing("UD", &operations);
        let group = remora_wire::frame::Address::from(std::net::Ipv4Addr::new(239, 1, 1, 1));
        let number = steady.receiver.number;
        steady.world.ask::<()>(1, Command::AttachMulticast { qp: number, group }).unwrap();
        let route = Route::new(steady.world.route(0, 1).source, Endpoint { address: group, udp_port: 4791 });
        let pd = steady.world.pd(0);
        let way = AddressVector::new(steady.world.peer(1), route);
        let handle = steady.world.ask::<u32>(0, Command::CreateAddressHandle { pd, address: way }).unwrap();
        let destination =
            Destination { qp: remora_wire::Qpn::new(MULTICAST_QPN), qkey: Settings::default().qkey };
        steady.target = Target::Datagram { handle, to: destination };
        steady.allocates_nothing("multicast", &operations);
    }
}

#[test]
fn extended_connections_and_shared_receive_queues_allocate_nothing() {
    for rules in [vec![], drops()] {
        for (service, shared) in [(Service::XrcInitiator, true), (Service::Rc, true)] {
            let mut steady = steady(service, shared, rules.clone());
            // Both are exactly once over bad links as well.
            steady.lossy = false;
            let small = vec![steady.here.sge(0, 64)];
            let long = vec![steady.here.sge(0, 3000)];
            let there = steady.there.remote(0);
            let operations = [
                (Operation::Send, small.clone()),
                (Operation::SendImm(1), long.clone()),
                (Operation::WriteImm(there, 2), small),
                (Operation::Send, long),
            ];
            steady.allocates_nothing(&format!("{service:?}"), &operations);
        }
    }
}

#[test]
fn windows_that_are_bound_used_and_closed_allocate_nothing() {
    let mut steady = steady(Service::Rc, false, vec![]);
    let window = steady.world.table(1).alloc_window(steady.world.pd(1), WindowType::Type2B).unwrap();
    let list = [steady.here.sge(0, 64)];
    let one = |steady: &mut Steady, qp: QueuePair, operation, list: &[Sge]| {
        let flags = Flags { signaled: true, ..Flags::default() };
        let request = WorkRequest { id: 1, operation, payload: Payload::Sges(list), flags };
        steady.world.post(qp, &request).unwrap();
        assert!(steady.world.settle(1_000_000));
        let done = steady.world.poll(steady.cqs[qp.node]).map(|wc| wc.status);
        assert_eq!(done, Some(Status::Success));
    };
    let turn = |steady: &mut Steady, window: Key| {
        let va = steady.there.address;
        let region = steady.there.key;
        let binding = Binding { window, key: window.next(), region, va, len: 64, access: REMOTE };
        let sender = steady.sender;
        let receiver = steady.receiver;
        one(steady, receiver, Operation::BindWindow(binding), &[]);
        one(steady, sender, Operation::Write(Remote { addr: va, rkey: binding.key }), &list);
        steady.world.post_receive(receiver, &ReceiveRequest { id: 2, sges: &[] }).unwrap();
        one(steady, sender, Operation::SendInv(binding.key), &[]);
        assert_eq!(steady.world.poll(steady.cqs[1]).and_then(|wc| wc.invalidated), Some(binding.key));
        binding.key
    };
    let window = (0..20).fold(window, |window, _| turn(&mut steady, window));
    let counted = measure(|| {
        (0..200).fold(window, |window, _| turn(&mut steady, window));
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
