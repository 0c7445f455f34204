//! Queues with descriptors that become readable: completion channels and asynchronous events.

use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{RecvFlags, SendFlags};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crate::event_queue::EventQueue;

/// A bounded queue with a descriptor that is readable while the queue is not empty.
#[derive(Debug)]
pub struct Signal<T> {
    descriptor: OwnedFd,
    queue: Mutex<Queue<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<T>,
    limit: usize,
    lost: u64,
}

impl<T> Signal<T> {
    /// Creates a queue for up to `limit` waiting items. Further items are counted and lost.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn new(limit: usize) -> io::Result<Signal<T>> {
        let descriptor = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Queue { waiting: VecDeque::with_capacity(limit), limit, lost: 0 };
        Ok(Signal { descriptor, queue: Mutex::new(queue) })
    }

    /// Adds an item and makes the descriptor readable. The item is lost if the queue is full.
    pub fn put(&self, item: T) {
        if self.offer(item).is_err() {
            self.queue.lock().unwrap_or_else(PoisonError::into_inner).lost += 1;
        }
    }

    /// Adds an item and makes the descriptor readable.
    ///
    /// # Errors
    /// Returns the item if the queue is full.
    pub fn offer(&self, item: T) -> Result<(), T> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.waiting.len() == queue.limit {
            return Err(item);
        }
        queue.waiting.push_back(item);
        if queue.waiting.len() == 1 {
            // Done under the lock, so that the descriptor is never unreadable while there is an item. A
            // full eventfd is readable as well.
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
        }
        Ok(())
    }

    /// Drops the items for which `keep` returns false.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let before = queue.waiting.len();
        queue.waiting.retain(keep);
        if before > 0 && queue.waiting.is_empty() {
            let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
        }
    }

    /// Takes the oldest item. Taking the last one makes the descriptor unreadable.
    pub fn take(&self) -> Option<T> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let item = queue.waiting.pop_front();
        if item.is_some() && queue.waiting.is_empty() {
            let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
        }
        item
    }

    /// Returns the number of items that were lost because the queue was full.
    pub fn lost(&self) -> u64 {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).lost
    }
}

impl<T> AsFd for Signal<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The path by which a program is informed which of its completion queues has a completion.
#[derive(Clone, Debug)]
pub enum Channel {
    /// A queue in this process.
    Here(Arc<Signal<u64>>),
    /// A socket to another process; each report is a packet of 8 bytes.
    There(Arc<OwnedFd>),
    /// Events in this process, read one by one.
    Counted(Arc<EventQueue<u64>>),
}

impl Channel {
    /// Reports a completion queue by its tag. Reports beyond the limit are lost if they are not taken.
    pub fn put(&self, tag: u64) {
        match self {
            Channel::Here(signal) => signal.put(tag),
            Channel::There(socket) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = rustix::net::send(socket, &tag.to_ne_bytes(), flags);
            }
            Channel::Counted(events) => events.put(tag),
        }
    }

    /// Takes the oldest report.
    pub fn take(&self) -> Option<u64> {
        match self {
            Channel::Here(signal) => signal.take(),
            Channel::There(socket) => {
                let mut tag = [0; 8];
                let (count, _) = rustix::net::recv(socket, &mut tag, RecvFlags::DONTWAIT).ok()?;
                (count == tag.len()).then(|| u64::from_ne_bytes(tag))
            }
            // The program reads these events from the descriptor.
            Channel::Counted(_) => None,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Channel::Here(signal) => signal.as_fd(),
            Channel::There(socket) => socket.as_fd(),
            Channel::Counted(events) => events.as_fd(),
        }
    }
}

/// Waits until one of two descriptors is readable.
///
/// # Errors
/// The errno of poll(2).
pub fn wait_either(one: &impl AsFd, other: &impl AsFd) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags};
    rustix::event::poll(&mut [PollFd::new(one, PollFlags::IN), PollFd::new(other, PollFlags::IN)], None)?;
    Ok(())
}

/// Waits until one of several descriptors is readable, or the time has passed.
///
/// # Errors
/// The errno of poll(2), except for an interruption.
pub fn wait_any(descriptors: &[BorrowedFd<'_>], timeout: std::time::Duration) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut waited: Vec<PollFd<'_>> =
        descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    match rustix::event::poll(&mut waited, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until `descriptor` is readable. Returns false if the time has passed.
///
/// # Errors
/// The errno of poll(2), except for an interruption.
pub fn wait_readable(descriptor: BorrowedFd<'_>, timeout: Option<std::time::Duration>) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let deadline = timeout.map(|timeout| std::time::Instant::now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(std::time::Instant::now()));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], left.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn readable<T>(signal: &Signal<T>) -> bool {
        wait_readable(signal.as_fd(), Some(Duration::ZERO)).unwrap()
    }

    #[test]
    fn readable_exactly_while_something_waits() {
        let signal = Signal::new(4).unwrap();
        assert!(!readable(&signal));
        signal.put(1);
        signal.put(2);
        assert!(readable(&signal));
        assert_eq!(signal.take(), Some(1));
        assert!(readable(&signal));
        assert_eq!(signal.take(), Some(2));
        assert!(!readable(&signal));
        assert_eq!(signal.take(), None);
    }

    #[test]
    fn at_the_bound_items_are_counted_and_lost() {
        let signal = Signal::new(2).unwrap();
        for item in 0..5 {
            signal.put(item);
        }
        assert_eq!((signal.take(), signal.take(), signal.take(), signal.lost()), (Some(0), Some(1), None, 3));
        assert!(!readable(&signal));
    }
}
