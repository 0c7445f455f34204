//! Requests that travel together: those of a chain of PRISM, found before the first of them leaves.
//!
//! They need no [`Plan`](super::Plan): each has only a message, a sequence number and `ack_req`.

use super::{Kind, Message, Placed, Requester, extend, prism, psn};
use crate::rc::Parameters;
use crate::{Counters, Instant, Status};
use prism::ChainResult;
use remora_wire::prism::{Flags, Verdict, chain};
use remora_wire::{Psn, packet};

/// Which requests could travel with one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Chained {
    /// It leaves by its plan: a plain verb alone, several packets, or one that must wait.
    No,
    /// So many further requests, perhaps none.
    With(usize),
    /// More, as soon as there are answers.
    Waits,
}

/// A request that travels with others: the one packet that its message is.
#[derive(Debug)]
pub struct Part<'a, D> {
    /// Its packet sequence number.
    pub psn: Psn,
    /// The peer shall acknowledge.
    pub ack_req: bool,
    /// The message.
    pub message: &'a Message<D>,
}

impl<D: Copy> Requester<D> {
    /// How many requests could travel with the WRITE or operation of PRISM that would leave now, `most` of
    /// them at most. All are single packets, and `fits` holds for each; it is asked of the first one only if
    /// others follow. They are those that depend on the success of the one before. With `mixed` other
    /// operations of PRISM travel along while such a chain is on its way, since its frame has another length
    /// than theirs.
    pub fn chained(
        &self,
        now: Instant,
        most: usize,
        mixed: bool,
        mut fits: impl FnMut(&Message<D>) -> bool,
    ) -> Chained {
        let Parameters { mtu, window, max_rd_atomic, .. } = self.parameters;
        let Some(first) = self.starts_together(now) else { return Chained::No };
        let mixed = mixed
            && self.last_conditional > self.next_message
            && matches!(first.message.kind, Kind::Prism(_));
        let (mut count, mut fetches) = (0, usize::from(first.message.kind.is_fetch()));
        while count < most
            && let Some((placed, extended)) = self.follower(count as u64 + 1, mixed)
            && extended.requests(placed.message.len, mtu) == 1
            && !self.failing.bars(self.next_message + count as u64 + 1)
            // The first one is asked about only if others follow.
            && (count > 0 || fits(&first.message))
            && fits(&placed.message)
        {
            fetches += 1;
            let (most_fetches, window) = (usize::from(max_rd_atomic), u64::from(window));
            if self.fetches.len() + fetches > most_fetches || placed.end - self.tx_window.snd_una > window {
                // A chain stays together, unless nothing is under way: then the limits will never be wider.
                let ever = fetches <= most_fetches && placed.end - first.first <= window;
                if ever && self.ack_is_owed() && extended.flags().has(Flags::CONDITIONAL) {
                    return Chained::Waits;
                }
                break;
            }
            count += 1;
        }
        let plain = !matches!(first.message.kind, Kind::Prism(_));
        if plain && count == 0 { Chained::No } else { Chained::With(count) }
    }

    /// The message whose only packet would leave now, if others could travel with it.
    fn starts_together(&self, now: Instant) -> Option<&Placed<D>> {
        let placed =
            self.window.get(self.next_message).filter(|placed| placed.first == self.tx_window.snd_nxt)?;
        let Message { kind, len, .. } = &placed.message;
        let able = matches!(kind, Kind::Write { .. } | Kind::Prism(_));
        let may = able && now >= self.rnr_until && !self.failing.bars(self.next_message);
        let whole = may && kind.requests(*len, self.parameters.mtu) == 1;
        (whole && !self.waits(placed, 0, (placed.end - placed.first) as u32)).then_some(placed)
    }

    /// Takes an operation of PRISM, and records whether it belongs to a chain.
    #[inline(always)]
    pub fn submit_prism(&mut self, message: Message<D>) {
        if let Kind::Prism(extended) = message.kind
            && extended.flags().has(Flags::CONDITIONAL)
        {
            self.last_conditional = self.window.bounds().1;
        }
        self.submit(message);
    }

    /// The `ahead`-th message behind the one that leaves now, if it is conditional, or in `mixed` company.
    fn follower(&self, ahead: u64, mixed: bool) -> Option<(&Placed<D>, &prism::Extended)> {
        let placed = self.window.get(self.next_message + ahead)?;
        match &placed.message.kind {
            Kind::Prism(extended)
                if (mixed || extended.flags().has(Flags::CONDITIONAL)) && !placed.message.fence =>
            {
                Some((placed, extended))
            }
            _ => None,
        }
    }

    /// The `ahead`-th of the requests that travel together.
    pub fn part(&self, ahead: usize) -> Option<Part<'_, D>> {
        let Placed { first, end, message } = self.window.get(self.next_message + ahead as u64)?;
        Some(Part { psn: psn(*first), ack_req: message.kind.is_fetch() || self.needs_ack_req(*end), message })
    }

    /// `count` requests have left together.
    pub fn sent_together(&mut self, now: Instant, count: usize, counters: &mut Counters) {
        for _ in 0..count {
            let Some(Placed { first, end, message }) = self.window.get(self.next_message) else { return };
            let (packets, fetch) = ((end - first) as u32, message.kind.is_fetch());
            let asks = fetch || self.needs_ack_req(*end);
            counters.retransmitted_pkts += u64::from(self.tx_window.retransmitting());
            self.tx_window.sent(packets);
            if fetch {
                self.fetches.push_back(self.tx_window.snd_nxt);
            }
            self.next_message += 1;
            self.left(now, asks);
        }
        self.step_over_local();
    }

    /// Takes the answer to a chain that left as one packet. `each` writes a result to the memory of its
    /// message; its error is the status of that message. Answers are taken in order, behind all earlier ones.
    #[inline(always)]
    pub fn receive_chain_answer(
        &mut self,
        now: Instant,
        packet: &packet::View<'_>,
        counters: &mut Counters,
        mut each: impl FnMut(&D, ChainResult<'_>) -> Result<(), Status>,
    ) {
        let last = extend(self.tx_window.snd_una, packet.bth.psn);
        if last < self.tx_window.snd_una || last >= self.tx_window.snd_max {
            return;
        }
        let Some((mut number, expected)) = self.first_fetch() else { return };
        let first = (last + 1).saturating_sub(u64::from(packet.bth.resv7));
        if expected < first {
            self.arrived(now, first, counters);
            return;
        }
        let mut answers = chain::answers(packet.payload);
        while let Some(placed) = self.window.get_mut(number).filter(|placed| placed.first <= last) {
            if placed.message.kind.is_fetch() {
                let Some((verdict, result)) = next_chain_result(placed, &mut answers) else { break };
                if let ChainResult::Bytes(bytes) = result {
                    placed.message.len = bytes.len() as u32;
                }
                self.verdicts.push_back(verdict);
                if let Err(status) = each(&placed.message.context, result) {
                    self.failing.add(number, status);
                }
            }
            number += 1;
        }
        let upto = self.window.get(number).map_or(self.write_seq, |placed| placed.first);
        self.advance(now, upto.min(last + 1));
        if upto <= last || !answers.is_empty() {
            // Too few answers: the operation without one; too many: the last.
            self.fail(number - u64::from(upto > last), Status::BadResponse);
        }
    }
}

/// The verdict and the result for a message from the next answer of the chain.
#[inline(always)]
fn next_chain_result<'a, D>(
    placed: &Placed<D>,
    answers: &mut chain::Answers<'a>,
) -> Option<(Verdict, ChainResult<'a>)> {
    let Kind::Prism(extended) = &placed.message.kind else { return None };
    let (verdict, bytes) = answers.next().filter(|_| placed.end == placed.first + 1)?;
    Some((verdict, prism::chain_result(extended, placed.message.len, bytes)?))
}
