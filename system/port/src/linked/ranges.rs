//! The map from QPN ranges of the shared address to links.

use crate::Peer;
use crate::udp::RANGES;

/// Number of datagrams to a range without a link after which the port requests a link once more: another
/// program may have the range by then.
const ASK_AGAIN: u16 = 4096;

/// The links by QPN range.
#[derive(Debug)]
pub(super) struct Ranges {
    links: [Option<Peer>; RANGES],
    /// The range that each link leads to, indexed by the number of the link.
    by_link: Vec<u8>,
    /// Number of datagrams to each range until the port requests a link.
    patience: [u16; RANGES],
}

impl Ranges {
    pub(super) fn new() -> Ranges {
        Ranges { links: [None; RANGES], by_link: Vec::new(), patience: [0; RANGES] }
    }

    /// Returns the link to this range.
    #[inline]
    pub(super) fn get(&self, range: u8) -> Option<Peer> {
        self.links.get(usize::from(range)).copied().flatten()
    }

    /// Makes this link lead to the range.
    pub(super) fn set(&mut self, range: u8, link: Peer) {
        if let Some(place) = self.links.get_mut(usize::from(range)) {
            *place = Some(link);
        }
        let number = link.0 as usize;
        if number >= self.by_link.len() {
            self.by_link.resize(number + 1, 0);
        }
        self.by_link[number] = range;
    }

    /// Returns the range that a link leads to.
    #[inline]
    pub(super) fn range_of(&self, link: Peer) -> Option<u8> {
        self.by_link.get(link.0 as usize).copied()
    }

    /// Removes a link that has ended.
    pub(super) fn forget(&mut self, link: Peer) {
        for (place, patience) in self.links.iter_mut().zip(&mut self.patience) {
            if *place == Some(link) {
                (*place, *patience) = (None, 0);
            }
        }
    }

    /// Counts a datagram to a range that has no link, and returns whether the port must request one. Range
    /// 0 belongs to the owner of the address, which has no link.
    pub(super) fn must_ask(&mut self, range: u8) -> bool {
        let Some(patience) = self.patience.get_mut(usize::from(range)).filter(|_| range != 0) else {
            return false;
        };
        let ask = *patience == 0;
        *patience = if ask { ASK_AGAIN } else { *patience - 1 };
        ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_a_link_is_asked_for_at_once_and_then_seldom() {
        let mut ranges = Ranges::new();
        let asked: Vec<usize> = (0..10_000).filter(|_| ranges.must_ask(9)).collect();
        assert_eq!(asked, [0, 4097, 8194]);
        assert!(!ranges.must_ask(0) && !ranges.must_ask(200));
    }

    #[test]
    fn a_link_that_is_gone_is_asked_for_again_and_takes_no_newer_one_with_it() {
        let mut ranges = Ranges::new();
        assert!(ranges.must_ask(3));
        ranges.set(3, Peer(7));
        ranges.set(4, Peer(8));
        ranges.set(4, Peer(9));
        ranges.forget(Peer(8));
        assert_eq!((ranges.get(3), ranges.get(4), ranges.get(5)), (Some(Peer(7)), Some(Peer(9)), None));
        ranges.forget(Peer(7));
        assert_eq!(ranges.get(3), None);
        assert!(ranges.must_ask(3));
    }
}
