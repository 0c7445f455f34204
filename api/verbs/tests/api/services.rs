//! The services other than RC and the resources around them, by the API over real ports: their use and the
//! refusals.

use remora_verbs::{
    Access, AsyncEvent, CompletionQueue, Context, CreateError, DatagramQueuePair, Device, EMPTY, Endpoint,
    GRH, GlobalRoute, Listener, MemoryError, MemoryRegion, Modify, PathMigration, PostError,
    ProtectionDomain, QpOptions, QueueError, QueuePair, ReceiveRequest, RemoteMemory, Service, Srq,
    SrqOptions, State, Status, WindowType, WorkCompletion, WorkRequest, XrcInitiator, work,
};
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

/// A program: its context, a domain, one completion queue, and memory.
struct Party {
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

fn party(device: &Device) -> Party {
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::MW_BIND;
    let memory = domain.allocate(1 << 16, rights).unwrap();
    Party { context, domain, cq, memory }
}

impl Party {
    fn pair(&self) -> QueuePair<remora_verbs::Init> {
        self.domain.create_qp(&self.cq, &self.cq, &QpOptions::default()).unwrap()
    }

    fn datagrams(&self, options: &QpOptions) -> DatagramQueuePair {
        self.domain.create_datagram_qp(&self.cq, &self.cq, options).unwrap()
    }

    fn wait(&mut self) -> WorkCompletion {
        let mut done = [EMPTY; 1];
        assert_eq!(self.cq.wait(&mut done, LONG), Ok(1));
        done[0]
    }

    /// Returns true if nothing has completed after many polls.
    fn idle(&mut self) -> bool {
        (0..1000).all(|_| self.cq.poll(&mut [EMPTY; 1]) == Ok(0))
    }

    fn receives(&self, offset: usize, len: usize, id: u64, post: impl FnOnce(&ReceiveRequest<'_>)) {
        post(&ReceiveRequest { id, sges: &[self.memory.sge(offset, len)] });
    }

    fn content(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.memory.read(offset, &mut out).unwrap();
        out
    }

    fn events(&self) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| self.context.poll_event()).map(|event| event.event).collect()
    }
}

fn devices() -> [Device; 2] {
    [Device::shm(), Device::udp("127.0.0.1:0").unwrap()]
}

fn ended(wc: WorkCompletion) -> (u64, Status) {
    (wc.id, wc.status)
}

const GOOD: Status = Status::Success;

#[test]
fn an_unreliable_connection_sends_writes_and_is_not_told_of_failures() {
    for device in devices() {
        let mut a = party(&device);
        let mut b = party(&device);
        let make = |party: &Party| {
            party.domain.create_unreliable_qp(&party.cq, &party.cq, &QpOptions::default()).unwrap()
        };
        let (mut one, mut two) = QueuePair::connect_pair(make(&a), make(&b)).unwrap();
        assert_eq!((one.service(), two.state()), (Service::Uc, State::Rts));
        a.memory.write(0, &[7; 9000]).unwrap();
        b.receives(0, 9000, 1, |request| two.post_recv(request).unwrap());
        one.post_send(&work::send(2, &[a.memory.sge(0, 9000)])).unwrap();
        assert_eq!((ended(a.wait()), ended(b.wait())), ((2, GOOD), (1, GOOD)));
        assert_eq!(b.content(0, 9001), [vec![7; 9000], vec![0]].concat());
        b.receives(0, 0, 3, |request| two.post_recv(request).unwrap());
        one.post_send(&work::write_imm(4, &[a.memory.sge(0, 64)], b.memory.remote(20_000), 99)).unwrap();
        assert_eq!((ended(a.wait()), b.wait().imm), ((4, GOOD), Some(99)));
        // Without a receive, and with an invalid key, the messages are sent all the same and both sides
        // continue.
        one.post_send(&work::send_inline(5, b"lost")).unwrap();
        let nowhere = RemoteMemory { rkey: b.memory.rkey().next(), ..b.memory.remote_memory() };
        one.post_send(&work::write_inline(6, b"lost", nowhere.at(0))).unwrap();
        assert_eq!((ended(a.wait()), ended(a.wait())), ((5, GOOD), (6, GOOD)));
        assert!(b.idle());
        // UC has no READ. It is an error of the sender, which `modify` ends.
        one.post_send(&work::read(7, &[a.memory.sge(0, 8)], b.memory.remote(0))).unwrap();
        assert_eq!((ended(a.wait()), one.state()), ((7, Status::LocalQpOperation), State::Sqe));
        one.modify(&Modify { state: Some(State::Rts), ..Modify::default() }).unwrap();
        one.post_send(&work::write_inline(8, b"found", b.memory.remote(30_000))).unwrap();
        assert_eq!(ended(a.wait()), (8, GOOD));
        while b.content(30_000, 5) != b"found" {
            b.idle();
        }
    }
}

#[test]
fn datagrams_go_both_ways_between_programs_that_found_each_other_by_a_listener() {
    for device in devices() {
        let mut near = party(&device);
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.address();
        let options = QpOptions { private_data: b"echo".to_vec(), qkey: 77, ..QpOptions::default() };
        let other = device.clone();
        let echo = std::thread::spawn(move || {
            let mut far = party(&other);
            let mut qp = far.datagrams(&options);
            far.receives(0, GRH + 100, 1, |request| qp.post_recv(request).unwrap());
            let back = listener.accept(Some(LONG)).unwrap().unwrap().accept_datagrams(&qp).unwrap();
            let came = far.wait();
            assert_eq!((came.id, came.grh.is_some(), came.src_qp), (1, true, back.number()));
            let words = [far.memory.sge(GRH, came.byte_len as usize - GRH)];
            qp.post_send_to(&work::send_imm(2, &words, 5), &back).unwrap();
            assert_eq!(ended(far.wait()), (2, GOOD));
        });
        let mut qp = near.datagrams(&QpOptions::default());
        let there = qp.resolve(address).unwrap();
        assert_eq!((there.qkey(), there.private_data()), (77, &b"echo"[..]));
        near.receives(0, GRH + 100, 3, |request| qp.post_recv(request).unwrap());
        qp.post_send_to(&work::send_inline(4, b"hear me"), &there).unwrap();
        let mut done = [near.wait(), near.wait()];
        done.sort_by_key(|wc| wc.id);
        assert_eq!((ended(done[0]), ended(done[1])), ((3, GOOD), (4, GOOD)));
        assert_eq!((done[0].imm, done[0].src_qp), (Some(5), there.number()));
        assert_eq!(near.content(GRH, 7), b"hear me");
        echo.join().unwrap();
    }
}

#[test]
fn datagrams_of_the_wrong_key_too_long_or_by_a_strangers_handle_do_not_arrive() {
    for device in devices() {
        let mut a = party(&device);
        let mut b = party(&device);
        let mut one = a.datagrams(&QpOptions::default());
        let mut two = b.datagrams(&QpOptions::default());
        let (to_two, _to_one) = DatagramQueuePair::resolve_pair(&one, &two).unwrap();
        b.receives(0, GRH + 100, 1, |request| two.post_recv(request).unwrap());
        let wrong = to_two.handle().queue(two.number(), two.qkey() + 1);
        one.post_send_to(&work::send_inline(2, b"psst"), &wrong).unwrap();
        assert_eq!((ended(a.wait()), b.idle()), ((2, GOOD), true));
        assert_eq!(b.context.counters().qkey_viol_cntr, 1);
        // The same handle with the right Q_Key.
        let right = to_two.handle().queue(two.number(), two.qkey());
        one.post_send_to(&work::send_inline(3, b"hello"), &right).unwrap();
        assert_eq!((ended(a.wait()), ended(b.wait())), ((3, GOOD), (1, GOOD)));
        let refused = two.post_send_to(&work::send_inline(4, b"mine?"), &to_two);
        assert_eq!(refused, Err(PostError::OtherEngine), "a handle belongs to the context that made it");
        let long = one.longest() as usize;
        one.post_send_to(&work::send(5, &[a.memory.sge(0, long + 1)]), &to_two).unwrap();
        assert_eq!((ended(a.wait()), one.state()), ((5, Status::LocalLength), State::Sqe));
        one.modify(&Modify { state: Some(State::Rts), ..Modify::default() }).unwrap();
        b.receives(0, GRH + long, 6, |request| two.post_recv(request).unwrap());
        one.post_send_to(&work::send(7, &[a.memory.sge(0, long)]), &to_two).unwrap();
        assert_eq!((ended(a.wait()), b.wait().byte_len as usize), ((7, GOOD), GRH + long));
    }
}

#[test]
fn whoever_gets_a_datagram_can_answer_by_its_header() {
    for own in ["127.0.0.1:0", "[::1]:0"] {
        let device = Device::udp(own).unwrap();
        let mut a = party(&device);
        let mut b = party(&device);
        let mut one = a.datagrams(&QpOptions::default());
        let mut two = b.datagrams(&QpOptions::default());
        a.receives(0, 100, 1, |request| one.post_recv(request).unwrap());
        (0..2).for_each(|id| b.receives(0, 100, id, |request| two.post_recv(request).unwrap()));
        let there = a.domain.create_address_handle(0, b.context.port().endpoint).unwrap();
        let there = there.queue(two.number(), two.qkey());
        // Two messages with one doorbell.
        let words = work::send_inline(2, b"who is there?");
        one.post_send_batch_to(&[(words, &there), (words, &there)]).unwrap();
        assert_eq!((ended(a.wait()), ended(a.wait())), ((2, GOOD), (2, GOOD)));
        let came = b.wait();
        let again = b.wait();
        assert_eq!((came.id, again.id), (0, 1));
        let grh = b.memory.get::<[u8; GRH]>(0).unwrap();
        let route = GlobalRoute::parse(&grh).unwrap();
        assert_eq!(route.destination, b.context.port().endpoint.address);
        // The header contains no UDP port. RoCE always uses 4791; here the port is taken from the sender.
        let source = Endpoint { address: route.source, ..a.context.port().endpoint };
        let back = b.domain.create_address_handle(0, source).unwrap().queue(came.src_qp, one.qkey());
        two.post_send_to(&work::send_inline(3, b"me"), &back).unwrap();
        assert_eq!((ended(b.wait()), ended(a.wait())), ((3, GOOD), (1, GOOD)));
        assert_eq!(a.content(GRH, 2), b"me");
        // A request that needs a destination is refused without one.
        assert_eq!(two.post_local(&work::send_inline(4, b"?")), Err(PostError::NoDestination));
        two.post_local(&work::nop(5)).unwrap();
        assert_eq!(ended(b.wait()), (5, GOOD));
        let refused = two.post_send_batch_to(&[(work::send_inline(6, b"ok"), &back), (words, &there)]);
        assert_eq!(refused, Err((1, PostError::OtherEngine)));
        assert_eq!(ended(b.wait()), (6, GOOD), "the requests before the refused one are posted");
    }
}

#[test]
fn an_address_handle_by_name_leads_over_udp_and_nowhere_over_shared_memory() {
    let a = party(&devices()[1]);
    let b = party(&devices()[1]);
    let handle = a.domain.create_address_handle(0, b.context.port().endpoint).unwrap();
    assert_eq!(handle.endpoint(), b.context.port().endpoint);
    let v6 = Endpoint { address: std::net::Ipv6Addr::LOCALHOST.into(), udp_port: 4791 };
    assert!(matches!(a.domain.create_address_handle(0, v6), Err(CreateError::Unreachable(_))));
    assert!(matches!(
        a.domain.create_address_handle(1, handle.endpoint()),
        Err(CreateError::TooMany("engine number", 2, 1))
    ));
    let shm = party(&devices()[0]);
    let nowhere = shm.domain.create_address_handle(0, shm.context.port().endpoint);
    assert!(matches!(nowhere, Err(CreateError::Unreachable(_))), "{nowhere:?}");
}

/// A shared receive queue of party `b`, with two connections from party `a`.
fn shared_queue(a: &Party, b: &Party, options: &SrqOptions) -> (Srq, Vec<(QueuePair, QueuePair)>) {
    let srq = b.domain.create_srq(options).unwrap();
    let make = || b.domain.create_qp_on(&srq, &b.cq, &b.cq, &QpOptions::default()).unwrap();
    let pairs = (0..2).map(|_| QueuePair::connect_pair(a.pair(), make()).unwrap()).collect();
    (srq, pairs)
}

#[test]
fn a_shared_receive_queue_serves_whoever_comes_tells_when_it_runs_low_and_grows() {
    for device in devices() {
        let mut a = party(&device);
        let mut b = party(&device);
        let options = SrqOptions { max_wr: 4, ..SrqOptions::default() };
        let (mut srq, mut pairs) = shared_queue(&a, &b, &options);
        let held = srq.facts().unwrap().max_wr;
        assert!(held >= 4);
        let receive = |b: &Party, srq: &mut Srq, id| {
            srq.post_recv(&ReceiveRequest { id, sges: &[b.memory.sge(id as usize * 16, 16)] })
        };
        (0..u64::from(held)).for_each(|id| receive(&b, &mut srq, id).unwrap());
        assert_eq!(receive(&b, &mut srq, 99), Err(PostError::Queue(QueueError::QueueFull)));
        srq.arm(held).unwrap();
        assert_eq!(b.events(), []);
        for (id, pair) in [(0, 1), (1, 0)] {
            pairs[pair].0.post_send(&work::send_inline(5, &[pair as u8; 16])).unwrap();
            assert_eq!((ended(a.wait()), ended(b.wait())), ((5, GOOD), (id, GOOD)));
            assert_eq!(b.content(id as usize * 16, 16), [pair as u8; 16]);
        }
        let low = |event: &&AsyncEvent| matches!(event, AsyncEvent::SrqLimit(n) if n.get() == srq.number());
        assert_eq!(b.events().iter().filter(low).count(), 1, "one event each time that the limit is armed");
        // Waiting work requests stay, and more fit after the resize.
        srq.resize(16).unwrap();
        (10..20).for_each(|id| receive(&b, &mut srq, id).unwrap());
        let left: Vec<u64> = (2..u64::from(held)).chain(10..20).collect();
        for id in left {
            pairs[1].0.post_send(&work::send_inline(6, b"more")).unwrap();
            assert_eq!((ended(a.wait()), ended(b.wait())), ((6, GOOD), (id, GOOD)));
        }
        assert!(srq.arm(1000).is_err(), "the limit exceeds the queue's size");
        let refused = pairs[0].1.post_recv(&ReceiveRequest { id: 1, sges: &[] });
        assert_eq!(refused, Err(PostError::NoReceiveQueue));
        // The queue is dropped first, and lives as long as its queue pairs.
        receive(&b, &mut srq, 7).unwrap();
        drop(srq);
        pairs[0].0.post_send(&work::send_inline(8, b"last")).unwrap();
        assert_eq!((ended(a.wait()), ended(b.wait())), ((8, GOOD), (7, GOOD)));
    }
}

#[test]
fn extended_connections_reach_the_queue_that_they_name_and_its_domain() {
    for device in devices() {
        let mut a = party(&device);
        let mut b = party(&device);
        let xrc = b.context.open_xrc_domain(0).unwrap();
        let mut queues: Vec<Srq> =
            (0..2).map(|_| b.domain.create_xrc_srq(&xrc, &b.cq, &SrqOptions::default()).unwrap()).collect();
        let plain = b.domain.create_srq(&SrqOptions::default()).unwrap();
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.address();
        let target = xrc.create_target(&QpOptions::default()).unwrap();
        let accepting = std::thread::spawn(move || {
            listener.accept(Some(LONG)).unwrap().unwrap().accept_xrc(target).unwrap()
        });
        let initiator = a.domain.create_xrc_initiator(&a.cq, &QpOptions::default()).unwrap();
        let mut initiator = initiator.connect(address).unwrap();
        let target = accepting.join().unwrap();
        assert_eq!((initiator.state(), target.state()), (State::Rts, State::Rts));
        for (id, index) in [(1, 1), (2, 0)] {
            b.receives(64 * index, 64, id, |request| queues[index].post_recv(request).unwrap());
            initiator.post_send(&work::send_inline(9, &[id as u8; 8]), queues[index].number()).unwrap();
            assert_eq!((ended(a.wait()), ended(b.wait())), ((9, GOOD), (id, GOOD)));
            assert_eq!(b.content(64 * index, 8), [id as u8; 8]);
        }
        let list = [a.memory.sge(0, 8)];
        initiator.post_send(&work::read(3, &list, b.memory.remote(0)), queues[0].number()).unwrap();
        assert_eq!((ended(a.wait()), a.content(0, 8)), ((3, GOOD), vec![2; 8]));
        initiator.post_send(&work::send_inline(4, b"?"), plain.number()).unwrap();
        assert_eq!((ended(a.wait()), initiator.state()), ((4, Status::RemoteInvalidRequest), State::Err));
    }
}

#[test]
fn a_service_connects_only_to_its_like() {
    for device in devices() {
        let a = party(&device);
        let b = party(&device);
        let unreliable = b.domain.create_unreliable_qp(&b.cq, &b.cq, &QpOptions::default()).unwrap();
        let words = QueuePair::connect_pair(a.pair(), unreliable).unwrap_err().to_string();
        assert!(words.contains("Uc") && words.contains("Rc"), "{words}");
        // Connected by a listener whose program answers with another service: both sides get an error.
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let (address, initiator) =
            (listener.address(), b.domain.create_xrc_initiator(&b.cq, &QpOptions::default()).unwrap());
        let accepting = std::thread::spawn(move || {
            listener.accept(Some(LONG)).unwrap().unwrap().accept_xrc_initiator(initiator).err()
        });
        assert!(a.pair().connect(address).is_err());
        let refused = accepting.join().unwrap().unwrap().to_string();
        assert!(refused.contains("XrcInitiator"), "{refused}");
    }
}

#[test]
fn a_window_shows_a_part_and_is_closed_from_either_side() {
    for device in devices() {
        for kind in [WindowType::Type1, WindowType::Type2B] {
            let mut a = party(&device);
            let mut b = party(&device);
            let (mut user, mut owner) = QueuePair::connect_pair(a.pair(), b.pair()).unwrap();
            let mut window = b.domain.allocate_window(kind).unwrap();
            let first = window.rkey();
            let bind = window.bind(1, &b.memory, 100, 16, Access::REMOTE_WRITE);
            assert_ne!(window.rkey(), first);
            owner.post_send(&bind).unwrap();
            assert_eq!(ended(b.wait()), (1, GOOD));
            user.post_send(&work::write_inline(2, b"through", window.remote(9))).unwrap();
            assert_eq!((ended(a.wait()), b.content(109, 7)), ((2, GOOD), b"through".to_vec()));
            let (b_memory, error) = b.memory.deregister().unwrap_err();
            assert_eq!(error, MemoryError::Busy, "a window is bound to the region");
            b.memory = b_memory;
            // The window is closed: type 2 by the peer's SEND with invalidate, type 1 by a binding of length
            // 0.
            if kind == WindowType::Type2B {
                b.receives(0, 0, 3, |request| owner.post_recv(request).unwrap());
                user.post_send(&work::send_inv(4, &[], window.rkey())).unwrap();
                assert_eq!((ended(a.wait()), b.wait().invalidated), ((4, GOOD), Some(window.rkey())));
            } else {
                let old = window.rkey();
                owner.post_send(&window.bind(5, &b.memory, 0, 0, Access::NONE)).unwrap();
                assert_eq!(ended(b.wait()), (5, GOOD));
                assert_ne!(old, window.rkey());
            }
            user.post_send(&work::write_inline(6, b"late", window.remote(100))).unwrap();
            assert_eq!(ended(a.wait()), (6, Status::RemoteAccess));
        }
    }
}

#[test]
fn a_binding_that_fails_is_a_bind_error_and_the_window_is_found_again() {
    let mut a = party(&Device::shm());
    let mut b = party(&Device::shm());
    let mut window = b.domain.allocate_window(WindowType::Type1).unwrap();
    let (_user, mut owner) = QueuePair::connect_pair(a.pair(), b.pair()).unwrap();
    owner.post_send(&window.bind(1, &b.memory, 1 << 16, 1, Access::REMOTE_READ)).unwrap();
    assert_eq!((ended(b.wait()), owner.state()), ((1, Status::MwBind), State::Err));
    window.look();
    let (mut user, mut owner) = QueuePair::connect_pair(a.pair(), b.pair()).unwrap();
    owner.post_send(&window.bind(2, &b.memory, 8, 8, Access::REMOTE_READ)).unwrap();
    assert_eq!(ended(b.wait()), (2, GOOD));
    user.post_send(&work::read(3, &[a.memory.sge(0, 8)], window.remote(0))).unwrap();
    assert_eq!(ended(a.wait()), (3, GOOD));
}

#[test]
fn the_null_region_swallows_what_comes_and_sends_zeros() {
    for device in devices() {
        let mut a = party(&device);
        let mut b = party(&device);
        let (mut one, _two) = QueuePair::connect_pair(a.pair(), b.pair()).unwrap();
        let nothing = a.domain.null_region().unwrap();
        let mut run = |request: WorkRequest<'_>| {
            one.post_send(&request).unwrap();
            let mut done = [EMPTY; 1];
            assert_eq!((a.cq.wait(&mut done, LONG), done[0].status), (Ok(1), GOOD));
        };
        b.memory.write(0, &[5; 300]).unwrap();
        run(work::write(0, &[nothing.sge(100)], b.memory.remote(100)));
        assert_eq!(b.content(0, 300), [[5; 100], [0; 100], [5; 100]].concat());
        run(work::read(0, &[nothing.sge(90), a.memory.sge(0, 20)], b.memory.remote(0)));
        assert_eq!(a.content(0, 21), [vec![5; 10], vec![0; 11]].concat());
        assert!(b.idle());
    }
}

#[test]
fn path_migration_is_taken_and_an_alternate_path_is_not() {
    let a = party(&Device::shm());
    let b = party(&Device::shm());
    let (mut one, _two) = QueuePair::connect_pair(a.pair(), b.pair()).unwrap();
    for state in [PathMigration::Rearm, PathMigration::Armed, PathMigration::Migrated] {
        one.modify(&Modify { path_migration: Some(state), ..Modify::default() }).unwrap();
        assert_eq!(one.query().path_migration, Some(state));
    }
    let alternate = Modify { alternate: one.address_vector(), ..Modify::default() };
    assert!(matches!(one.modify(&alternate), Err(CreateError::Modify(_))));
    assert_eq!(one.state(), State::Rts);
}

#[test]
fn what_belongs_together_must_be_of_one_context_and_engine() {
    let a = party(&Device::shm());
    let b = party(&Device::shm().engines(2));
    let xrc = b.context.open_xrc_domain(1).unwrap();
    let on = |engine| {
        b.context
            .create_cq_with(&remora_verbs::CqOptions { depth: 8, engine: Some(engine), ..Default::default() })
            .unwrap()
    };
    let queue = SrqOptions { engine: 1, ..SrqOptions::default() };
    let other = b.domain.create_xrc_srq(&xrc, &on(0), &queue).unwrap_err();
    assert_eq!(other, CreateError::DifferentEngines);
    assert_eq!(b.domain.create_xrc_srq(&xrc, &a.cq, &queue).unwrap_err(), CreateError::OtherContext);
    let srq = b.domain.create_srq(&queue).unwrap();
    let cq = on(0);
    let apart = b.domain.create_qp_on(&srq, &cq, &cq, &QpOptions::default()).unwrap_err();
    assert_eq!(apart, CreateError::DifferentEngines);
    let cq = on(1);
    let target = xrc.create_target(&QpOptions::default()).unwrap();
    let initiator = b.domain.create_xrc_initiator(&cq, &QpOptions::default()).unwrap();
    XrcInitiator::connect_pair(initiator, target).unwrap();
    assert!(matches!(b.context.open_xrc_domain(2), Err(CreateError::TooMany("engine number", 3, 2))));
    for wrong in [SrqOptions { max_wr: 0, ..queue }, SrqOptions { max_sge: 31, ..queue }] {
        assert!(matches!(b.domain.create_srq(&wrong), Err(CreateError::TooMany(..))), "{wrong:?}");
    }
}
