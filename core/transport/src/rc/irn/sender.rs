//! The sender's loss recovery (IRN paper, §3.1) and its cap on packets in flight, BDP-FC (§3.2).
//!
//! The state is the paper's (§6.1): besides the two ends of the window, which packet is to be sent again, up
//! to where the recovery goes, three flags, and the bitmap of packets selectively acknowledged. Three events
//! change it: a chance to transmit, an acknowledgement, a timeout.
//!
//! A recovery begins with the first NACK, or a timeout, and ends when the cumulative acknowledgement passes
//! what had been sent when the last retransmission left. Within it a packet counts as lost if a later one was
//! selectively acknowledged; the oldest packet counts as lost in any case.

use super::bitmap::Bitmap;
use super::{Recovery, Settings};
use crate::rc::Seq;

/// What an expired timer led to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Nothing is in flight.
    Idle,
    /// The timer was the short one, but more than a few packets are in flight: it is to run on to the long
    /// one.
    Extended,
    /// The oldest packet is to be sent again.
    Resend,
}

/// One side's sending half of one sequence space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    /// Oldest packet not acknowledged cumulatively.
    una: Seq,
    /// Next packet to be sent for the first time; behind `high` after a rewind.
    next: Seq,
    /// One past the highest packet ever sent.
    high: Seq,
    /// Packet to be sent again, or the last one that was.
    retransmit: Seq,
    /// The recovery ends when the cumulative acknowledgement passes this.
    recover: Seq,
    do_retransmit: bool,
    in_recovery: bool,
    find_hole: bool,
    sacked: Bitmap,
    /// One past the highest packet that was ever selectively acknowledged.
    top: Seq,
    /// The `una` at which a NAK last made us go back: with go-back-N, or when the receiver has dropped
    /// packets.
    returned_at: Option<Seq>,
    cap: u32,
    few: u32,
    recovery: Recovery,
    sacked_leave: bool,
    eager: bool,
    /// What had been sent when the timer last expired was below this.
    silent: Seq,
}

impl Sender {
    /// A sender whose first packet is `first` and that may have `cap` packets in flight.
    pub fn new(first: Seq, settings: &Settings, cap: u32) -> Sender {
        let sacked = Bitmap::new(cap);
        Sender {
            una: first,
            next: first,
            high: first,
            retransmit: first,
            recover: first,
            do_retransmit: false,
            in_recovery: false,
            find_hole: false,
            top: first,
            returned_at: None,
            cap: cap.clamp(1, sacked.size() as u32),
            sacked,
            few: settings.few,
            recovery: settings.recovery,
            sacked_leave: settings.sacked_leave,
            eager: settings.eager,
            silent: first,
        }
    }

    /// Oldest packet not acknowledged cumulatively.
    #[inline]
    pub fn una(&self) -> Seq {
        self.una
    }

    /// Next packet to be sent for the first time.
    #[inline]
    pub fn next(&self) -> Seq {
        self.next
    }

    /// One past the highest packet ever sent.
    #[inline]
    pub fn high(&self) -> Seq {
        self.high
    }

    /// Packet to be sent again, or the last one that was.
    pub fn retransmit(&self) -> Seq {
        self.retransmit
    }

    /// Last packet that had been sent when the last retransmission left.
    pub fn recover(&self) -> Seq {
        self.recover
    }

    /// Is `retransmit` to be sent again, is a recovery under way, is the next hole to be looked for?
    pub fn flags(&self) -> [bool; 3] {
        [self.do_retransmit, self.in_recovery, self.find_hole]
    }

    /// Is a recovery under way?
    #[inline]
    pub fn in_recovery(&self) -> bool {
        self.in_recovery
    }

    /// Was this packet selectively acknowledged?
    pub fn is_sacked(&self, seq: Seq) -> bool {
        self.una <= seq && seq < self.top && self.sacked.get(seq)
    }

    /// Packets in flight, as the cap counts them.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        let sent = self.next.saturating_sub(self.una);
        if self.sacked_leave { sent.saturating_sub(u64::from(self.sacked.ones())) } else { sent }
    }

    /// Is the next packet in turn a new one: nothing to be sent again, no hole to be looked for, no old
    /// ground to go over?
    #[inline]
    pub fn in_turn(&self) -> bool {
        self.next == self.high && !self.do_retransmit && !self.find_hole
    }

    /// In turn: does the cap let one more packet go?
    #[inline]
    pub fn has_window(&self) -> bool {
        let sent = self.next - self.una;
        // The cap is no more than the bitmap reaches.
        sent < u64::from(self.cap)
            || self.sacked_leave && self.in_flight() < u64::from(self.cap) && sent < self.sacked.size()
    }

    /// Is the oldest packet on the way to be sent again, and has not left yet? `None`: none is on the way.
    #[inline]
    pub fn head_waits(&self) -> Option<bool> {
        let again = self.do_retransmit && self.retransmit == self.una;
        let rewound = self.next == self.una && self.upcoming() < self.high;
        (self.una < self.high).then_some(again || rewound)
    }

    /// The packet that a chance to transmit would send: one to be sent again first, which no cap holds back;
    /// else the next one below `limit`.
    #[inline]
    pub fn choose(&self, limit: Seq) -> Option<Seq> {
        if self.do_retransmit && self.retransmit >= self.una {
            return Some(self.retransmit);
        }
        let next = self.upcoming();
        (next < limit && self.in_flight() < u64::from(self.cap) && next - self.una < self.sacked.size())
            .then_some(next)
    }

    /// The packet that leaves next when none is sent out of turn: after a rewind, what has arrived all the
    /// same is passed over.
    #[inline]
    pub fn upcoming(&self) -> Seq {
        let mut next = self.next;
        while next < self.top && self.sacked.get(next) {
            next += 1;
        }
        next
    }

    /// Does nothing but a chance to transmit that sends nothing find out what is to be sent again?
    #[inline]
    pub fn must_look(&self) -> bool {
        self.find_hole
    }

    /// A chance to transmit was used for `chosen`, which is what `choose` said, or for nothing.
    #[inline]
    pub fn transmitted(&mut self, chosen: Option<Seq>) {
        if chosen == Some(self.next) && self.in_turn() {
            self.next += 1;
            self.high = self.next;
        } else {
            self.transmitted_out_of_turn(chosen);
        }
    }

    fn transmitted_out_of_turn(&mut self, chosen: Option<Seq>) {
        let again = self.do_retransmit && chosen == Some(self.retransmit) && self.retransmit >= self.una;
        if again {
            self.in_recovery |= self.retransmit == self.una;
            self.recover = self.high.saturating_sub(1);
            self.do_retransmit = false;
            self.find_hole = true;
        } else {
            self.find_hole &= !self.do_retransmit;
            self.do_retransmit = false;
            if let Some(seq) = chosen {
                self.next = seq + 1;
                self.high = self.high.max(self.next);
            }
        }
        if self.find_hole {
            self.look();
        }
    }

    /// The next packet after the last one sent again that is missing while a later one has arrived.
    fn look(&mut self) {
        self.find_hole = false;
        let from = if self.retransmit >= self.una { self.retransmit + 1 } else { self.una };
        if let Some(hole) = self.sacked.find(false, from, self.top) {
            self.retransmit = hole;
            self.do_retransmit = true;
        }
    }

    /// An acknowledgement of everything before `cumulative` has arrived, and if it is a NACK, of `sack`. True
    /// if the cumulative acknowledgement is news. What was never sent is not believed.
    #[inline]
    pub fn acknowledge(&mut self, cumulative: Seq, sack: Option<Seq>) -> bool {
        if sack.is_some() || !self.is_undisturbed() {
            return self.acknowledge_disturbed(cumulative, sack);
        }
        let advanced = self.una < cumulative && cumulative <= self.high;
        if advanced {
            self.una = cumulative;
        }
        advanced
    }

    /// Nothing is missing, as far as is known: a cumulative acknowledgement moves the window and does nothing
    /// else.
    #[inline]
    pub fn is_undisturbed(&self) -> bool {
        self.in_turn() && !self.in_recovery && self.sacked.ones() == 0
    }

    fn acknowledge_disturbed(&mut self, cumulative: Seq, sack: Option<Seq>) -> bool {
        if cumulative > self.high || sack.is_some_and(|sack| sack >= self.high) {
            return false;
        }
        self.next = self.next.max(cumulative);
        let advanced = cumulative > self.una;
        if advanced {
            self.sacked.clear_range(self.una, cumulative);
            self.una = cumulative;
        }
        // A NACK that names the missing packet itself: what arrived behind it was dropped, all or some of it.
        let dropped = sack == Some(cumulative);
        if self.recovery == Recovery::GoBackN || dropped {
            let news = !dropped || cumulative == self.una;
            if news && sack.is_some() && self.returned_at != Some(self.una) && self.next != self.una {
                self.rewind();
                self.returned_at = Some(self.una);
            }
            return advanced;
        }
        if let Some(sack) = sack {
            self.mark(sack);
        }
        if cumulative > self.recover {
            (self.in_recovery, self.find_hole, self.do_retransmit) = (false, false, false);
        }
        let head_sent_again =
            self.retransmit > self.una || (self.retransmit == self.una && !self.do_retransmit);
        let starts = !advanced && !self.in_recovery && sack.is_some() && self.una < self.next;
        // The next packet is missing, or only not there yet: what arrived behind it tells, or silence since
        // it was sent.
        let resend = self.eager || self.recovery == Recovery::HeadOnly;
        let missing = resend || self.top > self.una || self.una < self.silent;
        if starts || (advanced && self.in_recovery && !head_sent_again && missing) {
            self.resend_head();
        }
        advanced
    }

    fn mark(&mut self, sack: Seq) {
        if sack < self.una {
            return;
        }
        let highest = sack + 1 >= self.top;
        if self.recovery == Recovery::Selective && sack - self.una < self.sacked.size() {
            self.sacked.set(sack);
            self.top = self.top.max(sack + 1);
        }
        if !self.in_recovery {
            return;
        }
        if self.do_retransmit && self.retransmit == sack {
            (self.find_hole, self.do_retransmit) = (true, false);
        } else if !self.do_retransmit && highest {
            // What lies below it may be missing.
            self.find_hole = true;
        }
    }

    fn resend_head(&mut self) {
        self.retransmit = self.una;
        self.do_retransmit = true;
        self.find_hole = false;
    }

    /// The timer has expired; `short`: it was RTO_low.
    pub fn timeout(&mut self, short: bool) -> Timeout {
        if self.una == self.high {
            return Timeout::Idle;
        }
        if short && self.next.saturating_sub(self.una) > u64::from(self.few) {
            return Timeout::Extended;
        }
        self.silent = self.high;
        // What was dropped behind the oldest packet will be missing when that is there.
        if self.recovery == Recovery::GoBackN || self.returned_at == Some(self.una) {
            self.rewind();
        } else {
            self.resend_head();
        }
        Timeout::Resend
    }

    /// Everything that is not acknowledged is sent once more, in order: the receiver has said that it dropped
    /// it (RNR).
    pub fn rewind(&mut self) {
        self.next = self.una;
        self.returned_at = None;
        (self.do_retransmit, self.in_recovery, self.find_hole) = (false, false, false);
    }

    /// Packets before `upto` are not needed any more: they count as sent and arrived.
    pub fn abandon(&mut self, upto: Seq) {
        self.sacked.clear_range(self.una, upto);
        (self.una, self.high) = (upto, upto);
        self.rewind();
    }

    /// Asserts that an acknowledgement has moved the window, unless it is of packets that were never sent.
    #[inline(always)]
    pub(super) fn check_advance(&self, cumulative: Seq, sack: Option<Seq>) {
        debug_assert!(
            self.una >= cumulative || cumulative > self.high || sack.is_some_and(|sack| sack >= self.high),
            "una advances to what is acknowledged: {cumulative}, {self:?}"
        );
    }

    /// Asserts the order of its numbers, its cap, and that its bitmap holds packets on the way only.
    pub fn check(&self) {
        let Sender { una, next, high, top, cap, retransmit, do_retransmit, ref sacked, .. } = *self;
        assert!(una <= next && next <= high, "una <= next <= high: {una}, {next}, {high}");
        assert!(
            high - una <= sacked.size(),
            "packets on the way <= those that the bitmap remembers: {self:?}"
        );
        // After a rewind, packets that have arrived are passed over: the cap does not count those.
        let on_the_way = (next - una).saturating_sub(u64::from(sacked.ones()));
        assert!(on_the_way <= u64::from(cap), "packets on the way <= cap: {self:?}");
        assert!(top <= high, "no packet is acknowledged before it is sent: {self:?}");
        assert!(!do_retransmit || retransmit < high, "a packet that is sent again was sent before: {self:?}");
        sacked.check(una, high);
    }

    /// Bytes of its bitmap.
    pub fn bitmap_bytes(&self) -> usize {
        self.sacked.bytes()
    }
}

#[cfg(test)]
mod tests;
