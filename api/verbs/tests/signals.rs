//! A signal handler that calls the NIC which its thread is calling. The signal may come at any instruction.
//! The handler posts work or gets EBUSY; no work is lost or executed twice, and nothing hangs.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "tests install a signal handler, which reaches its queue pair by a pointer")]

use remora_verbs::{
    CompletionQueue, Context, CreateError, Device, EMPTY, Flags, PollError, PostError, QpOptions, QueuePair,
    Status, WorkRequest, work,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
/// The least number of each outcome.
const ENOUGH: u64 = 100;

/// The objects that the handler uses.
struct Handled {
    context: Context,
    cq: CompletionQueue,
    pair: QueuePair,
}

static HANDLED: AtomicPtr<Handled> = AtomicPtr::new(std::ptr::null_mut());
static POSTED: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
/// Held by the test that uses the handler's objects, one at a time.
static ALONE: Mutex<()> = Mutex::new(());

extern "C" fn interrupt(_: libc::c_int) {
    // SAFETY: while the pointer is set, only this handler uses the objects, on one thread.
    let Some(handled) = (unsafe { HANDLED.load(Ordering::Relaxed).as_mut() }) else { return };
    let quiet = WorkRequest { flags: Flags::default(), ..work::nop(1) };
    match handled.pair.post_send(&quiet) {
        Ok(()) => POSTED.fetch_add(1, Ordering::Relaxed),
        Err(PostError::Reentered) => {
            let others = [
                handled.pair.batch().err() == Some(PostError::Reentered),
                handled.cq.poll(&mut [EMPTY; 1]) == Err(PollError::Reentered),
                handled.cq.arm(remora_verbs::Notify::Any) == Err(PollError::Reentered),
                handled.context.create_cq(1).err() == Some(CreateError::Reentered),
            ];
            WRONG.fetch_add(others.iter().filter(|right| !**right).count() as u64, Ordering::Relaxed);
            REFUSED.fetch_add(1, Ordering::Relaxed)
        }
        Err(_) => WRONG.fetch_add(1, Ordering::Relaxed),
    };
}

fn a_handler_posts_or_is_refused(device: &Device) {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).unwrap();
    let others = context.create_cq(64).unwrap();
    let connected = |cq: &CompletionQueue| {
        let make = || domain.create_qp(cq, cq, &QpOptions::default()).unwrap();
        QueuePair::connect_pair(make(), make()).unwrap()
    };
    let (mut near, _far) = connected(&cq);
    let (pair, _its_far) = connected(&others);
    for counter in [&POSTED, &REFUSED, &WRONG] {
        counter.store(0, Ordering::Relaxed);
    }
    let handled = Box::into_raw(Box::new(Handled { context: context.clone(), cq: others, pair }));
    HANDLED.store(handled, Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int) = interrupt;
    // SAFETY: the handler uses only the objects behind `HANDLED`, and atomics.
    unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
    // SAFETY: returns the id of the calling thread.
    let thread = unsafe { libc::pthread_self() };
    let done = &AtomicU64::new(0);
    let turns = std::thread::scope(|scope| {
        scope.spawn(move || {
            while done.load(Ordering::Relaxed) == 0 {
                // SAFETY: the target thread joins this one before it ends.
                assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR2) }, 0);
                std::thread::yield_now();
            }
        });
        let enough = |counter: &AtomicU64| counter.load(Ordering::Relaxed) >= ENOUGH;
        let mut turns = 0;
        while !(enough(&POSTED) && enough(&REFUSED)) && WRONG.load(Ordering::Relaxed) == 0 {
            near.post_send(&work::nop(turns)).unwrap();
            let mut end = [EMPTY; 1];
            assert_eq!(cq.wait(&mut end, LONG), Ok(1));
            assert_eq!((end[0].id, end[0].status), (turns, Status::Success));
            turns += 1;
        }
        done.store(1, Ordering::Relaxed);
        turns
    });
    HANDLED.store(std::ptr::null_mut(), Ordering::Relaxed);
    // SAFETY: allocated above. No handler can find the pointer any more, and none runs on this thread.
    let mut handled = unsafe { Box::from_raw(handled) };
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
    // Posted requests are executed once, and refused ones not at all.
    handled.pair.post_send(&work::nop(9)).unwrap();
    let mut end = [EMPTY; 2];
    assert_eq!(handled.cq.wait(&mut end, LONG), Ok(1));
    assert_eq!((end[0].id, end[0].status), (9, Status::Success));
    assert_eq!(context.counters().wqes_executed, turns + POSTED.load(Ordering::Relaxed) + 1);
}

#[test]
fn over_shm_a_handler_posts_or_is_refused() {
    a_handler_posts_or_is_refused(&Device::shm());
}

#[test]
fn over_udp_a_handler_posts_or_is_refused() {
    a_handler_posts_or_is_refused(&Device::udp("127.0.0.1:0").unwrap());
}
