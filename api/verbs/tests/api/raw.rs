//! The raw layer: queue pairs moved by `Modify`, addresses by GID, objects in use, and threads that share
//! objects.

use remora_nic::Destination;
use remora_verbs::ReceiveCaps;
use remora_verbs::raw::{Ah, ChannelAdapter, Cq, Pd, Qp, QpAttributes, Srq, Target};
use remora_verbs::{
    Access, CreateError, Device, EMPTY, Flags, GRH, MemoryError, Modify, NicError, Operation, Payload,
    PostError, Psn, QpOptions, QueueError, ReceiveRequest, Service, Sge, State, Status, WorkRequest,
};
use remora_wire::Qpn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn adapter() -> Arc<ChannelAdapter> {
    ChannelAdapter::open(&Device::udp("127.0.0.1:0").unwrap()).unwrap()
}

/// Moves a queue pair to RTS, connected with `peer` of the same NIC.
fn connect(adapter: &ChannelAdapter, qp: &Qp, peer: &Qp) {
    connect_to(adapter, qp, adapter, peer);
}

/// Moves a queue pair to RTS, connected with `peer` of another NIC.
fn connect_to(adapter: &ChannelAdapter, qp: &Qp, other: &ChannelAdapter, peer: &Qp) {
    let there = other.facts().endpoint;
    let changes = [
        Modify {
            state: Some(State::Init),
            access: Some(Access::REMOTE_WRITE),
            pkey_index: Some(0),
            port: Some(1),
            ..Modify::default()
        },
        Modify {
            state: Some(State::Rtr),
            address: Some(adapter.address_vector(there, 0, 64).unwrap()),
            path_mtu: Some(1024),
            dest_qp: Some(peer.number()),
            rq_psn: Some(Psn::new(7)),
            max_dest_rd_atomic: Some(1),
            min_rnr_timer: Some(12),
            ..Modify::default()
        },
        Modify {
            state: Some(State::Rts),
            sq_psn: Some(Psn::new(7)),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(1),
            ..Modify::default()
        },
    ];
    changes.iter().for_each(|change| qp.modify(change).unwrap());
}

fn nop(id: u64) -> WorkRequest<'static> {
    let flags = Flags { signaled: true, ..Flags::default() };
    WorkRequest { id, operation: Operation::Nop, payload: Payload::Sges(&[]), flags }
}

#[test]
fn posts_before_their_state_are_refused_and_a_receive_queue_holds_what_was_asked_for() {
    let adapter = adapter();
    let pd = adapter.alloc_domain().unwrap();
    let cq = Cq::create(&adapter, 16, None, false).unwrap();
    let attributes = QpAttributes { max_recv_wr: 3, ..QpAttributes::default() };
    let qp = Qp::create(&adapter, Service::Rc, pd, &cq, &cq, None, &attributes).unwrap();
    let bad_state = PostError::Queue(QueueError::BadState);
    let receive = |id| qp.post_recv(|queue| queue.push(&ReceiveRequest { id, sges: &[] }));
    assert_eq!(receive(0), Err(bad_state));
    assert_eq!(qp.post_send(|queue| queue.push(&nop(1))), Err(bad_state));
    let init = Modify {
        state: Some(State::Init),
        access: Some(Access::NONE),
        pkey_index: Some(0),
        port: Some(1),
        ..Modify::default()
    };
    qp.modify(&init).unwrap();
    (0..3).for_each(|id| assert_eq!(receive(id), Ok(Ok(()))));
    assert_eq!(receive(3), Ok(Err(QueueError::QueueFull)));
    assert_eq!(qp.post_send(|queue| queue.push(&nop(1))), Err(bad_state));
    // In ERR, all work is flushed in order.
    qp.modify(&Modify { state: Some(State::Err), ..Modify::default() }).unwrap();
    let mut ids = Vec::new();
    let taken = cq.poll(16, |cqe| ids.push((cqe.completion.id, cqe.completion.status))).unwrap();
    assert_eq!((taken, ids), (3, (0..3).map(|id| (id, Status::WrFlushed)).collect()));
}

#[test]
fn objects_in_use_are_busy_and_what_is_ended_is_unknown() {
    let adapter = adapter();
    let pd = adapter.alloc_domain().unwrap();
    let cq = Cq::create(&adapter, 16, None, false).unwrap();
    let srq = Srq::create(&adapter, pd, ReceiveCaps { max_wr: 4, max_sge: 1 }, None).unwrap();
    let attributes = QpAttributes::default();
    let qp = Qp::create(&adapter, Service::Rc, pd, &cq, &cq, Some(&srq), &attributes).unwrap();
    let way = adapter.address_vector(adapter.facts().endpoint, 0, 1).unwrap();
    let ah = Ah::create(&adapter, pd, &way).unwrap();
    assert_eq!(cq.destroy(), Err(CreateError::Nic(NicError::Busy)));
    assert_eq!(srq.destroy(), Err(CreateError::Nic(NicError::Busy)));
    qp.destroy().unwrap();
    assert_eq!(qp.destroy(), Err(CreateError::Nic(NicError::Unknown)));
    srq.destroy().unwrap();
    let busy = Err(CreateError::Memory(MemoryError::Busy));
    assert_eq!(adapter.free_domain(pd), busy, "the address handle uses the domain");
    ah.destroy().unwrap();
    adapter.free_domain(pd).unwrap();
    cq.destroy().unwrap();
    let gone = Qp::create(&adapter, Service::Rc, pd, &cq, &cq, None, &attributes);
    assert!(matches!(gone, Err(CreateError::Memory(MemoryError::Unknown))), "{gone:?}");
}

#[test]
fn sizes_beyond_the_bounds_are_refused_and_the_largest_requests_all_fit() {
    let adapter = adapter();
    let pd = adapter.alloc_domain().unwrap();
    let cq = Cq::create(&adapter, 64, None, false).unwrap();
    let create = |attributes| Qp::create(&adapter, Service::Rc, pd, &cq, &cq, None, &attributes);
    let plain = QpAttributes::default();
    for attributes in [
        QpAttributes { max_send_sge: 31, ..plain },
        QpAttributes { max_recv_sge: 31, ..plain },
        QpAttributes { max_inline: 961, ..plain },
        QpAttributes { max_send_wr: 1 << 21, ..plain },
        QpAttributes { max_recv_wr: 1 << 21, ..plain },
    ] {
        assert!(matches!(create(attributes), Err(CreateError::TooMany(..))), "{attributes:?}");
    }
    let large = QpAttributes { max_send_wr: 40, max_inline: 960, ..plain };
    let one = create(large).unwrap();
    let other = create(large).unwrap();
    connect(&adapter, &one, &other);
    // In SQD, so that requests stay in the queue.
    one.modify(&Modify { state: Some(State::Sqd), ..Modify::default() }).unwrap();
    let send = WorkRequest { operation: Operation::Send, payload: Payload::Inline(&[7; 960]), ..nop(1) };
    for posted in 0..40 {
        let pushed = one.post_send(|queue| queue.push(&send));
        assert_eq!(pushed, Ok(Ok(())), "request {posted}");
    }
}

#[test]
fn threads_share_a_queue_pair_and_a_completion_queue_without_losing_any() {
    const EACH: u32 = 2000;
    let adapter = adapter();
    let pd = adapter.alloc_domain().unwrap();
    let cq = Cq::create(&adapter, 256, None, false).unwrap();
    let attributes = QpAttributes { max_send_wr: 64, ..QpAttributes::default() };
    let qp = || Qp::create(&adapter, Service::Rc, pd, &cq, &cq, None, &attributes).unwrap();
    let one = qp();
    let other = qp();
    connect(&adapter, &one, &other);
    connect(&adapter, &other, &one);
    let seen: Vec<AtomicU32> = (0..3).map(|_| AtomicU32::new(0)).collect();
    let seen = &seen;
    let one = &one;
    let cq = &cq;
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            scope.spawn(move || {
                let mut left = EACH;
                while left > 0 || seen.iter().map(|seen| seen.load(Ordering::Relaxed)).sum::<u32>() < 3 * EACH
                {
                    if left > 0 {
                        match one.post_send(|queue| queue.push(&nop(thread))).unwrap() {
                            Ok(()) => left -= 1,
                            Err(error) => assert_eq!(error, QueueError::QueueFull),
                        }
                    }
                    let taken = cq.poll(8, |cqe| {
                        assert_eq!(cqe.completion.status, Status::Success);
                        seen[cqe.completion.id as usize].fetch_add(1, Ordering::Relaxed);
                    });
                    if taken.unwrap() == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == EACH), "{seen:?}");
}

#[test]
fn what_a_batch_takes_back_is_never_seen() {
    let adapter = adapter();
    let pd = adapter.alloc_domain().unwrap();
    let cq = Cq::create(&adapter, 64, None, false).unwrap();
    let attributes = QpAttributes { max_send_wr: 8, ..QpAttributes::default() };
    let qp = || Qp::create(&adapter, Service::Rc, pd, &cq, &cq, None, &attributes).unwrap();
    let one = qp();
    let other = qp();
    connect(&adapter, &one, &other);
    let refused = one.post_send(|queue| {
        queue.push(&nop(1))?;
        let long = [Sge { addr: 0, len: 1, lkey: remora_verbs::Key::new(0) }; 2];
        let send = WorkRequest { operation: Operation::Send, payload: Payload::Sges(&long), ..nop(2) };
        queue.push(&send).inspect_err(|_| queue.take_back())
    });
    assert_eq!(refused, Ok(Err(QueueError::TooManySges)));
    one.post_send(|queue| queue.push(&nop(3))).unwrap().unwrap();
    let mut ids = Vec::new();
    while cq.poll(8, |cqe| ids.push(cqe.completion.id)).unwrap() == 0 {}
    assert_eq!(ids, [3]);
}

/// Regression: a request was flushed although its acknowledgement had arrived, because the move to ERR
/// came before the frames that waited at the port.
#[test]
fn an_acknowledgement_that_has_arrived_counts_before_a_queue_pair_goes_to_err() {
    let adapters = [adapter(), adapter()];
    let [(cq, qp), (far_cq, far)] = [0, 1].map(|index| {
        let adapter = &adapters[index];
        let pd = adapter.alloc_domain().unwrap();
        let cq = Cq::create(adapter, 16, None, false).unwrap();
        let attributes = QpAttributes { max_recv_wr: 1, ..QpAttributes::default() };
        let qp = Qp::create(adapter, Service::Rc, pd, &cq, &cq, None, &attributes).unwrap();
        (cq, qp)
    });
    connect_to(&adapters[0], &qp, &adapters[1], &far);
    connect_to(&adapters[1], &far, &adapters[0], &qp);
    far.post_recv(|queue| queue.push(&ReceiveRequest { id: 2, sges: &[] })).unwrap().unwrap();
    let send = WorkRequest { operation: Operation::Send, ..nop(1) };
    qp.post_send(|queue| queue.push(&send)).unwrap().unwrap();
    // The peer's NIC acknowledges in the pass that receives the message. The requester does not poll before
    // it enters ERR.
    while far_cq.poll(1, |cqe| assert_eq!(cqe.completion.id, 2)).unwrap() == 0 {}
    qp.modify(&Modify { state: Some(State::Err), ..Modify::default() }).unwrap();
    let mut ended = Vec::new();
    cq.poll(16, |cqe| ended.push((cqe.completion.id, cqe.completion.status))).unwrap();
    assert_eq!(ended, [(1, Status::Success)]);
}

/// A datagram queue pair that can send.
fn datagrams(adapter: &Arc<ChannelAdapter>, pd: Pd, cq: &Cq) -> Arc<Qp> {
    let qp = Qp::create(adapter, Service::Ud, pd, cq, cq, None, &QpAttributes::default()).unwrap();
    let transition = |state| Modify { state: Some(state), ..Modify::default() };
    let init = Modify { qkey: Some(7), pkey_index: Some(0), port: Some(1), ..transition(State::Init) };
    for change in
        [init, transition(State::Rtr), Modify { sq_psn: Some(Psn::new(0)), ..transition(State::Rts) }]
    {
        qp.modify(&change).unwrap();
    }
    qp
}

#[test]
fn a_datagram_comes_behind_the_traffic_class_that_its_address_handle_names() {
    for host in ["127.0.0.1", "[::1]"] {
        let device = Device::udp(format!("{host}:0")).unwrap();
        let context = device.open().unwrap();
        let domain = context.alloc_pd().unwrap();
        let mut cq = context.create_cq(16).unwrap();
        let memory = domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
        let mut receiver = domain.create_datagram_qp(&cq, &cq, &QpOptions::default()).unwrap();

        let adapter = ChannelAdapter::open(&device).unwrap();
        let (pd, send_cq) = (adapter.alloc_domain().unwrap(), Cq::create(&adapter, 16, None, false).unwrap());
        let qp = datagrams(&adapter, pd, &send_cq);
        for (class, hops) in [(0xff, 64), (0, 3), (0x68, 255), (0, 64)] {
            let way = adapter.address_vector(context.port().endpoint, class, hops).unwrap();
            let ah = Ah::create(&adapter, pd, &way).unwrap();
            receiver.post_recv(&ReceiveRequest { id: 1, sges: &[memory.sge(0, 128)] }).unwrap();
            let destination = Destination { qp: Qpn::new(receiver.number()), qkey: receiver.qkey() };
            let send = WorkRequest { operation: Operation::Send, ..nop(2) };
            let target = Target::Datagram { handle: ah.number(), to: destination };
            qp.post_send(|queue| queue.push_to(&send, &target)).unwrap().unwrap();
            let mut done = [EMPTY; 1];
            assert_eq!(cq.wait(&mut done, std::time::Duration::from_secs(60)), Ok(1));
            let grh = memory.get::<[u8; GRH]>(0).unwrap();
            let came = match host {
                "[::1]" => (grh[0] << 4 | grh[1] >> 4, grh[7]),
                _ => (grh[21], grh[28]),
            };
            assert_eq!(came, (class, hops), "{host}");
            ah.destroy().unwrap();
        }
    }
}
