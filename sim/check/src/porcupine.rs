//! Porcupine, built once and asked over pipes.
//!
//! It is a Go program, so it runs as a process: one for each thread that asks, for as long as the thread
//! lives.

use crate::hold::cache;
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One operation on registers numbered from 0; values are numbered from 1, and 0 is none.
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

/// The verdict of Porcupine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none; this one, of operations by index, goes furthest.
    Illegal(Vec<usize>),
    /// It took too long.
    Unknown,
}

/// A fixed kind, so that steps are read without a table.
pub(crate) const READ: u32 = 0;
pub(crate) const WRITE: u32 = 1;
pub(crate) const REMOVE: u32 = 2;

thread_local! {
    static PROCESS: RefCell<Option<Process>> = const { RefCell::new(None) };
}

/// Asks whether an order of the operations, each at one moment between its call and its return, explains all
/// their reads.
///
/// # Panics
/// Porcupine cannot be built or does not answer: there is no verdict without it.
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
    /// Its end of the pipe closes with this thread, and then it stops by itself.
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

/// The program, built if this version of it never was.
fn build() -> io::Result<PathBuf> {
    let mut version = DefaultHasher::new();
    (include_str!("../porcupine/main.go"), include_str!("../porcupine/go.sum")).hash(&mut version);
    let built = cache().join(format!("porcupine-{:016x}", version.finish()));
    if built.exists() {
        return Ok(built);
    }
    std::fs::create_dir_all(cache())?;
    // Concurrent builds give the same program. The last to rename wins, and no process runs half a file.
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

/// Go's own installer does not put it on the path.
fn compiler() -> &'static str {
    let own = "/usr/local/go/bin/go";
    if Path::new(own).exists() { own } else { "go" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_too_hard_ends_without_a_verdict() {
        // Forty writes at once, and then a value that none of them wrote: every subset of them is tried.
        let write = |value| Interval { call: 0, returned: 10, steps: vec![[WRITE, 0, value]] };
        let read = |value| Interval { call: 20, returned: 30, steps: vec![[READ, 0, value]] };
        let mut operations: Vec<Interval> = (1..41).map(write).collect();
        operations.push(read(41));
        assert_eq!(ask(1, &operations, 50), Verdict::Unknown);
        assert_eq!(ask(1, &[write(7), read(7)], 60_000), Verdict::Linearizable, "the next one is answered");
    }
}
