//! Cooperation of callers and the attendant while a program spins on memory and packets wake the attendant.
//! If a caller is inside at that moment, the attendant leaves the packets to it and continues to sleep.

use remora_memory::{Biased, Mem, Reentered};
use remora_port::Port;
use std::sync::atomic::{Ordering, fence};

use super::{Engine, each};
use crate::attach::Attach;
use crate::pass::Core;
use crate::watch::Begun;

/// Number of times that a caller takes what the attendant left to it before it goes on, because packets may
/// keep arriving.
const TAKEN: u32 = 4;

impl Engine {
    /// Enters like [`enter_once`](Engine::enter_once), while the attendant works in addition to callers.
    #[cold]
    pub(super) fn enter_attended<P: Port + Attach>(
        &self,
        cell: &Biased<Core<P>>,
        touch: &mut dyn FnMut(&mut Core<P>, Mem<'_>),
    ) -> Result<(), Reentered> {
        self.callers.fetch_add(1, Ordering::SeqCst);
        let guard = cell.enter_once();
        self.callers.fetch_sub(1, Ordering::SeqCst);
        let mut guard = guard?;
        let (core, mem) = guard.parts();
        touch(core, mem);
        drop(guard);
        self.take_left(cell);
        Ok(())
    }

    /// Called when a caller leaves the engine: takes the packets that the attendant left to it meanwhile,
    /// and watches the port again.
    fn take_left<P: Port + Attach>(&self, cell: &Biased<Core<P>>) {
        // Either the attendant sets the flag and then finds the engine free, or this thread leaves the
        // engine and then sees the flag.
        fence(Ordering::SeqCst);
        if !self.left_to_caller.swap(false, Ordering::SeqCst) {
            return;
        }
        let Ok(mut guard) = cell.enter_once() else { return };
        let (core, mem) = guard.parts();
        let has_work = |core: &mut Core<P>| core.watch.stays() && core.rest(mem, true).0 == Begun::Work;
        let ended = (0..TAKEN).any(|_| !has_work(core));
        drop(guard);
        if !ended {
            self.call();
        }
    }

    /// Leaves waiting packets to the caller that is inside. Returns false if no caller is, so that the
    /// attendant must take them.
    pub(crate) fn leave_to_caller(&self) -> bool {
        self.left_to_caller.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let inside = each!(self, cell => cell.try_enter().is_none());
        if !inside {
            self.left_to_caller.store(false, Ordering::SeqCst);
        }
        inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortConfig;
    use crate::adapter::{Adapter, Config};

    /// Returns whether this holds at one of many moments. The adapter's own attendant may be at work at
    /// some of them.
    fn happens(mut holds: impl FnMut() -> bool) -> bool {
        (0..1000).any(|_| holds())
    }

    #[test]
    fn what_is_left_to_a_caller_is_taken_when_it_leaves() {
        let adapter = Adapter::open(&Config::new(PortConfig::shm())).unwrap();
        let engine = &adapter.engines()[0];
        let left_inside = || {
            engine.attended.store(true, Ordering::SeqCst);
            let leave =
                || std::thread::scope(|scope| scope.spawn(|| engine.leave_to_caller()).join().unwrap());
            let left = engine.inside(|_| leave() && engine.left_to_caller.load(Ordering::SeqCst)).unwrap();
            assert!(left, "a caller was inside");
            !engine.left_to_caller.load(Ordering::SeqCst)
        };
        assert!(happens(left_inside), "the caller takes the engine over");
        assert!(happens(|| !engine.leave_to_caller()), "no thread is inside the engine");
        assert!(!engine.left_to_caller.load(Ordering::SeqCst));
    }
}
