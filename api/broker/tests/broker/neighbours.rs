//! Programs on one address that the broker introduces to each other.

use remora_broker::client::{self, Neighbours, Range, Watch};
use remora_broker::{Broker, Options};
use remora_verbs::raw::{ChannelAdapter, Cq, Pd, Qp, QpAttributes, Target, Wanted};
use remora_verbs::{
    Device, Flags, Modify, Operation, Payload, Psn, ReceiveRequest, Service, State, Status, WorkRequest,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;

use crate::{at, never, report};

/// A program: a NIC with links, on a range of its own.
struct Program {
    range: Range,
    adapter: Arc<ChannelAdapter>,
    pd: Pd,
    cq: Arc<Cq>,
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
        let watch = Watch::of(&range, links, None, move || counted.counters(), || {}).unwrap();
        let pd = adapter.table().alloc_pd().unwrap();
        let cq = Cq::create(&adapter, 64, None, false).unwrap();
        Program { range, adapter, pd, cq, _watch: watch }
    }

    fn qp(&self) -> Arc<Qp> {
        let attributes = QpAttributes { max_send_wr: 4, max_recv_wr: 4, ..QpAttributes::default() };
        Qp::create(&self.adapter, Service::Rc, self.pd, &self.cq, &self.cq, None, &attributes).unwrap()
    }

    fn connect(&self, qp: &Qp, to: &Qp) {
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
            dest_qp: Some(to.number()),
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
        for change in [init, rtr, rts] {
            qp.modify(&change).unwrap();
        }
    }

    /// Sends an empty message, and returns its status.
    fn send(&self, qp: &Qp) -> Status {
        let send = WorkRequest {
            id: 5,
            operation: Operation::Send,
            payload: Payload::Sges(&[]),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        qp.post_send(|queue| queue.push(&send, &Target::Peer)).unwrap().unwrap();
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
fn message(from: &Program, to: &Program) -> [Arc<Qp>; 2] {
    let qps = [from.qp(), to.qp()];
    from.connect(&qps[0], &qps[1]);
    to.connect(&qps[1], &qps[0]);
    qps[1].post_recv(|queue| queue.push(&ReceiveRequest { id: 1, sges: &[] })).unwrap().unwrap();
    assert_eq!(from.send(&qps[0]), Status::Success);
    while to.cq.poll(1, |_| {}).unwrap() == 0 {}
    qps
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
    let (with, without) = (Program::start(address, true), Program::start(address, false));
    message(&with, &without);
    message(&without, &with);
    assert_eq!((with.links(), without.links()), ((0, 0), (0, 0)));
}

/// The entry point of a process that uses up its descriptors, so nothing else may run in it.
#[test]
fn takes_the_descriptors() {
    if std::env::var_os("REMORA_TEST_DESCRIPTORS").is_none() {
        return;
    }
    let address = "127.97.1.5:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let programs = [(); 2].map(|()| Program::start(address, true));
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(1), ..limit }).unwrap();
    message(&programs[0], &programs[1]);
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(programs.each_ref().map(|program| program.links().0), [0, 0]);
    let tally = report(at(address)).broker.tally;
    assert!(tally.linked == 0 && tally.unlinked >= 1, "{tally:?}");
    // As soon as there are descriptors, the link is made.
    message(&programs[0], &programs[1]);
    assert_eq!(programs.each_ref().map(|program| program.links().0), [1, 1]);
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
