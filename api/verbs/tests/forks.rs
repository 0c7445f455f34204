//! A forked child inherits objects that still belong to its parent, even if the child opens devices of its
//! own. The same holds for the child's children.
#![allow(unsafe_code, reason = "fork(2)")]

use remora_verbs::kernel::Shipped;
use remora_verbs::nicd::{Daemon, Options};
use remora_verbs::rma::{Rights, RmaError, RmaOptions};
use remora_verbs::{
    Access, CompletionChannel, CompletionQueue, ConnectError, Context, CqOptions, CreateError,
    DatagramQueuePair, Device, EMPTY, FreeList, FreeListOptions, Init, KernelHandle, KernelOptions, Listener,
    MemoryRegion, MemoryWindow, Mode, Modify, Notify, PollError, PostError, ProtectionDomain, QpOptions,
    QueuePair, ReceiveRequest, RemoteQueue, Srq, SrqOptions, State, Status, WindowType, XrcDomain,
    XrcInitiator, XrcTarget, work,
};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::MW_BIND
}

/// Each kind of port in each driving mode.
fn devices() -> [Device; 4] {
    let udp = Device::udp("127.0.0.1:0").unwrap();
    [Device::shm(), udp.clone(), Device::shm().mode(Mode::Dedicated), udp.mode(Mode::Dedicated)]
}

/// Runs one test at a time: a child must not inherit a lock that another test's thread holds at that moment.
fn alone() -> impl Drop {
    static ALONE: Mutex<()> = Mutex::new(());
    struct Held(#[allow(dead_code, reason = "held, not read")] std::sync::MutexGuard<'static, ()>);
    impl Drop for Held {
        fn drop(&mut self) {}
    }
    Held(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `body` in a child, which reports an error by its exit status and standard error.
fn in_child(body: impl FnOnce() -> Result<(), String>) {
    // SAFETY: the child only runs the code under test and ends by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        let words = outcome.unwrap_or_else(|_| Err("a panic".to_owned())).err().unwrap_or_default();
        // SAFETY: `words.len()` bytes of the string are written. The child ends at once, so that no
        // destructor of the parent's objects runs.
        unsafe {
            libc::write(2, words.as_ptr().cast(), words.len());
            libc::_exit(if words.is_empty() { 0 } else { 1 });
        }
    }
    let mut status = 0;
    // SAFETY: `status` is an int of ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child printed its error above");
}

macro_rules! expect {
    ($found:expr, $wanted:pat) => {
        match $found {
            $wanted => {}
            other => return Err(format!("line {}: {} is {other:?}\n", line!(), stringify!($found))),
        }
    };
}

/// Two NICs, and one object of each kind of the first.
struct Everything {
    cq: CompletionQueue,
    channel: CompletionChannel,
    memory: MemoryRegion,
    window: MemoryWindow,
    _null: remora_verbs::NullRegion,
    one: QueuePair,
    two: QueuePair,
    waiting: Option<QueuePair<Init>>,
    datagrams: DatagramQueuePair,
    there: RemoteQueue,
    srq: Srq,
    xrc: XrcDomain,
    initiator: XrcInitiator,
    target: XrcTarget,
    list: FreeList,
    kernel: KernelHandle,
    domain: ProtectionDomain,
    near: Context,
    far: Context,
    far_cq: CompletionQueue,
    far_memory: MemoryRegion,
}

impl Everything {
    fn on(device: &Device) -> Everything {
        let near = device.open().unwrap();
        let far = device.open().unwrap();
        let domain = near.alloc_pd().unwrap();
        let far_domain = far.alloc_pd().unwrap();
        let channel = near.create_channel().unwrap();
        let cq = near
            .create_cq_with(&CqOptions { depth: 64, channel: Some(&channel), ..CqOptions::default() })
            .unwrap();
        let far_cq = far.create_cq(64).unwrap();
        let options = QpOptions::default();
        let pair =
            |domain: &ProtectionDomain, cq: &CompletionQueue| domain.create_qp(cq, cq, &options).unwrap();
        let (one, two) = QueuePair::connect_pair(pair(&domain, &cq), pair(&far_domain, &far_cq)).unwrap();
        let memory = domain.allocate(8192, shared()).unwrap();
        let datagrams = domain.create_datagram_qp(&cq, &cq, &options).unwrap();
        let other = far_domain.create_datagram_qp(&far_cq, &far_cq, &options).unwrap();
        let (there, _) = DatagramQueuePair::resolve_pair(&datagrams, &other).unwrap();
        let xrc = near.open_xrc_domain(0).unwrap();
        let initiator = domain.create_xrc_initiator(&cq, &options).unwrap();
        let (initiator, target) =
            XrcInitiator::connect_pair(initiator, xrc.create_target(&options).unwrap()).unwrap();
        let free = FreeListOptions { offset: 4096, size: 1024, count: 4, engine: 0 };
        Everything {
            window: domain.allocate_window(WindowType::Type2B).unwrap(),
            _null: domain.null_region().unwrap(),
            waiting: Some(pair(&domain, &cq)),
            srq: domain.create_srq(&SrqOptions::default()).unwrap(),
            list: domain.create_free_list(&memory, &free).unwrap(),
            kernel: domain.deploy_shipped(Shipped::Get, 1, &KernelOptions::default()).unwrap(),
            far_memory: far_domain.allocate(64, shared()).unwrap(),
            cq,
            channel,
            memory,
            one,
            two,
            datagrams,
            there,
            xrc,
            initiator,
            target,
            domain,
            near,
            far,
            far_cq,
        }
    }

    /// Uses each object, and checks that each use is refused.
    fn is_refused(&mut self) -> Result<(), String> {
        let local = [self.memory.sge(0, 8)];
        let write = work::write(1, &local, self.far_memory.remote(0));
        let receive = ReceiveRequest { id: 1, sges: &[self.memory.sge(0, 64)] };
        expect!(self.one.post_send(&write), Err(PostError::Forked));
        expect!(self.one.post_recv(&receive), Err(PostError::Forked));
        expect!(self.one.post_send_batch(&[work::nop(1)]), Err((0, PostError::Forked)));
        expect!(self.one.batch().err(), Some(PostError::Forked));
        expect!(self.one.modify(&Modify::default()), Err(CreateError::Forked));
        expect!(self.one.enable(1), Err(CreateError::Forked));
        expect!(self.one.attach(Some(&self.kernel)), Err(CreateError::Forked));
        expect!(self.one.check_reads(None), Err(CreateError::Forked));
        expect!(self.one.state(), State::Reset);
        expect!(self.one.query().state, None);
        self.two.fail();
        let waiting = self.waiting.take().ok_or("used twice\n")?;
        expect!(waiting.connect("127.0.0.1:1").err(), Some(ConnectError::Forked));
        expect!(
            self.datagrams.post_send_to(&work::send_inline(1, b"x"), &self.there),
            Err(PostError::Forked)
        );
        expect!(self.datagrams.post_local(&work::nop(1)), Err(PostError::Forked));
        expect!(self.datagrams.post_recv(&receive), Err(PostError::Forked));
        expect!(self.datagrams.resolve("127.0.0.1:1").err(), Some(ConnectError::Forked));
        expect!(self.initiator.post_send(&work::nop(1), 1), Err(PostError::Forked));
        expect!(self.target.modify(&Modify::default()), Err(CreateError::Forked));
        expect!(self.xrc.create_target(&QpOptions::default()).err(), Some(CreateError::Forked));
        expect!(self.srq.post_recv(&receive), Err(PostError::Forked));
        expect!(self.srq.arm(1), Err(CreateError::Forked));
        expect!(self.list.post(0), Err(PostError::Forked));
        expect!(self.list.facts(), Err(CreateError::Forked));
        expect!(self.kernel.remove(), Err(CreateError::Forked));
        expect!(self.cq.poll(&mut [EMPTY; 1]), Err(PollError::Forked));
        expect!(self.cq.wait(&mut [EMPTY; 1], LONG), Err(PollError::Forked));
        expect!(self.cq.arm(Notify::Any), Err(PollError::Forked));
        expect!(self.cq.resize(128), Err(CreateError::Forked));
        expect!(self.cq.set_channel(&self.channel), Err(CreateError::Forked));
        expect!(self.cq.count(), 0);
        expect!(self.channel.poll(), None);
        expect!(self.channel.wait(Some(LONG)), Err(PollError::Forked));
        self.window.look();
        expect!(self.domain.allocate(64, shared()).err(), Some(CreateError::Forked));
        expect!(self.domain.null_region().err(), Some(CreateError::Forked));
        expect!(self.near.create_cq(4).err(), Some(CreateError::Forked));
        expect!(self.near.alloc_pd().err(), Some(CreateError::Forked));
        expect!(self.near.poll_event(), None);
        expect!(self.near.kernels().err(), Some(CreateError::Forked));
        expect!(self.near.metrics().len() + self.near.driver_counters().len(), 0);
        expect!(self.near.port_counters().frames_sent, 0);
        Ok(())
    }

    fn send(&mut self, id: u64) {
        self.one.post_send(&work::write(id, &[self.memory.sge(0, 64)], self.far_memory.remote(0))).unwrap();
    }

    /// Checks that the objects work as if there were no child.
    fn goes_on(&mut self) {
        for id in 0..50 {
            self.send(id);
            let mut done = [EMPTY; 1];
            assert_eq!(self.cq.wait(&mut done, LONG), Ok(1));
            assert_eq!((done[0].id, done[0].status), (id, Status::Success));
        }
        assert_eq!((self.one.state(), self.two.state()), (State::Rts, State::Rts));
    }
}

/// Opens a NIC of the child's own, and checks that it works.
fn with_own_device(device: &Device) -> Result<Everything, String> {
    let mut own = Everything::on(device);
    own.send(7);
    let mut done = [EMPTY; 1];
    expect!(own.cq.wait(&mut done, LONG), Ok(1));
    expect!(done[0].status, Status::Success);
    Ok(own)
}

/// The number of frames that the far NIC has received, once none is on its way.
fn arrived(parents: &mut Everything) -> u64 {
    for _ in 0..20 {
        let _ = parents.far_cq.poll(&mut [EMPTY; 1]);
        std::thread::sleep(Duration::from_millis(2));
    }
    parents.far.port_counters().frames_received
}

/// Runs `child` with inherited objects. Nothing of that reaches the parent's peer, and the parent's objects
/// still work.
fn does_no_harm(device: &Device, child: impl FnOnce(&mut Option<Everything>) -> Result<(), String>) {
    let mut parents = Everything::on(device);
    parents.goes_on();
    let before = arrived(&mut parents);
    let mut inherited = Some(parents);
    in_child(|| child(&mut inherited));
    let mut parents = inherited.expect("only the child took it");
    assert_eq!(arrived(&mut parents), before, "the child sent a frame on the parent's socket or ring");
    parents.goes_on();
}

/// Regression: a forked child that opened a device of its own revived its parent's objects: its posts
/// left on the parent's socket, and its drops ended the parent's queue pairs.
#[test]
fn a_child_that_opens_a_device_of_its_own_revives_none_of_its_parents_objects() {
    let _alone = alone();
    for device in devices() {
        does_no_harm(&device, |inherited| {
            let mut own = with_own_device(&device)?;
            inherited.as_mut().map_or(Ok(()), Everything::is_refused)?;
            drop(inherited.take());
            // The child's own NIC still works, too.
            own.goes_on();
            Ok(())
        });
    }
}

#[test]
fn a_child_that_opens_nothing_is_refused_and_drops_everything() {
    let _alone = alone();
    for device in devices() {
        does_no_harm(&device, |inherited| {
            inherited.as_mut().map_or(Ok(()), Everything::is_refused)?;
            drop(inherited.take());
            Ok(())
        });
    }
}

#[test]
fn a_child_of_a_child_revives_neither_generations_objects() {
    let _alone = alone();
    for device in devices().into_iter().take(2) {
        does_no_harm(&device, |inherited| {
            let mut own = Some(with_own_device(&device)?);
            in_child(|| {
                let mut youngest = with_own_device(&device)?;
                for older in [&mut *inherited, &mut own] {
                    older.as_mut().map_or(Ok(()), Everything::is_refused)?;
                    drop(older.take());
                }
                youngest.goes_on();
                Ok(())
            });
            own.as_mut().map_or(Ok(()), |own| {
                own.goes_on();
                Ok(())
            })
        });
    }
}

#[test]
fn a_batch_that_was_open_when_the_process_forked_is_not_posted_by_the_child() {
    let _alone = alone();
    for device in devices() {
        let mut parents = Everything::on(&device);
        parents.goes_on();
        let before = arrived(&mut parents);
        let local = [parents.memory.sge(0, 8)];
        let write = work::write(1, &local, parents.far_memory.remote(0));
        let mut batch = Some(parents.one.batch().unwrap());
        batch.as_mut().unwrap().post_send(&write).unwrap();
        in_child(|| {
            let _own = with_own_device(&device)?;
            let refused = batch.as_mut().map(|batch| batch.post_send(&work::nop(2)));
            expect!(refused, Some(Err(PostError::Forked)));
            drop(batch.take());
            Ok(())
        });
        std::mem::forget(batch);
        assert_eq!(arrived(&mut parents), before, "the child rang the parent's doorbell");
        parents.one.batch().unwrap().ring();
        assert_eq!(parents.cq.wait(&mut [EMPTY; 1], LONG), Ok(1), "the parent posts what it had begun");
    }
}

#[test]
fn what_wakes_the_parent_is_not_taken_by_a_child() {
    let _alone = alone();
    let mut parents = Everything::on(&Device::shm());
    parents.cq.arm(Notify::Any).unwrap();
    parents.send(1);
    let mut inherited = Some(parents);
    in_child(|| {
        let _own = Device::shm().open().map_err(|error| error.to_string())?;
        let channel = inherited.as_ref().map(|parents| &parents.channel);
        expect!(channel.and_then(CompletionChannel::poll), None);
        drop(inherited.take());
        Ok(())
    });
    let parents = inherited.unwrap();
    assert_eq!(parents.channel.wait(Some(LONG)), Ok(parents.cq.tag()));
}

#[test]
fn a_child_neither_listens_nor_stops_its_parents_listener() {
    let _alone = alone();
    let mut listener = Some(Listener::bind("127.0.0.1:0").unwrap());
    in_child(|| {
        let _own = Device::shm().open().map_err(|error| error.to_string())?;
        let accepted = listener.as_ref().map(|listener| listener.accept(Some(LONG)).err());
        expect!(accepted, Some(Some(ConnectError::Forked)));
        drop(listener.take());
        Ok(())
    });
    let listener = listener.unwrap();
    let address = listener.address();
    let client = std::thread::spawn(move || {
        let parents = Everything::on(&Device::shm());
        let pair = parents.domain.create_qp(&parents.cq, &parents.cq, &QpOptions::default()).unwrap();
        pair.connect(address).map(drop).unwrap_err().to_string()
    });
    listener.accept(Some(LONG)).unwrap().expect("the parent still listens").reject("no");
    assert_eq!(client.join().unwrap(), "the other side refused: no");
}

/// A daemon and a program attached to it, in one process, whose child inherits both.
#[test]
fn a_child_ends_neither_its_parents_daemon_nor_its_attachment() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nicd.sock");
    let mut daemon = Some(Daemon::open(&Device::shm(), &path, &Options::default()).unwrap());
    let context = Device::nicd(&path).open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let memory = domain.allocate(64, shared()).unwrap();
    let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let (one, two) = QueuePair::connect_pair(pair(), pair()).unwrap();
    let counts = |daemon: &Option<Daemon>| {
        let tenants = daemon.as_ref().map(Daemon::tenants).unwrap_or_default();
        tenants.iter().map(|tenant| (tenant.regions, tenant.queues, tenant.pairs)).collect::<Vec<_>>()
    };
    let before = counts(&daemon);
    assert_eq!(before, [(1, 1, 2)]);
    let mut things = Some((one, two, memory, cq, domain, context));
    in_child(|| {
        let _own = with_own_device(&Device::shm())?;
        // The child's own attachment, in addition to its parent's.
        let beside = Device::nicd(&path).open().map_err(|error| error.to_string())?;
        drop(beside.alloc_pd().map_err(|error| error.to_string())?);
        let Some((one, _, memory, cq, domain, context)) = &mut things else { return Err("nothing".into()) };
        let local = [memory.sge(0, 8)];
        let write = work::write(1, &local, memory.remote(8));
        expect!(one.post_send(&write), Err(PostError::Forked));
        expect!(one.state(), State::Reset);
        expect!(one.enable(1), Err(CreateError::Forked));
        expect!(cq.poll(&mut [EMPTY; 1]), Err(PollError::Forked));
        expect!(cq.arm(Notify::Any), Err(PollError::Forked));
        expect!(domain.allocate(64, shared()).err(), Some(CreateError::Forked));
        expect!(context.create_cq(4).err(), Some(CreateError::Forked));
        expect!(context.create_channel().err(), Some(CreateError::Forked));
        expect!(context.kept().err(), Some(CreateError::Forked));
        drop(things.take());
        expect!(daemon.as_ref().map(Daemon::tenants).unwrap_or_default().len(), 0);
        drop(daemon.take());
        Ok(())
    });
    assert!(std::fs::metadata(&path).unwrap().file_type().is_socket(), "the child took the socket away");
    let (mut one, _two, memory, mut cq, _domain, context) = things.unwrap();
    let mut after = counts(&daemon);
    for _ in 0..1000 {
        // The child's own attachment ends when the daemon has noticed the child's end.
        if after == before {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        after = counts(&daemon);
    }
    assert_eq!(after, before, "the child released an object of its parent");
    one.post_send(&work::write(1, &[memory.sge(0, 8)], memory.remote(8))).unwrap();
    let mut done = [EMPTY; 1];
    assert_eq!(cq.wait(&mut done, LONG), Ok(1));
    assert_eq!(done[0].status, Status::Success);
    context.create_cq(4).unwrap();
}

/// A child has the same nonces and the same socket as its parent, so it must send nothing.
///
/// Regression: a forked child sent 1RMA messages under its parent's nonces.
#[test]
fn objects_of_1rma_stay_the_parents() {
    let _alone = alone();
    for device in [&devices()[1], &devices()[3]] {
        let server = device.open().unwrap();
        let client = device.open().unwrap();
        let serving = server.open_rma(&RmaOptions::default()).unwrap();
        let rma = client.open_rma(&RmaOptions::default()).unwrap();
        let domain = client.alloc_pd().unwrap();
        let memory = |domain: &ProtectionDomain| domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
        let served = serving.expose(memory(&server.alloc_pd().unwrap()), Rights(7), None).unwrap();
        let mut local = rma.expose(memory(&domain), Rights::NONE, None).unwrap();
        let other = memory(&domain);
        let mut portal = rma.create_portal(&domain, 8).unwrap();
        let grant = served.grant(&portal.identity());
        portal.read(&local, 0, &grant, 0, 64, LONG).unwrap();
        let received = server.counters().rcvd_pkts;
        in_child(|| {
            let forked = RmaError::Nic(PollError::Forked);
            for ended in [
                portal.read(&local, 0, &grant, 0, 64, LONG),
                portal.write(&local, 0, &grant, 0, 64, LONG),
                portal.rekey(&local, 0, &grant),
                portal.settle(&local, 0, &grant, LONG),
                portal.poll().map(drop),
            ] {
                if ended != Err(forked) {
                    return Err(format!("{ended:?}\n"));
                }
            }
            expect!(rma.expose(other, Rights::READ, None), Err(CreateError::Forked));
            expect!(rma.create_portal(&domain, 1), Err(CreateError::Forked));
            expect!(rma.on_engine(0), Err(CreateError::Forked));
            expect!(rma.reach(grant.server), Err(CreateError::Forked));
            expect!(client.open_rma(&RmaOptions::default()), Err(CreateError::Forked));
            expect!(local.rekey(None), Err(CreateError::Forked));
            Ok(())
        });
        assert_eq!(server.counters().rcvd_pkts, received, "the child has sent nothing");
        portal.read(&local, 0, &grant, 0, 64, LONG).unwrap();
        in_child(|| {
            drop((portal, local, served, rma, serving));
            Ok(())
        });
    }
}
