//! The scheduler that replaces the single queue of queue pairs while several tenants share the NIC, or while
//! the buffers of one peer are full.
//!
//! Each tenant of the NIC daemon has a queue of its own, and deficit round robin serves the tenants
//! (Shreedhar and Varghese, 1995). In each round, a tenant may send one quantum, in turns of its queue pairs;
//! bytes beyond the quantum are subtracted from the next one. So a tenant with a thousand busy queue pairs
//! gets no more bandwidth than one with a single queue pair.
//!
//! Queue pairs whose peer's buffers are full are skipped for the rest of the call, and keep their order.

use std::collections::VecDeque;

use remora_wire::frame::Peer;

use crate::turn::{TURN_BYTES, TURN_PACKETS, TurnUsage};

/// Number of bytes that a tenant may send per round, equal to one turn of a queue pair. A packet counts as at
/// least `PACKET` bytes, because a turn is limited by both packets and bytes.
const QUANTUM: i64 = TURN_BYTES as i64;
const PACKET: usize = TURN_BYTES / TURN_PACKETS;
/// Maximum number of full peers tracked in one call. A further full peer ends the call; the next call begins
/// with other queue pairs.
const FULL: usize = 16;
/// Maximum number of a tenant's queue pairs that are skipped in one call. After that, the tenant waits for
/// the next call.
const PASSED: usize = 64;

/// 1RMA of the engine is scheduled like a queue pair, as the only member of this tenant.
pub(crate) const RMA: u32 = u32::MAX - 1;
pub(crate) const RMA_TENANT: u32 = 1;
/// The lowest tenant number that can be assigned to queue pairs.
pub const FIRST_TENANT: u32 = 2;

/// A tenant: queue pairs that share one quantum.
#[derive(Debug, Default)]
struct Tenant {
    line: VecDeque<u32>,
    members: usize,
    /// Number of bytes that the tenant may still send.
    credit: i64,
    in_round: bool,
    /// Number of queue pairs that were skipped in call `call`.
    passed: usize,
    call: u64,
}

/// The queues of all tenants. Tenant 0 has the queue pairs without a tenant, tenant 1 is 1RMA.
pub(crate) struct FairScheduler {
    tenants: Vec<Tenant>,
    /// Number of queue pairs of all tenants except tenant 0.
    members: usize,
    /// `round`: tenants with queued queue pairs, the next one first. `out`: tenants that are blocked for the
    /// rest of this call.
    round: VecDeque<u32>,
    out: VecDeque<u32>,
    /// Peers whose buffers are full in this call.
    full: Vec<Peer>,
    call: u64,
    is_on: bool,
}

impl FairScheduler {
    /// Creates a scheduler without tenants, for at most `places` queue pairs.
    pub(crate) fn new(places: usize) -> FairScheduler {
        let tenant = |places| Tenant { line: VecDeque::with_capacity(places), ..Tenant::default() };
        FairScheduler {
            tenants: vec![tenant(places), tenant(1)],
            members: 0,
            round: VecDeque::with_capacity(2),
            out: VecDeque::with_capacity(2),
            full: Vec::with_capacity(FULL),
            call: 0,
            is_on: false,
        }
    }

    /// Returns true if the scheduler is in use, rather than the single queue.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns true if any queue pair is queued in the scheduler.
    #[cold]
    pub(crate) fn waits(&self) -> bool {
        !self.round.is_empty()
    }

    /// Adds a queue pair to a tenant.
    pub(crate) fn join(&mut self, tenant: u32) {
        let tenants = self.tenants.len().max(tenant as usize + 1);
        self.tenants.resize_with(tenants, Tenant::default);
        self.round.reserve(tenants);
        self.out.reserve(tenants);
        if tenant > 0 {
            let joined = &mut self.tenants[tenant as usize];
            joined.members += 1;
            joined.line.reserve(joined.members);
            self.members += 1;
            self.is_on = true;
        }
    }

    /// Removes a queue pair, queued or not, from a tenant.
    pub(crate) fn leave(&mut self, tenant: u32, index: u32) {
        self.tenants.iter_mut().for_each(|tenant| tenant.line.retain(|place| *place != index));
        if tenant > 0 {
            self.tenants[tenant as usize].members -= 1;
            self.members -= 1;
        }
    }

    /// Begins a call: all peers are assumed to have free buffers.
    #[cold]
    pub(crate) fn begin(&mut self) {
        self.full.clear();
        self.call += 1;
    }

    /// Returns the queue pair whose turn it is. The queue pairs in `line`, which were added since the last
    /// call, are first moved to their tenants' queues. `tenant_and_peer` returns the tenant and the peer of
    /// a queue pair.
    #[cold]
    pub(crate) fn next(
        &mut self,
        line: &mut VecDeque<u32>,
        tenant_and_peer: impl Fn(u32) -> Option<(u32, Peer)>,
    ) -> Option<u32> {
        for index in line.drain(..) {
            self.enter(index, tenant_and_peer(index).map_or(0, |(tenant, _)| tenant));
        }
        loop {
            let number = *self.round.front()?;
            let tenant = &mut self.tenants[number as usize];
            if tenant.credit <= 0 {
                tenant.credit += QUANTUM;
                self.round.rotate_left(1);
                continue;
            }
            let Some(index) = tenant.line.pop_front() else {
                // An idle tenant keeps no credit. It has no debt either, because the turns that it passed on
                // have paid it.
                (tenant.in_round, tenant.credit) = (false, 0);
                self.round.pop_front();
                continue;
            };
            if self.full.is_empty()
                || tenant_and_peer(index).is_none_or(|(_, peer)| !self.full.contains(&peer))
            {
                return Some(index);
            }
            self.pass_over(index, number);
        }
    }

    /// Skips a queue pair whose peer is full.
    fn pass_over(&mut self, index: u32, number: u32) {
        let tenant = &mut self.tenants[number as usize];
        tenant.line.push_back(index);
        if std::mem::replace(&mut tenant.call, self.call) != self.call {
            tenant.passed = 0;
        }
        tenant.passed += 1;
        if tenant.passed >= tenant.line.len().min(PASSED) {
            self.round.pop_front();
            self.out.push_back(number);
        }
    }

    /// Appends a queue pair to its tenant's queue.
    fn enter(&mut self, index: u32, tenant: u32) {
        let Tenant { line, credit, in_round, .. } = &mut self.tenants[tenant as usize];
        line.push_back(index);
        if !std::mem::replace(in_round, true) {
            *credit += QUANTUM;
            self.round.push_back(tenant);
        }
    }

    /// Queues 1RMA, unless it is already queued.
    #[cold]
    pub(crate) fn enter_rma(&mut self) {
        if self.tenants[RMA_TENANT as usize].line.is_empty() {
            self.enter(RMA, RMA_TENANT);
        }
    }

    /// Charges a finished turn to its tenant. With `more`, the queue pair is queued again.
    #[cold]
    pub(crate) fn served(&mut self, index: u32, tenant: u32, more: bool, used: &TurnUsage) {
        self.charge(tenant, used);
        if more {
            self.enter(index, tenant);
        }
    }

    /// Marks the peer of a queue pair as full, which ends the turn of the queue pair if it sent any packet.
    /// Returns false if the maximum number of full peers is reached.
    #[cold]
    pub(crate) fn blocked(
        &mut self,
        line: &mut VecDeque<u32>,
        index: u32,
        tenant: u32,
        peer: Peer,
        used: &TurnUsage,
    ) -> bool {
        if !std::mem::replace(&mut self.is_on, true) {
            // The single queue was in use until now.
            self.begin();
            line.drain(..).for_each(|index| self.enter(index, 0));
        }
        let is_told = self.full.len() < FULL;
        if used.packets > 0 {
            self.enter(index, tenant);
        } else {
            self.stay(index, tenant);
        }
        self.charge(tenant, used);
        if is_told {
            self.full.push(peer);
        }
        is_told
    }

    /// Keeps the queue pair at the front, because the port has no free frame.
    #[cold]
    pub(crate) fn stay(&mut self, index: u32, tenant: u32) {
        self.enter(index, tenant);
        self.tenants[tenant as usize].line.rotate_right(1);
    }

    /// Keeps the queue pair at the front and charges the part of its turn that it has used.
    #[cold]
    pub(crate) fn interrupted(&mut self, index: u32, tenant: u32, used: &TurnUsage) {
        self.stay(index, tenant);
        if used.packets > 0 {
            self.charge(tenant, used);
        }
    }

    /// Ends the turn of 1RMA because its remaining messages are for full peers such as `peer`. 1RMA continues
    /// in the next call.
    #[cold]
    pub(crate) fn rma_blocked(&mut self, peer: Peer, used: &TurnUsage) {
        self.stay(RMA, RMA_TENANT);
        self.round.pop_front();
        self.out.push_back(RMA_TENANT);
        if used.packets > 0 || self.full.is_empty() {
            self.charge(RMA_TENANT, used);
        }
        if self.full.len() < FULL && !self.full.contains(&peer) {
            self.full.push(peer);
        }
    }

    fn charge(&mut self, tenant: u32, used: &TurnUsage) {
        let cost = used.bytes.max(used.packets.max(1) * PACKET);
        self.tenants[tenant as usize].credit -= cost as i64;
    }

    /// Ends a call. If the single queue suffices, the queue pairs of tenant 0 return to it.
    #[cold]
    pub(crate) fn end(&mut self, line: &mut VecDeque<u32>) {
        while let Some(tenant) = self.out.pop_back() {
            self.round.push_front(tenant);
        }
        if self.members > 0 || !self.full.is_empty() {
            return;
        }
        let source = &mut self.tenants[0].line;
        while let Some(index) = source.pop_back() {
            line.push_front(index);
        }
        self.tenants[RMA_TENANT as usize].line.clear();
        // Tenants whose queue pairs left in the middle of a round are in it, too.
        for number in self.round.drain(..) {
            let tenant = &mut self.tenants[number as usize];
            (tenant.credit, tenant.in_round) = (0, false);
        }
        self.is_on = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of queue pairs that always have packets to send; each has a tenant and a peer.
    struct Model {
        scheduler: FairScheduler,
        line: VecDeque<u32>,
        queue_pairs: Vec<(u32, Peer)>,
        /// Number of bytes that each queue pair has sent.
        sent: Vec<usize>,
        calls: usize,
    }

    impl Model {
        fn new(queue_pairs: &[(u32, u32)]) -> Model {
            let queue_pairs: Vec<(u32, Peer)> =
                queue_pairs.iter().map(|(tenant, peer)| (*tenant, Peer(*peer))).collect();
            let mut scheduler = FairScheduler::new(queue_pairs.len());
            queue_pairs.iter().for_each(|(tenant, _)| scheduler.join(*tenant));
            let line = (0..queue_pairs.len() as u32).collect();
            let sent = vec![0; queue_pairs.len()];
            Model { scheduler, line, queue_pairs, sent, calls: 0 }
        }

        /// Runs a call of `turns` turns. `turn` returns what a queue pair sends, and whether its peer is full
        /// afterwards.
        fn call(&mut self, turns: usize, mut turn: impl FnMut(u32) -> (TurnUsage, bool)) {
            self.calls += 1;
            self.scheduler.begin();
            for _ in 0..turns {
                let tenant_and_peer = |index: u32| self.queue_pairs.get(index as usize).copied();
                let Some(index) = self.scheduler.next(&mut self.line, tenant_and_peer) else { break };
                let (used, full) = turn(index);
                let queue_pair = self.queue_pairs[index as usize];
                self.sent[index as usize] += used.bytes;
                if !full {
                    self.scheduler.served(index, queue_pair.0, true, &used);
                } else if !self.scheduler.blocked(&mut self.line, index, queue_pair.0, queue_pair.1, &used) {
                    break;
                }
            }
            self.scheduler.end(&mut self.line);
        }

        fn of_party(&self, tenant: u32) -> usize {
            self.queue_pairs
                .iter()
                .zip(&self.sent)
                .filter(|((owner, _), _)| *owner == tenant)
                .map(|(_, sent)| sent)
                .sum()
        }
    }

    fn used(packets: usize, bytes: usize) -> TurnUsage {
        TurnUsage { packets, bytes }
    }

    #[test]
    fn many_queue_pairs_get_their_party_no_more_than_one_and_each_of_them_the_same() {
        let queue_pairs: Vec<(u32, u32)> = (0..64).map(|_| (1, 0)).chain([(2, 0), (3, 0)]).collect();
        let mut model = Model::new(&queue_pairs);
        // Long packets, short ones, and turns that go far beyond their bounds, as a chain's may.
        let turn = |index: u32| match index {
            0..64 => (used(4, 16 << 10), false),
            64 => (used(16, 1024), false),
            _ => (used(4, 64 << 10), false),
        };
        for _ in 0..4000 {
            model.call(4, turn);
        }
        let [many, short, far] = [1, 2, 3].map(|tenant| model.of_party(tenant));
        let near = |a: usize, b: usize| a.abs_diff(b) * 50 < a + b;
        assert!(near(many, far), "{many} {far}");
        assert!(near(many, short * 16), "16 short packets are a turn: {many} {short}");
        let least = model.sent[..64].iter().min();
        let most = model.sent[..64].iter().max();
        assert!(most.unwrap() - least.unwrap() <= 16 << 10, "{least:?} {most:?}");
    }

    #[test]
    fn who_comes_waits_for_no_more_than_a_turn_of_each_other_party() {
        let queue_pairs: Vec<(u32, u32)> = (0..40).map(|index| (1 + index / 20, 0)).chain([(3, 0)]).collect();
        let mut model = Model::new(&queue_pairs);
        // The last one comes later.
        model.line.pop_back();
        for _ in 0..100 {
            model.call(1, |_| (used(16, 16 << 10), false));
        }
        model.line.push_back(40);
        let mut turns = 0;
        while model.sent[40] == 0 {
            turns += 1;
            model.call(1, |_| (used(16, 16 << 10), false));
        }
        assert!(turns <= 3, "{turns}");
    }

    #[test]
    fn a_peer_without_room_holds_up_nobody_who_sends_to_another() {
        // Tenant 0: a hundred queue pairs for a peer that stands still, and one for another.
        let queue_pairs: Vec<(u32, u32)> = (0..100).map(|_| (0, 7)).chain([(0, 8)]).collect();
        let mut model = Model::new(&queue_pairs);
        model.scheduler.is_on = true;
        for _ in 0..10 {
            model.call(64, |index| if index < 100 { (used(0, 0), true) } else { (used(16, 1024), false) });
        }
        assert!(model.sent[100] >= 5 * 1024, "{}", model.sent[100]);
        assert!(model.scheduler.is_on());
        // The peer has space again: all of them have their turns, and one line is enough.
        model.call(200, |_| (used(16, 1024), false));
        assert!(model.sent.iter().all(|sent| *sent >= 1024), "{:?}", model.sent);
        assert!(!model.scheduler.is_on() && !model.scheduler.waits() && model.line.len() == 101);
    }

    #[test]
    fn peers_without_room_beyond_those_that_are_told_apart_starve_neither_their_party_nor_another() {
        let stopped = 3 * FULL as u32;
        let queue_pairs: Vec<(u32, u32)> =
            (0..stopped).map(|peer| (1, peer)).chain([(1, 900), (2, 901)]).collect();
        let mut model = Model::new(&queue_pairs);
        for _ in 0..40 {
            model.call(64, |index| if index < stopped { (used(0, 0), true) } else { (used(1, 100), false) });
        }
        let [mine, other] = [stopped, stopped + 1].map(|index| model.sent[index as usize]);
        assert!(mine >= 500 && other >= 1000, "{mine} {other}");
    }

    #[test]
    fn a_queue_pair_that_goes_is_in_no_line() {
        let mut model = Model::new(&[(1, 0), (1, 0), (2, 0)]);
        model.call(1, |_| (used(1, 100), false));
        model.scheduler.leave(1, 1);
        model.scheduler.leave(2, 2);
        for _ in 0..20 {
            model.call(1, |index| {
                assert_eq!(index, 0);
                (used(1, 100), false)
            });
        }
        model.scheduler.leave(1, 0);
        model.call(1, |_| unreachable!("nobody is left"));
        assert!(!model.scheduler.is_on());
    }

    /// Regression: a tenant whose last queue pair went in the middle of a round stayed marked as
    /// scheduled, so the next tenant with its number never had a turn.
    #[test]
    fn rma_has_the_turns_of_one_party_and_comes_back_when_parties_do() {
        let mut scheduler = FairScheduler::new(4);
        let mut line = VecDeque::from([0, 1]);
        let tenant_and_peer = |index: u32| [(2, Peer(0)), (3, Peer(0))].get(index as usize).copied();
        let calls = |scheduler: &mut FairScheduler, line: &mut VecDeque<u32>, bytes: usize| {
            let mut sent = [0; 3];
            for _ in 0..300 {
                scheduler.begin();
                scheduler.enter_rma();
                scheduler.enter_rma();
                let index = scheduler.next(line, tenant_and_peer).unwrap();
                let (place, tenant) =
                    if index == RMA { (2, RMA_TENANT) } else { (index as usize, index + 2) };
                let used = used(4, if index == RMA { bytes } else { 16 << 10 });
                sent[place] += used.bytes;
                scheduler.served(index, tenant, index != RMA, &used);
                scheduler.end(line);
            }
            sent
        };
        [2, 3].into_iter().for_each(|tenant| scheduler.join(tenant));
        let sent = calls(&mut scheduler, &mut line, 48 << 10);
        let least = sent.iter().min().unwrap();
        let most = sent.iter().max().unwrap();
        assert!(most - least <= 64 << 10, "turns beyond their bounds are paid for: {sent:?}");
        // Its peers are full: in the next call its turn goes on, before those behind it.
        scheduler.begin();
        scheduler.enter_rma();
        while scheduler.next(&mut line, tenant_and_peer) != Some(RMA) {
            scheduler.round.rotate_left(1);
        }
        scheduler.rma_blocked(Peer(7), &TurnUsage::default());
        assert!(scheduler.next(&mut line, tenant_and_peer) != Some(RMA), "others have their turns meanwhile");
        scheduler.end(&mut line);
        scheduler.begin();
        scheduler.enter_rma();
        assert_eq!(scheduler.next(&mut line, tenant_and_peer), Some(RMA));
        scheduler.interrupted(RMA, RMA_TENANT, &TurnUsage::default());
        // It stands in line when the last party goes.
        scheduler.leave(2, 0);
        scheduler.leave(3, 1);
        scheduler.end(&mut line);
        assert!(!scheduler.is_on() && !scheduler.waits());
        scheduler.join(2);
        line.push_back(0);
        let sent = calls(&mut scheduler, &mut line, 16 << 10);
        assert!(sent[0] > 0 && sent[2] > 0 && sent[1] == 0, "{sent:?}");
    }
}
