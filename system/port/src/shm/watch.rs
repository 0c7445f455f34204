//! The descriptors of links that the OS watches, and the fence that makes sleeping safe.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, fence};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

use super::link::Wires;

/// Number of events taken from the OS at a time.
pub(super) const BATCH: usize = 32;

/// An epoll set over the links of a port: one descriptor to sleep on, and one system call that finds the
/// peers that are gone.
#[derive(Debug)]
pub(super) struct Watch {
    epoll: OwnedFd,
    /// True if a sleeper can make the stores of running peers visible (membarrier).
    fenced: bool,
}

/// An event of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum LinkEvent {
    /// The peer of this link woke this port.
    Woken(u32),
    /// The peer of this link is gone.
    Gone(u32),
}

impl Watch {
    pub(super) fn new() -> Result<Watch, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // The registration makes the stores of *this* process visible to peers that go to sleep.
        let fenced = membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok();
        Ok(Watch { epoll, fenced })
    }

    /// Watches the descriptors of link `index`.
    pub(super) fn add(&self, index: u32, wires: &Wires) -> Result<(), Errno> {
        let woken = u64::from(index) << 1;
        let gone = u64::from(index) << 1 | 1;
        epoll::add(&self.epoll, &wires.wake_self, EventData::new_u64(woken), EventFlags::IN)?;
        let socket = epoll::add(&self.epoll, &wires.socket, EventData::new_u64(gone), EventFlags::RDHUP);
        let process = wires.process.as_ref().map_or(Ok(()), |process| {
            epoll::add(&self.epoll, process, EventData::new_u64(gone), EventFlags::IN)
        });
        socket.and(process).inspect_err(|_| self.remove(wires))
    }

    /// Stops watching the descriptors of a link. Needed before they are closed: the peer holds the same
    /// eventfd, so closing this process's descriptor would not remove it from the set.
    pub(super) fn remove(&self, wires: &Wires) {
        // Errors mean that a descriptor is not in the set, and are harmless.
        let _ = epoll::delete(&self.epoll, &wires.wake_self);
        let _ = epoll::delete(&self.epoll, &wires.socket);
        if let Some(process) = &wires.process {
            let _ = epoll::delete(&self.epoll, process);
        }
    }

    /// Calls `on` for each event that has happened, without waiting. Returns whether there may be more.
    pub(super) fn look(&self, mut on: impl FnMut(LinkEvent)) -> Result<bool, Errno> {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; BATCH];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (seen, _) = match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Err(Errno::INTR) => return Ok(true),
            waited => waited?,
        };
        for event in &*seen {
            let data = event.data.u64();
            let index = (data >> 1) as u32;
            on(if data & 1 == 0 { LinkEvent::Woken(index) } else { LinkEvent::Gone(index) });
        }
        Ok(seen.len() == BATCH)
    }

    #[cfg(test)]
    pub(super) fn is_fenced(&self) -> bool {
        self.fenced
    }

    pub(super) fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Orders the sleeper's flags before its last look at the rings, against running producers, which
    /// publish and then check the flag. The producers therefore need no fence of their own. Called after
    /// the flags are set and before that last look. Without membarrier a wake can be missed; the sleeper's
    /// timer then finds the frame.
    pub(super) fn settle(&self) {
        if !self.fenced || membarrier(MembarrierCommand::GlobalExpedited).is_err() {
            fence(Ordering::SeqCst);
        }
    }
}
