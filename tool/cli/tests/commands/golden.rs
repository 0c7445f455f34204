//! Compares the exit code and the first line on standard error of wrong calls with
//! `tests/golden/errors.txt`.
//!
//! `REMORA_GOLDEN=write cargo test -p remora-cli --test commands golden` rewrites the file. Read each
//! change: no message may become worse, and no call that was refused may be accepted.

use std::fs::File;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::running::{Server, command, finish};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/errors.txt");

/// An address on which nothing listens. Binding port 1 takes rights that tests do not have.
const CLOSED: &str = "127.0.0.1:1";

/// Number of calls that run at the same time.
const WORKERS: usize = 8;

/// Files that calls refer to: name in the scratch folder, and content.
const FILES: [(&str, &str); 15] = [
    ("empty", ""),
    ("pairs", "a 1\nb 2\n"),
    ("lonely", "lonely\n"),
    ("nonsense", "[[nonsense"),
    ("rules", "[[rule]]\nlose = 1\n"),
    ("shell", "frobnicate\n"),
    ("workload", "readproportion=lots\n"),
    ("trace", "2\n0 4 0\n0 0\n"),
    ("short", "3\n0 4 0\n"),
    ("wrong.chain", "queue main\n  nopp\n"),
    ("fails.chain", "data d\n x: word 0\nqueue main\n add x+4, 1\n"),
    (
        "shards.toml",
        "[[server]]\nname = 'a'\naddress = '127.0.0.1:1'\n[[server]]\nname = 'b'\naddress = '127.0.0.1:2'\n",
    ),
    ("replicas.toml", "[[server]]\nname = 'a'\naddress = '127.0.0.1:1'\n"),
    (
        "twice.toml",
        "[[server]]\nname = 'a'\naddress = '127.0.0.1:1'\n[[server]]\nname = 'a'\naddress = '127.0.0.1:2'\n",
    ),
    ("gap.toml", "[[server]]\nname = 'a'\naddress = '127.0.0.1:1'\nshard = 1\n"),
];

/// The values of the placeholders in calls.
struct Stage {
    folder: tempfile::TempDir,
    server: Server,
}

impl Stage {
    fn set() -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).expect("a file");
        FILES.iter().for_each(|(name, text)| put(name, text.as_bytes()));
        put("bytes", b"\xff\xfe");
        put("large", &vec![b'x'; (1 << 20) + 1]);
        let chain = include_str!("../../../../program/chain/programs/if.chain");
        put("if.chain", chain.as_bytes());
        put("posted.chain", chain.replace("queue then managed", "queue then posted").as_bytes());
        Stage { folder, server: Server::start("farm", "shm", &[]) }
    }

    fn names(&self) -> [(&'static str, String); 4] {
        let folder = self.folder.path().to_str().expect("a plain path");
        [
            ("{dir}", folder.to_owned()),
            ("{farm}", self.server.address.clone()),
            ("{closed}", CLOSED.to_owned()),
            ("{long}", "k".repeat(5000)),
        ]
    }

    /// Runs a call and returns its exit code and first error line.
    fn run(&self, call: &str) -> String {
        let (words, input) = call.split_once(" < ").unwrap_or((call, "/dev/null"));
        let put =
            |word: &str| self.names().iter().fold(word.to_owned(), |word, (name, is)| word.replace(name, is));
        let words: Vec<String> = split(words).iter().map(|word| put(word)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let input = File::open(put(input)).expect("an input of the test");
        let ended = finish(command(&words).stdin(Stdio::from(input)));
        let first = first(&ended.err);
        let shown = self.names().iter().fold(first, |line, (name, is)| line.replace(is, name));
        format!("{} {shown}", ended.status)
    }
}

/// Returns the first line. If it ends with a colon, the following lines are appended to it.
fn first(err: &str) -> String {
    let mut lines = err.lines().skip_while(|line| line.is_empty()).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().to_owned();
    match first.ends_with(':') {
        true => lines.fold(first, |all, line| format!("{all} {}", line.trim())),
        false => first,
    }
}

/// Splits a line into words like a shell. Single quotes hold words together.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// Runs all calls, several at the same time.
fn run_all(stage: &Stage, calls: &[&str]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let ended = Mutex::new(vec![String::new(); calls.len()]);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let line = stage.run(call);
                    let index =
                        calls.iter().position(|other| std::ptr::eq(other, call)).expect("one of them");
                    ended.lock().expect("no panic")[index] = line;
                }
            });
        }
    });
    ended.into_inner().expect("no panic")
}

/// Returns the arguments of each call in the file, with the recorded result.
fn entries(text: &str) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.windows(2).filter_map(|pair| Some((pair[0].strip_prefix("$ remora")?, pair[1])));
    pairs.collect()
}

/// Returns the text of the file with new results of its calls.
fn renewed(text: &str, ends: &[String]) -> String {
    let mut ends = ends.iter();
    let mut new = String::new();
    for line in text.lines().filter(|line| line.is_empty() || line.starts_with(['$', '#'])) {
        new += &format!("{line}\n");
        if line.starts_with('$') {
            new += &format!("{}\n", ends.next().expect("an end of each call"));
        }
    }
    new
}

#[test]
fn each_wrong_call_is_told_what_the_golden_file_says() {
    let text = std::fs::read_to_string(FILE).expect("the golden file");
    let entries = entries(&text);
    assert!(entries.len() >= 80, "{} calls", entries.len());
    let calls: Vec<&str> = entries.iter().map(|(call, _)| *call).collect();
    let ends = run_all(&Stage::set(), &calls);
    if std::env::var_os("REMORA_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::write(FILE, renewed(&text, &ends)).expect("the golden file");
    }
    let accepted = entries.iter().zip(&ends).filter(|(_, end)| end.starts_with("0 "));
    let differs = entries.iter().zip(&ends).filter(|((_, was), is)| *was != is.as_str());
    let shown: String = accepted
        .chain(differs)
        .map(|((call, was), is)| format!("\n$ remora{call}\n- {was}\n+ {is}"))
        .collect();
    assert!(shown.is_empty(), "{shown}\nREMORA_GOLDEN=write renews {FILE}");
}
