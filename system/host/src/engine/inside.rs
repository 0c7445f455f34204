//! Callers that touch queues themselves, inside the engine's lock. So several threads may post to one queue
//! pair and poll one completion queue, and pay for no lock beside the engine's.

use remora_memory::{Mem, Reentered};
use remora_nic::Nic;
use remora_port::Port;
use remora_transport::Instant;
use remora_wire::Qpn;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::Engine;
use crate::attach::Attach;
use crate::pass::Core;

/// An engine whose lock the calling thread has. Nobody else touches its queues meanwhile.
pub struct Inside<'a> {
    engine: &'a Engine,
    driven: &'a mut dyn Driven,
    mem: Mem<'a>,
}

/// The steps of a core, whatever its port is. The type is erased once per call, never per packet.
trait Driven {
    fn nic(&mut self) -> &mut Nic;
    fn post(&mut self, mem: Mem<'_>, qp: Qpn);
    fn polled(&mut self, mem: Mem<'_>);
    fn notify(&mut self);
    fn await_port(&mut self, mem: Mem<'_>, descriptors: &mut Vec<RawFd>) -> bool;
    fn now(&self) -> Instant;
}

impl<P: Port + Attach> Driven for Core<P> {
    fn nic(&mut self) -> &mut Nic {
        &mut self.nic
    }

    fn post(&mut self, mem: Mem<'_>, qp: Qpn) {
        Core::post(self, mem, qp);
    }

    fn polled(&mut self, mem: Mem<'_>) {
        Core::polled(self, mem);
    }

    fn notify(&mut self) {
        Core::notify(self);
    }

    fn await_port(&mut self, mem: Mem<'_>, descriptors: &mut Vec<RawFd>) -> bool {
        // The last wait may have armed it, and whatever woke it is to be seen as taken.
        self.port.disarm();
        Core::polled(self, mem);
        self.port.poll_fds(descriptors);
        !self.port.arm()
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }
}

impl Inside<'_> {
    /// Is it this engine's lock?
    #[inline]
    pub fn is_of(&self, engine: &Engine) -> bool {
        std::ptr::eq(self.engine, engine)
    }

    /// The NIC itself.
    #[inline]
    pub fn nic(&mut self) -> &mut Nic {
        self.driven.nic()
    }

    /// Work was posted to a queue of `qp`: packets that can leave then leave.
    #[inline]
    pub fn ring(&mut self, qp: Qpn) {
        self.driven.post(self.mem, qp);
    }

    /// One pass, for a caller that found nothing in its completion queue.
    #[inline]
    pub fn pass(&mut self) {
        self.driven.polled(self.mem);
    }

    /// Makes a pass, for a caller that is about to wait for packets itself. Appends the descriptors that
    /// become readable with the next one. False: there is work already, so wait for nothing.
    /// [`Engine::end_await`] ends the wait; until then packets wake no other thread.
    ///
    /// Only for a port whose descriptors show each packet by themselves: `udp`, and its links once it is
    /// armed.
    pub fn await_port(&mut self, descriptors: &mut Vec<RawFd>) -> bool {
        let waits = self.driven.await_port(self.mem, descriptors);
        self.engine.awaited.store(waits, Ordering::SeqCst);
        waits
    }

    /// Notifies channels of what the caller has changed.
    pub fn notify(&mut self) {
        self.driven.notify();
    }

    /// The time of the engine's clock.
    pub fn now(&self) -> Instant {
        self.driven.now()
    }
}

impl Engine {
    /// Calls `touch` inside the lock. It must be short, and must not call this engine again.
    ///
    /// # Errors
    /// The calling thread is inside the engine already.
    #[inline]
    pub fn inside<R>(&self, touch: impl FnOnce(&mut Inside<'_>) -> R) -> Result<R, Reentered> {
        super::each!(self, cell => {
            self.enter_once(cell, |core, mem| touch(&mut Inside { engine: self, driven: core, mem }))
        })
    }
}
