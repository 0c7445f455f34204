//! ECN marking at switches.

use remora_fault::Random;

use super::packet::{Flags, Packet};

/// RED thresholds of an egress queue, in bytes that wait when a packet arrives (DCQCN paper, §3.1 and figure
/// 5).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// `K_min`: queue length up to which no packet is marked.
    pub k_min: usize,
    /// `K_max`: queue length above which every packet is marked.
    pub k_max: usize,
    /// `P_max`: probability of a mark at `K_max`, in thousandths.
    pub p_max_thousandths: u32,
}

impl Default for Marks {
    /// The thresholds of DCQCN's paper (§5): 5 KB, 200 KB, 1 %.
    fn default() -> Marks {
        Marks { k_min: 5_000, k_max: 200_000, p_max_thousandths: 10 }
    }
}

impl Marks {
    /// Returns the probability of a mark at a queue length of `held` bytes.
    pub(super) fn likelihood(&self, held: usize) -> f64 {
        if held <= self.k_min {
            return 0.0;
        }
        if held > self.k_max {
            return 1.0;
        }
        let part = (held - self.k_min) as f64 / (self.k_max - self.k_min).max(1) as f64;
        part * f64::from(self.p_max_thousandths) / 1000.0
    }
}

/// The ECN settings of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkConfig {
    /// Thresholds by link rate in bit/s. An entry without a rate applies to all other rates.
    pub by_rate: Vec<(Option<u64>, Marks)>,
    /// If true, a packet is marked on departure by the bytes that remain queued. Otherwise it is marked on
    /// arrival by the bytes ahead of it.
    pub at_dequeue: bool,
    /// Mask of the classes that are marked.
    pub classes: u8,
}

impl MarkConfig {
    /// Returns the thresholds for ports of this rate, or `None` if these ports do not mark.
    pub(super) fn of(&self, rate: u64) -> Option<Marks> {
        let exact = self.by_rate.iter().find(|(entry, _)| *entry == Some(rate));
        exact.or_else(|| self.by_rate.iter().find(|(entry, _)| entry.is_none())).map(|(_, marks)| *marks)
    }
}

/// Draws whether an ECN-capable packet is marked at this queue length, and marks it. Returns true if it was
/// marked.
#[inline]
pub(super) fn mark(
    config: &MarkConfig,
    marks: &Marks,
    packet: &mut Packet,
    queued: u32,
    random: &mut Random,
) -> bool {
    if !packet.flags.has(Flags::ECN_CAPABLE) || config.classes & 1 << packet.class == 0 {
        return false;
    }
    let marked = random.chance(marks.likelihood(queued as usize));
    if marked {
        packet.flags = packet.flags.with(Flags::MARKED);
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_marked_up_to_k_min_everything_beyond_k_max_and_p_max_of_it_between() {
        let marks = Marks { k_min: 1_000, k_max: 3_000, p_max_thousandths: 500 };
        assert_eq!(
            [0, 1_000, 2_000, 3_000, 3_001].map(|held| marks.likelihood(held)),
            [0.0, 0.0, 0.25, 0.5, 1.0]
        );
        let config = MarkConfig { by_rate: vec![(None, marks)], at_dequeue: false, classes: 1 << 3 };
        let counts = [0, 2_000, 3_001].map(|queued| {
            let mut random = Random::new(1);
            let mut draw = || {
                let mut packet = Packet::new(0, 3, 100, 0).flagged(Flags::ECN_CAPABLE);
                let marked = mark(&config, &marks, &mut packet, queued, &mut random);
                assert_eq!(packet.flags.has(Flags::MARKED), marked);
                marked
            };
            (0..10_000).filter(|_| draw()).count()
        });
        assert_eq!((counts[0], counts[2]), (0, 10_000));
        assert!((2_200..2_800).contains(&counts[1]), "{counts:?}");
    }

    #[test]
    fn only_what_may_be_marked_and_is_of_the_classes_that_are_is_marked() {
        let marks = Marks { k_min: 0, k_max: 0, p_max_thousandths: 1000 };
        let config = MarkConfig { by_rate: vec![(None, marks)], at_dequeue: false, classes: 1 << 3 };
        let marked = |class, flags| {
            let mut packet = Packet::new(0, class, 100, 0).flagged(flags);
            mark(&config, &marks, &mut packet, 1, &mut Random::new(0))
        };
        assert!(marked(3, Flags::ECN_CAPABLE));
        assert!(!marked(2, Flags::ECN_CAPABLE) && !marked(3, Flags::NONE));
    }
}
