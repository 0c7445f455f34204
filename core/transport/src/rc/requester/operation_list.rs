//! PRISM requests that leave as one packet: an operation list whose members are all known before the first of
//! them is sent.
//!
//! These requests need no [`Plan`](super::Plan), because message, PSN and `ack_req` describe each of them.

use super::{Kind, Message, Placed, Requester, extend, prism, psn};
use crate::rc::Parameters;
use crate::{Counters, Instant, Status};
use prism::ListedResult;
use remora_wire::prism::{Flags, Verdict, operation_list};
use remora_wire::{Psn, packet};

/// The requests that can be sent in one packet with the next request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Followers {
    /// None; the request is sent by its plan, because it is a plain verb, has several packets, or must wait.
    Plain,
    /// The number of further requests, possibly 0.
    Count(usize),
    /// More requests will fit once outstanding ones are answered, so the caller should wait.
    Wait,
}

/// A request that shares a packet with others. Its message is a single packet.
#[derive(Debug)]
pub struct Part<'a, D> {
    /// PSN of the request.
    pub psn: Psn,
    /// AckReq bit: requests an acknowledgement.
    pub ack_req: bool,
    /// Message of the request.
    pub message: &'a Message<D>,
}

impl<D: Copy> Requester<D> {
    /// Returns how many requests, at most `most`, can be sent in one packet with the next WRITE or PRISM
    /// operation. Each is a single packet for which `fits` returns true. `fits` is called for the first
    /// request only if others follow it. The further requests are those that depend on the success of their
    /// predecessor. With `mixed`, while an operation list is among the submitted messages, independent PRISM
    /// operations are included too, so that frames of different length are avoided.
    pub fn followers(
        &self,
        now: Instant,
        most: usize,
        mixed: bool,
        mut fits: impl FnMut(&Message<D>) -> bool,
    ) -> Followers {
        let Parameters { mtu, window, max_rd_atomic, .. } = self.messages.parameters;
        let Some(first) = self.starts_together(now) else { return Followers::Plain };
        let mixed = mixed
            && self.last_conditional > self.messages.next_message
            && matches!(first.message.kind, Kind::Prism(_));
        let mut count = 0;
        let mut fetches = usize::from(first.message.kind.is_fetch());
        while count < most
            && let Some((placed, extended)) = self.follower(count as u64 + 1, mixed)
            && extended.requests(placed.message.len, mtu) == 1
            && !self.messages.failing.bars(self.messages.next_message + count as u64 + 1)
            // The first request is checked only if others follow it.
            && (count > 0 || fits(&first.message))
            && fits(&placed.message)
        {
            fetches += 1;
            let most_fetches = usize::from(max_rd_atomic);
            let window = u64::from(window);
            if self.fetches.len() + fetches > most_fetches || placed.end - self.sender.snd_una > window {
                // An operation list is not split, unless it exceeds the limits even when nothing is
                // outstanding.
                let ever = fetches <= most_fetches && placed.end - first.first <= window;
                if ever && self.ack_is_owed() && extended.flags().has(Flags::CONDITIONAL) {
                    return Followers::Wait;
                }
                break;
            }
            count += 1;
        }
        let plain = !matches!(first.message.kind, Kind::Prism(_));
        if plain && count == 0 { Followers::Plain } else { Followers::Count(count) }
    }

    /// Returns the next message if it is a single packet that can be combined with others and be sent now.
    fn starts_together(&self, now: Instant) -> Option<&Placed<D>> {
        let placed = self
            .messages
            .window
            .get(self.messages.next_message)
            .filter(|placed| placed.first == self.sender.snd_nxt)?;
        let Message { kind, len, .. } = &placed.message;
        let able = matches!(kind, Kind::Write { .. } | Kind::Prism(_));
        let may =
            able && now >= self.messages.rnr_until && !self.messages.failing.bars(self.messages.next_message);
        let whole = may && kind.requests(*len, self.messages.parameters.mtu) == 1;
        (whole && !self.waits(placed, 0, (placed.end - placed.first) as u32)).then_some(placed)
    }

    /// Submits a PRISM operation, and records its number if it is conditional.
    #[inline(always)]
    pub fn submit_prism(&mut self, message: Message<D>) {
        if let Kind::Prism(extended) = message.kind
            && extended.flags().has(Flags::CONDITIONAL)
        {
            self.last_conditional = self.messages.window.bounds().1;
        }
        self.submit(message);
    }

    /// Returns the `ahead`-th message after the next one if it may join its packet.
    fn follower(&self, ahead: u64, mixed: bool) -> Option<(&Placed<D>, &prism::Extended)> {
        let placed = self.messages.window.get(self.messages.next_message + ahead)?;
        match &placed.message.kind {
            Kind::Prism(extended)
                if (mixed || extended.flags().has(Flags::CONDITIONAL)) && !placed.message.fence =>
            {
                Some((placed, extended))
            }
            _ => None,
        }
    }

    /// Returns the `ahead`-th of the requests that leave in one packet.
    pub fn part(&self, ahead: usize) -> Option<Part<'_, D>> {
        let Placed { first, end, message } =
            self.messages.window.get(self.messages.next_message + ahead as u64)?;
        Some(Part { psn: psn(*first), ack_req: message.kind.is_fetch() || self.needs_ack_req(*end), message })
    }

    /// Records that `count` requests were sent in one packet.
    pub fn sent_together(&mut self, now: Instant, count: usize, counters: &mut Counters) {
        for _ in 0..count {
            let Some(Placed { first, end, message }) = self.messages.window.get(self.messages.next_message)
            else {
                return;
            };
            let packets = (end - first) as u32;
            let fetch = message.kind.is_fetch();
            let asks = fetch || self.needs_ack_req(*end);
            counters.retransmitted_pkts += u64::from(self.sender.retransmitting());
            self.sender.sent(packets);
            if fetch {
                self.fetches.push_back(self.sender.snd_nxt);
            }
            self.messages.next_message += 1;
            self.update_ack_timer(now, asks);
        }
        self.messages.step_over_local(self.sender.snd_nxt);
    }

    /// Processes the answer to an operation list that was sent as one packet, in order only. `each` stores a
    /// result in the memory of its message; an error becomes the status of that message.
    #[inline(always)]
    pub fn receive_operation_list_answer(
        &mut self,
        now: Instant,
        packet: &packet::View<'_>,
        counters: &mut Counters,
        mut each: impl FnMut(&D, ListedResult<'_>) -> Result<(), Status>,
    ) {
        let last = extend(self.sender.snd_una, packet.bth.psn());
        if last < self.sender.snd_una || last >= self.sender.snd_max {
            return;
        }
        let Some((mut number, expected)) = self.first_fetch() else { return };
        let first = (last + 1).saturating_sub(u64::from(packet.bth.resv7()));
        if expected < first {
            self.arrived(now, first, counters);
            return;
        }
        let mut answers = operation_list::answers(packet.payload);
        while let Some(placed) = self.messages.window.get_mut(number).filter(|placed| placed.first <= last) {
            if placed.message.kind.is_fetch() {
                let Some((verdict, result)) = next_listed_result(placed, &mut answers) else { break };
                if let ListedResult::Bytes(bytes) = result {
                    placed.message.len = bytes.len() as u32;
                }
                self.verdicts.push_back(verdict);
                if let Err(status) = each(&placed.message.context, result) {
                    self.messages.failing.add(number, status);
                }
            }
            number += 1;
        }
        let upto = self.messages.window.get(number).map_or(self.messages.write_seq, |placed| placed.first);
        self.advance(now, upto.min(last + 1));
        if upto <= last || !answers.is_empty() {
            // If answers are missing, the first operation without an answer fails; if there are too many,
            // the last one.
            self.fail(number - u64::from(upto > last), Status::BadResponse);
        }
    }
}

/// Takes the next answer of the operation list and returns the result for a message.
#[inline(always)]
fn next_listed_result<'a, D>(
    placed: &Placed<D>,
    answers: &mut operation_list::Answers<'a>,
) -> Option<(Verdict, ListedResult<'a>)> {
    let Kind::Prism(extended) = &placed.message.kind else { return None };
    let (verdict, bytes) = answers.next().filter(|_| placed.end == placed.first + 1)?;
    Some((verdict, prism::listed_result(extended, placed.message.len, bytes)?))
}
