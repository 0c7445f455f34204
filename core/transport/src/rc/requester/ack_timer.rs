//! The local ACK timer, which measures the silence of the peer and not the time for which packets wait
//! locally.
//!
//! The peer owes an ACK once a packet that requests one was sent. The timer starts then and restarts with
//! each new ACK or response, as in TCP (RFC 6298 §5). A packet that waits for the rate limit, the scheduler
//! or a free frame is not in flight, so a retransmission that was not sent starts no timer. If no packet in
//! flight requested an ACK, the expired timer only looks for the reason. If more packets may be sent, these
//! wait locally, and the next packet requests an ACK; a slow sender thus detects a dead peer too. Otherwise
//! the last packet is retransmitted and requests an ACK.
//!
//! If the last submitted packet requested no ACK (`may_delay_ack`), the timer is shorter, and it runs twice:
//! first it makes the next packet request an ACK, then it retransmits the last one.
//!
//! A peer that sends only duplicate ACKs is still processing packets that it received twice. The timeout
//! then grows, so that the peer can catch up before the retries are used up.
//!
//! On a port with separate buffers per peer, a peer that frees no buffer counts as silent.

use super::Requester;
use crate::rc::Seq;
use crate::timers::ack_timeout_backoff;
use crate::{Counters, Instant, Status};

/// Value of `since_ack_req` that makes the next packet request an ACK.
const ACK_REQ_NOW: u32 = u32::MAX >> 1;
/// Time in nanoseconds from the last submitted packet, if it requested no ACK, until a packet must request
/// one. Longer than the delay of a delayed ACK, which makes a request superfluous.
const FOLLOW_UP_NS: u64 = 1_500_000;

impl<D: Copy> Requester<D> {
    /// Returns true if the peer owes an ACK.
    #[inline(always)]
    pub(super) fn ack_is_owed(&self) -> bool {
        self.ack_req_end > self.sender.snd_una
    }

    /// Updates the timer after packets before `snd_nxt` were sent; `asks` is true if the last one requested
    /// an ACK.
    #[inline(always)]
    pub(super) fn update_ack_timer(&mut self, now: Instant, asks: bool) {
        if asks {
            self.since_ack_req = 0;
            if !self.ack_is_owed() {
                self.ack_deadline = now.after(self.ack_timeout_ns);
            }
            self.ack_req_end = self.sender.snd_nxt;
        } else {
            self.since_ack_req += 1;
            if self.ack_deadline == Instant::NEVER {
                self.ack_deadline = now.after(self.silence_ns());
            }
        }
    }

    /// Returns the time until the timer expires.
    #[inline(always)]
    fn silence_ns(&self) -> u64 {
        if self.ends_without_ack_req() { FOLLOW_UP_NS.min(self.ack_timeout_ns) } else { self.ack_timeout_ns }
    }

    /// Returns true if all submitted packets are in flight and the peer owes no ACK for them.
    #[inline(always)]
    fn ends_without_ack_req(&self) -> bool {
        !self.ack_is_owed() && self.sender.snd_nxt == self.messages.write_seq
    }

    /// Retransmits the last packet, so that it requests an ACK, if a message without packets was submitted
    /// that would otherwise end with the timer only.
    #[cold]
    pub(super) fn ask_for_ack(&mut self) {
        if self.sender.in_flight() > 0 && self.ends_without_ack_req() {
            self.repeat_last_packet();
        }
    }

    /// Restarts the timer if packets are in flight, otherwise stops it.
    #[inline(always)]
    pub(super) fn restart_ack_timer(&mut self, now: Instant) {
        self.ack_deadline =
            if self.sender.in_flight() > 0 { now.after(self.silence_ns()) } else { Instant::NEVER };
    }

    /// Records that the peer has no buffer for the next packet.
    #[cold]
    pub fn blocked(&mut self, now: Instant) {
        let known = self.blocked_at == self.sender.snd_nxt && self.ack_deadline < Instant::NEVER;
        if known || self.sender.snd_una == self.sender.snd_max || now < self.messages.rnr_until {
            return;
        }
        self.blocked_at = self.sender.snd_nxt;
        if !self.ack_is_owed() {
            self.ack_deadline = now.after(self.ack_timeout_ns);
        }
    }

    /// Returns the time of the next timer, or [`Instant::NEVER`].
    #[inline]
    pub fn deadline(&self) -> Instant {
        if self.messages.rnr_until > Instant(0) {
            self.ack_deadline.min(self.messages.rnr_until)
        } else {
            self.ack_deadline
        }
    }

    /// Runs the timers that are due at `now`. All packets that arrived until `rx_drained_at` have been
    /// processed.
    pub fn expire(&mut self, now: Instant, rx_drained_at: Instant, counters: &mut Counters) {
        if self.messages.rnr_until > Instant(0) && now >= self.messages.rnr_until {
            self.messages.rnr_until = Instant(0);
        }
        if rx_drained_at < self.ack_deadline {
            return;
        }
        self.ack_deadline = Instant::NEVER;
        if self.sender.snd_una == self.sender.snd_max {
            return;
        }
        if !self.ack_is_owed() && self.blocked_at != self.sender.snd_nxt {
            return self.expire_without_ack_req(now);
        }
        counters.local_ack_timeout_err += 1;
        if self.retries == 0 {
            counters.retry_exceeded_err += 1;
            self.fail(self.messages.window.bounds().0, Status::RetryExceeded);
            return;
        }
        self.use_retry();
        if std::mem::take(&mut self.repeated) && self.messages.parameters.backoff {
            self.ack_timeout_ns =
                ack_timeout_backoff(self.ack_timeout_ns, self.messages.parameters.timeout_ns);
        }
        self.sender.restart();
        self.rewind();
    }

    /// Handles an expired timer when no packet in flight requested an ACK.
    #[cold]
    fn expire_without_ack_req(&mut self, now: Instant) {
        if self.sender.in_flight() == 0 {
            // The next packet starts the timer.
            return;
        }
        let first = self.ends_without_ack_req() && self.since_ack_req < ACK_REQ_NOW;
        if first || self.may_send() {
            self.since_ack_req = ACK_REQ_NOW;
            self.restart_ack_timer(now);
        } else {
            self.repeat_last_packet();
        }
    }

    /// Returns true if a further packet could be sent.
    fn may_send(&self) -> bool {
        let placed = self
            .messages
            .window
            .get(self.messages.next_message)
            .filter(|_| !self.messages.failing.bars(self.messages.next_message));
        placed.is_some_and(|placed| {
            let index = (self.sender.snd_nxt - placed.first) as u32;
            !self.waits(placed, index, 1)
        })
    }

    /// Retransmits the last packet with a request for an ACK.
    fn repeat_last_packet(&mut self) {
        let last: Seq = self.sender.snd_nxt;
        self.force_ack_req_at = last;
        self.sender.repeat_from(last - 1);
        self.rewind();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rc::{Kind, Message, Parameters, Plan, psn};
    use remora_fault::Random;
    use remora_wire::{Extensions, Opcode, Packet, Psn, Qpn, Syndrome, aeth, bth, packet};

    const TIMEOUT: u64 = 1_000;

    struct Machine {
        requester: Requester<()>,
        counters: Counters,
        now: u64,
    }

    impl Machine {
        fn new(retry_cnt: u8, window: u32) -> Machine {
            let parameters =
                Parameters { mtu: 256, timeout_ns: TIMEOUT, retry_cnt, window, ..Parameters::default() };
            let requester = Requester::new(Psn::new(0), 64, parameters);
            Machine { requester, counters: Counters::default(), now: 0 }
        }

        fn post(&mut self, kind: Kind, packets: u32) {
            let len = packets * 256;
            self.requester.submit(Message { kind, len, fence: false, solicited: false, context: () });
        }

        fn write(&mut self, packets: u32) {
            self.post(Kind::Write { va: 0, rkey: 0 }, packets);
        }

        /// Sends one packet and returns its plan.
        fn leave(&mut self) -> Option<Plan> {
            let plan = self.requester.plan(Instant(self.now))?;
            self.requester.sent(Instant(self.now), &plan, &mut self.counters);
            Some(plan)
        }

        /// Delivers an ACK of every packet up to `last`.
        fn acknowledge(&mut self, last: Seq) {
            self.arrive(Opcode::RC_ACKNOWLEDGE, last, &[]);
        }

        fn arrive(&mut self, opcode: Opcode, seq: Seq, payload: &[u8]) {
            let syndrome = Syndrome::ack(aeth::NO_CREDITS);
            let ext = Extensions { aeth: Some(aeth::Repr { syndrome, msn: 0 }), ..Extensions::NONE };
            let bth = bth::Repr::new(opcode, Qpn::new(2), psn(seq));
            let packet = Packet { bth, ext, payload };
            let mut bytes = vec![0; packet.buffer_len()];
            packet.emit(&mut bytes);
            let view = packet::View::new(&bytes).unwrap();
            self.requester.receive(Instant(self.now), &view, &mut self.counters);
            while self.requester.retire().is_some() {}
        }

        fn expire(&mut self) {
            self.requester.expire(Instant(self.now), Instant(self.now), &mut self.counters);
            while self.requester.retire().is_some() {}
        }

        fn timeouts(&self) -> u64 {
            self.counters.local_ack_timeout_err
        }
    }

    #[test]
    fn what_has_not_asked_owes_nothing_and_makes_the_next_packet_ask() {
        let mut machine = Machine::new(0, 1024);
        machine.write(20);
        assert!(!machine.leave().unwrap().ack_req);
        // Packets are held back for a hundred timeouts.
        for _ in 0..100 {
            machine.now += TIMEOUT;
            machine.expire();
        }
        assert_eq!(machine.timeouts(), 0);
        assert!(machine.leave().unwrap().ack_req, "a dead peer must be detected");
        assert_eq!(machine.requester.deadline(), Instant(machine.now + TIMEOUT));
        machine.now += TIMEOUT;
        machine.expire();
        assert_eq!((machine.timeouts(), machine.counters.retry_exceeded_err), (1, 1));
    }

    /// Sends one packet without an ACK request, if that is allowed.
    fn leave_quietly(machine: &mut Machine) -> Plan {
        let mut plan = machine.requester.plan(Instant(machine.now)).unwrap();
        machine.requester.delay_ack(&mut plan);
        machine.requester.sent(Instant(machine.now), &plan, &mut machine.counters);
        plan
    }

    #[test]
    fn after_a_last_packet_without_ack_request_the_next_one_asks_and_else_the_last_is_repeated() {
        let mut machine = Machine::new(0, 1024);
        machine.requester.messages.parameters.timeout_ns = 10 * FOLLOW_UP_NS;
        machine.requester.ack_timeout_ns = 10 * FOLLOW_UP_NS;
        machine.post(Kind::Send, 1);
        assert!(!leave_quietly(&mut machine).ack_req);
        assert_eq!(machine.requester.deadline(), Instant(FOLLOW_UP_NS));
        machine.now = FOLLOW_UP_NS;
        machine.expire();
        assert!(machine.leave().is_none(), "the next packet is waited for");
        machine.post(Kind::Send, 1);
        assert!(leave_quietly(&mut machine).ack_req);
        machine.acknowledge(1);
        assert_eq!(machine.requester.deadline(), Instant::NEVER);

        machine.post(Kind::Send, 1);
        assert!(!leave_quietly(&mut machine).ack_req);
        for _ in 0..2 {
            machine.now += FOLLOW_UP_NS;
            machine.expire();
        }
        let repeated = machine.leave().unwrap();
        assert_eq!((repeated.psn, repeated.ack_req), (psn(2), true));
        assert_eq!((machine.timeouts(), machine.counters.retransmitted_pkts), (0, 1));
        machine.acknowledge(2);
        assert_eq!(machine.requester.outstanding(), 0);
    }

    #[test]
    fn local_work_behind_a_packet_without_ack_request_asks_at_once() {
        let mut machine = Machine::new(0, 1024);
        machine.post(Kind::Send, 1);
        assert!(!leave_quietly(&mut machine).ack_req);
        machine.post(Kind::Local, 0);
        assert!(machine.leave().unwrap().ack_req);
        machine.acknowledge(0);
        assert_eq!(machine.requester.outstanding(), 0);
        // Local work that was submitted together with the packet waits for its ACK, too.
        machine.post(Kind::Send, 1);
        machine.post(Kind::Local, 0);
        assert!(leave_quietly(&mut machine).ack_req);
    }

    #[test]
    fn a_repetition_that_has_not_left_costs_no_retry() {
        let mut machine = Machine::new(1, 1024);
        machine.write(1);
        machine.leave();
        machine.now += TIMEOUT;
        machine.expire();
        for _ in 0..100 {
            machine.now += TIMEOUT;
            machine.expire();
        }
        assert_eq!((machine.timeouts(), machine.counters.retry_exceeded_err), (1, 0));
        machine.leave();
        machine.now += TIMEOUT;
        machine.expire();
        assert_eq!((machine.timeouts(), machine.counters.retry_exceeded_err), (2, 1));
    }

    /// Returns the intervals between retransmissions of a packet that the peer does not acknowledge. If
    /// `answers` is true, the peer sends duplicate ACKs of the packet before it.
    fn timeouts(backoff: bool, answers: bool) -> Vec<u64> {
        let mut machine = Machine::new(7, 1024);
        machine.requester.messages.parameters.backoff = backoff;
        (0..2).for_each(|_| machine.write(1));
        let first = machine.requester.progress().acknowledged;
        while machine.leave().is_some() {}
        machine.acknowledge(first);
        let mut times = Vec::new();
        while machine.counters.retry_exceeded_err == 0 {
            if answers {
                machine.acknowledge(first);
            }
            let since = machine.now;
            machine.now = machine.requester.deadline().0;
            times.push((machine.now - since) / TIMEOUT);
            machine.expire();
            machine.leave();
        }
        times
    }

    /// Regression: a WRITE to a slow guest with four queue pairs failed by its retries after half a
    /// second. The guest needed 100 ms for what was retransmitted every 67 ms.
    #[test]
    fn a_peer_that_acknowledges_nothing_new_gets_up_to_four_timeouts() {
        assert_eq!(timeouts(true, true), [1, 2, 4, 4, 4, 4, 4, 4]);
        assert_eq!(timeouts(true, false), [1; 8], "a silent peer is detected without delay");
        assert_eq!(timeouts(false, true), [1; 8], "backoff can be disabled");
    }

    #[test]
    fn progress_ends_the_longer_timeouts() {
        let mut machine = Machine::new(7, 1024);
        (0..3).for_each(|_| machine.write(1));
        let first = machine.requester.progress().acknowledged;
        while machine.leave().is_some() {}
        machine.acknowledge(first);
        machine.acknowledge(first);
        machine.now += TIMEOUT;
        machine.expire();
        machine.leave();
        assert_eq!(machine.requester.deadline(), Instant(machine.now + 2 * TIMEOUT));
        machine.acknowledge(first + 1);
        machine.leave();
        assert_eq!(machine.requester.deadline(), Instant(machine.now + TIMEOUT));
    }

    #[test]
    fn an_answer_begins_the_silence_anew_while_another_is_owed() {
        let mut machine = Machine::new(0, 1024);
        (0..3).for_each(|_| machine.write(1));
        let first = machine.requester.progress().acknowledged;
        while machine.leave().is_some() {}
        machine.now += TIMEOUT - 1;
        machine.acknowledge(first);
        assert_eq!(machine.requester.deadline(), Instant(machine.now + TIMEOUT));
        machine.acknowledge(first + 2);
        assert_eq!(machine.requester.deadline(), Instant::NEVER);
    }

    #[test]
    fn a_peer_without_room_is_silent_from_the_first_refusal() {
        let mut machine = Machine::new(0, 1024);
        machine.write(20);
        machine.leave();
        machine.now += 10;
        for _ in 0..5 {
            machine.requester.blocked(Instant(machine.now));
            machine.now += 10;
        }
        machine.now = 10 + TIMEOUT;
        machine.expire();
        assert_eq!((machine.timeouts(), machine.counters.retry_exceeded_err), (1, 1));
    }

    #[test]
    fn whatever_is_posted_a_requester_that_can_send_nothing_has_a_timer() {
        let mut random = Random::new(5);
        for window in [4, 8, 64] {
            let mut machine = Machine::new(7, window);
            for _ in 0..20_000 {
                if machine.requester.has_capacity() {
                    let packets = 1 + random.below(12) as u32;
                    let kind = match random.below(3) {
                        0 => Kind::Read { va: 0, rkey: 0 },
                        _ => Kind::Write { va: 0, rkey: 0 },
                    };
                    machine.post(kind, packets);
                }
                for _ in 0..random.below(10) {
                    machine.leave();
                }
                let Requester { sender, .. } = &machine.requester;
                let snd_una = sender.snd_una;
                let snd_max = sender.snd_max;
                let waits = machine.requester.plan(Instant(machine.now)).is_none();
                if waits && snd_una < snd_max {
                    assert!(
                        machine.requester.deadline() < Instant::NEVER,
                        "{window}: {snd_una} of {snd_max}"
                    );
                }
                machine.now += random.below(TIMEOUT / 3);
                let fetch =
                    machine.requester.first_fetch().filter(|(_, next)| *next < machine.requester.ack_req_end);
                if !machine.requester.ack_is_owed() {
                    // The peer sends nothing unless an ACK is requested.
                } else if random.chance(1.0 / 2.0) {
                    let ack_req_end = machine.requester.ack_req_end;
                    let before = fetch.map_or(ack_req_end, |(_, next)| next);
                    machine.acknowledge(before - 1);
                    if fetch.is_some() {
                        machine.arrive(Opcode::RC_RDMA_READ_RESPONSE_ONLY, before, &[0; 256]);
                    }
                } else if random.chance(1.0 / 8.0) {
                    // The silence ends in time, so the retries are reset.
                    machine.now += TIMEOUT;
                    machine.expire();
                    machine.requester.retries = 7;
                }
            }
            let ended = machine.requester.numbers().0;
            assert!(machine.timeouts() > 0 && ended > 500, "{window}: {ended}");
        }
    }
}
