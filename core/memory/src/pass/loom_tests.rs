//! The lock protocol under loom, which tries the interleavings and the reorderings that the memory model
//! allows.
//!
//! loom knows no membarrier. Its stand-in is a SeqCst fence on both sides (`barrier`), which makes the same
//! promise. Of two threads that each store and then load across their fence, one sees the other's store. The
//! model cannot show that the kernel keeps this promise.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc as LoomArc;
use loom::thread;

/// What the lock protects; loom fails the model if two threads reach the cell at once or unordered.
struct World {
    passes: Passes,
    pass: std::sync::Arc<Pass>,
    state: UnsafeCell<u64>,
    key: AtomicU64,
    memory: UnsafeCell<u64>,
}

// SAFETY: that this holds is what the models check.
unsafe impl Sync for World {}
// SAFETY: plain data.
unsafe impl Send for World {}

impl World {
    fn new() -> LoomArc<World> {
        let passes = Passes::new();
        let pass = passes.add();
        LoomArc::new(World {
            passes,
            pass,
            state: UnsafeCell::new(0),
            key: AtomicU64::new(1),
            memory: UnsafeCell::new(0),
        })
    }

    fn bump(&self) {
        // SAFETY: loom checks that nobody else is inside.
        self.state.with_mut(|state| unsafe { *state += 1 });
    }

    fn enter(&self) {
        let _inside = self.pass.enter();
        self.bump();
    }

    /// What the data path does with a key.
    fn touch(&self) {
        let _inside = self.pass.enter();
        self.touch_inside();
    }

    fn touch_inside(&self) {
        if self.key.load(Ordering::Acquire) == 1 {
            // SAFETY: loom checks that the deregistration has not returned.
            self.memory.with(|memory| assert_eq!(unsafe { *memory }, 0));
        }
    }

    /// What a deregistration does, and the owner of the memory after it.
    fn deregister_and_poison(&self) {
        self.key.store(0, Ordering::SeqCst);
        self.passes.quiesce();
        // SAFETY: loom checks that no pass touches it.
        self.memory.with_mut(|memory| unsafe { *memory = u64::MAX });
    }
}

fn explore(body: impl Fn() + Send + Sync + 'static) {
    loom::model(body);
}

#[test]
fn loom_owner_and_another_exclude_each_other() {
    explore(|| {
        let world = World::new();
        // The main thread gets the bias.
        world.enter();
        let other = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || world.enter())
        };
        world.enter();
        world.enter();
        other.join().unwrap();
        world.enter();
        // SAFETY: the other thread is gone.
        world.state.with(|state| assert_eq!(unsafe { *state }, 5));
    });
}

#[test]
fn loom_a_visitor_gets_in_only_when_nobody_is_inside() {
    explore(|| {
        let world = World::new();
        world.enter();
        let visitor = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || match world.pass.try_enter() {
                Some(_inside) => {
                    world.bump();
                    1
                }
                None => 0,
            })
        };
        world.enter();
        world.enter();
        let visits = visitor.join().unwrap();
        // SAFETY: the other thread is gone.
        world.state.with(|state| assert_eq!(unsafe { *state }, 3 + visits));
    });
}

#[test]
fn loom_nothing_is_touched_after_deregistration() {
    explore(|| {
        let world = World::new();
        world.enter();
        let deregistration = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || world.deregister_and_poison())
        };
        world.touch();
        world.touch();
        deregistration.join().unwrap();
    });
}

/// The deregistering thread first takes the bias away.
#[test]
fn loom_deregistration_after_a_revocation() {
    explore(|| {
        let world = World::new();
        world.enter();
        let other = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || {
                world.touch();
                world.deregister_and_poison();
            })
        };
        world.touch();
        world.touch();
        other.join().unwrap();
    });
}

/// Three threads: the owner, a visitor, a deregistration. Only one of them may wait by yielding. loom lets
/// two such threads yield to each other for ever and never runs the third, which could end it.
#[test]
fn loom_deregistration_beside_a_visitor() {
    explore(|| {
        let world = World::new();
        world.enter();
        let visitor = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || {
                if let Some(_inside) = world.pass.try_enter() {
                    world.touch_inside();
                }
            })
        };
        let deregistration = {
            let world = LoomArc::clone(&world);
            thread::spawn(move || world.deregister_and_poison())
        };
        {
            let _inside = world.pass.enter();
            world.touch_inside();
        }
        visitor.join().unwrap();
        deregistration.join().unwrap();
    });
}
