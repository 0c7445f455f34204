//! Solicitation: bytes come only if the window has space for them (1RMA paper, §3.1, §4.3).
//!
//! Commands of this engine and writes that it serves wait in one of two lines, one for each class of service.
//! Only the heads are looked at. The head enters service while 4 KB of the window are free, whatever its
//! size, so that small operations do not keep large ones out; its real size is debited.

use std::collections::VecDeque;

use remora_wire::rma::{Class, MAX_OPERATION};

use super::Settings;
use crate::Instant;

/// Who waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// The command of this slot.
    Command(u16),
    /// The operation served in this slot.
    Served(u16),
}

/// An operation in line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which.
    pub party: Party,
    /// Its class.
    pub class: Class,
    /// Bytes that it debits; 0 needs no free window, only its turn.
    pub debit: u32,
    /// When it leaves the line without having entered service.
    pub until: Instant,
}

/// The window and both lines.
#[derive(Debug)]
pub struct Solicitation {
    size: u32,
    /// What the bulk class may have of it.
    bulk_size: u32,
    /// Does it have one operation's part, because one of the latency class entered service? Until when.
    is_held: bool,
    held_until: Instant,
    bulk_holdoff: u64,
    free: u32,
    /// Bytes debited by class.
    outstanding: [u32; 2],
    lines: [VecDeque<Waiting>; 2],
    capacity: usize,
}

impl Solicitation {
    /// With the whole window free.
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

    /// An operation waits behind those of its class.
    ///
    /// # Panics
    /// In debug builds, if more wait than there are slots.
    pub fn join(&mut self, waiting: Waiting) {
        let line = &mut self.lines[waiting.class as usize];
        debug_assert!(line.len() < self.capacity, "each slot waits once");
        // Only heads are looked at: nobody leaves before who is ahead.
        let until = line.back().map_or(waiting.until, |last| waiting.until.max(last.until));
        line.push_back(Waiting { until, ..waiting });
    }

    /// The operation that may enter service now. It stays in line until it [enters](Solicitation::enter).
    #[inline]
    pub fn next(&self) -> Option<Waiting> {
        let class = self.turn()?;
        let head = *self.lines[class as usize].front()?;
        (head.debit == 0 || self.free >= MAX_OPERATION).then_some(head)
    }

    /// Does an operation wait because the window is full, or its class's part?
    #[inline]
    pub fn is_full(&self) -> bool {
        self.next().is_none() && self.waiting() > 0
    }

    /// The class whose head is next: latency, unless bulk waits and has less than an eighth of the window.
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

    /// Is there a bulk operation, and does its class's part of the window have space for it?
    #[inline]
    fn bulk_may_enter(&self) -> bool {
        let outstanding = self.outstanding[Class::Bulk as usize];
        let fits = outstanding == 0 || !self.is_held && outstanding + MAX_OPERATION <= self.bulk_size;
        self.lines[Class::Bulk as usize].front().is_some_and(|head| fits || head.debit == 0)
    }

    /// It is `now`: what held the bulk class back may be over. Who waits for that has an operation in
    /// service, whose end calls for a look.
    #[inline]
    pub fn advance(&mut self, now: Instant) {
        self.is_held = self.is_held && now < self.held_until;
    }

    /// The operation that [`next`](Solicitation::next) returned enters service.
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

    /// What an operation debited is free again.
    ///
    /// # Panics
    /// In debug builds, if so much was not debited.
    pub fn refund(&mut self, class: Class, debit: u32) {
        debug_assert!(self.outstanding[class as usize] >= debit, "no more is refunded than was debited");
        self.free += debit;
        self.outstanding[class as usize] -= debit;
        self.check();
    }

    /// An operation leaves the line before its turn.
    pub fn leave(&mut self, party: Party) {
        self.lines.iter_mut().for_each(|line| line.retain(|waiting| waiting.party != party));
    }

    /// When the first operation has waited for too long.
    #[inline]
    pub fn deadline(&self) -> Instant {
        let until = |line: &VecDeque<Waiting>| line.front().map_or(Instant::NEVER, |head| head.until);
        until(&self.lines[0]).min(until(&self.lines[1]))
    }

    /// Takes an operation out of its line that has waited for too long at `now`. Those of one class wait for
    /// equally long, or for as long as who is ahead, so only the heads are looked at.
    pub fn expire(&mut self, now: Instant) -> Option<Waiting> {
        let line = self.lines.iter_mut().find(|line| line.front().is_some_and(|head| head.until <= now))?;
        line.pop_front()
    }

    /// Bytes of the window that are free.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Operations in both lines.
    pub fn waiting(&self) -> usize {
        self.lines[0].len() + self.lines[1].len()
    }

    /// The window is what is free and what is debited.
    ///
    /// # Panics
    /// In debug builds, if it is not.
    #[inline]
    pub fn check(&self) {
        let debited = self.outstanding[0] + self.outstanding[1];
        debug_assert_eq!(self.free + debited, self.size, "the window: free and debited");
    }
}
