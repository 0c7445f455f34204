//! The shared buffer of ConWeave's ns-3 program (Song et al., SIGCOMM 2023; `switch-mmu.cc`), which differs
//! from HPCC's.
//!
//! Pauses depend on the input accounts, and drops depend on the output queues. The headroom is not separate
//! memory: it counts only while the shared part is full.

use super::{Account, Admission};
use crate::network::port::CLASSES;

/// The limits of a buffer of ConWeave's kind.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConweaveConfig {
    /// Size of the buffer in bytes, including headroom and reserves.
    pub size: u64,
    /// Bytes that are reserved for each port and class. An input is not paused for up to twice this amount.
    pub reserve: u32,
    /// Bytes that are reserved for each input port and class for packets that arrive after a pause was sent.
    pub headroom: u32,
    /// Share of the free memory that a class of an input port may hold, in units of 1/256.
    pub ingress_alpha: u32,
    /// Share of the free output memory that a queue of an output port may hold, in units of 1/256.
    pub egress_alpha: u32,
    /// Mask of the classes that are counted. Packets of other classes are always admitted.
    pub classes: u8,
}

/// The bytes in a switch, counted by inputs and by outputs.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Shares {
    /// Bytes of all inputs, and the limit that they share.
    ingress: u64,
    ingress_limit: u64,
    /// Bytes of the output queues beyond their reserves, and the limit that they share.
    egress: u64,
    egress_limit: u64,
}

impl Shares {
    /// Returns the totals of an empty switch with `ports` ports.
    pub(super) fn new(config: &ConweaveConfig, ports: u32) -> Shares {
        let ports = u64::from(ports);
        let egress_limit = config.size.saturating_sub(ports * u64::from(config.reserve) * CLASSES as u64);
        let ingress_limit = egress_limit.saturating_sub(ports * u64::from(config.headroom));
        Shares { ingress: 0, ingress_limit, egress: 0, egress_limit }
    }

    /// Returns the bytes in the switch.
    pub(super) fn used(&self) -> u64 {
        self.ingress
    }
}

impl ConweaveConfig {
    fn counts(&self, class: u8) -> bool {
        self.classes & 1 << class != 0
    }

    /// Returns the bytes of a queue beyond its reserve.
    fn beyond(&self, queue: u32) -> u64 {
        u64::from(queue.saturating_sub(self.reserve + 1))
    }

    /// Decides about a packet that arrived by the port of `account` and goes to an output queue of `queue`
    /// bytes.
    pub(super) fn admit(
        &self,
        shares: &mut Shares,
        account: &mut Account,
        class: u8,
        len: u32,
        queue: u32,
    ) -> Admission {
        if !self.counts(class) {
            return Admission::Taken;
        }
        let index = usize::from(class);
        let free = shares.egress_limit.saturating_sub(shares.egress);
        let behind = account.headroom[index] + len;
        let fits_egress = self.beyond(queue) + u64::from(len) <= free * u64::from(self.egress_alpha) / 256;
        let fits_ingress = account.used[index] + len <= self.reserve
            || shares.ingress <= shares.ingress_limit
            || behind <= self.headroom;
        if !fits_egress || !fits_ingress || shares.ingress + u64::from(len) > self.size {
            return Admission::Dropped;
        }
        shares.ingress += u64::from(len);
        shares.egress += self.beyond(queue + len) - self.beyond(queue);
        account.used[index] += len;
        if shares.ingress <= shares.ingress_limit {
            return Admission::Taken;
        }
        account.headroom[index] = behind;
        Admission::Headroom
    }

    /// Accounts for a packet that leaves an output queue, in which `queue` bytes remain.
    pub(super) fn leave(&self, shares: &mut Shares, account: &mut Account, class: u8, len: u32, queue: u32) {
        if !self.counts(class) {
            return;
        }
        let index = usize::from(class);
        shares.ingress -= u64::from(len);
        shares.egress -= self.beyond(queue + len) - self.beyond(queue);
        account.used[index] -= len;
        account.headroom[index] = account.headroom[index].saturating_sub(len);
    }

    /// Returns true if a class of an input port holds more than its share, or bytes in the headroom.
    pub(super) fn must_pause(&self, shares: &Shares, account: &Account, class: u8) -> bool {
        let beyond = account.used[usize::from(class)].saturating_sub(2 * self.reserve);
        let in_headroom = account.headroom[usize::from(class)] > 0;
        self.counts(class) && beyond > 0 && (in_headroom || u64::from(beyond) > self.threshold(shares))
    }

    /// Returns true if a class of an input port holds less than its share and no bytes in the headroom.
    pub(super) fn may_resume(&self, shares: &Shares, account: &Account, class: u8) -> bool {
        let held = account.used[usize::from(class)];
        let beyond = u64::from(held.saturating_sub(2 * self.reserve));
        let is_below = held < 2 * self.reserve || beyond < self.threshold(shares);
        is_below && account.headroom[usize::from(class)] == 0
    }

    /// Returns the number of bytes that a class of an input port may hold.
    fn threshold(&self, shares: &Shares) -> u64 {
        shares.ingress_limit.saturating_sub(shares.ingress) * u64::from(self.ingress_alpha) / 256
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ports and eight classes with a reserve of 100 bytes each: outputs share 20,000 bytes, inputs
    /// 19,000.
    const CONFIG: ConweaveConfig = ConweaveConfig {
        size: 21_600,
        reserve: 100,
        headroom: 500,
        ingress_alpha: 256,
        egress_alpha: 256,
        classes: 1 << 3,
    };

    fn empty() -> (Shares, Account) {
        (Shares::new(&CONFIG, 2), Account::default())
    }

    #[test]
    fn an_output_drops_what_exceeds_its_share_of_what_is_free_at_outputs() {
        let (mut shares, mut account) = empty();
        let mut queue = 0;
        while CONFIG.admit(&mut shares, &mut account, 3, 100, queue) != Admission::Dropped {
            queue += 100;
        }
        // 101 bytes are the queue's reserve. Of the others, 9,999 + 100 exceed the free bytes, 20,000 -
        // 9,999.
        assert_eq!((queue, shares.egress), (10_100, 9_999));
        assert_eq!(CONFIG.admit(&mut shares, &mut account, 0, 100, u32::MAX / 2), Admission::Taken);
        assert_eq!(account.used, [0, 0, 0, 10_100, 0, 0, 0, 0], "another class does not count");
    }

    /// Regression: a switch with ConWeave's buffer lost packets where its program loses none, because it
    /// kept the headroom of another dialect.
    #[test]
    fn the_headroom_counts_only_when_all_that_is_shared_is_used() {
        let (mut shares, mut account) = empty();
        let mut admit = |queue| CONFIG.admit(&mut shares, &mut account, 3, 100, queue);
        // Many short queues, so that no output reaches its limit.
        assert!((0..190).all(|_| admit(0) == Admission::Taken));
        assert!((0..5).all(|_| admit(0) == Admission::Headroom));
        assert_eq!(admit(0), Admission::Dropped);
        assert_eq!((shares.used(), account.headroom[3]), (19_500, 500));
        assert!(CONFIG.must_pause(&shares, &account, 3) && !CONFIG.may_resume(&shares, &account, 3));
        (0..195).for_each(|_| CONFIG.leave(&mut shares, &mut account, 3, 100, 0));
        assert_eq!((shares.ingress, shares.egress, account.used[3], account.headroom[3]), (0, 0, 0, 0));
    }

    #[test]
    fn an_input_is_paused_beyond_its_share_of_what_is_free_at_inputs() {
        let (mut shares, mut account) = empty();
        while !CONFIG.must_pause(&shares, &account, 3) {
            assert!(CONFIG.may_resume(&shares, &account, 3) || account.used[3] == 9_600);
            assert_eq!(CONFIG.admit(&mut shares, &mut account, 3, 100, 0), Admission::Taken);
        }
        // Twice the reserve does not count: 9,500 > 19,000 - 9,700.
        assert_eq!(account.used[3], 9_700);
    }
}
