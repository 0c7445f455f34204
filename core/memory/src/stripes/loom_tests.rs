//! The locks under loom, with real passes where the flag is raised.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc as LoomArc;
use loom::thread;

/// The state that the locks protect: a cell that loom watches, and words that a reader may read without a
/// lock.
struct World {
    memory: UnsafeCell<u64>,
    words: [AtomicU64; 2],
}

// SAFETY: this is the property that the models check.
unsafe impl Sync for World {}
// SAFETY: plain data.
unsafe impl Send for World {}

impl World {
    fn new() -> World {
        World { memory: UnsafeCell::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn bump(&self) {
        // SAFETY: loom checks that no other thread accesses the cell.
        self.memory.with_mut(|memory| unsafe { *memory += 1 });
    }

    fn bumps(&self) -> u64 {
        // SAFETY: as in `bump`.
        self.memory.with(|memory| unsafe { *memory })
    }

    /// An operation of a pass.
    fn operate(&self) {
        let _alone = hold(std::ptr::null(), 8);
        self.bump();
    }
}

#[test]
fn loom_holders_exclude_each_other_whichever_locks_they_take() {
    loom::model(|| {
        let world = LoomArc::new(World::new());
        let other = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || {
                // These two bytes need both locks.
                let _alone = hold_both(BLOCK - 1, 2);
                world.bump();
            })
        };
        {
            let _alone = hold_both(2 * BLOCK - 1, 2);
            world.bump();
        }
        alone(std::ptr::null(), || world.bump());
        other.join().unwrap();
        assert_eq!(world.bumps(), 3);
    });
}

#[test]
fn loom_a_reader_sees_one_moment_and_never_an_earlier_one() {
    loom::model(|| {
        let world = LoomArc::new(World::new());
        let writer = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || {
                let _alone = hold_both(0, 32);
                world.words[0].store(1, Ordering::Relaxed);
                world.words[1].store(1, Ordering::Relaxed);
            })
        };
        let read = |at: usize| world.words[at].load(Ordering::Relaxed);
        let (a, b) = look(std::ptr::null(), 32, true, || (read(0), read(1)));
        assert_eq!(a, b, "a torn value was read");
        let again = look(std::ptr::null(), 8, true, || read(1));
        assert!(again >= a, "an old value was read after a new one");
        writer.join().unwrap();
    });
}

/// An engine at work, while another thread creates the second engine and works with that.
#[test]
fn loom_a_second_engine_meets_no_operation_without_a_lock() {
    loom::model(|| {
        let passes = Passes::new();
        let demand = Demand::default();
        let first = demand.add(&passes);
        demand.use_wide(&passes);
        let world = LoomArc::new((World::new(), passes, demand));
        let other = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || {
                let (memory, passes, demand) = &*world;
                let second = demand.add(passes);
                let _inside = second.enter();
                memory.operate();
            })
        };
        for _ in 0..2 {
            let _inside = first.enter();
            world.0.operate();
        }
        other.join().unwrap();
        assert_eq!(world.0.bumps(), 3);
    });
}
