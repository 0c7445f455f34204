//! The receiving half of a sequence: the packets that arrived in order, and those that arrived after a gap
//! (IRN paper, §3.1, §5, §6.1).
//!
//! Two bitmaps hold the state of each packet after `rcv_nxt`: `10` for a packet within a message, `01` for
//! the last packet of a message, `11` for the last packet of a message with a completion, `00` for a missing
//! packet. MSN and completions therefore advance in the order of the packets, in whatever order these
//! arrive.

use super::bitmap::Bitmap;
use crate::rc::Seq;
use remora_wire::{Opcode, Operation, Service};

/// The effect of a request packet on the message count.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ends {
    /// The packet is the first or a middle packet of its message.
    Nothing,
    /// Last packet of a message without a completion at the responder (WRITE, READ, atomic).
    Message,
    /// Last packet of a message with a completion at the responder (SEND, WRITE with immediate data).
    Completion,
}

impl Ends {
    /// Returns the effect of a request packet with this op-code.
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

/// Position of a received packet relative to `rcv_nxt` and to the packets that arrived.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The packet is the next one in order.
    InOrder,
    /// The packet follows a gap and arrives for the first time.
    Gap,
    /// The packet follows a gap and was received before.
    GapDuplicate,
    /// The packet precedes `rcv_nxt`, so it was received before.
    Duplicate,
    /// The packet follows a gap and lies beyond the reach of the bitmaps, so it must be dropped.
    OutOfReach,
}

/// Returns the position of `seq` relative to `rcv_nxt`. The bitmap has `size` flags, and `there` returns the
/// flag of a packet.
#[inline]
pub(super) fn arrival(seq: Seq, rcv_nxt: Seq, size: u64, there: impl FnOnce(Seq) -> bool) -> Arrival {
    if seq == rcv_nxt {
        Arrival::InOrder
    } else if seq < rcv_nxt {
        Arrival::Duplicate
    } else if seq - rcv_nxt >= size {
        Arrival::OutOfReach
    } else if there(seq) {
        Arrival::GapDuplicate
    } else {
        Arrival::Gap
    }
}

/// The acknowledgement of one packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// True for a NACK, because the packet arrived after a gap.
    pub nack: bool,
    /// The cumulative acknowledgement.
    pub rcv_nxt: Seq,
    /// The packet that arrived.
    pub sack: Seq,
    /// Message sequence number (MSN).
    pub msn: u32,
    /// Number of completions that this packet released.
    pub completions: u32,
}

/// The receiving half of a sequence of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    rcv_nxt: Seq,
    msn: u32,
    one: Bitmap,
    two: Bitmap,
}

impl Receiver {
    /// Returns a receiver whose first packet is `first` and that can record `size` packets.
    pub fn new(first: Seq, size: u32) -> Receiver {
        Receiver { rcv_nxt: first, msn: 0, one: Bitmap::new(size), two: Bitmap::new(size) }
    }

    /// Returns the next packet in order.
    #[inline]
    pub fn rcv_nxt(&self) -> Seq {
        self.rcv_nxt
    }

    /// Returns the number of packets that the bitmaps can record, `rcv_nxt` included.
    #[inline]
    pub fn reach(&self) -> u32 {
        self.one.size() as u32
    }

    /// Returns the MSN: the number of messages that have ended in order, modulo 2^24.
    #[inline]
    pub fn msn(&self) -> u32 {
        self.msn
    }

    /// Returns true if packets after a gap are recorded.
    #[inline]
    pub fn has_ahead(&self) -> bool {
        self.one.ones() + self.two.ones() > 0
    }

    /// Returns the position of a packet.
    #[inline]
    pub fn arrival(&self, seq: Seq) -> Arrival {
        arrival(seq, self.rcv_nxt, self.one.size(), |seq| self.one.get(seq) || self.two.get(seq))
    }

    /// Records a packet at [`Arrival::InOrder`] or [`Arrival::Gap`].
    #[inline]
    pub fn mark(&mut self, seq: Seq, ends: Ends) {
        debug_assert!(
            seq.wrapping_sub(self.rcv_nxt) < self.one.size(),
            "a recorded packet lies within the bitmaps: {seq}, rcv_nxt is {}",
            self.rcv_nxt
        );
        if ends != Ends::Message {
            self.one.set(seq);
        }
        if ends != Ends::Nothing {
            self.two.set(seq);
        }
    }

    /// Returns the effect of packet `rcv_nxt` if it has arrived.
    #[inline]
    pub fn front(&self) -> Option<Ends> {
        match (self.one.get(self.rcv_nxt), self.two.get(self.rcv_nxt)) {
            (false, false) => None,
            (true, false) => Some(Ends::Nothing),
            (false, true) => Some(Ends::Message),
            (true, true) => Some(Ends::Completion),
        }
    }

    /// Advances `rcv_nxt` over a recorded packet, after the packet was processed.
    #[inline]
    pub fn step(&mut self) {
        self.one.clear(self.rcv_nxt);
        let ends = self.two.clear(self.rcv_nxt);
        self.msn = (self.msn + u32::from(ends)) & 0x00ff_ffff;
        self.rcv_nxt += 1;
    }

    /// Advances `rcv_nxt` over a packet that arrived in order while no packet after it is recorded.
    /// Equivalent to [`mark`](Receiver::mark) and [`step`](Receiver::step), but does not access the bitmaps.
    #[inline]
    pub fn pass(&mut self, ends: bool) {
        debug_assert!(!self.has_ahead(), "no packet after a gap is recorded");
        self.msn = (self.msn + u32::from(ends)) & 0x00ff_ffff;
        self.rcv_nxt += 1;
    }

    /// Processes the arrival of a packet that executes nothing. Used to replay traces.
    pub fn arrive(&mut self, seq: Seq, ends: Ends) -> Answer {
        let arrival = self.arrival(seq);
        if matches!(arrival, Arrival::InOrder | Arrival::Gap) {
            self.mark(seq, ends);
        }
        let mut completions = 0;
        while let Some(ends) = self.front() {
            completions += u32::from(ends == Ends::Completion);
            self.step();
        }
        let nack = matches!(arrival, Arrival::Gap | Arrival::GapDuplicate | Arrival::OutOfReach);
        Answer { nack, rcv_nxt: self.rcv_nxt, sack: seq, msn: self.msn, completions }
    }

    /// Asserts that the bitmaps hold only packets of the window. Between two events packet `rcv_nxt` is
    /// missing, unless `waits` is true because the responder waits for a kernel or has ended.
    pub fn check(&self, waits: bool) {
        let end = self.rcv_nxt + self.one.size();
        self.one.check(self.rcv_nxt, end);
        self.two.check(self.rcv_nxt, end);
        assert!(self.msn <= 0x00ff_ffff, "a message sequence number has 24 bits");
        assert!(waits || self.front().is_none(), "the window advances over a packet that is there: {self:?}");
    }

    /// Returns the bytes that both bitmaps occupy.
    pub fn bitmap_bytes(&self) -> usize {
        self.one.bytes() + self.two.bytes()
    }
}

/// The receiving half of a sequence of responses. One bitmap is enough, because responses end no messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tracker {
    rcv_nxt: Seq,
    there: Bitmap,
}

impl Tracker {
    /// Returns a tracker whose first packet is `first` and that can record `size` packets.
    pub fn new(first: Seq, size: u32) -> Tracker {
        Tracker { rcv_nxt: first, there: Bitmap::new(size) }
    }

    /// Returns the next packet in order.
    #[inline]
    pub fn rcv_nxt(&self) -> Seq {
        self.rcv_nxt
    }

    /// Returns the position of a packet.
    #[inline]
    pub fn arrival(&self, seq: Seq) -> Arrival {
        arrival(seq, self.rcv_nxt, self.there.size(), |seq| self.there.get(seq))
    }

    /// Records a packet at [`Arrival::InOrder`] or [`Arrival::Gap`], and advances over all packets that
    /// are in order then.
    #[inline]
    pub fn take(&mut self, seq: Seq) {
        debug_assert!(
            seq.wrapping_sub(self.rcv_nxt) < self.there.size(),
            "a recorded response lies within the bitmap: {seq}, rcv_nxt is {}",
            self.rcv_nxt
        );
        if seq != self.rcv_nxt {
            self.there.set(seq);
            return;
        }
        self.rcv_nxt += 1;
        while self.there.ones() > 0 && self.there.clear(self.rcv_nxt) {
            self.rcv_nxt += 1;
        }
    }

    /// Advances to `seq` without the packets before it, which will never be sent.
    pub fn skip(&mut self, seq: Seq) {
        self.there.clear_range(self.rcv_nxt, seq);
        self.rcv_nxt = seq;
        while self.there.ones() > 0 && self.there.clear(self.rcv_nxt) {
            self.rcv_nxt += 1;
        }
    }

    /// Asserts that the bitmap holds only packets after a gap.
    pub fn check(&self) {
        assert!(
            !self.there.get(self.rcv_nxt),
            "the window advances over a response that is there: {}",
            self.rcv_nxt
        );
        self.there.check(self.rcv_nxt + 1, self.rcv_nxt + self.there.size());
    }

    /// Returns the bytes that the bitmap occupies.
    pub fn bitmap_bytes(&self) -> usize {
        self.there.bytes()
    }
}

#[cfg(test)]
mod tests;
