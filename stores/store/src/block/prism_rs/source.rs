//! The choice of the replica that a client asks for the value of a block. The other replicas answer with
//! their tags alone.

use super::super::MAX_REPLICAS;
use super::super::set::Set;

/// Assumed nanoseconds for a value before one has arrived.
const UNKNOWN: u64 = 250_000;
/// A value is late after `TIMES` times the usual time plus `MORE` nanoseconds.
const TIMES: u64 = 4;
const MORE: u64 = 100_000;
/// Upper bound of the usual time, in nanoseconds.
const LONGEST: u64 = 100_000_000;
/// Number of reads for which a late replica is skipped. The number doubles each time, up to 2^12 times as
/// many.
const PAUSE: u64 = 16;
const DOUBLINGS: u32 = 12;

/// A replica as a source of values.
#[derive(Copy, Clone, Debug, Default)]
struct Source {
    /// Number of times the replica was late or failed, minus its timely answers since then.
    faults: u32,
    /// The replica is skipped until this number of reads have begun.
    rests_until: u64,
}

/// All replicas as sources of values.
#[derive(Debug)]
pub(crate) struct Sources {
    count: usize,
    each: [Source; MAX_REPLICAS],
    /// Replicas that were late and have not answered since.
    silent: Set,
    /// Reads that have begun.
    reads: u64,
    /// The usual time for a value in nanoseconds: a moving average.
    usual: u64,
}

impl Sources {
    pub(crate) fn new(count: usize) -> Sources {
        let each = [Source::default(); MAX_REPLICAS];
        Sources { count, each, silent: Set::NONE, reads: 0, usual: UNKNOWN }
    }

    /// Chooses the replica that a new read asks for the value.
    ///
    /// `place` spreads reads over the replicas. A replica that takes no requests, has not answered or is
    /// skipped gives way to the next one in a better state.
    pub(crate) fn choose(&mut self, place: u64, takes: impl Fn(usize) -> bool) -> usize {
        self.reads += 1;
        let first = (place % self.count as u64) as usize;
        self.best(first, takes)
    }

    /// Returns the replica in the best state, the first one in turn from `first` among equals.
    pub(crate) fn best(&self, first: usize, takes: impl Fn(usize) -> bool) -> usize {
        let turn = (0..self.count).map(|step| (first + step) % self.count);
        let badness = |replica: &usize| match *replica {
            replica if !takes(replica) => 3,
            replica if self.silent.has(replica) => 2,
            replica => u32::from(self.each[replica].rests_until > self.reads),
        };
        turn.min_by_key(badness).unwrap_or(first)
    }

    /// Returns the nanoseconds to wait for a value, from its request, before other replicas are asked.
    pub(crate) fn patience(&self) -> u64 {
        TIMES * self.usual + MORE
    }

    /// Notes that these replicas did not answer in time.
    pub(crate) fn late(&mut self, replicas: Set) {
        for replica in replicas.iter() {
            self.failed(replica);
            self.silent.add(replica);
        }
        // All replicas may have become slower, so the assumed time grows.
        self.usual = (2 * self.usual).min(LONGEST);
    }

    /// Notes that a replica's connection ended.
    pub(crate) fn failed(&mut self, replica: usize) {
        self.silent.remove(replica);
        let source = &mut self.each[replica];
        source.rests_until = self.reads + (PAUSE << source.faults);
        source.faults = (source.faults + 1).min(DOUBLINGS);
    }

    /// Returns true if each of these replicas was late and has not answered since.
    pub(crate) fn are_silent(&self, replicas: Set) -> bool {
        replicas.iter().all(|replica| self.silent.has(replica))
    }

    /// Notes an answer of the replica. Returns true if the replica was silent before.
    #[inline]
    pub(crate) fn answered(&mut self, replica: usize) -> bool {
        let was = self.silent.has(replica);
        self.silent.remove(replica);
        was
    }

    /// Notes that a value arrived in time, after `took` nanoseconds.
    pub(crate) fn came(&mut self, replica: usize, took: u64) {
        self.usual = (7 * self.usual + took.min(LONGEST)) / 8;
        let faults = &mut self.each[replica].faults;
        *faults = faults.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: &[usize]) -> Set {
        let mut set = Set::NONE;
        replicas.iter().for_each(|replica| set.add(*replica));
        set
    }

    #[test]
    fn values_come_from_all_replicas_alike() {
        let mut sources = Sources::new(3);
        let mut asked = [0; 3];
        (0..300).for_each(|place| asked[sources.choose(place, |_| true)] += 1);
        assert_eq!(asked, [100; 3]);
    }

    #[test]
    fn who_was_late_is_asked_again_later_and_more_seldom_each_time() {
        let mut sources = Sources::new(3);
        let mut pauses = Vec::new();
        for _ in 0..4 {
            sources.late(set(&[1]));
            // A replica that owes an answer is not asked at all.
            assert!((0..1000).all(|_| sources.choose(1, |_| true) == 2));
            assert!(sources.answered(1) && !sources.answered(1));
            sources.failed(1);
            pauses.push((0..).take_while(|_| sources.choose(1, |_| true) != 1).count());
        }
        assert_eq!(pauses, [31, 127, 511, 2047]);
        // A replica with enough timely answers is trusted as at first.
        (0..20).for_each(|_| sources.came(1, 1));
        sources.late(set(&[1]));
        assert!(sources.answered(1));
        assert_eq!((0..).take_while(|_| sources.choose(1, |_| true) != 1).count(), 15);
    }

    #[test]
    fn who_is_worst_is_asked_only_if_nobody_else_is_there() {
        let mut sources = Sources::new(3);
        sources.late(set(&[0]));
        sources.failed(1);
        assert_eq!(sources.choose(0, |_| true), 2);
        assert_eq!(sources.choose(0, |replica| replica != 2), 1);
        assert_eq!(sources.choose(1, |replica| replica == 0), 0);
        assert_eq!(sources.choose(1, |_| false), 1);
    }

    #[test]
    fn patience_follows_what_values_take() {
        let mut sources = Sources::new(3);
        (0..100).for_each(|_| sources.came(0, 10_000));
        let short = sources.patience();
        assert!((140_000..160_000).contains(&short), "{short}");
        // After a late value the client waits longer the next time, in case all replicas are slow.
        sources.late(set(&[2]));
        assert!(sources.patience() > short);
        (0..100).for_each(|_| sources.came(0, 1_000_000));
        assert!(sources.patience() > 3_000_000);
        (0..100).for_each(|_| sources.late(set(&[1])));
        assert_eq!(sources.patience(), TIMES * LONGEST + MORE);
    }
}
