//! Exhaustive tests of torn reads. The stores of a change are journaled one by one, and a lookup reads each
//! of its words after any number of them.

use super::journal;
use super::wire::{CopyOrder, Side, Wire, below};
use super::world::{Arm, FarmArm, PilafArm, SEED};
use crate::kv::{Grant, Lookup, QueueNeeds, Reads, Step, Table, hash_key};
use crate::region::Registered;
use std::collections::BTreeMap;

mod pilaf {
    use super::*;

    /// A reader that meets a value while it is overwritten notices it, by Pilaf's CRC64 or FaRM's line
    /// versions, and reads again.
    #[test]
    fn overwritten_and_used_again() {
        overwritten_and_used_again_by::<PilafArm>();
    }

    #[test]
    fn deleted_and_used_again() {
        deleted_and_used_again_by::<PilafArm>();
    }

    #[test]
    fn keys_that_move_are_never_missed() {
        keys_that_move_are_never_missed_by::<PilafArm>();
    }
}

mod farm {
    use super::*;

    #[test]
    fn overwritten_and_used_again() {
        overwritten_and_used_again_by::<FarmArm>();
    }

    #[test]
    fn deleted_and_used_again() {
        deleted_and_used_again_by::<FarmArm>();
    }

    #[test]
    fn keys_that_move_are_never_missed() {
        keys_that_move_are_never_missed_by::<FarmArm>();
    }
}

/// The memory of a table before a change, and the stores of the change.
struct History {
    before: Vec<(u64, Vec<u8>)>,
    /// The stores to each word, by the word's address: number of the store from 1, and word.
    stores: BTreeMap<u64, Vec<(usize, u64)>>,
    /// Number of stores: times are 0 to this.
    end: usize,
}

impl History {
    fn of(blocks: &[Registered], change: impl FnOnce()) -> History {
        let before = blocks
            .iter()
            .map(|block| {
                let mut bytes = vec![0; block.bytes.len()];
                block.read(0, &mut bytes);
                (block.addr, bytes)
            })
            .collect();
        let journal = journal::of(change);
        let mut stores: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
        for (index, (addr, word)) in journal.iter().enumerate() {
            stores.entry(*addr).or_default().push((index + 1, *word));
        }
        History { before, stores, end: journal.len() }
    }

    /// Returns the word at `addr` after `time` stores.
    fn word(&self, addr: u64, time: usize) -> [u8; 8] {
        let stored =
            self.stores.get(&addr).and_then(|stores| stores.iter().rfind(|(number, _)| *number <= time));
        if let Some((_, word)) = stored {
            return word.to_le_bytes();
        }
        let (start, bytes) = self
            .before
            .iter()
            .find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&addr))
            .expect("an address of the table");
        let offset = (addr - start) as usize;
        bytes[offset..offset + 8].try_into().unwrap()
    }

    /// Returns what the READs read if their n-th word is copied at `time(n)`.
    fn read(
        &self,
        reads: &Reads,
        order: &mut impl FnMut(&mut Vec<usize>),
        time: &mut impl FnMut(usize) -> usize,
    ) -> Vec<u8> {
        let mut landed = Vec::new();
        let mut copied = 0;
        for read in reads.as_slice() {
            let start = landed.len();
            let words = (read.len as usize).div_ceil(8);
            landed.resize(start + words * 8, 0);
            let mut places: Vec<usize> = (0..words).collect();
            order(&mut places);
            for place in places {
                let word = self.word(read.remote.addr + place as u64 * 8, time(copied));
                landed[start + place * 8..start + place * 8 + 8].copy_from_slice(&word);
                copied += 1;
            }
            landed.truncate(start + read.len as usize);
        }
        landed
    }
}

/// The result of a lookup, the span of time in which it ran, and the number of torn reads.
#[derive(Debug)]
struct Seen {
    value: Option<Vec<u8>>,
    begin: usize,
    end: usize,
    tries: u32,
}

/// Performs one lookup. `schedule` returns the time of the n-th word of the m-th batch; times are made
/// non-decreasing.
fn look<L: Lookup>(
    lookup: &L,
    key: &[u8],
    history: &History,
    mut order: impl FnMut(&mut Vec<usize>),
    mut schedule: impl FnMut(usize, usize) -> usize,
) -> Seen {
    let mut progress = L::Progress::default();
    let mut step = lookup.begin(&mut progress, hash_key(SEED, key));
    let mut now = 0;
    let mut begin = None;
    for batch in 0.. {
        let Step::Read(reads) = step else { break };
        let mut landed = history.read(&reads, &mut order, &mut |word| {
            now = now.max(schedule(batch, word).min(history.end));
            begin.get_or_insert(now);
            now
        });
        step = lookup.advance(&mut progress, key, &mut landed);
        if let Step::Found { start, len } = step {
            let value = Some(landed[start..start + len].to_vec());
            return Seen { value, begin: begin.unwrap(), end: now, tries: L::tries(&progress) };
        }
    }
    assert!(matches!(step, Step::Absent), "{step:?}");
    Seen { value: None, begin: begin.unwrap(), end: now, tries: L::tries(&progress) }
}

/// Tries all schedules with one cut in the first or second batch of READs, and random ones. Later batches
/// see the final state.
fn every_schedule<L: Lookup>(
    lookup: &L,
    key: &[u8],
    history: &History,
    order: CopyOrder,
    mut judge: impl FnMut(&Seen),
) {
    let end = history.end;
    let words = [0, 1].map(|batch| words_of(lookup, key, history, batch));
    for first in 0..=end {
        for second in first..=end {
            for third in second..=end {
                for cut in 0..words[1] {
                    judge(&look(
                        lookup,
                        key,
                        history,
                        |_| (),
                        |batch, word| match batch {
                            0 => first,
                            1 if word < cut => second,
                            1 => third,
                            _ => end,
                        },
                    ));
                }
                for cut in 1..words[0] {
                    judge(&look(
                        lookup,
                        key,
                        history,
                        |_| (),
                        |batch, word| match batch {
                            0 if word < cut => first,
                            0 => second,
                            1 => third,
                            _ => end,
                        },
                    ));
                }
            }
        }
    }
    random_schedules(lookup, key, history, order, 20_000, judge);
}

/// Returns the number of words in a batch of an undisturbed lookup.
fn words_of<L: Lookup>(lookup: &L, key: &[u8], history: &History, number: usize) -> usize {
    let mut words = 0;
    look(
        lookup,
        key,
        history,
        |_| (),
        |batch, word| {
            words = words.max(if batch == number { word + 1 } else { 0 });
            0
        },
    );
    words
}

/// Tries schedules in which each word is copied a random time after the previous one, in random orders of
/// copying.
fn random_schedules<L: Lookup>(
    lookup: &L,
    key: &[u8],
    history: &History,
    copy: CopyOrder,
    count: usize,
    mut judge: impl FnMut(&Seen),
) {
    let mut random = 77;
    for _ in 0..count {
        let mut seed = below(&mut random, usize::MAX) as u64;
        let pace = 1 + below(&mut random, history.end * 2);
        let mut now = below(&mut random, history.end);
        let mut times = random;
        let order = |places: &mut Vec<usize>| match copy {
            CopyOrder::WordsShuffled => {
                (1..places.len()).for_each(|index| places.swap(index, below(&mut seed, index + 1)))
            }
            CopyOrder::LinesShuffled => {
                let lines = places.len() / 8;
                (0..lines).filter(|_| below(&mut seed, 2) == 0).collect::<Vec<_>>().iter().for_each(|line| {
                    places[line * 8..line * 8 + 8].reverse();
                });
                let other = below(&mut seed, lines) * 8;
                (0..8).for_each(|word| places.swap(word, other + word));
            }
        };
        judge(&look(lookup, key, history, order, |batch, _| {
            // A server that stopped in the middle of a change would make its readers retry for ever.
            if batch > 8 {
                return history.end;
            }
            if below(&mut times, 4) == 0 {
                now += below(&mut times, pace);
            }
            now
        }));
    }
}

/// A table, its memory and a lookup in it.
struct Bench<A: Arm> {
    table: A::Table,
    blocks: Vec<Registered>,
    lookup: A::Lookup,
}

fn bench<A: Arm>(keys: u32, extent_bytes: usize) -> Bench<A> {
    let needs = QueueNeeds { send: 1, receive: 1, sges: 1, completions: 1 };
    let mut wire = Wire::new(needs, needs, A::ORDER, 0);
    let table = A::table(keys, extent_bytes, &mut wire);
    let known = table.grant();
    let grant = Grant {
        design: A::Lookup::DESIGN,
        window: 1,
        hash_seed: known.hash_seed,
        index: known.index,
        index_len: known.index_len,
        extents: known.extents,
        staging: known.extents,
        staging_len: 0,
        staging_count: 0,
        eager: 0,
        max_key: 64,
        max_value: 256,
    };
    let blocks = wire.blocks_of(Side::Server);
    Bench { table, blocks, lookup: A::Lookup::new(&grant, A::Lookup::landing_len(64, 256)) }
}

fn value(fill: u8) -> Vec<u8> {
    (0..60).map(|byte| byte ^ fill).collect()
}

/// Returns true if a store overwrote a line of the object that was stored first.
fn first_lines_are_used_again(history: &History, blocks: &[Registered]) -> bool {
    history.stores.contains_key(&blocks[1].addr)
}

fn overwritten_and_used_again_by<A: Arm>() {
    let mut bench = bench::<A>(8, 1 << 10);
    let key = b"key";
    bench.table.put(key, &value(1)).unwrap();
    let mut ends = Vec::new();
    let table = &mut bench.table;
    let history = History::of(&bench.blocks, || {
        for fill in [2, 3] {
            table.put(key, &value(fill)).unwrap();
            ends.push(journal::len());
        }
    });
    assert!(first_lines_are_used_again(&history, &bench.blocks));
    let begins = [0, 0, ends[0]];
    let ends = [ends[0], ends[1], usize::MAX];
    let mut torn = 0;
    let mut counts = [0; 3];
    every_schedule(&bench.lookup, key, &history, A::ORDER, |seen| {
        let seen_value = seen.value.as_ref().expect("the key is never absent");
        let fill = (0..3).find(|fill| *seen_value == value(*fill as u8 + 1)).expect("a value that was put");
        // The value was the key's value at some moment of the lookup: its PUT had begun, and the next PUT
        // had not ended before.
        assert!(
            begins[fill] <= seen.end && seen.begin <= ends[fill],
            "{fill} in {seen:?}, {begins:?} {ends:?}"
        );
        torn += u32::from(seen.tries > 0);
        counts[fill] += 1;
    });
    assert!(torn > 1000, "torn reads happened: {torn}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

fn deleted_and_used_again_by<A: Arm>() {
    let mut bench = bench::<A>(8, 1 << 10);
    let key = b"key";
    bench.table.put(key, &value(1)).unwrap();
    let mut deleted = 0;
    let table = &mut bench.table;
    let history = History::of(&bench.blocks, || {
        table.delete(key).unwrap();
        deleted = journal::len();
        table.put(b"other", &value(9)).unwrap();
    });
    assert!(first_lines_are_used_again(&history, &bench.blocks));
    let mut counts = [0; 2];
    every_schedule(&bench.lookup, key, &history, A::ORDER, |seen| {
        match &seen.value {
            Some(stored) => assert!(*stored == value(1) && seen.begin <= deleted),
            None => assert!(seen.end > 0),
        }
        counts[usize::from(seen.value.is_some())] += 1;
    });
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

/// Fills a small table and, whenever a new key moves others, looks up every key at every moment of the move.
fn keys_that_move_are_never_missed_by<A: Arm>() {
    let mut moves = 0;
    let mut unsure = 0;
    for round in 0..20u32 {
        let mut bench = bench::<A>(40, 1 << 14);
        let mut keys: Vec<[u8; 8]> = Vec::new();
        for number in 0..50 {
            let key = (u64::from(round) << 32 | number).to_le_bytes();
            let table = &mut bench.table;
            let index = bench.blocks[0].addr;
            let mut stored = Ok(());
            let history = History::of(&bench.blocks, || stored = table.put(&key, &value(number as u8)));
            let lines = history.stores.keys().filter(|addr| *addr >> 40 == index >> 40).map(|addr| addr / 64);
            let lines = lines.collect::<std::collections::BTreeSet<_>>().len();
            if lines > 1 {
                moves += 1;
                for (known, key) in keys.iter().enumerate() {
                    let judge = |seen: &Seen| {
                        assert_eq!(seen.value, Some(value(known as u8)), "round {round} {seen:?}");
                        unsure += u32::from(seen.tries > 0);
                    };
                    random_schedules(&bench.lookup, key, &history, A::ORDER, 300, judge);
                }
            }
            if stored.is_err() {
                break;
            }
            keys.push(key);
        }
        assert!(keys.len() >= 30, "a table for 40 keys takes most of them: {}", keys.len());
    }
    assert!(moves > 20 && unsure > 100, "{moves} moves, {unsure} lookups in doubt");
}
