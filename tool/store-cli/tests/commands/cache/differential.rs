//! Sends the same commands to the real memcached and to Remora, and requires byte-identical answers.
//!
//! Differences that `docs/guides/cache.md` lists are left out. Each server has its own `cas` numbers: a
//! command uses the number of its own server, and answers are compared without them.

use std::collections::BTreeMap;

use remora_store::Random;

use super::{Served, Talk};

const KEYS: [&str; 8] = ["a", "b", "c", "n", "m", "noreply", "k\t\u{1}\u{e9}\u{ff}", "set"];

/// A command, without the number of a `cas`.
struct Asked {
    bytes: Vec<u8>,
    /// Offset where a `cas` number is inserted, the key that the number belongs to, and what is added to
    /// the number.
    unique: Option<(usize, &'static str, u64)>,
}

impl Asked {
    /// Returns whether the command is sent without others. While a long command is being written, the test
    /// reads no answers to earlier ones. After a `get` with an invalid key, memcached forgets its answers
    /// to earlier commands of the batch. Commands that count are followed by [`settle`].
    fn goes_alone(&self) -> bool {
        self.bytes.len() > 4000
            || self.counts().is_some()
            || self.bytes.windows(251).any(|key| key.iter().all(|byte| *byte == b'k'))
    }

    /// Returns the key that the command increments or decrements, if it does.
    fn counts(&self) -> Option<&[u8]> {
        let mut words = self.bytes.split(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
        words.next().filter(|verb| matches!(*verb, b"incr" | b"decr")).and(words.next())
    }
}

/// A connection to one server, with the `cas` numbers that it has reported.
struct Side {
    talk: Talk,
    uniques: BTreeMap<String, u64>,
}

impl Side {
    fn send(&mut self, batch: &[Asked]) {
        let mut all = Vec::new();
        for asked in batch {
            let start = all.len();
            all.extend_from_slice(&asked.bytes);
            if let Some((offset, key, more)) = asked.unique {
                let unique = self.uniques.get(key).copied().unwrap_or(0) + more;
                all.splice(start + offset..start + offset, unique.to_string().into_bytes());
            }
        }
        self.talk.send(&all);
    }

    /// Returns all answers before the answer to `version`, without the numbers of `gets`.
    fn answers(&mut self) -> Vec<u8> {
        self.talk.send(b"version\r\n");
        let mut all = Vec::new();
        loop {
            let line = self.talk.line();
            assert!(!line.is_empty(), "it hung up after {:?}", String::from_utf8_lossy(&all));
            if line.starts_with(b"VERSION ") {
                return all;
            }
            if !line.starts_with(b"VALUE ") {
                all.extend_from_slice(&line);
                continue;
            }
            let line = String::from_utf8(line).expect("our keys are text");
            let words: Vec<&str> = line.trim_ascii_end().split(' ').collect();
            if let Some(unique) = words.get(4) {
                self.uniques.insert(words[1].to_owned(), unique.parse().expect("a number"));
            }
            all.extend_from_slice(words[..4].join(" ").as_bytes());
            all.extend_from_slice(if words.len() > 4 { b" unique\r\n" } else { b"\r\n" });
            let len: usize = words[3].parse().expect("a length");
            all.extend(self.talk.bytes(len + 2));
        }
    }
}

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

fn value(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 | 2 => random.below(2000).to_string().into_bytes(),
        3 => one_of(
            random,
            &["18446744073709551615", "18446744073709551616", "1x", "+7", " 8", "9 x", "007", "1 "],
        )
        .into(),
        4 => binary(random),
        5 => b"\r\nEND\r\nSTORED\r\n".to_vec(),
        6 if random.below(10) == 0 => {
            let len = one_of(random, &[10_000, 200_000, 1_000_000, 1_048_600, 1_500_000]);
            vec![b'v'; len]
        }
        _ => vec![b'x'; random.below(20) as usize],
    }
}

/// Returns bytes that do not begin with a digit. They contain no `-`, because memcached refuses to count a
/// number beyond 2^63 if a `-` follows anywhere behind it in its memory.
fn binary(random: &mut Random) -> Vec<u8> {
    let bytes = (0..random.below(1500)).map(|_| random.bits() as u8);
    [b'v'].into_iter().chain(bytes.filter(|byte| *byte != b'-')).collect()
}

const EXPIRIES: [&str; 9] = ["0", "0", "0", "1000", "2592000", "-1", "2592001", "1000000000", "2147483647"];

/// Returns a random command that stores a value.
fn storing(random: &mut Random) -> Asked {
    let verb = one_of(random, &["set", "set", "add", "replace", "append", "prepend", "cas"]);
    let key = one_of(random, &KEYS);
    let value = value(random);
    let flags = one_of(random, &["0", "0", "17", "4294967295"]);
    let expires = one_of(random, &EXPIRIES);
    let length = value.len();
    let mut bytes = format!("{verb} {key} {flags} {expires} {length}").into_bytes();
    let unique = (verb == "cas").then(|| {
        bytes.push(b' ');
        (bytes.len(), key, one_of(random, &[0, 0, 0, 1_000_000_000]))
    });
    bytes.extend_from_slice(
        one_of(random, &["\r\n", "\r\n", "\r\n", " noreply\r\n", " other\r\n", " \r\n", "\n"]).as_bytes(),
    );
    bytes.extend_from_slice(&value);
    bytes.extend_from_slice(b"\r\n");
    Asked { bytes, unique }
}

fn retrieving(random: &mut Random) -> String {
    let verb = one_of(random, &["get", "gets", "gat", "gats"]);
    let mut line = verb.to_owned();
    if verb.starts_with("gat") {
        line = format!("{line} {}", one_of(random, &["0", "0", "1000", "-1", "x"]));
    }
    for _ in 0..random.below(6) {
        line = format!("{line} {}", one_of(random, &KEYS));
    }
    if random.below(50) == 0 {
        line.push_str(&" none".repeat(1000));
    }
    line
}

/// Returns a random command without a value.
fn plain(random: &mut Random) -> String {
    let key = one_of(random, &KEYS);
    let quiet = one_of(random, &["", "", "", " noreply", " other", " two words"]);
    let count = one_of(
        random,
        &["0", "1", "7", "1000", "18446744073709551615", "18446744073709551616", "x", "-1", "+2"],
    );
    match random.below(16) {
        0..5 => retrieving(random),
        5..8 => format!("{} {key} {count}{quiet}", one_of(random, &["incr", "decr"])),
        8 | 9 => format!("delete {key}{}{quiet}", one_of(random, &["", "", " 0", " 1", " x"])),
        10 | 11 => format!("touch {key} {}{quiet}", one_of(random, &["0", "1000", "-1", "x", ""])),
        12 if random.below(8) == 0 => format!("flush_all {}{quiet}", one_of(random, &["", "0", "-1", "x"])),
        13 => format!("verbosity {}{quiet}", one_of(random, &["", "0", "1", "x"])),
        14 => {
            let longer = "k".repeat(one_of(random, &[250, 251, 252, 300]));
            format!("{} {longer} 0 0", one_of(random, &["get", "gets", "delete", "touch", "incr", "gat 0"]))
        }
        _ => one_of(
            random,
            &[
                "",
                " ",
                "foo",
                "GET a",
                "get",
                "gat",
                "gat 5",
                "incr a",
                "decr",
                "delete",
                "touch a",
                "touch",
                "stats nothing",
                "  get   a  ",
                "get a ",
            ],
        )
        .to_owned(),
    }
}

fn command(random: &mut Random) -> Asked {
    if random.below(5) < 2 {
        return storing(random);
    }
    let end = one_of(random, &["\r\n", "\r\n", "\r\n", "\n"]);
    Asked { bytes: format!("{}{end}", plain(random)).into_bytes(), unique: None }
}

/// Returns the key of an `incr` or `decr` that memcached refused because it read beyond the end of the
/// number: the number exceeds 2^63, and a `-` stands somewhere behind it in memcached's memory.
fn beyond_signed(batch: &[Asked], ours: &[u8], real: &[u8]) -> Option<String> {
    let [Asked { bytes, .. }] = batch else { return None };
    let line = String::from_utf8_lossy(bytes);
    let words: Vec<&str> = line.split_whitespace().collect();
    let verb = *words.first()?;
    let key = *words.get(1)?;
    let delta = words.get(2)?.parse::<u64>().ok()?;
    let now: u64 = String::from_utf8_lossy(ours).trim().parse().ok()?;
    let before = if verb == "incr" { now.wrapping_sub(delta) } else { now.wrapping_add(delta) };
    let refused = real.starts_with(b"CLIENT_ERROR cannot increment or decrement non-numeric value");
    (refused && matches!(verb, "incr" | "decr") && before > 1 << 63).then(|| key.to_owned())
}

/// Sends the batch to both servers and returns their common answers. Fails if the answers differ.
fn compare(sides: &mut [Side; 2], batch: &[Asked], seed: u64, round: u32) -> Vec<u8> {
    let [ours, real] = sides.each_mut().map(|side| {
        side.send(batch);
        side.answers()
    });
    if ours != real {
        if let Some(key) = beyond_signed(batch, &ours, &real) {
            // Only one of the servers has counted, so the values differ now and the item is deleted.
            let delete = [Asked { bytes: format!("delete {key}\r\n").into_bytes(), unique: None }];
            for side in sides {
                side.send(&delete);
                side.answers();
            }
            return real;
        }
        let asked: Vec<_> = batch.iter().map(|asked| String::from_utf8_lossy(&asked.bytes)).collect();
        let [ours, real] = [ours, real].map(|answers| String::from_utf8_lossy(&answers).into_owned());
        panic!("seed {seed}, round {round}\nasked {asked:?}\nours  {ours:?}\nreal  {real:?}");
    }
    real
}

/// Deletes the item if its values differ in trailing spaces. When a number becomes shorter, memcached pads
/// it with spaces, unless another of its threads uses the item at that moment; Remora always pads it.
fn settle(sides: &mut [Side; 2], key: &[u8]) {
    let plain = |verb: &[u8]| [Asked { bytes: [verb, key, b"\r\n"].concat(), unique: None }];
    let [ours, real] = sides.each_mut().map(|side| {
        side.send(&plain(b"get "));
        side.answers()
    });
    if ours != real {
        let [ours, real] = [ours, real].map(|answers| {
            let text = String::from_utf8(answers).expect("a number");
            text.lines().skip(1).map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        });
        assert_eq!(ours, real);
        compare(sides, &plain(b"delete "), 0, 0);
    }
}

#[test]
fn random_commands_are_answered_as_memcached_answers_them() {
    let ours = Served::remora(&[]);
    let real = Served::memcached();
    let mut sides = [&ours, &real].map(|server| Side { talk: server.talk(), uniques: BTreeMap::new() });
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..40 {
        let mut random = Random::new(seed);
        for round in 0..100 {
            let batch = (0..=random.below(20)).map(|_| command(&mut random));
            let (alone, batch): (Vec<Asked>, Vec<Asked>) = batch.partition(Asked::goes_alone);
            for batch in alone.chunks(1).chain([&batch[..]]) {
                let real = compare(&mut sides, batch, seed, round);
                if let [counts] = batch
                    && let Some(key) = counts.counts()
                {
                    settle(&mut sides, key);
                }
                for line in String::from_utf8_lossy(&real).lines() {
                    *seen.entry(line.chars().take_while(|c| !c.is_ascii_digit()).collect()).or_default() += 1;
                }
            }
        }
    }
    // Every kind of answer occurred many times.
    for answer in [
        "STORED",
        "NOT_STORED",
        "EXISTS",
        "NOT_FOUND",
        "DELETED",
        "TOUCHED",
        "OK",
        "END",
        "ERROR",
        "VALUE a ",
        "CLIENT_ERROR bad command line format",
        "CLIENT_ERROR invalid exptime argument",
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
        "CLIENT_ERROR invalid numeric delta argument",
        "CLIENT_ERROR cannot increment or decrement non-numeric value",
        "SERVER_ERROR object too large for cache",
    ] {
        assert!(seen.get(answer).is_some_and(|times| *times >= 20), "{answer}: {:?}", seen.get(answer));
    }
}
