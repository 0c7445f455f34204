//! Sizes of queues: a size without a meaning is ignored, and a queue pair that only sends or only receives
//! needs no other queue.

use remora_verbs::nicd::{Daemon, Options};
use remora_verbs::{
    Access, CompletionQueue, Context, CreateError, Device, EMPTY, PostError, QpOptions, QueueError,
    QueuePair, ReceiveRequest, SrqOptions, Status, XrcInitiator, work,
};
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

/// Options with sizes that no receive queue can have.
fn impossible() -> QpOptions {
    QpOptions { max_recv_wr: u32::MAX, max_recv_sge: u32::MAX, ..QpOptions::default() }
}

fn statuses(cq: &mut CompletionQueue, count: usize) -> Vec<(u64, Status)> {
    let mut done = [EMPTY; 8];
    let mut came = 0;
    while came < count {
        came += cq.wait(&mut done[came..], LONG).unwrap();
    }
    let mut statuses: Vec<(u64, Status)> = done[..came].iter().map(|done| (done.id, done.status)).collect();
    statuses.sort_by_key(|done| done.0);
    statuses
}

/// Regression: the size of a receive queue was checked although a shared receive queue replaces it.
#[test]
fn a_queue_pair_with_a_shared_receive_queue_may_say_any_size_of_its_own() {
    let context = Device::shm().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).unwrap();
    let memory = domain.allocate(64, shared()).unwrap();
    let mut srq = domain.create_srq(&SrqOptions::default()).unwrap();
    srq.post_recv(&ReceiveRequest { id: 1, sges: &[memory.sge(0, 64)] }).unwrap();
    for options in [impossible(), QpOptions { max_recv_wr: 0, max_recv_sge: 0, ..QpOptions::default() }] {
        assert!(domain.create_datagram_qp_on(&srq, &cq, &cq, &options).is_ok());
        let one = domain.create_qp_on(&srq, &cq, &cq, &options).unwrap();
        let two = domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
        let (_one, mut two) = QueuePair::connect_pair(one, two).unwrap();
        two.post_send(&work::send_inline(2, b"any")).unwrap();
        assert_eq!(statuses(&mut cq, 2), [(1, Status::Success), (2, Status::Success)]);
        srq.post_recv(&ReceiveRequest { id: 1, sges: &[memory.sge(0, 64)] }).unwrap();
    }
    // Without a shared receive queue, the sizes are checked.
    let refused = domain.create_qp(&cq, &cq, &impossible()).err();
    assert_eq!(refused, Some(CreateError::TooMany("max_recv_wr", u32::MAX.into(), 1 << 16)));
}

#[test]
fn sizes_of_queues_that_extended_reliable_connections_do_not_have_mean_nothing() {
    let context = Device::shm().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).unwrap();
    let xrc = context.open_xrc_domain(0).unwrap();
    let mut srq = domain.create_xrc_srq(&xrc, &cq, &SrqOptions::default()).unwrap();
    srq.post_recv(&ReceiveRequest { id: 1, sges: &[] }).unwrap();
    let none =
        QpOptions { max_send_wr: u32::MAX, max_send_sge: u32::MAX, max_inline: u32::MAX, ..impossible() };
    let target = xrc.create_target(&none).unwrap();
    assert!(
        domain.create_xrc_initiator(&cq, &none).is_err(),
        "an initiator cannot send without a send queue"
    );
    let initiator = domain.create_xrc_initiator(&cq, &impossible()).unwrap();
    let (mut initiator, _target) = XrcInitiator::connect_pair(initiator, target).unwrap();
    initiator.post_send(&work::send_inline(2, b""), srq.number()).unwrap();
    assert_eq!(statuses(&mut cq, 2), [(1, Status::Success), (2, Status::Success)]);
}

fn one_sends_and_one_receives(context: &Context) {
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).unwrap();
    let memory = domain.allocate(64, shared()).unwrap();
    let sends = QpOptions { max_recv_wr: 0, max_recv_sge: 0, rnr_retry: 0, ..QpOptions::default() };
    let receives =
        QpOptions { max_send_wr: 0, max_send_sge: 0, max_inline: 0, max_recv_wr: 1, ..QpOptions::default() };
    let pair = |cq: &CompletionQueue, options: &QpOptions| domain.create_qp(cq, cq, options).unwrap();
    let (mut one, mut two) = QueuePair::connect_pair(pair(&cq, &sends), pair(&cq, &receives)).unwrap();
    let receive = ReceiveRequest { id: 1, sges: &[memory.sge(0, 8)] };
    assert_eq!(
        one.post_recv(&ReceiveRequest { id: 1, sges: &[] }),
        Err(PostError::Queue(QueueError::QueueFull))
    );
    assert_eq!(two.post_send(&work::nop(9)), Err(PostError::Queue(QueueError::QueueFull)));
    two.post_recv(&receive).unwrap();
    one.post_send(&work::send(2, &[memory.sge(32, 5)])).unwrap();
    assert_eq!(statuses(&mut cq, 2), [(1, Status::Success), (2, Status::Success)]);
    one.post_send(&work::read(3, &[memory.sge(0, 8)], memory.remote(32))).unwrap();
    assert_eq!(statuses(&mut cq, 1), [(3, Status::Success)]);
    drop((one, two));
    // A sender whose peer never receives gets receiver-not-ready.
    let (mut one, _two) = QueuePair::connect_pair(pair(&cq, &sends), pair(&cq, &sends)).unwrap();
    one.post_send(&work::send_inline(4, b"x")).unwrap();
    assert_eq!(statuses(&mut cq, 1), [(4, Status::RnrRetryExceeded)]);
}

/// Regression: a size of zero was refused for queue pairs that only send or only receive.
#[test]
fn a_queue_pair_may_have_no_places_to_send_from_or_none_to_receive_into() {
    one_sends_and_one_receives(&Device::shm().open().unwrap());
    one_sends_and_one_receives(&Device::udp("127.0.0.1:0").unwrap().open().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nicd.sock");
    let _daemon = Daemon::open(&Device::shm(), &path, &Options::default()).unwrap();
    one_sends_and_one_receives(&Device::nicd(&path).open().unwrap());
}

/// Regression: a size below the lower bound was reported as "1 to" the upper one.
#[test]
fn a_size_out_of_bounds_is_told_with_the_bound_that_it_breaks() {
    let context = Device::shm().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(4).unwrap();
    let words = |options: QpOptions| domain.create_qp(&cq, &cq, &options).unwrap_err().to_string();
    let usual = QpOptions::default;
    assert_eq!(
        words(QpOptions { max_send_sge: 31, ..usual() }),
        "max_send_sge of 31; at most 30 is possible"
    );
    assert_eq!(words(QpOptions { path_mtu: 255, ..usual() }), "path_mtu of 255; at least 256 is possible");
}
