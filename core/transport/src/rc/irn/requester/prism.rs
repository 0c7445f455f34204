//! Operations of PRISM over IRN, at the requester: their packets are those of go-back-N, without IRN's
//! additions, since the peer executes them only in order; their answers are numbered as those of READs are,
//! and taken in any order.

use super::super::receiver::Tracker;
use super::{Fetch, Plan, Requester};
use crate::rc::prism::{Extended, ParsedResponse, Verb, headers, parse_response};
use crate::rc::{Kind, Reaction, Seq, psn};
use crate::{Counters, Instant};
use remora_wire::irn::Additions;
use remora_wire::packet;
use remora_wire::prism::Flags;
use std::collections::VecDeque;

impl<D: Copy> Requester<D> {
    /// The packet of PRISM that would leave now, and its operation.
    #[cold]
    #[inline(never)]
    pub fn plan_prism(&mut self, now: Instant) -> Option<(Plan, Extended)> {
        if now < self.rnr_until {
            return None;
        }
        let (number, seq) = if self.sender.in_turn() {
            let next = self.sender.next();
            self.begins(next).filter(|_| self.sender.has_window())?;
            (self.next_message, next)
        } else {
            self.choose(now)?
        };
        let placed = self.window.get(number)?;
        let Kind::Prism(extended) = placed.message.kind else { return None };
        let (message, mtu) = (&placed.message, self.parameters.mtu);
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

    /// The packet of `plan_prism` has left.
    #[cold]
    #[inline(never)]
    pub fn sent_prism(&mut self, now: Instant, plan: &Plan, counters: &mut Counters) {
        // Answered is the last packet; the others want no place among the answers.
        if plan.last && plan.seq >= self.sender.high() {
            self.fetching(plan.number);
        }
        self.sent(now, plan, counters);
    }

    /// Takes the response `seq` to an operation of PRISM. None: it does not fit the operation.
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
        let message = &mut self.window.get_mut(number)?.message;
        let context = message.context.context;
        let (offset, verdict) =
            match parse_response(extended, fetch.first, message.len, seq, self.parameters.mtu, packet)? {
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
        // Nothing comes behind it: the rest of the numbers is skipped.
        if let Some(fetch) = self.fetches.iter_mut().find(|other| other.message == number) {
            fetch.until = fetch.until.min(seq + 1);
        }
        Some(Reaction::Scatter { context, number, offset })
    }
}

/// Forgets the oldest READs and atomics whose answers are all there, and steps over the numbers that they
/// reserved in vain.
#[inline]
pub(super) fn forget_answered(fetches: &mut VecDeque<Fetch>, tracker: &mut Tracker) {
    while let Some(fetch) = fetches.front().filter(|fetch| fetch.until <= tracker.expected()) {
        if fetch.end > tracker.expected() {
            tracker.skip(fetch.end);
        }
        fetches.pop_front();
    }
}
