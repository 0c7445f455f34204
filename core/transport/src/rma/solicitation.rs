//! Solicitation: data may be sent to this engine only if its window has space (1RMA paper, §3.1, §4.3).
//!
//! Commands of this engine and writes that it serves wait in two queues, one per class of service. Only the
//! heads are considered. A head enters service if 4 KB of the window are free, whatever its size, so that
//! small operations cannot starve large ones. Its actual size is debited.

use std::collections::VecDeque;

use remora_wire::rma::{Class, MAX_OPERATION};

use super::Settings;
use crate::Instant;

/// The operation that waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// The command of this slot.
    Command(u16),
    /// The operation served in this slot.
    Served(u16),
}

/// An operation in a queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Operation that is executed.
    pub party: Party,
    /// Class of service.
    pub class: Class,
    /// Bytes to debit; 0 needs no window but still waits its turn.
    pub debit: u32,
    /// Time at which the operation leaves the queue without having entered service.
    pub until: Instant,
}

/// The window and both queues.
#[derive(Debug)]
pub struct Solicitation {
    size: u32,
    /// Part of the window that the bulk class may use.
    bulk_size: u32,
    /// True while a recent latency operation limits the bulk class to one operation, until `held_until`.
    is_held: bool,
    held_until: Instant,
    bulk_holdoff: u64,
    free: u32,
    /// Bytes debited, by class.
    outstanding: [u32; 2],
    lines: [VecDeque<Waiting>; 2],
    capacity: usize,
}

impl Solicitation {
    /// Returns a solicitation whose window is free.
    pub fn new(settings: &Settings) -> Solicitation {
        let capacity = usize::from(settings.slots) + usize::from(settings.served);
        Solicitation {
            size: settings.window,
            bulk_size: settings.bulk_window,
            is_held: false,
            held_until: Instant(0),
            bulk_holdoff: settings.bulk_holdoff,
            free: settings.window,
            outstanding: [0; 2],
            lines: [VecDeque::with_capacity(capacity), VecDeque::with_capacity(capacity)],
            capacity,
        }
    }

    /// Appends an operation to the queue of its class.
    ///
    /// # Panics
    /// In debug builds, if more operations wait than there are slots.
    pub fn join(&mut self, waiting: Waiting) {
        let line = &mut self.lines[waiting.class as usize];
        debug_assert!(line.len() < self.capacity, "each slot waits at most once");
        // Only heads are considered, so no operation leaves before its predecessors.
        let until = line.back().map_or(waiting.until, |last| waiting.until.max(last.until));
        line.push_back(Waiting { until, ..waiting });
    }

    /// Returns the operation that may enter service now. It stays in its queue until
    /// [`enter`](Solicitation::enter).
    #[inline]
    pub fn next(&self) -> Option<Waiting> {
        let class = self.turn()?;
        let head = *self.lines[class as usize].front()?;
        (head.debit == 0 || self.free >= MAX_OPERATION).then_some(head)
    }

    /// Returns true if an operation waits because the window, or the part of its class, is full.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.next().is_none() && self.waiting() > 0
    }

    /// Returns the class whose head is next: latency, unless a bulk operation waits and bulk has less than
    /// an eighth of the window.
    #[inline]
    fn turn(&self) -> Option<Class> {
        let latency = !self.lines[Class::Latency as usize].is_empty();
        match (latency, self.bulk_may_enter()) {
            (false, false) => None,
            (false, true) => Some(Class::Bulk),
            (true, true) if self.outstanding[Class::Bulk as usize] < self.size / 8 => Some(Class::Bulk),
            (true, _) => Some(Class::Latency),
        }
    }

    /// Returns true if a bulk operation waits and its part of the window has space.
    #[inline]
    fn bulk_may_enter(&self) -> bool {
        let outstanding = self.outstanding[Class::Bulk as usize];
        let fits = outstanding == 0 || !self.is_held && outstanding + MAX_OPERATION <= self.bulk_size;
        self.lines[Class::Bulk as usize].front().is_some_and(|head| fits || head.debit == 0)
    }

    /// Ends the hold on the bulk class if its time has passed at `now`. While the hold lasts a bulk
    /// operation is in service, and its end leads to another call.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        self.is_held = self.is_held && now < self.held_until;
    }

    /// Moves the operation that [`next`](Solicitation::next) returned into service.
    pub fn enter(&mut self, now: Instant) -> Option<Waiting> {
        let head = self.next()?;
        self.lines[head.class as usize].pop_front();
        if head.class == Class::Latency && self.bulk_holdoff > 0 {
            self.is_held = true;
            self.held_until = now.after(self.bulk_holdoff);
        }
        self.free -= head.debit;
        self.outstanding[head.class as usize] += head.debit;
        Some(head)
    }

    /// Returns the bytes that an operation debited to the window.
    ///
    /// # Panics
    /// In debug builds, if fewer bytes were debited.
    pub fn refund(&mut self, class: Class, debit: u32) {
        debug_assert!(self.outstanding[class as usize] >= debit, "refunded bytes were debited");
        self.free += debit;
        self.outstanding[class as usize] -= debit;
        self.check();
    }

    /// Removes an operation from its queue.
    pub fn leave(&mut self, party: Party) {
        self.lines.iter_mut().for_each(|line| line.retain(|waiting| waiting.party != party));
    }

    /// Returns the earliest time at which an operation must leave its queue.
    #[inline]
    pub fn deadline(&self) -> Instant {
        let until = |line: &VecDeque<Waiting>| line.front().map_or(Instant::NEVER, |head| head.until);
        until(&self.lines[0]).min(until(&self.lines[1]))
    }

    /// Removes one operation that has waited too long at `now`. No operation expires before its
    /// predecessors, so only the heads are checked.
    pub fn expire(&mut self, now: Instant) -> Option<Waiting> {
        let line = self.lines.iter_mut().find(|line| line.front().is_some_and(|head| head.until <= now))?;
        line.pop_front()
    }

    /// Returns the free bytes of the window.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Returns the number of operations in both queues.
    pub fn waiting(&self) -> usize {
        self.lines[0].len() + self.lines[1].len()
    }

    /// Asserts that free and debited bytes add up to the window.
    ///
    /// # Panics
    /// In debug builds, if the numbers differ.
    #[inline]
    pub fn check(&self) {
        let debited = self.outstanding[0] + self.outstanding[1];
        debug_assert_eq!(self.free + debited, self.size, "free and debited bytes add up to the window");
    }
}
