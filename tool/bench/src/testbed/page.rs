//! A page that the two processes of a benchmark share: which role the peer plays now, and the lines of the
//! line floor.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use remora_memory::Bytes;

const LEN: usize = 4096;

/// Words of the page, each on a line pair of its own (neighbouring lines are fetched together).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Word {
    /// Role that the peer shall play, with a sequence number above it.
    Wanted = 0,
    /// The `Wanted` that it plays.
    Playing = 128,
    /// Argument of the role.
    First = 256,
    /// Second argument.
    Second = 384,
    /// Result of the role.
    Answer = 512,
    /// The line that the bench writes.
    There = 640,
    /// The line that the peer writes.
    Back = 768,
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

    /// Bench side: the peer shall play `role`; returns when it does.
    pub fn play(&self, role: u64, first: u64, second: u64) -> Result<()> {
        let wanted = ((self.word(Word::Wanted).load(Ordering::Relaxed) >> 8) + 1) << 8 | role;
        self.word(Word::First).store(first, Ordering::Relaxed);
        self.word(Word::Second).store(second, Ordering::Relaxed);
        self.word(Word::Wanted).store(wanted, Ordering::Release);
        let started = Instant::now();
        while self.word(Word::Playing).load(Ordering::Acquire) != wanted {
            if started.elapsed() > Duration::from_secs(20) {
                bail!("the peer process of the benchmark does not answer");
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Peer side: the role to play, with its arguments, and the ticket that says it is still wanted.
    pub fn role(&self) -> (Ticket, u64, u64, u64) {
        let wanted = self.word(Word::Wanted).load(Ordering::Acquire);
        let first = self.word(Word::First).load(Ordering::Relaxed);
        let second = self.word(Word::Second).load(Ordering::Relaxed);
        (Ticket(wanted), wanted & 0xff, first, second)
    }

    /// Peer side: it plays what the ticket says.
    pub fn playing(&self, ticket: Ticket) {
        self.word(Word::Playing).store(ticket.0, Ordering::Release);
    }

    /// Peer side: is this role still wanted?
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

/// Which call for a role is meant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ticket(u64);
