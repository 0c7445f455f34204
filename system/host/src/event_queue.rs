//! Events that a program reads one by one from a descriptor whose flags it may change: completion channels
//! and asynchronous events as in libibverbs.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A bounded queue with a descriptor that counts its events. Each read takes one event, and blocks if there
/// is none, unless the program has set `O_NONBLOCK`.
#[derive(Debug)]
pub struct EventQueue<T> {
    descriptor: OwnedFd,
    queue: Mutex<Queue<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<T>,
    limit: usize,
    lost: u64,
    /// Number of threads between reading the descriptor and taking from the queue.
    readers: u32,
}

impl<T> EventQueue<T> {
    /// Creates a queue for up to `limit` waiting events. Further events are counted and lost.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn new(limit: usize) -> io::Result<EventQueue<T>> {
        let descriptor = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        let queue = Queue { waiting: VecDeque::new(), limit, lost: 0, readers: 0 };
        Ok(EventQueue { descriptor, queue: Mutex::new(queue) })
    }

    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. It is lost if the queue is full.
    pub fn put(&self, event: T) {
        let mut queue = self.queue();
        if queue.waiting.len() >= queue.limit {
            queue.lost += 1;
            return;
        }
        queue.waiting.push_back(event);
        let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
    }

    /// Announces a thread that is about to read 8 bytes from the descriptor. Returns whether an event is
    /// available for the thread, so that the read will not block.
    pub fn begin_read(&self) -> bool {
        let mut queue = self.queue();
        queue.readers += 1;
        queue.waiting.len() >= queue.readers as usize
    }

    /// Ends a read, and takes the oldest event if the read has succeeded. `None` after a successful read
    /// means that the event was [withdrawn](EventQueue::withdraw); the thread must read once more.
    pub fn end_read(&self, succeeded: bool) -> Option<T> {
        let mut queue = self.queue();
        queue.readers = queue.readers.saturating_sub(1);
        if succeeded { queue.waiting.pop_front() } else { None }
    }

    /// Drops the events for which `dropped` returns true, and returns their number.
    pub fn withdraw(&self, dropped: impl Fn(&T) -> bool) -> usize {
        let mut queue = self.queue();
        let before = queue.waiting.len();
        queue.waiting.retain(|event| !dropped(event));
        let count = before - queue.waiting.len();
        // A thread in the middle of a read consumes the surplus itself. If there is none, the reads here
        // cannot block.
        for _ in 0..if queue.readers == 0 { count } else { 0 } {
            let mut ready = [PollFd::new(&self.descriptor, PollFlags::IN)];
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            if matches!(rustix::event::poll(&mut ready, Some(&none)), Ok(1)) {
                let _ = rustix::io::read(&self.descriptor, &mut [0u8; 8]);
            }
        }
        count
    }

    /// Returns the number of events that were lost because the queue was full.
    pub fn lost(&self) -> u64 {
        self.queue().lost
    }
}

impl<T> AsFd for EventQueue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(events: &EventQueue<u32>) -> bool {
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::new(events, PollFlags::IN)], Some(&none)) == Ok(1)
    }

    fn read(events: &EventQueue<u32>) -> Option<u32> {
        let _ = events.begin_read();
        let read = rustix::io::read(events, &mut [0u8; 8]);
        events.end_read(read == Ok(8))
    }

    #[test]
    fn each_read_takes_one_event_and_the_descriptor_shows_how_many_are_left() {
        let events = EventQueue::new(8).unwrap();
        (1..4).for_each(|event| events.put(event));
        assert_eq!([read(&events), read(&events)], [Some(1), Some(2)]);
        assert!(readable(&events));
        assert_eq!(read(&events), Some(3));
        assert!(!readable(&events));
    }

    #[test]
    fn a_read_waits_when_others_will_take_what_is_there() {
        let events = EventQueue::new(8).unwrap();
        assert!(!events.begin_read());
        events.put(1);
        assert!(!events.begin_read(), "the first reader holds the queue");
        events.put(2);
        assert_eq!([events.end_read(true), events.end_read(true)], [Some(1), Some(2)]);
        events.put(3);
        assert!(events.begin_read());
    }

    #[test]
    fn what_finds_the_queue_full_is_counted_and_lost() {
        let events = EventQueue::new(2).unwrap();
        (1..5).for_each(|event| events.put(event));
        assert_eq!(events.lost(), 2);
        assert_eq!([read(&events), read(&events)], [Some(1), Some(2)]);
        assert!(!readable(&events));
    }

    #[test]
    fn a_withdrawn_event_is_read_by_nobody() {
        let events = EventQueue::new(8).unwrap();
        (1..4).for_each(|event| events.put(event));
        assert_eq!(events.withdraw(|event| *event != 2), 2);
        assert_eq!(read(&events), Some(2));
        assert!(!readable(&events));
        // A thread in the middle of a read finds nothing, and must read once more.
        events.put(4);
        assert!(events.begin_read(), "an event is available");
        assert_eq!(rustix::io::read(&events, &mut [0u8; 8]), Ok(8));
        assert_eq!(events.withdraw(|_| true), 1);
        assert_eq!(events.end_read(true), None);
        assert!(!readable(&events));
    }
}
