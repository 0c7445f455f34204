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
//! The sequence numbers have TCP's names, as in `go_back_n.rs`.

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
    /// The oldest packet that is not cumulatively acknowledged.
    snd_una: Seq,
    /// The next packet in sequence; less than `snd_max` after a rewind.
    snd_nxt: Seq,
    /// The packet number after the largest ever sent.
    snd_max: Seq,
    /// The packet to retransmit if `do_retransmit` is set, otherwise the last one that was retransmitted.
    retransmit: Seq,
    /// Recovery ends when the cumulative acknowledgement exceeds this packet.
    recover: Seq,
    do_retransmit: bool,
    in_recovery: bool,
    find_hole: bool,
    sacked: Bitmap,
    /// The packet number after the largest that was ever selectively acknowledged.
    top: Seq,
    /// Value of `snd_una` at the last rewind caused by a NAK, which happens with go-back-N or when the
    /// receiver dropped packets.
    returned_at: Option<Seq>,
    cap: u32,
    few: u32,
    recovery: Recovery,
    sacked_leave: bool,
    eager: bool,
    /// Value of `snd_max` at the last timeout.
    silent: Seq,
}

impl Sender {
    /// Returns a sender whose first packet is `first` and that may have `cap` packets in flight.
    pub fn new(first: Seq, settings: &Settings, cap: u32) -> Sender {
        let sacked = Bitmap::new(cap);
        let ablations = settings.ablations();
        Sender {
            snd_una: first,
            snd_nxt: first,
            snd_max: first,
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
            recovery: ablations.recovery,
            sacked_leave: ablations.sacked_leave,
            eager: ablations.eager,
            silent: first,
        }
    }

    /// Returns the oldest packet that is not cumulatively acknowledged.
    #[inline]
    pub fn snd_una(&self) -> Seq {
        self.snd_una
    }

    /// Returns the next packet in sequence.
    #[inline]
    pub fn snd_nxt(&self) -> Seq {
        self.snd_nxt
    }

    /// Returns one past the largest packet ever sent.
    #[inline]
    pub fn snd_max(&self) -> Seq {
        self.snd_max
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
        self.snd_una <= seq && seq < self.top && self.sacked.get(seq)
    }

    /// Returns the number of packets in flight as BDP-FC counts them.
    #[inline]
    pub fn in_flight(&self) -> u64 {
        let sent = self.snd_nxt.saturating_sub(self.snd_una);
        if self.sacked_leave { sent.saturating_sub(u64::from(self.sacked.ones())) } else { sent }
    }

    /// Returns true if the next packet is a new one: nothing is to be retransmitted, searched or repeated
    /// after a rewind.
    #[inline]
    pub fn in_turn(&self) -> bool {
        self.snd_nxt == self.snd_max && !self.do_retransmit && !self.find_hole
    }

    /// Returns true if BDP-FC allows one more new packet. Valid only if `in_turn` returns true.
    #[inline]
    pub fn has_window(&self) -> bool {
        let sent = self.snd_nxt - self.snd_una;
        // The cap never exceeds the size of the bitmap.
        sent < u64::from(self.cap)
            || self.sacked_leave && self.in_flight() < u64::from(self.cap) && sent < self.sacked.size()
    }

    /// Returns true if the oldest packet in flight waits for its retransmission, or `None` if no packet is
    /// in flight.
    #[inline]
    pub fn head_waits(&self) -> Option<bool> {
        let again = self.do_retransmit && self.retransmit == self.snd_una;
        let rewound = self.snd_nxt == self.snd_una && self.next_unsacked() < self.snd_max;
        (self.snd_una < self.snd_max).then_some(again || rewound)
    }

    /// Returns the packet to send at an opportunity to transmit. A retransmission comes first and is not
    /// subject to BDP-FC. Otherwise the result is the next packet before `limit`.
    #[inline]
    pub fn choose(&self, limit: Seq) -> Option<Seq> {
        if self.do_retransmit && self.retransmit >= self.snd_una {
            return Some(self.retransmit);
        }
        let next = self.next_unsacked();
        (next < limit && self.in_flight() < u64::from(self.cap) && next - self.snd_una < self.sacked.size())
            .then_some(next)
    }

    /// Returns the next packet in sequence, without retransmissions. After a rewind, skips packets that were
    /// selectively acknowledged.
    #[inline]
    pub fn next_unsacked(&self) -> Seq {
        let mut next = self.snd_nxt;
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
        if chosen == Some(self.snd_nxt) && self.in_turn() {
            self.snd_nxt += 1;
            self.snd_max = self.snd_nxt;
        } else {
            self.transmitted_out_of_turn(chosen);
        }
    }

    fn transmitted_out_of_turn(&mut self, chosen: Option<Seq>) {
        let again = self.do_retransmit && chosen == Some(self.retransmit) && self.retransmit >= self.snd_una;
        if again {
            self.in_recovery |= self.retransmit == self.snd_una;
            self.recover = self.snd_max.saturating_sub(1);
            self.do_retransmit = false;
            self.find_hole = true;
        } else {
            self.find_hole &= !self.do_retransmit;
            self.do_retransmit = false;
            if let Some(seq) = chosen {
                self.snd_nxt = seq + 1;
                self.snd_max = self.snd_max.max(self.snd_nxt);
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
        let start = if self.retransmit >= self.snd_una { self.retransmit + 1 } else { self.snd_una };
        if let Some(hole) = self.sacked.find(false, start, self.top) {
            self.retransmit = hole;
            self.do_retransmit = true;
        }
    }

    /// Processes an acknowledgement of every packet before `cumulative` and, for a NACK, of `sack`. Returns
    /// true if `snd_una` advanced. Ignores acknowledgements of packets that were never sent.
    #[inline]
    pub fn acknowledge(&mut self, cumulative: Seq, sack: Option<Seq>) -> bool {
        if sack.is_some() || !self.is_undisturbed() {
            return self.acknowledge_disturbed(cumulative, sack);
        }
        let advanced = self.snd_una < cumulative && cumulative <= self.snd_max;
        if advanced {
            self.snd_una = cumulative;
        }
        advanced
    }

    /// Returns true if no loss is known, so that a cumulative acknowledgement only moves the window.
    #[inline]
    pub fn is_undisturbed(&self) -> bool {
        self.in_turn() && !self.in_recovery && self.sacked.ones() == 0
    }

    fn acknowledge_disturbed(&mut self, cumulative: Seq, sack: Option<Seq>) -> bool {
        if cumulative > self.snd_max || sack.is_some_and(|sack| sack >= self.snd_max) {
            return false;
        }
        self.snd_nxt = self.snd_nxt.max(cumulative);
        let advanced = cumulative > self.snd_una;
        if advanced {
            self.sacked.clear_range(self.snd_una, cumulative);
            self.snd_una = cumulative;
        }
        // A NACK whose `sack` is the missing packet itself: the receiver dropped packets after the gap.
        let dropped = sack == Some(cumulative);
        if self.recovery == Recovery::GoBackN || dropped {
            let news = !dropped || cumulative == self.snd_una;
            if news
                && sack.is_some()
                && self.returned_at != Some(self.snd_una)
                && self.snd_nxt != self.snd_una
            {
                self.rewind();
                self.returned_at = Some(self.snd_una);
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
            self.retransmit > self.snd_una || (self.retransmit == self.snd_una && !self.do_retransmit);
        let starts = !advanced && !self.in_recovery && sack.is_some() && self.snd_una < self.snd_nxt;
        // The next packet may be lost or only late. It counts as lost if a later packet arrived or a timeout
        // followed its transmission.
        let resend = self.eager || self.recovery == Recovery::HeadOnly;
        let missing = resend || self.top > self.snd_una || self.snd_una < self.silent;
        if starts || (advanced && self.in_recovery && !head_sent_again && missing) {
            self.resend_head();
        }
        advanced
    }

    fn mark(&mut self, sack: Seq) {
        if sack < self.snd_una {
            return;
        }
        let highest = sack + 1 >= self.top;
        if self.recovery == Recovery::Selective && sack - self.snd_una < self.sacked.size() {
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
        self.retransmit = self.snd_una;
        self.do_retransmit = true;
        self.find_hole = false;
    }

    /// Processes an expired timer; `short` is true if the timer ran for RTO_low.
    pub fn timeout(&mut self, short: bool) -> Timeout {
        if self.snd_una == self.snd_max {
            return Timeout::Idle;
        }
        if short && self.snd_nxt.saturating_sub(self.snd_una) > u64::from(self.few) {
            return Timeout::Extended;
        }
        self.silent = self.snd_max;
        // The receiver dropped packets after the gap, so the oldest packet alone would not fill it.
        if self.recovery == Recovery::GoBackN || self.returned_at == Some(self.snd_una) {
            self.rewind();
        } else {
            self.resend_head();
        }
        Timeout::Resend
    }

    /// Restarts from `snd_una` and retransmits all unacknowledged packets in order, because the receiver
    /// dropped them (RNR).
    pub fn rewind(&mut self) {
        self.snd_nxt = self.snd_una;
        self.returned_at = None;
        (self.do_retransmit, self.in_recovery, self.find_hole) = (false, false, false);
    }

    /// Treats all packets before `upto` as sent and acknowledged, because they are no longer needed.
    pub fn abandon(&mut self, upto: Seq) {
        self.sacked.clear_range(self.snd_una, upto);
        (self.snd_una, self.snd_max) = (upto, upto);
        self.rewind();
    }

    /// Asserts that `snd_una` advanced, unless the acknowledgement covers packets that were never sent.
    #[inline(always)]
    pub(super) fn check_advance(&self, cumulative: Seq, sack: Option<Seq>) {
        debug_assert!(
            self.snd_una >= cumulative
                || cumulative > self.snd_max
                || sack.is_some_and(|sack| sack >= self.snd_max),
            "snd_una advances to the acknowledged packet: {cumulative}, {self:?}"
        );
    }

    /// Asserts the order of the numbers, the limit on packets in flight, and that the bitmap holds only
    /// packets in flight.
    pub fn check(&self) {
        let Sender { snd_una, snd_nxt, snd_max, top, cap, retransmit, do_retransmit, ref sacked, .. } = *self;
        assert!(snd_una <= snd_nxt && snd_nxt <= snd_max, "snd_una <= snd_nxt <= snd_max: {self:?}");
        assert!(snd_max - snd_una <= sacked.size(), "packets in flight <= size of the bitmap: {self:?}");
        // After a rewind, packets that were selectively acknowledged are skipped, so the cap does not count
        // them.
        let on_the_way = (snd_nxt - snd_una).saturating_sub(u64::from(sacked.ones()));
        assert!(on_the_way <= u64::from(cap), "packets in flight <= cap: {self:?}");
        assert!(top <= snd_max, "no packet is acknowledged before it is sent: {self:?}");
        assert!(!do_retransmit || retransmit < snd_max, "a retransmitted packet was sent before: {self:?}");
        sacked.check(snd_una, snd_max);
    }

    /// Returns the bytes that the bitmap occupies.
    pub fn bitmap_bytes(&self) -> usize {
        self.sacked.bytes()
    }
}

#[cfg(test)]
mod tests;
