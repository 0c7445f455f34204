//! Tests of input in arbitrary pieces, from several clients, some of them hostile. The answers must not
//! depend on where the network divides the input, and all memory must be released.

use super::{Session, TestClient};
use crate::cache::OUTPUT;
use crate::random::Random;

/// Words that lines consist of.
const WORDS: [&str; 50] = [
    "get",
    "gets",
    "gat",
    "gats",
    "incr",
    "decr",
    "touch",
    "delete",
    "flush_all",
    "stats",
    "version",
    "verbosity",
    "mg",
    "mg",
    "md",
    "ma",
    "me",
    "mn",
    "v",
    "k",
    "q",
    "b",
    "t",
    "c",
    "h",
    "T5",
    "N9",
    "C1",
    "I",
    "O7",
    "YQ==",
    "lru_crawler",
    "metadump",
    "all",
    "noreply",
    "0",
    "1",
    "5",
    "300",
    "-1",
    "99999",
    "a",
    "b",
    "c",
    "n",
    "18446744073709551615",
    "\u{1}",
    "\r",
    "set a 0 0 3\r\n123\r\n",
    "set n 1 0 2 noreply\r\n99\r\n",
];

/// Returns random commands and parts of commands, some of them invalid.
fn babble(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        match random.below(12) {
            0 => {
                let key = ["a", "b", "c", "n"][random.below(4) as usize];
                let verb = ["set", "add", "append", "prepend", "replace"][random.below(5) as usize];
                let value = [0, 1, 5, 700, 40_000, 1_100_000][random.below(6).min(random.below(6)) as usize];
                bytes.extend_from_slice(format!("{verb} {key} 0 0 {value}\r\n").as_bytes());
                bytes.resize(bytes.len() + value, b'7');
                bytes.extend_from_slice(b"\r\n");
            }
            1 => bytes.extend_from_slice(b"\r\n"),
            2 => bytes.extend_from_slice(
                format!("get a {} b c n\r\n", "k".repeat(random.below(260) as usize)).as_bytes(),
            ),
            3 => bytes.resize(bytes.len() + random.below(300) as usize, b'x'),
            4 => bytes.push(random.bits() as u8),
            _ => {
                bytes.extend_from_slice(WORDS[random.below(WORDS.len() as u64) as usize].as_bytes());
                bytes.extend_from_slice(if random.below(3) == 0 { b"\r\n" } else { b" " });
            }
        }
    }
    bytes
}

/// Returns the answers to a client that sends `bytes` in pieces and reads in pieces.
fn cut(talk: &mut TestClient, bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut all = Vec::new();
    let mut out = Vec::with_capacity(OUTPUT);
    let mut start = 0;
    let mut end = 0;
    loop {
        let taken = talk.session.run(&mut talk.cache, talk.now, &bytes[start..end], &mut out);
        assert!(out.capacity() == OUTPUT);
        start += taken;
        if taken == 0 && out.is_empty() && end == bytes.len() {
            return all;
        }
        let read = random.below(out.len() as u64 + 1) as usize;
        // In some rounds nothing is read at all.
        all.extend(out.drain(..if random.below(3) == 0 { 0 } else { read }));
        if taken == 0 && end == bytes.len() {
            all.append(&mut out);
        }
        let most = [2, 100, 100_000][random.below(3) as usize];
        end = bytes.len().min(end + random.below(most) as usize);
    }
}

#[test]
fn answers_do_not_depend_on_where_the_bytes_are_cut() {
    let mut answered = 0;
    let mut closed = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let bytes = babble(&mut random, 6000);
        let whole = TestClient::new().say(&bytes);
        let mut talk = TestClient::new();
        let pieces = cut(&mut talk, &bytes, &mut random);
        assert!(whole == pieces, "seed {seed}");
        answered += whole.len();
        closed += u32::from(talk.session.is_closed());
    }
    assert!(answered > 100_000 && closed > 10, "{answered} bytes, {closed} closed");
}

#[test]
fn all_memory_comes_back_when_rude_clients_are_gone() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut talk = TestClient::with(3 << 20, 40);
        let free = talk.cache.items.free_lines();
        let mut rude: Vec<(Session, Vec<u8>)> =
            (0..6).map(|_| (Session::new(&mut talk.cache), babble(&mut random, 5000))).collect();
        let mut out = Vec::with_capacity(OUTPUT);
        for _ in 0..400 {
            let (session, bytes) = &mut rude[random.below(6) as usize];
            let given = bytes.len().min(random.below(3000) as usize);
            let taken = session.run(&mut talk.cache, talk.now, &bytes[..given], &mut out);
            bytes.drain(..taken);
            out.drain(..random.below(out.len() as u64 + 1) as usize);
            talk.pass(random.below(2));
        }
        rude.into_iter().for_each(|(session, _)| session.close(&mut talk.cache));
        talk.tell("flush_all\r\n");
        (0..100).for_each(|_| drop(talk.tell("set z 0 0 1\r\nx\r\ndelete z\r\n")));
        assert_eq!(
            (talk.stat("curr_items"), talk.stat("bytes"), talk.stat("curr_connections")),
            (0, 0, 1),
            "seed {seed}"
        );
        assert_eq!(talk.cache.items.free_lines(), free, "seed {seed}");
    }
}
