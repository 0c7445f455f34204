//! An interface to Porcupine, a linearizability checker written in Go.
//!
//! Porcupine runs as a process per thread and communicates over pipes. The process ends with its thread.

use crate::hold::cache;
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// An operation on registers, which are numbered from 0. Values are numbered from 1; 0 means no value.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Interval {
    #[serde(rename = "Call")]
    pub call: u64,
    #[serde(rename = "Return")]
    pub returned: u64,
    #[serde(rename = "Steps")]
    pub steps: Vec<[u32; 3]>,
}

#[derive(serde::Serialize)]
struct Question<'a> {
    #[serde(rename = "Registers")]
    registers: usize,
    #[serde(rename = "Milliseconds")]
    milliseconds: u64,
    #[serde(rename = "Operations")]
    operations: &'a [Interval],
}

#[derive(serde::Deserialize)]
struct Response {
    #[serde(rename = "Result")]
    result: String,
    #[serde(rename = "Longest")]
    longest: Option<Vec<usize>>,
}

/// The result of Porcupine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A valid order exists.
    Linearizable,
    /// No valid order exists. Holds the longest partial order, as indices of operations.
    Illegal(Vec<usize>),
    /// The time limit was exceeded.
    Unknown,
}

/// Kinds of steps in the protocol with the Go program.
pub(crate) const READ: u32 = 0;
pub(crate) const WRITE: u32 = 1;
pub(crate) const REMOVE: u32 = 2;

thread_local! {
    static PROCESS: RefCell<Option<Process>> = const { RefCell::new(None) };
}

/// Checks whether an order of the operations, each at one point in time between its call and its return,
/// explains all reads.
///
/// # Panics
/// If Porcupine cannot be built or does not answer.
pub(crate) fn ask(registers: usize, operations: &[Interval], milliseconds: u64) -> Verdict {
    PROCESS.with_borrow_mut(|process| {
        let process = process.get_or_insert_with(|| Process::start().expect("Porcupine builds and starts"));
        let answer = process.ask(&Question { registers, milliseconds, operations });
        let answer = answer.expect("Porcupine answers");
        match answer.result.as_str() {
            "Ok" => Verdict::Linearizable,
            "Illegal" => Verdict::Illegal(answer.longest.unwrap_or_default()),
            _ => Verdict::Unknown,
        }
    })
}

struct Process {
    /// The process stops when its pipe closes at the end of the thread.
    _child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start() -> io::Result<Self> {
        let mut command = Command::new(build()?);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let questions = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self { _child: child, questions, answers })
    }

    fn ask(&mut self, question: &Question<'_>) -> io::Result<Response> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        self.questions.write_all(&line)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }
}

/// Returns the path of the program, building it if this version does not exist.
fn build() -> io::Result<PathBuf> {
    let mut version = DefaultHasher::new();
    (include_str!("../porcupine/main.go"), include_str!("../porcupine/go.sum")).hash(&mut version);
    let built = cache().join(format!("porcupine-{:016x}", version.finish()));
    if built.exists() {
        return Ok(built);
    }
    std::fs::create_dir_all(cache())?;
    // Concurrent builds produce the same program. Renaming is atomic, so no process runs an incomplete file.
    let mine = cache().join(format!("porcupine-{}-{:?}", std::process::id(), std::thread::current().id()));
    let mut go = Command::new(compiler());
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("porcupine")).args(["build", "-o"]).arg(&mine);
    let output = go.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    std::fs::rename(&mine, &built)?;
    Ok(built)
}

/// Returns the Go compiler. Go's installer does not add it to the search path.
fn compiler() -> &'static str {
    let own = "/usr/local/go/bin/go";
    if Path::new(own).exists() { own } else { "go" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_too_hard_ends_without_a_verdict() {
        // Forty concurrent writes, followed by a value that none of them wrote, make the search try every
        // subset.
        let write = |value| Interval { call: 0, returned: 10, steps: vec![[WRITE, 0, value]] };
        let read = |value| Interval { call: 20, returned: 30, steps: vec![[READ, 0, value]] };
        let mut operations: Vec<Interval> = (1..41).map(write).collect();
        operations.push(read(41));
        assert_eq!(ask(1, &operations, 50), Verdict::Unknown);
        assert_eq!(ask(1, &[write(7), read(7)], 60_000), Verdict::Linearizable, "the next one is answered");
    }
}
