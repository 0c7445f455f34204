//! Unreliable connection (UC): the requester and the responder of one queue pair (IBTA vol. 1 §9.8.2).
//!
//! Packets are neither acknowledged nor retransmitted; a message ends for its sender when its last packet
//! was sent. The receiver accepts packets in order. If a packet is missing, the receiver drops the rest of
//! the message without a NAK and resumes with the next first packet. A SEND therefore arrives completely or
//! not at all. The packets of a WRITE before the gap have already been written to memory, and only immediate
//! data proves that a WRITE is complete.

use crate::rc::{Kind, Message, Retired, headers};
use crate::{Action, Counters, Notice, Outcome, Status};
use remora_wire::{Extensions, Opcode, Operation, Psn, Service, packet};

/// Service bits of a UC op-code. The remaining bits are those of RC.
const SERVICE: u8 = 0x20;

/// The next packet without its payload.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Op-code of the packet.
    pub opcode: Opcode,
    /// Packet sequence number.
    pub psn: Psn,
    /// Solicited-event bit of the BTH.
    pub solicited: bool,
    /// Extension headers of the packet.
    pub ext: Extensions,
    /// Offset of the payload in the message, in bytes.
    pub offset: u32,
    /// Length of the payload in bytes.
    pub len: u32,
    /// True for the last packet of the message.
    last: bool,
}

/// The requester, which holds at most one message.
#[derive(Clone, Debug)]
pub struct Requester<D> {
    psn: Psn,
    mtu: u32,
    /// The current message and the number of its bytes that were sent.
    current: Option<(Message<D>, u32)>,
}

impl<D: Copy> Requester<D> {
    /// Returns a requester whose first packet has PSN `first`; `mtu` is the path MTU in bytes.
    pub fn new(first: Psn, mtu: u32) -> Self {
        Requester { psn: first, mtu, current: None }
    }

    /// Returns true if a message is being sent.
    pub fn is_busy(&self) -> bool {
        self.current.is_some()
    }

    /// Submits a SEND or WRITE, with or without immediate data. The caller has checked `is_busy`.
    pub fn submit(&mut self, message: Message<D>) {
        debug_assert!(
            self.current.is_none() && carries(&message.kind),
            "the service supports SEND and WRITE, with or without immediate data"
        );
        self.current = Some((message, 0));
    }

    /// Returns the next packet, or `None` if there is no message.
    pub fn plan(&self) -> Option<Plan> {
        let (message, offset) = self.current.as_ref()?;
        let offset = *offset;
        let left = message.len - offset;
        let len = left.min(self.mtu);
        let last = left <= self.mtu;
        let (opcode, ext) = headers(&message.kind, offset == 0, last, offset, message.len);
        Some(Plan {
            opcode: Opcode(opcode.0 | SERVICE),
            psn: self.psn,
            solicited: last && message.solicited,
            ext,
            offset,
            len,
            last,
        })
    }

    /// Returns the context of the current message.
    pub fn context(&self) -> Option<&D> {
        self.current.as_ref().map(|(message, _)| &message.context)
    }

    /// Records that the planned packet was sent. Returns the message if the packet was its last.
    pub fn sent(&mut self, plan: &Plan) -> Option<Retired<D>> {
        self.psn = self.psn.next();
        if plan.last {
            return self.end(Status::Success);
        }
        if let Some((_, offset)) = &mut self.current {
            *offset += plan.len;
        }
        None
    }

    /// Asserts that the current message has bytes left to send, starting at a packet boundary.
    pub fn check(&self) {
        if let Some((message, offset)) = &self.current {
            assert!(*offset < message.len || *offset == 0, "a message ends with its last packet");
            assert!(offset.is_multiple_of(self.mtu), "all packets but the last have the path MTU");
            assert!(carries(&message.kind), "an unreliable connection has SENDs and WRITEs only");
        }
    }

    /// Ends the current message with this status.
    pub fn end(&mut self, status: Status) -> Option<Retired<D>> {
        let (message, _) = self.current.take()?;
        Some(message.retired(message.context, status))
    }
}

/// Returns true if UC supports this kind of message.
pub fn carries(kind: &Kind) -> bool {
    matches!(kind, Kind::Send | Kind::SendImm(_) | Kind::Write { .. } | Kind::WriteImm { .. })
}

/// The message whose packets are arriving.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum MessageInProgress {
    /// None: only a first packet is accepted. Other packets belong to a message that was dropped.
    Nothing,
    Send {
        offset: u32,
    },
    Write {
        key: u32,
        va: u64,
        left: u32,
        total: u32,
    },
}

/// The responder of one queue pair.
#[derive(Clone, Debug)]
pub struct Responder {
    expected: Psn,
    in_progress: MessageInProgress,
    /// Value of `in_progress` after the last action succeeds, and true if that ends a message.
    next: (MessageInProgress, bool),
    mtu: u32,
    writes: bool,
    notice: Notice,
}

impl Responder {
    /// Returns a responder whose first packet is `first`; `writes` is true if the peer may use RDMA WRITE.
    pub fn new(first: Psn, mtu: u32, writes: bool) -> Self {
        let notice = Notice { len: 0, imm: None, invalidate: None, solicited: false, write: false };
        Responder {
            expected: first,
            in_progress: MessageInProgress::Nothing,
            next: (MessageInProgress::Nothing, false),
            mtu,
            writes,
            notice,
        }
    }

    /// Changes the peer's right to use RDMA WRITE.
    pub fn allow_writes(&mut self, writes: bool) {
        self.writes = writes;
    }

    /// Returns the information for the completion of the message that the last action ends.
    pub fn notice(&self) -> Notice {
        self.notice
    }

    /// Validates a packet (IBTA vol. 1 §9.8.2.2). A first packet starts a message at any PSN; other packets
    /// must continue the current message in order.
    pub fn receive(&mut self, packet: &packet::View<'_>, counters: &mut Counters) -> Action {
        let opcode = packet.bth.opcode();
        let in_order = packet.bth.psn() == self.expected;
        let begins = opcode.is_first() || opcode.is_only();
        if !in_order {
            counters.out_of_sequence += 1;
        }
        if (!in_order || begins) && self.in_progress != MessageInProgress::Nothing {
            counters.rx_dropped_messages += 1;
            self.in_progress = MessageInProgress::Nothing;
        }
        // Dropped packets advance the PSN too, so the rest of a message without a receive is not a gap.
        self.expected = packet.bth.psn().next();
        if !begins && self.in_progress == MessageInProgress::Nothing {
            return Action::Nothing;
        }
        let action = if self.fits(packet) { self.judge(packet) } else { None };
        action.unwrap_or_else(|| {
            self.drop_message(counters);
            Action::Nothing
        })
    }

    /// Returns true if the payload length is valid: a full MTU, except in the last packet.
    fn fits(&self, packet: &packet::View<'_>) -> bool {
        let opcode = packet.bth.opcode();
        let len = packet.payload.len() as u32;
        match (opcode.is_first() || opcode.is_middle(), opcode.is_last()) {
            (true, _) => len == self.mtu,
            (_, true) => (1..=self.mtu).contains(&len),
            _ => len <= self.mtu,
        }
    }

    /// Returns the action for the packet, or `None` if it does not match the message or is not allowed.
    fn judge(&mut self, packet: &packet::View<'_>) -> Option<Action> {
        let opcode = packet.bth.opcode();
        let len = packet.payload.len() as u32;
        debug_assert_eq!(opcode.service(), Some(Service::Uc));
        let begins = opcode.is_first() || opcode.is_only();
        let ends = opcode.is_last() || opcode.is_only();
        match opcode.operation()? {
            Operation::Send => {
                let offset = match self.in_progress {
                    MessageInProgress::Nothing => 0,
                    MessageInProgress::Send { offset } => offset,
                    MessageInProgress::Write { .. } => return None,
                };
                let total = offset.checked_add(len).filter(|total| *total <= 1 << 31)?;
                self.follow(packet, MessageInProgress::Send { offset: total }, ends, total, false);
                Some(Action::Receive { offset, first: begins, last: ends })
            }
            Operation::Write => {
                let (key, va, left, total) = match (self.in_progress, packet.reth()) {
                    (MessageInProgress::Nothing, Some(reth)) => {
                        (reth.rkey, reth.va, reth.dma_len, reth.dma_len)
                    }
                    (MessageInProgress::Write { key, va, left, total }, None) => (key, va, left, total),
                    _ => return None,
                };
                let exact = if ends { len == left } else { len < left };
                if !exact || !self.writes || total > 1 << 31 {
                    return None;
                }
                // The first packet checks the whole message; each later one checks its own bytes.
                let extent = if packet.reth().is_some() { total } else { len };
                let in_progress = MessageInProgress::Write {
                    key,
                    va: va.wrapping_add(u64::from(len)),
                    left: left - len,
                    total,
                };
                self.follow(packet, in_progress, ends, total, true);
                Some(match packet.imm() {
                    Some(_) => Action::PlaceAndNotify { key, va, extent },
                    None => Action::Place { key, va, extent },
                })
            }
            _ => None,
        }
    }

    fn follow(
        &mut self,
        packet: &packet::View<'_>,
        in_progress: MessageInProgress,
        ends: bool,
        total: u32,
        write: bool,
    ) {
        self.next = (if ends { MessageInProgress::Nothing } else { in_progress }, ends);
        if ends {
            self.notice = Notice {
                len: total,
                imm: packet.imm().map(|imm| imm.value),
                invalidate: None,
                solicited: packet.bth.solicited(),
                write,
            };
        }
    }

    /// Completes the action of the last `receive` with its outcome. The peer gets no NAK for a refusal.
    pub fn conclude(&mut self, outcome: Outcome, counters: &mut Counters) {
        match outcome {
            Outcome::Done | Outcome::Value(_) => {
                let (in_progress, ended) = self.next;
                self.in_progress = in_progress;
                if ended {
                    let write = self.notice.write;
                    counters.rx_write_requests += u64::from(write);
                    counters.rx_send_requests += u64::from(!write);
                }
            }
            Outcome::NotReady => {
                counters.out_of_buffer += 1;
                self.drop_message(counters);
            }
            Outcome::Nak(_) | Outcome::End => self.drop_message(counters),
        }
    }

    /// Asserts that bytes of the current message are missing and that it does not exceed the maximum length.
    pub fn check(&self) {
        match self.in_progress {
            MessageInProgress::Nothing => {}
            MessageInProgress::Send { offset } => {
                assert!(
                    offset > 0 && offset.is_multiple_of(self.mtu),
                    "all packets but the last have the path MTU"
                );
            }
            MessageInProgress::Write { left, total, .. } => {
                assert!(self.writes || total == 0, "a WRITE needs the right to write");
                assert!(left > 0 && left < total && total <= 1 << 31, "0 < bytes left < bytes of the WRITE");
            }
        }
    }

    fn drop_message(&mut self, counters: &mut Counters) {
        counters.rx_dropped_messages += 1;
        self.in_progress = MessageInProgress::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::{Packet, Qpn, bth, reth};

    /// Delivers a packet to the responder and returns the action.
    fn arrive(
        responder: &mut Responder,
        counters: &mut Counters,
        opcode: Opcode,
        psn: u32,
        payload: &[u8],
    ) -> Action {
        let reth = opcode.has_reth().then_some(reth::Repr { va: 64, rkey: 7, dma_len: 600 });
        let bth = bth::Repr::new(opcode, Qpn::new(3), Psn::new(psn));
        let packet = Packet::new(bth, Extensions { reth, ..Extensions::NONE }, payload);
        let mut bytes = vec![0; packet.buffer_len()];
        packet.emit(&mut bytes);
        responder.receive(&packet::View::new(&bytes).unwrap(), counters)
    }

    const FULL: [u8; 256] = [1; 256];

    /// Delivers `F`irst, `M`iddle, `L`ast or `O`nly SENDs with a PSN each. Returns one letter per action:
    /// b(egin), m(iddle), e(nd), w(hole), or - for nothing.
    fn sends(responder: &mut Responder, counters: &mut Counters, arrivals: &str) -> String {
        let mut seen = String::new();
        for arrival in arrivals.split(' ') {
            let (kind, psn) = arrival.split_at(1);
            let (opcode, payload) = match kind {
                "F" => (Opcode::UC_SEND_FIRST, &FULL[..]),
                "M" => (Opcode::UC_SEND_MIDDLE, &FULL[..]),
                "L" => (Opcode::UC_SEND_LAST, &FULL[..9]),
                _ => (Opcode::UC_SEND_ONLY, &FULL[..9]),
            };
            let action = arrive(responder, counters, opcode, psn.parse().unwrap(), payload);
            seen += match action {
                Action::Nothing => "-",
                Action::Receive { first: true, last: true, .. } => "w",
                Action::Receive { first: true, .. } => "b",
                Action::Receive { last: true, .. } => "e",
                _ => "m",
            };
            if action != Action::Nothing {
                responder.conclude(Outcome::Done, counters);
            }
        }
        seen
    }

    #[test]
    fn what_misses_a_packet_is_dropped_and_the_next_first_packet_begins_anew() {
        for (arrivals, expected, dropped) in [
            ("F0 M1 L2 O3 F4 L5", "bmewbe", 0),
            // A middle packet, a last packet, a first packet and a whole message are missing.
            ("F0 L2 O3", "b-w", 1),
            ("F0 M1 F3 L4", "bmbe", 1),
            ("M1 L2 O3", "--w", 0),
            ("O0 O2 F5 L6", "wwbe", 0),
            // A packet is duplicated, late, or in the position of another.
            ("F0 M1 M1 L2 O3", "bm--w", 1),
            ("F0 L2 M1 O3", "b--w", 1),
            ("O1 O0", "ww", 0),
            ("F0 O1 L2", "bw-", 1),
            ("M0 L1 O2", "--w", 0),
        ] {
            let (mut responder, mut counters) =
                (Responder::new(Psn::new(0), 256, false), Counters::default());
            assert_eq!(sends(&mut responder, &mut counters, arrivals), expected, "{arrivals}");
            assert_eq!(counters.rx_dropped_messages, dropped, "{arrivals}");
        }
    }

    /// Packets of a dropped message advance the expected PSN.
    ///
    /// Regression: the rest of a message that had met no receive was counted as a gap.
    #[test]
    fn the_rest_of_a_message_that_met_no_receive_is_no_gap() {
        let mut responder = Responder::new(Psn::new(0), 256, false);
        let mut counters = Counters::default();
        arrive(&mut responder, &mut counters, Opcode::UC_SEND_FIRST, 0, &FULL);
        responder.conclude(Outcome::NotReady, &mut counters);
        assert_eq!(sends(&mut responder, &mut counters, "M1 M2 L3 F4 L5 M9 L10 O11"), "---be--w");
        assert_eq!(counters.out_of_sequence, 1, "before the ninth");
    }

    #[test]
    fn what_is_refused_drops_the_rest_of_its_message() {
        for outcome in [Outcome::NotReady, Outcome::Nak(remora_wire::NakCode::REMOTE_ACCESS_ERROR)] {
            let (mut responder, mut counters) =
                (Responder::new(Psn::new(0), 256, false), Counters::default());
            let first = arrive(&mut responder, &mut counters, Opcode::UC_SEND_FIRST, 0, &FULL);
            assert_eq!(first, Action::Receive { offset: 0, first: true, last: false });
            responder.conclude(outcome, &mut counters);
            assert_eq!(sends(&mut responder, &mut counters, "M1 L2 F3 L4"), "--be");
            assert_eq!(counters.rx_dropped_messages, 1);
            assert_eq!(counters.out_of_buffer, u64::from(outcome == Outcome::NotReady));
        }
    }

    #[test]
    fn lengths_that_do_not_add_up_and_writes_not_allowed_are_dropped() {
        use Opcode as O;
        let receive = |writes, opcode, payload: &[u8]| {
            let (mut responder, mut counters) =
                (Responder::new(Psn::new(0), 256, writes), Counters::default());
            let action = arrive(&mut responder, &mut counters, opcode, 0, payload);
            (action, counters.rx_dropped_messages)
        };
        for (opcode, len) in [
            (O::UC_SEND_FIRST, 255),
            (O::UC_SEND_ONLY, 257),
            (O::UC_RDMA_WRITE_FIRST, 255),
            (O::UC_RDMA_WRITE_ONLY, 9),
        ] {
            let payload = vec![0; len];
            assert_eq!(receive(true, opcode, &payload), (Action::Nothing, 1), "{opcode} of {len}");
        }
        let placed = Action::Place { key: 7, va: 64, extent: 600 };
        assert_eq!(receive(true, O::UC_RDMA_WRITE_FIRST, &FULL), (placed, 0));
        assert_eq!(receive(false, O::UC_RDMA_WRITE_FIRST, &FULL), (Action::Nothing, 1));
    }

    #[test]
    fn a_message_leaves_in_packets_of_the_path_and_ends_with_its_last() {
        let mut requester = Requester::new(Psn::new(0xff_ffff), 256);
        let kind = Kind::WriteImm { va: 1000, rkey: 5, imm: 9 };
        requester.submit(Message { kind, len: 600, fence: false, solicited: true, context: 'a' });
        let mut seen = Vec::new();
        let retired = loop {
            let plan = requester.plan().unwrap();
            let reth = plan.ext.reth.map(|reth| (reth.va, reth.dma_len));
            seen.push((plan.opcode, plan.psn.get(), plan.offset, plan.len, reth, plan.solicited));
            if let Some(retired) = requester.sent(&plan) {
                break retired;
            }
        };
        assert_eq!(
            seen,
            [
                (Opcode::UC_RDMA_WRITE_FIRST, 0xff_ffff, 0, 256, Some((1000, 600)), false),
                (Opcode::UC_RDMA_WRITE_MIDDLE, 0, 256, 256, None, false),
                (Opcode::UC_RDMA_WRITE_LAST_IMM, 1, 512, 88, None, true),
            ]
        );
        assert_eq!((retired.context, retired.status, requester.is_busy()), ('a', Status::Success, false));
        assert!(requester.plan().is_none());
    }
}
