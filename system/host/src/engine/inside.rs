//! Access for callers that touch queues themselves, inside the engine's lock. Several threads may thus post
//! to one queue pair and poll one completion queue without a lock in addition to the engine's.

use remora_memory::{Mem, Reentered};
use remora_nic::{Command, CommandError, CommandFault, FromReply, HandedPart, PartNumber, Reply};
use remora_port::Port;
use remora_transport::Instant;
use remora_transport::state::State;
use remora_wire::Qpn;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::Engine;
use crate::attach::Attach;
use crate::pass::{self, Core};

/// An engine whose lock the calling thread holds. No other thread touches its queues meanwhile.
pub struct Inside<'a> {
    engine: &'a Engine,
    driven: &'a mut dyn Driven,
    mem: Mem<'a>,
}

/// The operations of a core, whatever its port is. The type is erased once per call, never per packet.
trait Driven {
    fn qp_state(&self, qp: Qpn) -> Option<State>;
    fn hand(&mut self, part: HandedPart) -> PartNumber;
    fn execute(&mut self, mem: Mem<'_>, command: Command) -> Result<Reply, CommandError>;
    fn post(&mut self, mem: Mem<'_>, qp: Qpn);
    fn polled(&mut self, mem: Mem<'_>);
    fn notify(&mut self);
    fn await_port(&mut self, mem: Mem<'_>, descriptors: &mut Vec<RawFd>) -> bool;
    fn now(&self) -> Instant;
}

impl<P: Port + Attach> Driven for Core<P> {
    fn qp_state(&self, qp: Qpn) -> Option<State> {
        self.nic.qp_state(qp)
    }

    fn hand(&mut self, part: HandedPart) -> PartNumber {
        pass::hand(&mut self.nic, &mut self.port, part)
    }

    fn execute(&mut self, mem: Mem<'_>, command: Command) -> Result<Reply, CommandError> {
        let now = self.clock.now();
        pass::execute(&mut self.nic, &mut self.port, now, mem, command)
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
        // The last wait may have armed the port; the wake must be consumed before the port is polled.
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
    /// Returns whether this is the lock of `engine`.
    #[inline]
    pub fn is_of(&self, engine: &Engine) -> bool {
        std::ptr::eq(self.engine, engine)
    }

    /// Returns the state of a queue pair; `None` if there is no such queue pair.
    #[inline]
    pub fn qp_state(&self, qp: Qpn) -> Option<State> {
        self.driven.qp_state(qp)
    }

    /// Hands memory or code to the NIC and returns its number, which a later command names.
    pub fn hand(&mut self, part: impl Into<HandedPart>) -> PartNumber {
        self.driven.hand(part.into())
    }

    /// Executes a command on the NIC and returns the value that its reply carries.
    ///
    /// # Errors
    /// The refusal of the NIC, which has changed nothing then.
    pub fn ask<T: FromReply>(&mut self, command: Command) -> Result<T, CommandError> {
        let kind = command.kind();
        let reply = self.driven.execute(self.mem, command)?;
        T::from_reply(reply).ok_or(CommandError { kind, fault: CommandFault::Reply })
    }

    /// Informs the engine that work was posted to a queue of `qp`. Packets that can be sent are sent.
    #[inline]
    pub fn ring(&mut self, qp: Qpn) {
        self.driven.post(self.mem, qp);
    }

    /// Makes one pass, for a caller that found nothing in its completion queue.
    #[inline]
    pub fn pass(&mut self) {
        self.driven.polled(self.mem);
    }

    /// Makes a pass, for a caller that is about to wait for packets itself. Appends the descriptors that
    /// become readable with the next packet. Returns false if there is work already, so that the caller
    /// must not wait. [`Engine::end_await`] ends the wait; until then packets wake no other thread.
    ///
    /// Only for ports whose descriptors show each packet by themselves: `udp`, and its links once the port
    /// is armed.
    pub fn await_port(&mut self, descriptors: &mut Vec<RawFd>) -> bool {
        let waits = self.driven.await_port(self.mem, descriptors);
        self.engine.awaited.store(waits, Ordering::SeqCst);
        waits
    }

    /// Notifies channels of the changes that the caller made.
    pub fn notify(&mut self) {
        self.driven.notify();
    }

    /// Returns the time of the engine's clock.
    pub fn now(&self) -> Instant {
        self.driven.now()
    }
}

impl Engine {
    /// Calls `touch` inside the lock. `touch` must be short, and must not call this engine.
    ///
    /// # Errors
    /// [`Reentered`] if the calling thread is already inside the engine.
    #[inline]
    pub fn inside<R>(&self, touch: impl FnOnce(&mut Inside<'_>) -> R) -> Result<R, Reentered> {
        super::each!(self, cell => {
            self.enter_once(cell, |core, mem| touch(&mut Inside { engine: self, driven: core, mem }))
        })
    }
}
