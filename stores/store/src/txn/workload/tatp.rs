//! TATP, the Telecom Application Transaction Processing benchmark (Neuvonen, Wolski, Manner, Raatikka: *TATP
//! benchmark description*, IBM 2009), over keys and values.
//!
//! Four tables about subscribers and one index become rows with keys of their own:
//!
//! ```text
//! key                           value
//! 's'  0   0   0  s_id u32      subscriber, 44 B: s_id u32, number 15, bits 2, hex 5, bytes 10,
//!                                                 msc u32, vlr u32
//! 'n'  15 digits                s_id u32: a subscriber by the number that is dialled
//! 'a' type 0   0  s_id u32      access info, 10 B: data1 u8, data2 u8, data3 3, data4 5
//! 'f' type 0   0  s_id u32      special facility, 8 B: is active u8, error u8, data a u8, data b 5
//! 'c' type start 0  s_id u32    call forwarding, 16 B: end u8, number 15
//! ```
//!
//! A range of a table is read as the few keys that may be in it. There are seven kinds of transactions, 80
//! percent of them reads. Many find nothing, as intended. Subscribers are drawn unevenly, as §2 of the
//! description says.

use super::script::{Key, Script};
use super::{Extent, Step, Workload};
use crate::random::Random;
use crate::words::{set_u32, u32_at};

/// Kinds of transactions.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a subscriber's row.
    GetSubscriberData,
    /// Reads where calls to an active facility are forwarded at a time of day.
    GetNewDestination,
    /// Reads an access info row.
    GetAccessData,
    /// Updates a bit of a subscriber, and a byte of a facility.
    UpdateSubscriberData,
    /// Updates the location of the subscriber with a given number.
    UpdateLocation,
    /// Inserts a call forwarding.
    InsertCallForwarding,
    /// Deletes a call forwarding.
    DeleteCallForwarding,
}

impl Kind {
    /// All kinds, with their shares in percent.
    pub const MIX: [(Kind, u64); 7] = [
        (Kind::GetSubscriberData, 35),
        (Kind::GetNewDestination, 10),
        (Kind::GetAccessData, 35),
        (Kind::UpdateSubscriberData, 2),
        (Kind::UpdateLocation, 14),
        (Kind::InsertCallForwarding, 2),
        (Kind::DeleteCallForwarding, 2),
    ];

    fn goes_by_number(self) -> bool {
        use Kind::{DeleteCallForwarding, InsertCallForwarding, UpdateLocation};
        matches!(self, UpdateLocation | InsertCallForwarding | DeleteCallForwarding)
    }
}

/// The parameters of one transaction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TatpJob {
    /// Kind of the transaction.
    pub kind: Kind,
    /// Number of the subscriber, from 1.
    pub subscriber: u32,
    /// Type of the access info or facility, 1 to 4.
    pub row: u8,
    /// Hour at which a forwarding begins: 0, 8 or 16.
    pub start: u8,
    /// Hour before which a forwarding ends, or hour of the query: 1 to 24.
    pub end: u8,
    /// The new value of an update.
    pub data: u32,
}

/// Number of types of access info and of facilities per subscriber, and hours at which a forwarding may
/// begin.
const TYPES: u8 = 4;
const STARTS: [u8; 3] = [0, 8, 16];
/// Number of rows per subscriber: its row, its number, infos, facilities, and forwardings of each facility.
const PLACES: u64 = 2 + 2 * TYPES as u64 + TYPES as u64 * STARTS.len() as u64;

const SUBSCRIBER: usize = 44;
const BITS_AT: usize = 19;
const VLR_AT: usize = 40;
const FORWARDING: usize = 16;
const NUMBER: usize = 15;

/// The TATP workload.
#[derive(Clone, Debug)]
pub struct Tatp {
    subscribers: u32,
    /// The constant A of the description, which makes the draw non-uniform.
    uneven: u64,
    random: Random,
}

fn key(table: u8, row: u8, start: u8, subscriber: u32) -> Key {
    let mut bytes = [table, row, start, 0, 0, 0, 0, 0];
    set_u32(&mut bytes, 4, subscriber);
    Key::of(&bytes)
}

fn digits(number: u32) -> [u8; NUMBER] {
    let mut out = [b'0'; NUMBER];
    let mut rest = number;
    for digit in out.iter_mut().rev() {
        (*digit, rest) = (b'0' + (rest % 10) as u8, rest / 10);
    }
    out
}

fn by_number(subscriber: u32) -> Key {
    let mut bytes = [b'n'; NUMBER + 1];
    bytes[1..].copy_from_slice(&digits(subscriber));
    Key::of(&bytes)
}

/// Returns a random set of 1 to 4 types of a subscriber's rows, with one bit per type.
fn rows_there(random: &mut Random) -> u8 {
    let count = 1 + random.below(TYPES.into());
    let mut there = 0u8;
    while u64::from(there.count_ones()) < count {
        there |= 1 << random.below(TYPES.into());
    }
    there
}

/// The kind of a row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum RowKind {
    Subscriber,
    Number,
    Info(u8),
    Facility(u8),
    Forwarding(u8, u8),
}

impl RowKind {
    fn of(index: u64) -> (u32, RowKind) {
        let subscriber = (index / PLACES) as u32 + 1;
        let place = (index % PLACES) as u8;
        let place = match place {
            0 => RowKind::Subscriber,
            1 => RowKind::Number,
            2..=5 => RowKind::Info(place - 1),
            6..=9 => RowKind::Facility(place - 5),
            _ => RowKind::Forwarding((place - 10) / 3 + 1, STARTS[usize::from((place - 10) % 3)]),
        };
        (subscriber, place)
    }

    fn key(self, subscriber: u32) -> Key {
        match self {
            RowKind::Subscriber => key(b's', 0, 0, subscriber),
            RowKind::Number => by_number(subscriber),
            RowKind::Info(row) => key(b'a', row, 0, subscriber),
            RowKind::Facility(row) => key(b'f', row, 0, subscriber),
            RowKind::Forwarding(row, start) => key(b'c', row, start, subscriber),
        }
    }

    fn len(self) -> usize {
        match self {
            RowKind::Subscriber => SUBSCRIBER,
            RowKind::Number => 4,
            RowKind::Info(_) => 10,
            RowKind::Facility(_) => 8,
            RowKind::Forwarding(..) => FORWARDING,
        }
    }
}

impl Tatp {
    /// Returns the workload with `subscribers` subscribers, at least one.
    pub fn new(subscribers: u32, seed: u64) -> Tatp {
        // The description's constants for up to one million subscribers, for up to ten million, and for
        // more.
        let uneven = match subscribers {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        Tatp { subscribers: subscribers.max(1), uneven, random: Random::new(seed) }
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.random.below(most - least + 1)
    }

    /// Draws a subscriber: (random number from 0 to A | random number from 1 to P) modulo P, counted from 1.
    fn subscriber(&mut self) -> u32 {
        let all = u64::from(self.subscribers);
        let drawn = self.between(0, self.uneven) | self.between(1, all);
        (drawn % all) as u32 + 1
    }

    /// Performs the step that follows the reads of the row to change.
    fn change(&self, job: &TatpJob, subscriber: u32, script: &mut Script) -> Step {
        let TatpJob { kind, row, start, end, data, .. } = *job;
        match kind {
            Kind::UpdateSubscriberData => {
                let (Some(row_value), Some(facility)) = (script.value(0), script.value(1)) else {
                    return Step::Decline;
                };
                let mut row_value = row_value.to_vec();
                let mut facility = facility.to_vec();
                row_value[BITS_AT] = row_value[BITS_AT] & !1 | data as u8 & 1;
                facility[2] = (data >> 8) as u8;
                script.write(key(b's', 0, 0, subscriber), row_value.len()).copy_from_slice(&row_value);
                script.write(key(b'f', row, 0, subscriber), facility.len()).copy_from_slice(&facility);
            }
            Kind::UpdateLocation => {
                let Some(mut row_value) = script.value(1).map(<[u8]>::to_vec) else { return Step::Decline };
                set_u32(&mut row_value, VLR_AT, data);
                script.write(key(b's', 0, 0, subscriber), row_value.len()).copy_from_slice(&row_value);
            }
            Kind::InsertCallForwarding => {
                let there = |place| script.value(place).is_some();
                if !there(usize::from(row)) || there(usize::from(TYPES) + 1) {
                    return Step::Decline;
                }
                let out = script.write(key(b'c', row, start, subscriber), FORWARDING);
                out[0] = end;
                out[1..].copy_from_slice(&digits(data));
                script.gain = 1;
            }
            Kind::DeleteCallForwarding => {
                if script.value(1).is_none() {
                    return Step::Decline;
                }
                script.delete(key(b'c', row, start, subscriber));
                script.gain = -1;
            }
            _ => {}
        }
        Step::Commit
    }

    /// Performs the last step of a read-only transaction, depending on whether a row matches its condition.
    fn answer(job: &TatpJob, script: &Script) -> Step {
        let has_match = match job.kind {
            Kind::GetNewDestination => {
                let active = script.value(0).is_some_and(|facility| facility[0] == 1);
                let ends = |place| script.value(place).is_some_and(|forwarding| job.end < forwarding[0]);
                active && (1..script.asked()).any(ends)
            }
            _ => script.value(0).is_some(),
        };
        if has_match { Step::Commit } else { Step::Decline }
    }

    /// Requests the rows of a subscriber.
    fn ask(job: &TatpJob, subscriber: u32, script: &mut Script) {
        let TatpJob { kind, row, start, .. } = *job;
        match kind {
            Kind::GetSubscriberData | Kind::UpdateLocation => {
                script.read(key(b's', 0, 0, subscriber));
            }
            Kind::GetAccessData => {
                script.read(key(b'a', row, 0, subscriber));
            }
            Kind::GetNewDestination => {
                script.read(key(b'f', row, 0, subscriber));
                STARTS.into_iter().filter(|begin| *begin <= start).for_each(|begin| {
                    script.read(key(b'c', row, begin, subscriber));
                });
            }
            Kind::UpdateSubscriberData => {
                script.read(key(b's', 0, 0, subscriber));
                script.read(key(b'f', row, 0, subscriber));
            }
            Kind::InsertCallForwarding => {
                // The existing facilities, and the forwarding to insert.
                (1..=TYPES).for_each(|row| {
                    script.read(key(b'f', row, 0, subscriber));
                });
                script.read(key(b'c', row, start, subscriber));
            }
            Kind::DeleteCallForwarding => {
                script.read(key(b'c', row, start, subscriber));
            }
        }
    }
}

impl Workload for Tatp {
    type Job = TatpJob;

    fn extent(&self) -> Extent {
        Extent { keys: self.rows(), max_key: 16, max_value: SUBSCRIBER as u32, max_keys: 6 }
    }

    fn draw(&mut self) -> TatpJob {
        let mut share = self.random.below(100);
        let kind = Kind::MIX.into_iter().find(|(_, part)| {
            let hit = share < *part;
            share = share.saturating_sub(*part);
            hit
        });
        TatpJob {
            kind: kind.map_or(Kind::GetSubscriberData, |(kind, _)| kind),
            subscriber: self.subscriber(),
            row: self.between(1, TYPES.into()) as u8,
            start: STARTS[self.random.below(STARTS.len() as u64) as usize],
            end: self.between(1, 24) as u8,
            data: self.random.bits() as u32,
        }
    }

    fn step(&self, job: &TatpJob, script: &mut Script) -> Step {
        let by = job.kind.goes_by_number();
        match (script.asked(), by) {
            (0, true) => {
                script.read(by_number(job.subscriber));
                Step::Read
            }
            (0, false) => {
                Tatp::ask(job, job.subscriber, script);
                Step::Read
            }
            (1, true) => {
                let Some(subscriber) = script.value(0).filter(|id| id.len() == 4) else {
                    return Step::Decline;
                };
                let subscriber = u32_at(subscriber, 0);
                Tatp::ask(job, subscriber, script);
                Step::Read
            }
            (_, true) => self.change(job, script.value(0).map_or(0, |id| u32_at(id, 0)), script),
            (_, false) if job.kind == Kind::UpdateSubscriberData => self.change(job, job.subscriber, script),
            _ => Tatp::answer(job, script),
        }
    }

    fn rows(&self) -> u64 {
        u64::from(self.subscribers) * PLACES
    }

    fn row(&self, index: u64, value: &mut Vec<u8>) -> (Key, bool) {
        let (subscriber, place) = RowKind::of(index);
        let mut random = Random::new(subscriber.into());
        let infos = rows_there(&mut random);
        let facilities = rows_there(&mut random);
        value.clear();
        value.resize(place.len(), 0);
        // The random fields are different for each row.
        let mut own = Random::new(index);
        value.iter_mut().for_each(|byte| *byte = own.bits() as u8);
        let is = |bits: u8, row: u8| bits >> (row - 1) & 1 == 1;
        let there = match place {
            RowKind::Subscriber => {
                set_u32(value, 0, subscriber);
                value[4..4 + NUMBER].copy_from_slice(&digits(subscriber));
                true
            }
            RowKind::Number => {
                set_u32(value, 0, subscriber);
                true
            }
            RowKind::Info(row) => is(infos, row),
            RowKind::Facility(row) => {
                value[0] = u8::from(own.below(100) < 85);
                is(facilities, row)
            }
            RowKind::Forwarding(row, start) => {
                // Zero to three forwardings, with each hour equally likely.
                let mut of_facility = Random::new(u64::from(subscriber) << 8 | u64::from(row));
                let count = of_facility.below(4);
                let mut starts = 0u8;
                while u64::from(starts.count_ones()) < count {
                    starts |= 1 << of_facility.below(3);
                }
                value[0] = start + 1 + own.below(8) as u8;
                value[1..].copy_from_slice(&digits(own.bits() as u32));
                is(facilities, row) && starts >> (start / 8) & 1 == 1
            }
        };
        (place.key(subscriber), there)
    }

    /// Returns the worth of a row: 1 for a call forwarding, 2^32 for an access info or a facility, 0 for a
    /// subscriber. Only forwardings are inserted and deleted. A subscriber's row must contain its number.
    fn worth(&self, index: u64, value: Option<&[u8]>) -> Option<i64> {
        let (subscriber, place) = RowKind::of(index);
        if value.is_some_and(|value| value.len() != place.len()) {
            return None;
        }
        match place {
            RowKind::Subscriber | RowKind::Number => (u32_at(value?, 0) == subscriber).then_some(0),
            RowKind::Info(_) | RowKind::Facility(_) => Some(i64::from(value.is_some()) << 32),
            RowKind::Forwarding(..) => Some(i64::from(value.is_some())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    type Rows = BTreeMap<Key, Vec<u8>>;

    fn loaded(tatp: &Tatp) -> Rows {
        let mut value = Vec::new();
        let row = |index| {
            let (key, there) = tatp.row(index, &mut value);
            there.then(|| (key, value.clone()))
        };
        (0..tatp.rows()).filter_map(row).collect()
    }

    /// Executes a job on plain rows.
    fn carry_out(tatp: &Tatp, job: &TatpJob, rows: &mut Rows) -> (Step, i64) {
        let mut script = Script::default();
        let mut known = 0;
        loop {
            match tatp.step(job, &mut script) {
                Step::Read => {
                    for place in known..script.asked() {
                        let key = script.key(place).unwrap();
                        script.found(place, rows.get(&key).map(Vec::as_slice));
                    }
                    known = script.asked();
                }
                step => {
                    for (key, value) in script.writes() {
                        match value {
                            Some(value) => rows.insert(*key, value.to_vec()),
                            None => rows.remove(key),
                        };
                    }
                    assert!(known as u32 <= tatp.extent().max_keys);
                    return (step, script.gain);
                }
            }
        }
    }

    #[test]
    fn what_is_stored_at_first_is_as_described() {
        let tatp = Tatp::new(2000, 1);
        let rows = loaded(&tatp);
        let count = |table: u8| rows.keys().filter(|key| key.bytes()[0] == table).count();
        assert_eq!((count(b's'), count(b'n')), (2000, 2000));
        // On average there are 2.5 of four infos and facilities, and 1.5 of three forwardings per facility.
        assert!((4800..5200).contains(&count(b'a')), "{}", count(b'a'));
        assert!((4800..5200).contains(&count(b'f')), "{}", count(b'f'));
        assert!((7100..7900).contains(&count(b'c')), "{}", count(b'c'));
        let active = rows.iter().filter(|(key, value)| key.bytes()[0] == b'f' && value[0] == 1).count();
        assert!((0.82..0.88).contains(&(active as f64 / count(b'f') as f64)));
        for key in rows.keys().filter(|key| key.bytes()[0] == b'c') {
            let mut facility = key.bytes().to_vec();
            (facility[0], facility[2]) = (b'f', 0);
            assert!(rows.contains_key(&Key::of(&facility)), "a forwarding without its facility");
        }
        let keys: BTreeSet<Key> = (0..tatp.rows()).map(|index| tatp.row(index, &mut Vec::new()).0).collect();
        assert_eq!(keys.len() as u64, tatp.rows(), "each place has a key of its own");
    }

    /// The share of each kind that finds its row follows from what is stored. A facility exists with
    /// probability 5/8 and is active with 0.85; each forwarding exists with 1/2. It ends later than an hour
    /// of 24 with 0.146, 0.479 and 0.813, depending on its beginning.
    #[test]
    fn the_mix_and_what_it_finds_are_as_described() {
        let mut tatp = Tatp::new(2000, 2);
        let mut rows = loaded(&tatp);
        let mut drawn = [0u32; 7];
        let mut done = [0u32; 7];
        let draws = 60_000;
        for _ in 0..draws {
            let job = tatp.draw();
            let kind = Kind::MIX.iter().position(|(kind, _)| *kind == job.kind).unwrap();
            drawn[kind] += 1;
            done[kind] += u32::from(carry_out(&tatp, &job, &mut rows).0 == Step::Commit);
        }
        for (count, (kind, share)) in drawn.iter().zip(Kind::MIX) {
            let expected = f64::from(draws) * share as f64 / 100.0;
            assert!((f64::from(*count) - expected).abs() < 6.0 * expected.sqrt(), "{kind:?}: {count}");
        }
        let finds = [1.0, 0.152, 0.625, 0.625, 1.0, 0.3125, 0.3125];
        for ((done, drawn), (find, (kind, _))) in done.iter().zip(drawn).zip(finds.iter().zip(Kind::MIX)) {
            let share = f64::from(*done) / f64::from(drawn);
            assert!((share - find).abs() < 0.04, "{kind:?}: {share} of them, not {find}");
        }
    }

    #[test]
    fn the_sum_is_what_was_inserted_and_removed() {
        let mut tatp = Tatp::new(50, 3);
        let mut rows = loaded(&tatp);
        let sum = |tatp: &Tatp, rows: &Rows| -> i64 {
            let worth = |index| {
                let key = tatp.row(index, &mut Vec::new()).0;
                tatp.worth(index, rows.get(&key).map(Vec::as_slice)).expect("a value of this row")
            };
            (0..tatp.rows()).map(worth).sum()
        };
        let before = sum(&tatp, &rows);
        let mut gains = [0; 2];
        for _ in 0..20_000 {
            let job = tatp.draw();
            let (_, gain) = carry_out(&tatp, &job, &mut rows);
            gains[usize::from(gain < 0)] += gain;
        }
        assert!(gains[0] > 10 && gains[1] < -10, "{gains:?}");
        assert_eq!(sum(&tatp, &rows), before + gains[0] + gains[1]);
        let facility = rows.keys().find(|key| key.bytes()[0] == b'f').copied().unwrap();
        rows.remove(&facility);
        assert_ne!(sum(&tatp, &rows), before + gains[0] + gains[1], "a lost row is seen");
    }

    /// The bitwise or of two random numbers prefers numbers with many set bits.
    #[test]
    fn subscribers_are_drawn_unevenly_and_all_of_them() {
        let mut tatp = Tatp::new(100_000, 4);
        let mut counts = vec![0u32; 100_001];
        (0..1_000_000).for_each(|_| counts[tatp.draw().subscriber as usize] += 1);
        let drawn = counts.iter().filter(|count| **count > 0).count();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let most: u32 = counts[..10_000].iter().sum();
        assert!(counts[0] > 30 && most > 250_000, "the first: {}, a tenth of them: {most}", counts[0]);
        assert!(drawn > 50_000, "{drawn} were drawn at all");
        assert!((0..1000).all(|_| Tatp::new(1, 5).draw().subscriber == 1));
    }
}
