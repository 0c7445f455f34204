//! PRISM operations at an IRN requester. Their request packets are those of go-back-N, without IRN's
//! additional headers, because the peer executes them in order only. Their answers have PSNs like READ
//! responses and are accepted in any order.

use super::{Fetch, Plan, Requester};
use crate::rc::prism::{Extended, ParsedResponse, Verb, headers, parse_response};
use crate::rc::{Kind, Reaction, Seq, psn};
use crate::{Counters, Instant};
use remora_wire::irn::Additions;
use remora_wire::packet;
use remora_wire::prism::Flags;

impl<D: Copy> Requester<D> {
    /// Returns the next packet and its operation if the next message is a PRISM operation.
    #[cold]
    #[inline(never)]
    pub fn plan_prism(&mut self, now: Instant) -> Option<(Plan, Extended)> {
        if now < self.messages.rnr_until {
            return None;
        }
        let (number, seq) = if self.sender.in_turn() {
            let next = self.sender.snd_nxt();
            self.begins(next).filter(|_| self.sender.has_window())?;
            (self.messages.next_message, next)
        } else {
            self.choose(now)?
        };
        let placed = self.messages.window.get(number)?;
        let Kind::Prism(extended) = placed.message.kind else { return None };
        let message = &placed.message;
        let mtu = self.messages.parameters.mtu;
        let index = (seq - placed.first) as u32;
        let last = seq + 1 == placed.end;
        let (opcode, ext) = headers(&extended, index == 0, last, message.len);
        let travels = match extended.verb() {
            Verb::Read => false,
            Verb::Write => !extended.flags().has(Flags::DATA_INDIRECT),
            Verb::CompareSwap | Verb::FetchAdd => true,
        };
        let offset = if travels { index * mtu } else { 0 };
        let plan = Plan {
            opcode,
            psn: psn(seq),
            ack_req: true,
            solicited: false,
            ext,
            additions: Additions::default(),
            offset,
            len: match (travels, last) {
                (false, _) => 0,
                (true, true) => message.len - offset,
                (true, false) => mtu,
            },
            number,
            seq,
            last,
        };
        Some((plan, extended))
    }

    /// Records that the packet of `plan_prism` was sent.
    #[cold]
    #[inline(never)]
    pub fn sent_prism(&mut self, now: Instant, plan: &Plan, counters: &mut Counters) {
        // Only the last packet is answered, so only this one reserves PSNs of responses.
        if plan.last && plan.seq >= self.sender.snd_max() {
            self.fetching(plan.number);
        }
        self.sent(now, plan, counters);
    }

    /// Processes response `seq` to a PRISM operation. Returns `None` if the response does not match the
    /// operation.
    #[cold]
    #[inline(never)]
    pub(super) fn answered_prism(
        &mut self,
        fetch: &Fetch,
        extended: &Extended,
        seq: Seq,
        packet: &packet::View<'_>,
    ) -> Option<Reaction<D>> {
        let number = fetch.message;
        let message = &mut self.messages.window.get_mut(number)?.message;
        let context = message.context.context;
        let (offset, verdict) = match parse_response(
            extended,
            fetch.first,
            message.len,
            seq,
            self.messages.parameters.mtu,
            packet,
        )? {
            ParsedResponse::Part { offset } => {
                return Some(Reaction::Scatter { context, number, offset });
            }
            ParsedResponse::Number { head, verdict } => {
                message.context.verdict = verdict as u8;
                return Some(Reaction::Number { context, number, head });
            }
            ParsedResponse::End { offset, len, verdict } => {
                message.len = len;
                (offset, verdict)
            }
        };
        message.context.verdict = verdict as u8;
        // No response follows this one, so the remaining reserved PSNs are skipped.
        if let Some(fetch) = self.fetches.iter_mut().find(|other| other.message == number) {
            fetch.answer_end = fetch.answer_end.min(seq + 1);
        }
        Some(Reaction::Scatter { context, number, offset })
    }
}
