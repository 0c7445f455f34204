//! The sending half of a sequence: loss recovery (IRN paper, §3.1) and the limit on packets in flight,
//! BDP-FC (§3.2).
//!
//! The state is the paper's (§6.1): the ends of the window, the packet to retransmit, the end of the
//! recovery, three flags, and a bitmap of selectively acknowledged packets. Three events change it: an
//! opportunity to transmit, an acknowledgement, and a timeout.
//!
//! A recovery starts with the first NACK or a timeout. It ends when the cumulative acknowledgement passes
//! the last packet that had been sent when the latest retransmission left. During a recovery, a packet
//! counts as lost if a later packet was selectively acknowledged. The oldest packet always counts as lost.
//!
//! The names follow TCP: `una` is `snd_una`, `next` is `snd_nxt` and `high` is `snd_max`.

use super::bitmap::Bitmap;
use super::{Recovery, Settings};
use crate::rc::Seq;

/// The effect of an expired timer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// No packet is in flight.
    Idle,
    /// RTO_low expired while more than N packets are in flight: the timer continues to RTO_high.
    Extended,
    /// The oldest packet must be retransmitted.
    Resend,
}

/// The sending half of one sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    /// `snd_una`: oldest packet that is not cumulatively acknowledged.
    una: Seq,
    /// `snd_nxt`: next packet in sequence; less than `high` after a rewind.
    next: Seq,
    /// `snd_max`: one past the largest packet ever sent.
    high: Seq,
    /// The packet to retransmit if `do_retransmit` is set, otherwise the last one that was retransmitted.
    retransmit: Seq,
    /// Recovery ends when the cumulative acknowledgement exceeds this packet.
    recover: Seq,
    do_retransmit: bool,
    in_recovery: bool,
    find_hole: bool,
    sacked: Bitmap,
    /// One past the largest packet that was ever selectively acknowledged.
    top: Seq,
    /// Value of `una` at the last rewind caused by a NAK, which happens with go-back-N or when the receiver
    /// dropped packets.
    returned_at: Option<Seq>,
    cap: u32,
    few: u32,
    recovery: Recovery,
    sacked_leave: bool,
    eager: bool,
    /// Value of `high` at the last timeout.
    silent: Seq,
}

impl Sender {
    /// Returns a sender whose first packet is `first` and that may have `cap` packets in flight.
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

    /// Returns `snd_una`, the oldest packet that is not cumulatively acknowledged.
    #[inline]
    pub fn una(&self) -> Seq {
        self.una
    }

    /// Returns `snd_nxt`, the next packet in sequence.
    #[inline]
    pub fn next(&self) -> Seq {
        self.next
    }

    /// Returns `snd_max`, one past the largest packet ever sent.
    #[inline]
    pub fn high(&self) -> Seq {
        self.high
    }

    /// Returns the packet to retransmit, or the last one that was retransmitted.
    pub fn retransmit(&self) -> Seq {
        self.retransmit
    }

    /// Returns the last packet that had been sent when the latest retransmission left.
    pub fn recover(&self) -> Seq {
        self.recover
    }

    /// Returns three flags: `retransmit` must be sent, a recovery is in progress, the next hole must be
    /// searched.
    pub fn flags(&self) -> [bool; 3] {
        [self.do_retransmit, self.in_recovery, self.find_hole]
    }

    /// Returns true during a recovery.
    #[inline]
    pub fn in_recovery(&self) -> bool {
        self.in_recovery
    }

    /// Returns true if `seq` was selectively acknowledged.
    pub fn is_sacked(&self, seq: Seq) -> bool {
        self.una <= seq && seq < self.top && self.sacked.get(seq)
    }

    /// Returns the number of packets in flight as BDP-FC counts them.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        let sent = self.next.saturating_sub(self.una);
        if self.sacked_leave { sent.saturating_sub(u64::from(self.sacked.ones())) } else { sent }
    }

    /// Returns true if the next packet is a new one: nothing is to be retransmitted, searched or repeated
    /// after a rewind.
    #[inline]
    pub fn in_turn(&self) -> bool {
        self.next == self.high && !self.do_retransmit && !self.find_hole
    }

    /// Returns true if BDP-FC allows one more new packet. Valid only if `in_turn` returns true.
    #[inline]
    pub fn has_window(&self) -> bool {
        let sent = self.next - self.una;
        // The cap never exceeds the size of the bitmap.
        sent < u64::from(self.cap)
            || self.sacked_leave && self.in_flight() < u64::from(self.cap) && sent < self.sacked.size()
    }

    /// Returns true if the oldest packet in flight waits for its retransmission, or `None` if no packet is
    /// in flight.
    #[inline]
    pub fn head_waits(&self) -> Option<bool> {
        let again = self.do_retransmit && self.retransmit == self.una;
        let rewound = self.next == self.una && self.upcoming() < self.high;
        (self.una < self.high).then_some(again || rewound)
    }

    /// Returns the packet to send at an opportunity to transmit. A retransmission comes first and is not
    /// subject to BDP-FC. Otherwise the result is the next packet before `limit`.
    #[inline]
    pub fn choose(&self, limit: Seq) -> Option<Seq> {
        if self.do_retransmit && self.retransmit >= self.una {
            return Some(self.retransmit);
        }
        let next = self.upcoming();
        (next < limit && self.in_flight() < u64::from(self.cap) && next - self.una < self.sacked.size())
            .then_some(next)
    }

    /// Returns the next packet in sequence, without retransmissions. After a rewind, skips packets that were
    /// selectively acknowledged.
    #[inline]
    pub fn upcoming(&self) -> Seq {
        let mut next = self.next;
        while next < self.top && self.sacked.get(next) {
            next += 1;
        }
        next
    }

    /// Returns true if the next hole is found only at an unused opportunity to transmit
    /// (`transmitted(None)`).
    #[inline]
    pub fn must_look(&self) -> bool {
        self.find_hole
    }

    /// Records the use of an opportunity to transmit: `chosen` is the result of `choose`, or `None` if
    /// nothing was sent.
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

    /// Selects the first missing packet after the last retransmission that precedes a selectively
    /// acknowledged one.
    fn look(&mut self) {
        self.find_hole = false;
        let from = if self.retransmit >= self.una { self.retransmit + 1 } else { self.una };
        if let Some(hole) = self.sacked.find(false, from, self.top) {
            self.retransmit = hole;
            self.do_retransmit = true;
        }
    }

    /// Processes an acknowledgement of every packet before `cumulative` and, for a NACK, of `sack`. Returns
    /// true if `una` advanced. Ignores acknowledgements of packets that were never sent.
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

    /// Returns true if no loss is known, so that a cumulative acknowledgement only moves the window.
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
        // A NACK whose `sack` is the missing packet itself: the receiver dropped packets after the gap.
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
        // The next packet may be lost or only late. It counts as lost if a later packet arrived or a timeout
        // followed its transmission.
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
            // Packets below the new maximum may be missing.
            self.find_hole = true;
        }
    }

    fn resend_head(&mut self) {
        self.retransmit = self.una;
        self.do_retransmit = true;
        self.find_hole = false;
    }

    /// Processes an expired timer; `short` is true if the timer ran for RTO_low.
    pub fn timeout(&mut self, short: bool) -> Timeout {
        if self.una == self.high {
            return Timeout::Idle;
        }
        if short && self.next.saturating_sub(self.una) > u64::from(self.few) {
            return Timeout::Extended;
        }
        self.silent = self.high;
        // The receiver dropped packets after the gap, so the oldest packet alone would not fill it.
        if self.recovery == Recovery::GoBackN || self.returned_at == Some(self.una) {
            self.rewind();
        } else {
            self.resend_head();
        }
        Timeout::Resend
    }

    /// Restarts from `una` and retransmits all unacknowledged packets in order, because the receiver dropped
    /// them (RNR).
    pub fn rewind(&mut self) {
        self.next = self.una;
        self.returned_at = None;
        (self.do_retransmit, self.in_recovery, self.find_hole) = (false, false, false);
    }

    /// Treats all packets before `upto` as sent and acknowledged, because they are no longer needed.
    pub fn abandon(&mut self, upto: Seq) {
        self.sacked.clear_range(self.una, upto);
        (self.una, self.high) = (upto, upto);
        self.rewind();
    }

    /// Asserts that `una` advanced, unless the acknowledgement covers packets that were never sent.
    #[inline(always)]
    pub(super) fn check_advance(&self, cumulative: Seq, sack: Option<Seq>) {
        debug_assert!(
            self.una >= cumulative || cumulative > self.high || sack.is_some_and(|sack| sack >= self.high),
            "una advances to the acknowledged packet: {cumulative}, {self:?}"
        );
    }

    /// Asserts the order of the numbers, the limit on packets in flight, and that the bitmap holds only
    /// packets in flight.
    pub fn check(&self) {
        let Sender { una, next, high, top, cap, retransmit, do_retransmit, ref sacked, .. } = *self;
        assert!(una <= next && next <= high, "una <= next <= high: {una}, {next}, {high}");
        assert!(high - una <= sacked.size(), "packets in flight <= size of the bitmap: {self:?}");
        // After a rewind, packets that were selectively acknowledged are skipped, so the cap does not count
        // them.
        let on_the_way = (next - una).saturating_sub(u64::from(sacked.ones()));
        assert!(on_the_way <= u64::from(cap), "packets in flight <= cap: {self:?}");
        assert!(top <= high, "no packet is acknowledged before it is sent: {self:?}");
        assert!(!do_retransmit || retransmit < high, "a retransmitted packet was sent before: {self:?}");
        sacked.check(una, high);
    }

    /// Returns the bytes that the bitmap occupies.
    pub fn bitmap_bytes(&self) -> usize {
        self.sacked.bytes()
    }
}

#[cfg(test)]
mod tests;
