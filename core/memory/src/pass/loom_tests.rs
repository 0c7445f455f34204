//! The lock protocol under loom, which explores the interleavings and reorderings that the memory model
//! allows.
//!
//! loom does not know membarrier. A SeqCst fence on both sides stands in for it (`barrier`) and gives the
//! same guarantee: of two threads that each store and then load across their fence, one sees the other's
//! store. The model cannot show that the kernel keeps this guarantee.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc as LoomArc;
use loom::thread;

/// The state that the lock protects. loom fails the model if two threads access a cell at the same time or
/// unordered.
struct World {
    passes: Passes,
    pass: std::sync::Arc<Pass>,
    state: UnsafeCell<u64>,
    key: AtomicU64,
    memory: UnsafeCell<u64>,
}

// SAFETY: this is the property that the models check.
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
        // SAFETY: loom checks that no other thread is inside.
        self.state.with_mut(|state| unsafe { *state += 1 });
    }

    fn enter(&self) {
        let _inside = self.pass.enter();
        self.bump();
    }

    /// Uses a key as the data path does.
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

    /// Deregisters the key and then overwrites the memory, as its owner may.
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

/// Three threads: the owner, a visitor, a deregistration. Only one of them may wait by yielding, because
/// loom lets two such threads yield to each other forever and never runs the third.
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
