//! A memory page that the two processes of a benchmark share. It holds the number of the peer's current
//! command, and the cache lines of the line measurement.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use remora_memory::Bytes;
use serde::{Deserialize, Serialize};

const LEN: usize = 4096;

/// Maximum length of an answer in bytes.
pub(crate) const LONGEST_ANSWER: usize = Word::There as usize - Word::Answer as usize;

/// The words of the page, each on its own pair of cache lines, because neighbouring lines are fetched
/// together.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Word {
    /// The ticket of the last command that the bench sent.
    Wanted = 0,
    /// The ticket of the command that the peer carries out.
    Begun = 128,
    /// The peer's answer to a command.
    Answer = 256,
    /// The line that the bench writes.
    There = 384,
    /// The line that the peer writes.
    Back = 512,
}

/// The memory page that the bench and its peer share.
#[derive(Clone)]
pub(crate) struct Page {
    bytes: Bytes,
}

impl Page {
    /// Creates a page.
    pub(crate) fn create() -> Result<Page> {
        Ok(Page { bytes: Bytes::memfd("remora-bench", LEN).context("a shared page for the benchmark")? })
    }

    /// Returns the path under which the peer opens the page.
    pub(crate) fn path(&self) -> String {
        let fd = self.bytes.fd().map_or(-1, |fd| fd.as_raw_fd());
        format!("/proc/{}/fd/{fd}", std::process::id())
    }

    /// Opens the page of the other process.
    pub(crate) fn open(path: &str) -> Result<Page> {
        let file =
            std::fs::File::options().read(true).write(true).open(path).with_context(|| path.to_owned())?;
        let bytes = Bytes::from_memfd(OwnedFd::from(file)).context("the page of the benchmark")?;
        ensure!(bytes.len() >= LEN, "the page of the benchmark is too short");
        Ok(Page { bytes })
    }

    fn word(&self, word: Word) -> &AtomicU64 {
        self.bytes.word(word as usize).expect("the page has this word")
    }

    /// Returns the two lines of the line measurement: the bench's and the peer's.
    pub(crate) fn lines(&self) -> (&AtomicU64, &AtomicU64) {
        (self.word(Word::There), self.word(Word::Back))
    }

    /// Returns the ticket of the last command.
    pub(crate) fn wanted(&self) -> Ticket {
        Ticket(self.word(Word::Wanted).load(Ordering::Acquire))
    }

    /// Bench side: makes the peer carry out the command with this ticket. Returns when the peer has begun.
    pub(crate) fn want(&self, ticket: Ticket) -> Result<()> {
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

    /// Peer side: announces that the command with this ticket is being carried out.
    pub(crate) fn begin(&self, ticket: Ticket) {
        self.word(Word::Begun).store(ticket.0, Ordering::Release);
    }

    /// Peer side: returns whether this command is still the last one that the bench sent.
    #[inline]
    pub(crate) fn is_wanted(&self, ticket: Ticket) -> bool {
        self.word(Word::Wanted).load(Ordering::Relaxed) == ticket.0
    }

    /// Peer side: stores a result for the bench.
    pub(crate) fn answer(&self, value: u64) {
        self.word(Word::Answer).store(value, Ordering::Release);
    }

    /// Bench side: returns the result.
    pub(crate) fn answered(&self) -> u64 {
        self.word(Word::Answer).load(Ordering::Acquire)
    }

    /// Peer side: stores a result of many bytes for the bench.
    ///
    /// # Panics
    /// Panics if the result has more than [`LONGEST_ANSWER`] bytes.
    pub(crate) fn answer_bytes(&self, bytes: &[u8]) {
        assert!(bytes.len() <= LONGEST_ANSWER, "{} bytes do not fit", bytes.len());
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.answer_word(index).store(u64::from_le_bytes(word), Ordering::Release);
        }
    }

    /// Bench side: returns the bytes of the result.
    pub(crate) fn answered_bytes(&self) -> [u8; LONGEST_ANSWER] {
        let mut bytes = [0; LONGEST_ANSWER];
        for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&self.answer_word(index).load(Ordering::Acquire).to_le_bytes());
        }
        bytes
    }

    fn answer_word(&self, index: usize) -> &AtomicU64 {
        self.bytes.word(Word::Answer as usize + 8 * index).expect("the page has this word")
    }
}

/// The number of a command, from 1 on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// Returns the ticket of the next command.
    pub(crate) fn following(self) -> Ticket {
        Ticket(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_many_bytes_comes_back_as_it_went_and_touches_no_other_word() {
        let page = Page::create().unwrap();
        page.lines().0.store(7, Ordering::Relaxed);
        let sent: Vec<u8> = (1..=LONGEST_ANSWER as u8).collect();
        page.answer_bytes(&sent);
        assert_eq!(page.answered_bytes()[..], sent);
        page.answer_bytes(&[9; 11]);
        assert_eq!(page.answered_bytes()[..12], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 0]);
        assert_eq!(page.lines().0.load(Ordering::Relaxed), 7);
    }
}
