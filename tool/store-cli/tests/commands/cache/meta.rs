//! Sends the same meta commands to the real memcached and to Remora, and requires byte-identical answers.
//!
//! Differences that `docs/guides/cache.md` lists are left out. Each server has its own `cas` numbers: a
//! command uses the number of its own server, and answers are compared without them. Times are rounded
//! to 100 seconds.

use std::collections::BTreeMap;

use remora_store::Random;

use super::{Served, Talk};

/// Keys and their base64 encodings.
const KEYS: [(&str, &str); 4] = [("a", "YQ=="), ("bcd", "YmNk"), ("n", "bg=="), ("m1", "bTE=")];

fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

/// A command. `UNIQUE` in its line stands for the `cas` number of `key` plus `more`.
struct Asked {
    line: String,
    key: &'static str,
    more: i64,
    value: Option<String>,
}

/// Times for the flag `R`. They differ from the items' times, so that a clock tick cannot change an answer.
const TIMES: [&str; 7] = ["0", "0", "1500", "6000", "-1", "x", ""];

/// Returns a flag with a suitable argument.
fn flag(random: &mut Random, letter: char) -> String {
    let token = match letter {
        'N' | 'T' => one_of(random, &["0", "0", "1000", "5000", "5000", "1000", "+1000", "-1", "x", ""]),
        'R' => one_of(random, &TIMES),
        'C' => one_of(random, &["UNIQUE", "UNIQUE", "UNIQUE", "UNIQUE", "0", "x", ""]),
        'F' => one_of(random, &["0", "7", "4294967295", "x"]),
        'D' => one_of(random, &["1", "5", "18446744073709551615", "18446744073709551616", "x"]),
        'J' => one_of(random, &["0", "98", "18446744073709551615", "-1"]),
        'M' => one_of(random, &["S", "E", "A", "P", "R", "I", "+", "D", "-", "Z", "", "AA"]),
        'O' => one_of(random, &["", "1", "opaque", "1234567890123456789012345678901"]),
        'P' | 'L' => one_of(random, &["", "path/"]),
        's' | 'v' | 'k' => one_of(random, &["", "", "", "", "x"]),
        _ => "",
    };
    format!("{letter}{token}")
}

/// Returns some flags of a command. Occasionally one is invalid or occurs twice.
fn flags(random: &mut Random, usual: &[u8]) -> String {
    let mut all = String::new();
    for _ in 0..random.below(6) {
        let letter = if random.below(60) == 0 {
            one_of(random, b"bcfhklOqstuvNRTPLIMCFDJExyzASW")
        } else {
            one_of(random, usual)
        };
        // Two equal flags are an error, so most repetitions are left out.
        if letter == b'b' || (all.contains(&format!(" {}", char::from(letter))) && random.below(20) > 0) {
            continue;
        }
        all.push(' ');
        all.push_str(&flag(random, char::from(letter)));
    }
    all
}

fn meta(random: &mut Random) -> Asked {
    let (key, encoded) = one_of(random, &KEYS);
    let more = one_of(random, &[0, 0, 0, 1_000_000, -1]);
    let binary = random.below(4) == 0;
    let (name, b) = match random.below(50) {
        0 => (one_of(random, &["YQ", "====", "!", "YWF=", "none"]), " b"),
        _ if binary => (encoded, " b"),
        _ => (key, ""),
    };
    let (line, value) = match random.below(20) {
        0..8 => (format!("mg {name}{b}{}", flags(random, b"cfhkOqstuvvvNRT")), None),
        8..13 => {
            let len = if key.len() == 1 { one_of(random, &["5", "97", "", "1 x"]) } else { "text" };
            let line = format!("ms {name} {}{b}{}", len.len(), flags(random, b"ckOqFTTMMICC"));
            (line, Some(len.to_owned()))
        }
        13..15 => (format!("md {name}{b}{}", flags(random, b"ICkOqT")), None),
        15..18 => (format!("ma {name}{b}{}", flags(random, b"ctvvkOqNJDTMC")), None),
        18 => (format!("me {name}{b}"), None),
        _ => (one_of(random, &["mn", "mn x", "mg", "md", "ma", "me", "mz a"]).to_owned(), None),
    };
    Asked { line, key, more, value }
}

fn classic(random: &mut Random) -> Asked {
    let (key, _) = one_of(random, &KEYS);
    let line = match random.below(8) {
        0 => format!("get {key}"),
        1 => format!("gat {} {key}", one_of(random, &["0", "1000", "-1"])),
        2 => format!("touch {key} {}", one_of(random, &["0", "5000"])),
        3 => format!("incr {key} 1"),
        4 => format!("delete {key}"),
        5 if random.below(5) == 0 => "flush_all".to_owned(),
        _ => {
            let verb = one_of(random, &["set", "set", "add", "replace", "append"]);
            let line =
                format!("{verb} {key} {} {} 2", one_of(random, &["0", "9"]), one_of(random, &["0", "1000"]));
            return Asked { line, key, more: 0, value: Some("41".to_owned()) };
        }
    };
    Asked { line, key, more: 0, value: None }
}

/// Rounds a time to 100 seconds, because both servers never answer at the same moment.
fn hundreds(text: &str) -> i64 {
    let seconds: i64 = text.parse().expect("a time");
    // memcached reports a time in the past as a number near 2^32.
    if seconds > i64::from(i32::MAX) { 0 } else { (seconds + if seconds > 0 { 50 } else { -50 }) / 100 }
}

/// Returns a line of an answer without the values that differ between servers.
fn plain(line: &str) -> String {
    let debug = line.starts_with("ME ");
    let word = |word: &str| match word.split_at_checked(1) {
        Some(("c", number)) if number != "0" && number.parse::<u64>().is_ok() => "c#".to_owned(),
        Some(("t", time)) if time.parse::<i64>().is_ok_and(|time| time > 0) => {
            format!("t{}", hundreds(time) * 100)
        }
        Some(("l", time)) if time.parse::<i64>().is_ok() => "l#".to_owned(),
        _ if debug && word.starts_with("cas=") => "cas=#".to_owned(),
        _ if debug && word.starts_with("la=") => "la=#".to_owned(),
        _ if debug && word.starts_with("exp=") && word != "exp=-1" => format!("exp={}", hundreds(&word[4..])),
        _ => word.to_owned(),
    };
    let words = line.split(' ').enumerate();
    let words = words.map(|(index, text)| if index == 0 { text.to_owned() } else { word(text) });
    words.collect::<Vec<_>>().join(" ")
}

struct Side {
    talk: Talk,
}

impl Side {
    /// Returns the `cas` number of a key, or a number that no item has if there is no such key.
    fn unique(&mut self, key: &str) -> i64 {
        let line = self.talk.tell(&format!("mg {key} c u"));
        line.split(' ')
            .find_map(|word| word.strip_prefix('c'))
            .map_or(5, |number| number.parse().expect("a number"))
    }

    /// Sends a command and returns all lines of the answer.
    fn ask(&mut self, asked: &Asked) -> Vec<String> {
        let mut line = asked.line.clone();
        if line.contains("UNIQUE") {
            let unique = self.unique(asked.key) + asked.more;
            line = line.replace("UNIQUE", &unique.to_string());
        }
        line.push_str("\r\n");
        if let Some(value) = &asked.value {
            line.push_str(value);
            line.push_str("\r\n");
        }
        self.talk.send(format!("{line}version\r\n").as_bytes());
        let mut all = Vec::new();
        loop {
            let line = String::from_utf8_lossy(&self.talk.line()).into_owned();
            assert!(!line.is_empty(), "it hung up on {:?} after {all:?}", asked.line);
            if line.starts_with("VERSION ") {
                return all;
            }
            all.push(plain(line.trim_end()));
        }
    }
}

#[test]
fn random_meta_commands_are_answered_as_memcached_answers_them() {
    let (ours, real) =
        (Served::remora(&[]), Served::memcached_with(&["-o", "no_lru_maintainer,no_lru_crawler"]));
    let mut sides = [&ours, &real].map(|server| Side { talk: server.talk() });
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut before = Vec::new();
        for side in &mut sides {
            // `cas` numbers do not restart after this, so a number minus one is still above 0.
            side.talk.tell("flush_all");
        }
        for _ in 0..100 {
            let asked = if random.below(4) == 0 { classic(&mut random) } else { meta(&mut random) };
            before.push(asked.line.clone());
            let [ours, real] = sides.each_mut().map(|side| side.ask(&asked));
            assert_eq!(ours, real, "ours and real, seed {seed}, after {before:#?}");
            for line in &real {
                *seen.entry(line.chars().take_while(|c| !c.is_ascii_digit()).collect()).or_default() += 1;
            }
        }
    }
    for answer in [
        "HD",
        "EN",
        "MN",
        "NF",
        "NS",
        "EX",
        "VA ",
        "ME a exp=-",
        "ME YQ== exp=-",
        "HD c#",
        "HD W",
        "HD Z",
        "HD X W",
        "HD Z X",
        "EN ka",
        "HD kYQ== b",
        "CLIENT_ERROR invalid flag",
        "CLIENT_ERROR duplicate flag",
        "CLIENT_ERROR invalid or duplicate flag",
        "CLIENT_ERROR bad token in command line format",
        "CLIENT_ERROR bad command line format",
        "CLIENT_ERROR error decoding key",
        "CLIENT_ERROR incorrect length for M token",
        "CLIENT_ERROR invalid mode for ms M token",
        "CLIENT_ERROR invalid mode for ma M token",
        "CLIENT_ERROR cannot increment or decrement non-numeric value",
    ] {
        assert!(seen.get(answer).is_some_and(|times| *times >= 3), "{answer}: {:?}", seen.get(answer));
    }
}

/// Compares commands whose answers contain no numbers that differ between servers.
#[test]
fn administration_is_answered_as_memcached_answers_it() {
    let ours = Served::remora(&[]);
    let real = Served::memcached();
    for line in [
        "lru_crawler",
        "lru_crawler foo",
        "lru_crawler foo bar",
        "lru_crawler enable x",
        "lru_crawler sleep",
        "lru_crawler sleep x",
        "lru_crawler sleep 100",
        "lru_crawler sleep 10000000",
        "lru_crawler tocrawl x",
        "lru_crawler tocrawl 100",
        "lru_crawler crawl x",
        "lru_crawler crawl 0",
        "lru_crawler crawl 1",
        "lru_crawler metadump",
        "lru_crawler metadump x",
        "lru_crawler metadump 64",
        "lru_crawler metadump 1,x",
        // memcached's crawler thread ends some time later, and until then its answers to a crawl or to
        // `enable` vary.
        "lru_crawler disable",
        "cache_memlimit",
        "cache_memlimit x",
        "cache_memlimit 64",
        "cache_memlimit 8 9 10",
        "shutdown",
        "shutdown graceful",
        "shutdown x",
        "stats cachedump",
        "stats cachedump 1",
        "stats cachedump 1 x",
        "stats cachedump 200 0 0",
        "stats sizes_disable",
        "stats reset",
        "stats nothing",
        "verbosity",
        "verbosity x",
        "verbosity 1",
        "flush_all 1 2 3",
        "flush_all x",
        "touch a",
        "gat",
    ] {
        let [ours, real] = [&ours, &real].map(|server| server.talk().tell(line));
        assert_eq!(ours, real, "{line:?}");
    }
    for line in
        ["GET / HTTP/1.0", "PUT /asdf/asd/fasdfasdf/sadf HTTP/1.1", "DELETE HTTP/1.1", "POST / HTTP/2"]
    {
        let [ours, real] = [&ours, &real].map(|server| server.talk().tell(line));
        assert_eq!((ours.as_str(), real.as_str()), ("", ""), "{line:?}");
    }
}

/// Compares `lru_crawler metadump` of the same items, without times and numbers.
#[test]
fn a_dump_of_all_items_is_memcacheds() {
    let ours = Served::remora(&[]);
    let real = Served::memcached();
    let [ours, real] = [&ours, &real].map(|server| {
        let mut talk = server.talk();
        for (key, flags, value) in [
            ("a", 0, "x"),
            ("b%20,\u{e9}/~", 7, "longer"),
            ("c", 0, &"v".repeat(3000)),
            ("d", 1, &"v".repeat(600_000)),
        ] {
            talk.send(format!("set {key} {flags} 0 {}\r\n{value}\r\n", value.len()).as_bytes());
            assert_eq!(talk.line(), b"STORED\r\n");
        }
        talk.tell("get a");
        talk.line();
        talk.line();
        let mut lines = Vec::new();
        talk.send(b"lru_crawler metadump all\r\n");
        loop {
            let line = String::from_utf8(talk.line()).expect("text");
            if line == "END\r\n" {
                break;
            }
            let word = |word: &&str| !word.starts_with("la=") && !word.starts_with("cas=");
            lines.push(line.split(' ').filter(word).collect::<Vec<_>>().join(" "));
        }
        lines.sort();
        lines
    });
    assert_eq!(ours, real);
    assert_eq!(ours.len(), 4);
}
