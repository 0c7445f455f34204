//! The receiver's side of request packets: what has arrived, in order and ahead of it (IRN paper, §3.1, §5,
//! §6.1).
//!
//! Two bitmaps say of each packet ahead whether it is there and what it ends: `10` within a message, `01` the
//! last packet of a message, `11` the last packet of a message that brings a completion, `00` missing. So the
//! message sequence number and the completions follow the order of the packets, however these arrive.

use super::bitmap::Bitmap;
use crate::rc::Seq;
use remora_wire::{Opcode, Operation, Service};

/// What a request packet ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    /// Nothing: it is the first or a middle packet.
    Nothing,
    /// A message that the consumer of the receive queue learns nothing of: WRITE, READ, atomic.
    Message,
    /// A message that ends with a completion there: SEND, WRITE with immediate data.
    Completion,
}

impl Ends {
    /// By the op-code of a request.
    #[inline]
    pub fn of(opcode: Opcode) -> Ends {
        let ends = opcode.service() == Some(Service::Rc)
            && opcode.is_request()
            && (opcode.is_last() || opcode.is_only());
        match opcode.operation() {
            _ if !ends => Ends::Nothing,
            Some(Operation::Send) => Ends::Completion,
            Some(Operation::Write) if opcode.has_imm() => Ends::Completion,
            _ => Ends::Message,
        }
    }
}

/// Where a packet stands to what has arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The one expected.
    Next,
    /// Ahead of a gap.
    Ahead,
    /// Ahead of a gap, and there already.
    Again,
    /// Before the one expected.
    Behind,
    /// Further ahead than the bitmaps reach.
    Beyond,
}

/// Where `seq` stands to `expected` when `size` packets can be remembered and `there` says which are.
#[inline]
pub(super) fn place(seq: Seq, expected: Seq, size: u64, there: impl FnOnce(Seq) -> bool) -> Place {
    if seq == expected {
        Place::Next
    } else if seq < expected {
        Place::Behind
    } else if seq - expected >= size {
        Place::Beyond
    } else if there(seq) {
        Place::Again
    } else {
        Place::Ahead
    }
}

/// What the receiver answers to one arrival.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// A NACK: the packet arrived out of order.
    pub nack: bool,
    /// The packet expected next: the cumulative acknowledgement.
    pub expected: Seq,
    /// The packet that arrived.
    pub sack: Seq,
    /// Message sequence number.
    pub msn: u32,
    /// Completions that this arrival released.
    pub completions: u32,
}

/// The receiving half of a request sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    expected: Seq,
    msn: u32,
    one: Bitmap,
    two: Bitmap,
}

impl Receiver {
    /// A receiver that expects `first` and remembers `size` packets ahead.
    pub fn new(first: Seq, size: u32) -> Receiver {
        Receiver { expected: first, msn: 0, one: Bitmap::new(size), two: Bitmap::new(size) }
    }

    /// The packet that comes next in order.
    #[inline]
    pub fn expected(&self) -> Seq {
        self.expected
    }

    /// Packets that it remembers, the expected one included.
    #[inline]
    pub fn reach(&self) -> u32 {
        self.one.size() as u32
    }

    /// Message sequence number: messages that have ended in order, 24 bits.
    #[inline]
    pub fn msn(&self) -> u32 {
        self.msn
    }

    /// Are there packets ahead of a gap?
    #[inline]
    pub fn has_ahead(&self) -> bool {
        self.one.ones() + self.two.ones() > 0
    }

    /// Where a packet stands.
    #[inline]
    pub fn place(&self, seq: Seq) -> Place {
        place(seq, self.expected, self.one.size(), |seq| self.one.get(seq) || self.two.get(seq))
    }

    /// Remembers a packet that is [`Place::Next`] or [`Place::Ahead`].
    #[inline]
    pub fn mark(&mut self, seq: Seq, ends: Ends) {
        debug_assert!(
            seq.wrapping_sub(self.expected) < self.one.size(),
            "a packet that is remembered lies within the bitmaps: {seq}, {} expected",
            self.expected
        );
        if ends != Ends::Message {
            self.one.set(seq);
        }
        if ends != Ends::Nothing {
            self.two.set(seq);
        }
    }

    /// The packet expected next, if it is there.
    #[inline]
    pub fn front(&self) -> Option<Ends> {
        match (self.one.get(self.expected), self.two.get(self.expected)) {
            (false, false) => None,
            (true, false) => Some(Ends::Nothing),
            (false, true) => Some(Ends::Message),
            (true, true) => Some(Ends::Completion),
        }
    }

    /// The packet expected next has been dealt with in its turn.
    #[inline]
    pub fn step(&mut self) {
        self.one.clear(self.expected);
        let ends = self.two.clear(self.expected);
        self.msn = (self.msn + u32::from(ends)) & 0x00ff_ffff;
        self.expected += 1;
    }

    /// The packet expected next has arrived and been dealt with, and there is none ahead:
    /// [`mark`](Receiver::mark) and [`step`](Receiver::step) in one, without the bitmaps.
    #[inline]
    pub fn pass(&mut self, ends: bool) {
        debug_assert!(!self.has_ahead(), "packets ahead have their turn after this one");
        self.msn = (self.msn + u32::from(ends)) & 0x00ff_ffff;
        self.expected += 1;
    }

    /// Takes an arrival whose packet has nothing to execute: for traces of arrivals.
    pub fn arrive(&mut self, seq: Seq, ends: Ends) -> Answer {
        let place = self.place(seq);
        if matches!(place, Place::Next | Place::Ahead) {
            self.mark(seq, ends);
        }
        let mut completions = 0;
        while let Some(ends) = self.front() {
            completions += u32::from(ends == Ends::Completion);
            self.step();
        }
        let nack = matches!(place, Place::Ahead | Place::Again | Place::Beyond);
        Answer { nack, expected: self.expected, sack: seq, msn: self.msn, completions }
    }

    /// Asserts that its bitmaps hold packets of its window, and agree with their counts. Between two events
    /// the packet expected next is missing, unless the order `waits`.
    pub fn check(&self, waits: bool) {
        let end = self.expected + self.one.size();
        self.one.check(self.expected, end);
        self.two.check(self.expected, end);
        assert!(self.msn <= 0x00ff_ffff, "a message sequence number has 24 bits");
        assert!(waits || self.front().is_none(), "the window advances over a packet that is there: {self:?}");
    }

    /// Bytes of its bitmaps.
    pub fn bitmap_bytes(&self) -> usize {
        self.one.bytes() + self.two.bytes()
    }
}

/// The receiving half of a response sequence: one bitmap, since nothing ends there but packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tracker {
    expected: Seq,
    there: Bitmap,
}

impl Tracker {
    /// A tracker that expects `first` and remembers `size` packets ahead.
    pub fn new(first: Seq, size: u32) -> Tracker {
        Tracker { expected: first, there: Bitmap::new(size) }
    }

    /// The packet that comes next in order.
    #[inline]
    pub fn expected(&self) -> Seq {
        self.expected
    }

    /// Where a packet stands.
    #[inline]
    pub fn place(&self, seq: Seq) -> Place {
        place(seq, self.expected, self.there.size(), |seq| self.there.get(seq))
    }

    /// Takes a packet that is [`Place::Next`] or [`Place::Ahead`], and whatever is in order then.
    #[inline]
    pub fn take(&mut self, seq: Seq) {
        debug_assert!(
            seq.wrapping_sub(self.expected) < self.there.size(),
            "a response that is remembered lies within the bitmap: {seq}, {} expected",
            self.expected
        );
        if seq != self.expected {
            self.there.set(seq);
            return;
        }
        self.expected += 1;
        while self.there.ones() > 0 && self.there.clear(self.expected) {
            self.expected += 1;
        }
    }

    /// The packets from the one expected to `to` will never come, because they are not needed.
    pub fn skip(&mut self, to: Seq) {
        self.there.clear_range(self.expected, to);
        self.expected = to;
        while self.there.ones() > 0 && self.there.clear(self.expected) {
            self.expected += 1;
        }
    }

    /// Asserts that its bitmap holds packets ahead of the expected one only.
    pub fn check(&self) {
        assert!(
            !self.there.get(self.expected),
            "the window advances over a response that is there: {}",
            self.expected
        );
        self.there.check(self.expected + 1, self.expected + self.there.size());
    }

    /// Bytes of its bitmap.
    pub fn bitmap_bytes(&self) -> usize {
        self.there.bytes()
    }
}

#[cfg(test)]
mod tests;
