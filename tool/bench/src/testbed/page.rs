//! A page that the two processes of a benchmark share: which command the peer carries out, and the lines of
//! the line floor.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use remora_memory::Bytes;
use serde::{Deserialize, Serialize};

const LEN: usize = 4096;

/// Words of the page, each on a line pair of its own (neighbouring lines are fetched together).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Word {
    /// The ticket of the last command.
    Wanted = 0,
    /// The ticket of the command that the peer carries out.
    Begun = 128,
    /// What a command is answered with.
    Answer = 256,
    /// The line that the bench writes.
    There = 384,
    /// The line that the peer writes.
    Back = 512,
}

/// The shared page.
#[derive(Clone)]
pub struct Page {
    bytes: Bytes,
}

impl Page {
    /// A new page.
    pub fn create() -> Result<Page> {
        Ok(Page { bytes: Bytes::memfd("remora-bench", LEN).context("a shared page for the benchmark")? })
    }

    /// How the peer opens it: a path.
    pub fn path(&self) -> String {
        let fd = self.bytes.fd().map_or(-1, |fd| fd.as_raw_fd());
        format!("/proc/{}/fd/{fd}", std::process::id())
    }

    /// Opens the other process's page.
    pub fn open(path: &str) -> Result<Page> {
        let file =
            std::fs::File::options().read(true).write(true).open(path).with_context(|| path.to_owned())?;
        let bytes = Bytes::from_memfd(OwnedFd::from(file)).context("the page of the benchmark")?;
        ensure!(bytes.len() >= LEN, "the page of the benchmark is too short");
        Ok(Page { bytes })
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        self.bytes.word(word as usize).expect("the page has this word")
    }

    /// The two lines of the line floor: ours, theirs.
    pub fn lines(&self) -> (&AtomicU64, &AtomicU64) {
        (self.word(Word::There), self.word(Word::Back))
    }

    /// The last command.
    pub fn wanted(&self) -> Ticket {
        Ticket(self.word(Word::Wanted).load(Ordering::Acquire))
    }

    /// Bench side: the peer shall carry out the command with this ticket. Returns when it does.
    pub fn want(&self, ticket: Ticket) -> Result<()> {
        self.word(Word::Wanted).store(ticket.0, Ordering::Release);
        let started = Instant::now();
        while self.word(Word::Begun).load(Ordering::Acquire) != ticket.0 {
            if started.elapsed() > Duration::from_secs(20) {
                bail!("the peer process of the benchmark does not answer");
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Peer side: it carries out the command with this ticket.
    pub fn begin(&self, ticket: Ticket) {
        self.word(Word::Begun).store(ticket.0, Ordering::Release);
    }

    /// Peer side: is this command still the last one?
    #[inline]
    pub fn is_wanted(&self, ticket: Ticket) -> bool {
        self.word(Word::Wanted).load(Ordering::Relaxed) == ticket.0
    }

    /// Peer side: a result for the bench.
    pub fn answer(&self, value: u64) {
        self.word(Word::Answer).store(value, Ordering::Release);
    }

    /// Bench side: the result.
    pub fn answered(&self) -> u64 {
        self.word(Word::Answer).load(Ordering::Acquire)
    }
}

/// The number of a command, from 1 on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket(u64);

impl Ticket {
    /// The next command's.
    pub fn following(self) -> Ticket {
        Ticket(self.0 + 1)
    }
}
