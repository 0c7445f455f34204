use crate::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

const TURNS: u64 = if cfg!(miri) { 100 } else { 20_000 };

fn engine() -> Biased<u64> {
    Biased::new(&Arc::new(Table::new(Config::small()).unwrap()), 0)
}

#[test]
fn every_thread_gets_in_and_only_one_at_a_time() {
    let engine = engine();
    let inside = AtomicU64::new(0);
    // More threads than can hold the bias.
    let threads = 9;
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    let mut state = engine.enter();
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    *state += 1;
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(*engine.enter(), threads * TURNS);
}

#[test]
fn an_owner_who_polls_and_a_rare_visitor() {
    let engine = engine();
    let mut visits = 0;
    let mut polls = 0;
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut turns = 0u64;
            loop {
                let mut state = engine.enter();
                *state += 1;
                turns += 1;
                // The visitor has added this sum to tell the owner to stop.
                if *state >= 1 << 40 {
                    return turns;
                }
            }
        });
        while visits < if cfg!(miri) { 20 } else { 500 } {
            match engine.try_enter() {
                Some(mut state) => {
                    *state += 1;
                    visits += 1;
                }
                None => thread::yield_now(),
            }
        }
        *engine.enter() += 1 << 40;
        polls = owner.join().unwrap();
    });
    assert_eq!(*engine.enter() - (1 << 40), visits + polls);
}

#[test]
fn the_engine_of_a_thread_that_died_is_free() {
    let engine = engine();
    // More owners than slots, one after the other, each leaving as the owner.
    for _ in 0..20 {
        thread::scope(|scope| {
            scope.spawn(|| (0..100).for_each(|_| *engine.enter() += 1));
        });
    }
    assert_eq!(*engine.try_enter().unwrap(), 2000);
}

#[test]
fn the_heartbeat_moves_with_every_pass_and_only_then() {
    let engine = engine();
    let mut last = engine.heartbeat();
    for _ in 0..50 {
        drop(engine.enter());
        assert_ne!(engine.heartbeat(), last);
        last = engine.heartbeat();
        assert_eq!(engine.heartbeat(), last);
    }
    thread::scope(|scope| {
        scope.spawn(|| drop(engine.try_enter().unwrap()));
    });
    assert_ne!(engine.heartbeat(), last);
}

#[test]
#[should_panic(expected = "already inside a pass of it")]
fn entering_twice_panics_instead_of_waiting_for_oneself() {
    let engine = engine();
    let _first = engine.enter();
    let _second = engine.enter();
}

#[test]
fn entering_twice_by_the_plain_lock_panics_too() {
    let engine = engine();
    let entered = thread::scope(|scope| {
        drop(engine.enter());
        // The main thread has the bias, so this thread enters by the mutex.
        let second = || {
            let _first = engine.enter();
            let _second = engine.enter();
        };
        scope.spawn(second).join()
    });
    assert!(entered.is_err());
    assert!(engine.try_enter().is_some(), "unwinding ended the pass");
}

#[test]
fn entering_twice_is_an_error_for_those_who_ask_for_one() {
    let engine = engine();
    assert!(!engine.has_caller());
    let first = engine.enter_once().unwrap();
    assert!(engine.has_caller());
    assert_eq!(engine.enter_once().err(), Some(Reentered));
    thread::scope(|scope| {
        assert!(scope.spawn(|| !engine.has_caller()).join().unwrap(), "another thread is not")
    });
    drop(first);
    assert!(!engine.has_caller() && engine.enter_once().is_ok());
    // This thread enters by the mutex, because the main thread has the bias.
    thread::scope(|scope| {
        let by_mutex = || {
            let first = engine.enter_once().unwrap();
            let refused = (engine.has_caller(), engine.enter_once().err());
            drop(first);
            (refused, engine.has_caller())
        };
        assert_eq!(scope.spawn(by_mutex).join().unwrap(), ((true, Some(Reentered)), false));
    });
}

/// A single thread holds passes of more engines than it can be marked for, and ends them in another order.
#[test]
fn passes_of_several_engines_end_in_any_order_and_leave_no_mark() {
    let engines: Vec<_> = (0..7).map(|_| engine()).collect();
    engines.iter().for_each(|engine| drop(engine.enter()));
    thread::scope(|scope| {
        let holds_all = || {
            let mut passes: Vec<_> = engines.iter().map(|engine| engine.enter_once().unwrap()).collect();
            assert!(engines.iter().all(Biased::has_caller));
            while !passes.is_empty() {
                drop(passes.remove(passes.len() / 2));
            }
            assert!(!engines.iter().any(Biased::has_caller));
            engines.iter().all(|engine| engine.enter_once().is_ok())
        };
        assert!(scope.spawn(holds_all).join().unwrap());
    });
}

/// A signal may come at any instruction: within a pass, on the way in or out, with the mutex or without. Its
/// handler enters or gets the error, and no thread waits forever.
///
/// Regression: a signal handler that posted while its thread was inside the engine ended the process by
/// a panic or waited for itself for ever.
///
/// Regression: a handler that entered while its thread tried to enter by the bias released the thread's
/// slot. The interrupted attempt then overwrote the mark of another thread, and both were inside.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_signal_handler_enters_or_is_refused_wherever_it_interrupts() {
    use std::sync::OnceLock;
    static ENGINE: OnceLock<Biased<u64>> = OnceLock::new();
    static ENTERED: AtomicU64 = AtomicU64::new(0);
    static REFUSED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn interrupt(_: libc::c_int) {
        let Some(engine) = ENGINE.get() else { return };
        let known = engine.has_caller();
        let entered = engine.enter_once();
        let counter = if entered.is_ok() { &ENTERED } else { &REFUSED };
        // A thread that `has_caller` reports as inside must be refused.
        assert_eq!(known, entered.is_err());
        counter.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut state) = entered {
            *state += 1;
        }
    }
    let engine = ENGINE.get_or_init(engine);
    let handler: extern "C" fn(libc::c_int) = interrupt;
    // SAFETY: the handler touches atomics and the engine only.
    unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
    let done = &AtomicU64::new(0);
    let enough = || ENTERED.load(Ordering::Relaxed) >= 200 && REFUSED.load(Ordering::Relaxed) >= 200;
    let passes: u64 = thread::scope(|scope| {
        // Two threads take the bias from each other, so both enter in every possible way.
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (sender, receiver) = mpsc::channel();
                let work = move || {
                    // SAFETY: asks for the caller's own name.
                    sender.send(unsafe { libc::pthread_self() }).unwrap();
                    let mut passes = 0;
                    while done.load(Ordering::Relaxed) == 0 {
                        *engine.enter() += 1;
                        passes += 1;
                    }
                    passes
                };
                let worker = scope.spawn(work);
                (worker, receiver.recv().unwrap())
            })
            .collect();
        while !enough() {
            for (_, thread) in &workers {
                // SAFETY: the thread runs until `done` is set below.
                assert_eq!(unsafe { libc::pthread_kill(*thread, libc::SIGUSR2) }, 0);
            }
            thread::yield_now();
        }
        // No more signals are sent; handlers in progress end before their threads do.
        done.store(1, Ordering::Relaxed);
        workers.into_iter().map(|(worker, _)| worker.join().unwrap()).sum()
    });
    assert_eq!(*engine.enter(), passes + ENTERED.load(Ordering::Relaxed));
}

#[test]
fn a_visitor_stays_out_while_someone_is_inside() {
    let engine = engine();
    let by_bias = engine.enter();
    assert!(engine.try_enter().is_none(), "not even the same thread");
    thread::scope(|scope| assert!(scope.spawn(|| engine.try_enter().is_none()).join().unwrap()));
    drop(by_bias);
    let inside = Barrier::new(2);
    let leave = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _plain = engine.enter();
            inside.wait();
            leave.wait();
        });
        inside.wait();
        assert!(engine.try_enter().is_none());
        leave.wait();
    });
    assert!(engine.try_enter().is_some());
}

#[test]
fn another_thread_waits_until_the_owner_leaves() {
    let engine = engine();
    drop(engine.enter());
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let mut state = engine.enter();
        let engine = &engine;
        scope.spawn(move || {
            let before = *engine.enter();
            sender.send(before).unwrap();
        });
        for _ in 0..200 {
            thread::yield_now();
        }
        assert!(receiver.try_recv().is_err());
        *state = 77;
        drop(state);
        assert_eq!(receiver.recv().unwrap(), 77);
    });
}

#[test]
fn an_engine_that_is_gone_holds_up_no_deregistration() {
    let table = Arc::new(Table::new(Config::small()).unwrap());
    let pd = table.alloc_pd().unwrap();
    for _ in 0..10 {
        let engine = Biased::new(&table, ());
        drop(engine.enter());
        let key = table.register(pd, &[Range::at(&Bytes::heap(64).unwrap(), 0)], Access::NONE).unwrap();
        drop(engine);
        table.deregister(key).unwrap();
    }
    assert_eq!(table.regions(), 0);
}
