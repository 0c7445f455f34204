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
    let (mut visits, mut polls) = (0, 0);
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut turns = 0u64;
            loop {
                let mut state = engine.enter();
                *state += 1;
                turns += 1;
                // The visitor's sign: enough.
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
#[should_panic(expected = "entered again from inside its own pass")]
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
        // The main thread has the bias, so this one goes the long way.
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
fn a_visitor_stays_out_while_someone_is_inside() {
    let engine = engine();
    let by_bias = engine.enter();
    assert!(engine.try_enter().is_none(), "not even the same thread");
    thread::scope(|scope| assert!(scope.spawn(|| engine.try_enter().is_none()).join().unwrap()));
    drop(by_bias);
    let (inside, leave) = (Barrier::new(2), Barrier::new(2));
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
