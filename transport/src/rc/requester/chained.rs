//! What travels together: the requests of a chain of PRISM's, looked at before the first of them leaves.

use super::{Kind, Message, Placed, Plan, Requester, prism};
use crate::Instant;
use crate::rc::Parameters;
use wire::prism::Flags;

/// What could travel with a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Chained {
    /// Nothing.
    No,
    /// So many further requests.
    With(usize),
    /// More, as soon as there are answers.
    Waits,
}

impl<D: Copy> Requester<D> {
    /// How many requests could travel together with a WRITE or an operation of PRISM that would leave now, each of one packet: of
    /// `most` at most, while `fits` says so of each, the first one too. They are those that wait for the success of the one before;
    /// and, `mixed`, whatever else of PRISM's is on its way with such a chain: its frame is of another length than theirs.
    pub fn chained(
        &self,
        most: usize,
        mixed: bool,
        mut fits: impl FnMut(&Message<D>, Option<&prism::Extended>) -> bool,
    ) -> Chained {
        let Parameters { mtu, window, max_rd_atomic, .. } = self.parameters;
        let whole = |placed: &Placed<D>| placed.message.kind.requests(placed.message.len, mtu) == 1;
        let starts = |placed: &&Placed<D>| placed.first == self.go.cursor && whole(placed);
        let Some(first) = self.window.get(self.at).filter(starts) else { return Chained::No };
        let mixed = mixed && self.conditional > self.at && matches!(first.message.kind, Kind::Prism(_));
        let begins = match &first.message.kind {
            Kind::Write { .. } => self.follower(1, mixed).is_some() && fits(&first.message, None),
            Kind::Prism(extended) => {
                self.follower(1, mixed).is_some() && fits(&first.message, Some(extended))
            }
            _ => false,
        };
        let (mut count, mut fetches) = (0, usize::from(first.message.kind.is_fetch()));
        while begins
            && count < most
            && let Some((number, placed, extended)) = self.follower(count as u64 + 1, mixed)
            && whole(placed)
            && !self.failing.bars(number)
            && fits(&placed.message, Some(&extended))
        {
            fetches += 1;
            let (room, window) = (usize::from(max_rd_atomic), u64::from(window));
            if self.fetches.len() + fetches > room || placed.end - self.go.una > window {
                // A chain stays together, unless nothing is under way: then there will never be more room.
                let ever = fetches <= room && placed.end - first.first <= window;
                if ever && self.go.in_flight() > 0 && extended.flags().has(Flags::CONDITIONAL) {
                    return Chained::Waits;
                }
                break;
            }
            count += 1;
        }
        if count == 0 { Chained::No } else { Chained::With(count) }
    }

    /// The packet that would leave now, whatever it is of.
    pub fn plan_any(&self, now: Instant) -> Option<(Plan, Option<prism::Extended>)> {
        let plain = self.plan(now).map(|plan| (plan, None));
        plain.or_else(|| self.plan_prism(now).map(|(plan, extended)| (plan, Some(extended))))
    }

    /// Takes an operation of PRISM, and knows from then on whether a chain is on its way.
    pub fn submit_prism(&mut self, message: Message<D>) {
        if let Kind::Prism(extended) = message.kind
            && extended.flags().has(Flags::CONDITIONAL)
        {
            self.conditional = self.window.bounds().1;
        }
        self.submit(message);
    }

    /// The `ahead`-th message behind the one that leaves now, if it is conditional, or in `mixed` company.
    fn follower(&self, ahead: u64, mixed: bool) -> Option<(u64, &Placed<D>, prism::Extended)> {
        let placed = self.window.get(self.at + ahead)?;
        match placed.message.kind {
            Kind::Prism(extended)
                if (mixed || extended.flags().has(Flags::CONDITIONAL)) && !placed.message.fence =>
            {
                Some((self.at + ahead, placed, extended))
            }
            _ => None,
        }
    }

    /// The packet of the `ahead`-th request behind the one that leaves now, with which it travels.
    pub fn plan_chained(&self, ahead: usize) -> Option<(Plan, prism::Extended)> {
        let (number, placed, extended) = self.follower(ahead as u64, true)?;
        let count = (placed.end - placed.first) as u32;
        Some((self.describe_prism(placed, &extended, (number, placed.first), (0, count)), extended))
    }
}
