//! Programs on one address that the broker introduces to each other.

use remora_broker::client::{self, Neighbours, Range, Watch};
use remora_broker::{Broker, Options};
use remora_verbs::raw::{ChannelAdapter, Cq, Pd, Qp, QpAttributes, Wanted};
use remora_verbs::{
    CreateError, Device, Flags, Modify, Operation, Payload, Psn, ReceiveRequest, Service, State, Status,
    WorkRequest,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{at, never, report, until};

/// Stops the thread that takes links in.
#[derive(Default)]
struct Gate {
    closed: Mutex<()>,
    /// The thread has come to the gate and waits.
    waits: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        if self.closed.try_lock().is_err() {
            self.waits.store(true, Ordering::Release);
            drop(self.closed.lock().unwrap_or_else(PoisonError::into_inner));
            self.waits.store(false, Ordering::Release);
        }
    }
}

/// A program: a NIC with links, on a range of its own.
struct Program {
    range: Range,
    adapter: Arc<ChannelAdapter>,
    pd: Pd,
    cq: Arc<Cq>,
    gate: Arc<Gate>,
    _watch: Watch,
}

impl Program {
    fn start(address: &str, takes_links: bool) -> Program {
        let range = client::open(at(address), &never()).unwrap();
        let wanted = Arc::new(Wanted::new().unwrap());
        let device = Device::shared(range.endpoint().clone()).neighbours(Arc::clone(&wanted));
        let adapter = ChannelAdapter::open(&device).unwrap();
        let links = takes_links.then(|| Neighbours::start(&range, &adapter, wanted, false).unwrap());
        let counted = Arc::clone(&adapter);
        let gate = Arc::<Gate>::default();
        let passed = Arc::clone(&gate);
        let counters = move || {
            passed.pass();
            counted.counters()
        };
        let watch = Watch::of(&range, links, None, counters, || {}).unwrap();
        let pd = adapter.alloc_domain().unwrap();
        let cq = Cq::create(&adapter, 64, None, false).unwrap();
        Program { range, adapter, pd, cq, gate, _watch: watch }
    }

    /// Stops the thread that takes links in, after it has taken one to `visitor`.
    fn hold(&self, visitor: &Program) -> MutexGuard<'_, ()> {
        let closed = self.gate.closed.lock().unwrap();
        visitor.connect(&visitor.qp(), &self.qp());
        while !self.gate.waits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        closed
    }

    fn qp(&self) -> Arc<Qp> {
        let attributes = QpAttributes { max_send_wr: 4, max_recv_wr: 4, ..QpAttributes::default() };
        Qp::create(&self.adapter, Service::Rc, self.pd, &self.cq, &self.cq, None, &attributes).unwrap()
    }

    fn connect(&self, qp: &Qp, peer: &Qp) {
        self.try_connect(qp, peer).unwrap();
    }

    fn try_connect(&self, qp: &Qp, peer: &Qp) -> Result<(), CreateError> {
        let own = self.adapter.facts().endpoint;
        let init = Modify {
            state: Some(State::Init),
            access: Some(remora_verbs::Access::NONE),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        };
        let rtr = Modify {
            state: Some(State::Rtr),
            address: Some(self.adapter.address_vector(own, 0, 64).unwrap()),
            path_mtu: Some(1024),
            dest_qp: Some(peer.number()),
            rq_psn: Some(Psn::new(7)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..Modify::default()
        };
        let rts = Modify {
            state: Some(State::Rts),
            sq_psn: Some(Psn::new(7)),
            timeout: Some(16),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            ..Modify::default()
        };
        [init, rtr, rts].iter().try_for_each(|change| qp.modify(change))
    }

    /// Sends an empty message, and returns its status.
    fn send(&self, qp: &Qp) -> Status {
        let send = WorkRequest {
            id: 5,
            operation: Operation::Send,
            payload: Payload::Sges(&[]),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        qp.post_send(|queue| queue.push(&send)).unwrap().unwrap();
        let mut status = None;
        while self.cq.poll(1, |cqe| status = Some(cqe.completion.status)).unwrap() == 0 {}
        status.unwrap()
    }

    /// The number of links to living neighbours, and of frames sent over links.
    fn links(&self) -> (usize, u64) {
        let (open, counters) = self.adapter.neighbours().unwrap();
        (open, counters.frames_sent)
    }
}

/// Connects two programs, and sends a message from the first to the second.
fn message(sender: &Program, receiver: &Program) -> [Arc<Qp>; 2] {
    let qps = [sender.qp(), receiver.qp()];
    sender.connect(&qps[0], &qps[1]);
    receiver.connect(&qps[1], &qps[0]);
    deliver([sender, receiver], &qps);
    qps
}

/// Sends a message from the first program to the second.
fn deliver([sender, receiver]: [&Program; 2], qps: &[Arc<Qp>; 2]) {
    qps[1].post_recv(|queue| queue.push(&ReceiveRequest { id: 1, sges: &[] })).unwrap().unwrap();
    assert_eq!(sender.send(&qps[0]), Status::Success);
    while receiver.cq.poll(1, |_| {}).unwrap() == 0 {}
}

#[test]
fn a_program_has_so_many_neighbours_and_reaches_the_others_by_udp() {
    let address = "127.97.1.1:0";
    let _broker = Broker::open(at(address), &Options { neighbours: 1, ..Options::default() }).unwrap();
    let programs = [(); 3].map(|()| Program::start(address, true));
    message(&programs[0], &programs[1]);
    message(&programs[0], &programs[2]);
    message(&programs[2], &programs[1]);
    assert_eq!(programs.each_ref().map(|program| program.links().0), [1, 1, 0]);
    assert!(programs[0].links().1 > 0 && programs[2].links().1 == 0);
    let report = report(at(address));
    assert_eq!(report.broker.tally.linked, 1);
    assert!(report.broker.tally.unlinked >= 2, "{report:?}");
    assert_eq!(report.programs.iter().map(|program| program.links).collect::<Vec<_>>(), [1, 1, 0]);
}

#[test]
fn a_program_is_its_own_neighbour_without_the_broker() {
    let address = "127.97.1.2:0";
    let _broker = Broker::open(at(address), &Options { neighbours: 0, ..Options::default() }).unwrap();
    let program = Program::start(address, true);
    let qps = [program.qp(), program.qp()];
    program.connect(&qps[0], &qps[1]);
    program.connect(&qps[1], &qps[0]);
    qps[1].post_recv(|queue| queue.push(&ReceiveRequest { id: 1, sges: &[] })).unwrap().unwrap();
    assert_eq!(program.send(&qps[0]), Status::Success);
    assert!(program.links().0 == 1 && program.links().1 > 0, "{:?}", program.links());
}

#[test]
fn without_a_link_messages_go_by_udp() {
    let address = "127.97.1.3:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let with = Program::start(address, true);
    let without = Program::start(address, false);
    message(&with, &without);
    message(&without, &with);
    assert_eq!((with.links(), without.links()), ((0, 0), (0, 0)));
}

/// The entry point of a process that uses up its descriptors, so nothing else may run in it.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn takes_the_descriptors() {
    let address = "127.97.1.5:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let programs = [(); 2].map(|()| Program::start(address, true));
    let limit = getrlimit(Resource::Nofile);
    // Lower numbers are taken, and `poll` refuses more descriptors than the limit.
    let none = Rlimit { current: Some(8), ..limit };
    setrlimit(Resource::Nofile, none).unwrap();
    let qps = [programs[0].qp(), programs[1].qp()];
    programs[0].connect(&qps[0], &qps[1]);
    setrlimit(Resource::Nofile, limit).unwrap();
    // The other end has descriptors, and must go the way of the first.
    programs[1].connect(&qps[1], &qps[0]);
    deliver(programs.each_ref(), &qps);
    message(&programs[1], &programs[0]);
    assert_eq!(programs.each_ref().map(|program| program.links().0), [0, 0]);
    let tally = report(at(address)).broker.tally;
    assert!(tally.linked == 0 && tally.unlinked >= 1, "{tally:?}");
    // The broker makes a link, and only one of the two programs can take its end.
    let [third, visitor] = [(); 2].map(|()| Program::start(address, true));
    let qps = [programs[0].qp(), third.qp()];
    let gate = programs[0].hold(&visitor);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| programs[0].try_connect(&qps[0], &qps[1]));
        while !third.adapter.has_neighbour(programs[0].range.number()) {
            std::thread::yield_now();
        }
        setrlimit(Resource::Nofile, none).unwrap();
        drop(gate);
        let refused = connecting.join().unwrap().unwrap_err().to_string();
        setrlimit(Resource::Nofile, limit).unwrap();
        assert!(refused.contains("ulimit -n"), "{refused}");
    });
    println!("counted");
}

#[test]
fn where_no_descriptor_is_left_for_a_link_messages_go_by_udp_and_it_is_counted() {
    let mut command = crate::own::test(module_path!(), "takes_the_descriptors");
    let output = command.env("REMORA_TEST_DESCRIPTORS", "1").output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("counted"), "{out}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_link_that_is_taken_in_late_is_waited_for_as_the_other_end_uses_it() {
    let address = "127.97.1.6:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let [late, other, visitor] = [(); 3].map(|()| Program::start(address, true));
    let qps = [late.qp(), other.qp()];
    let gate = late.hold(&visitor);
    std::thread::scope(|scope| {
        scope.spawn(|| late.connect(&qps[0], &qps[1]));
        other.connect(&qps[1], &qps[0]);
        std::thread::sleep(Duration::from_millis(1500));
        drop(gate);
    });
    deliver([&late, &other], &qps);
    assert_eq!([&late, &other].map(|program| program.links().0), [2, 1]);
}

#[test]
fn two_programs_that_were_refused_a_link_stay_without_one() {
    let address = "127.97.1.7:0";
    let _broker = Broker::open(at(address), &Options { neighbours: 1, ..Options::default() }).unwrap();
    let [first, second, leaves] = [(); 3].map(|()| Program::start(address, true));
    message(&first, &leaves);
    let qps = [first.qp(), second.qp()];
    first.connect(&qps[0], &qps[1]);
    drop(leaves);
    until(at(address), |report| report.broker.programs == 2);
    // The limit would allow the link now, but the first program's queue pair goes by UDP.
    second.connect(&qps[1], &qps[0]);
    deliver([&first, &second], &qps);
    let newcomer = Program::start(address, true);
    message(&second, &newcomer);
    assert_eq!([&first, &second, &newcomer].map(|program| program.links().0), [0, 1, 1]);
}

#[test]
fn the_link_to_a_program_that_is_gone_ends_and_one_to_its_successor_is_made() {
    let address = "127.97.1.4:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let stays = Program::start(address, true);
    for _ in 0..2 {
        let leaves = Program::start(address, true);
        let [ours, theirs] = message(&stays, &leaves);
        assert_eq!(stays.links().0, 1);
        theirs.destroy().unwrap();
        let range = leaves.range.number();
        drop((theirs, leaves));
        assert_eq!(stays.send(&ours), Status::RetryExceeded);
        while stays.adapter.has_neighbour(range) {
            let _ = stays.cq.poll(1, |_| {});
        }
        ours.destroy().unwrap();
        assert_eq!(stays.links().0, 0);
    }
}
