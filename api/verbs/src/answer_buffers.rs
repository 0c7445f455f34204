//! AnswerBuffers of kernels, by the tags of their requests.

use remora_nic::kernel::{Ending, Place, Status, TAG_MASK};
use remora_nic::{CompletionKind, Flags, Operation, Sge, WorkCompletion, WorkRequest};
use std::fmt;
use std::time::Duration;

use crate::queue_pair::with_head;
use crate::{
    Access, AccessError, CompletionQueue, CreateError, EMPTY, MemoryRegion, PollError, PostError,
    ProtectionDomain, QueueError, QueuePair, work,
};

/// Buffers at most: a tag holds the number of one, and how often it was used.
const MOST: u32 = 1 << 12;

/// Completions that a wait polls at a time: clearing an array for more would take longer than polling again.
const AT_ONCE: usize = 4;

/// The answer of a kernel to one request; its bytes are read by [`AnswerBuffers::read`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct KernelAnswer {
    /// The tag of the request.
    pub tag: u32,
    /// The outcome, as the kernel or its NIC reports it.
    pub status: Status,
    /// Bytes of the answer.
    pub len: u32,
}

/// The state of a buffer: free, lent to a request, or holding its answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum BufferState {
    Empty,
    Asked,
    Came(KernelAnswer),
}

/// Buffers for the answers of kernels, used in turn, and an account of the requests that they belong to.
/// Requests of several queue pairs may share them.
///
/// A request takes the next buffer. Its last request must have been answered, and the answer handed out. So
/// the bytes of an answer stay until as many requests were made as there are buffers.
#[derive(Debug)]
pub struct AnswerBuffers {
    memory: MemoryRegion,
    size: u32,
    states: Box<[BufferState]>,
    asked: u32,
}

/// Why [`AnswerBuffers::wait`] returns no answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AnswerError {
    /// Polling the completion queue failed.
    Poll(PollError),
    /// Work has failed, and with it the connection.
    Ended(crate::Status),
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerError::Poll(error) => error.fmt(f),
            AnswerError::Ended(status) => write!(f, "the connection has ended: {}", status.explain()),
        }
    }
}

impl std::error::Error for AnswerError {}

impl From<PollError> for AnswerError {
    fn from(error: PollError) -> AnswerError {
        AnswerError::Poll(error)
    }
}

impl AnswerBuffers {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        count: u32,
        size: u32,
    ) -> Result<AnswerBuffers, CreateError> {
        if !(1..=MOST).contains(&count) {
            return Err(CreateError::TooMany("count", count.into(), MOST.into()));
        }
        let bytes = count as usize * size.max(1) as usize;
        let memory = domain.allocate(bytes, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(AnswerBuffers {
            memory,
            size,
            states: vec![BufferState::Empty; count as usize].into_boxed_slice(),
            asked: 0,
        })
    }

    fn index(&self, tag: u32) -> usize {
        (tag % MOST) as usize
    }

    /// The buffer for the answer to a request, as a kernel at the peer gets it.
    pub fn place(&self, tag: u32) -> Place {
        let remote = self.memory.remote(self.index(tag) as u64 * u64::from(self.size));
        Place { addr: remote.addr, rkey: remote.rkey.get(), len: self.size }
    }

    /// The next tag, if its buffer is free.
    fn begin(&self) -> Result<u32, PostError> {
        let count = self.states.len() as u32;
        let (index, use_of_it) = (self.asked % count, self.asked / count);
        if self.states[index as usize] != BufferState::Empty {
            return Err(PostError::Queue(QueueError::QueueFull));
        }
        Ok((use_of_it * MOST + index) & TAG_MASK)
    }

    fn asked(&mut self, tag: u32) -> u32 {
        self.states[self.index(tag)] = BufferState::Asked;
        // As many as tags can distinguish.
        self.asked = (self.asked + 1) % (self.states.len() as u32 * ((TAG_MASK + 1) / MOST));
        tag
    }

    /// Asks a kernel of the peer's NIC as [`post_rpc`](QueuePair::post_rpc) does, without a completion of its
    /// own, and posts a receive work request for the answer. Returns the request's tag.
    ///
    /// # Errors
    /// `Queue(QueueFull)`: the next buffer's answer has not been handed out, or a queue of the queue pair is
    /// full. Others as [`post_rpc`](QueuePair::post_rpc) and [`post_recv`](QueuePair::post_recv). Nothing has
    /// been posted then.
    pub fn ask(&mut self, pair: &mut QueuePair, opcode: u64, params: &[u8]) -> Result<u32, PostError> {
        let tag = self.begin()?;
        let place = self.place(tag);
        with_head(&place, params, |bytes| {
            let request = work::inline(u64::from(tag), Operation::Rpc { opcode, tag }, bytes);
            pair.post_asking(&WorkRequest { flags: Flags::default(), ..request })
        })?;
        Ok(self.asked(tag))
    }

    /// Gives a kernel bytes as [`post_rpc_write`](QueuePair::post_rpc_write) does. They must not change until
    /// the answer has come. Returns the request's tag; the bytes of its answer go to the buffer of the
    /// [`ask`](AnswerBuffers::ask) before it.
    ///
    /// # Errors
    /// As [`ask`](AnswerBuffers::ask).
    pub fn give(&mut self, pair: &mut QueuePair, opcode: u64, local: &[Sge]) -> Result<u32, PostError> {
        let tag = self.begin()?;
        let request = work::rpc_write(u64::from(tag), opcode, tag, local);
        pair.post_asking(&WorkRequest { flags: Flags::default(), ..request })?;
        Ok(self.asked(tag))
    }

    /// Looks at a completion. True: it was an answer, which [`answer`](AnswerBuffers::answer) gives out.
    pub fn take(&mut self, done: &WorkCompletion) -> bool {
        let Some(imm) = done.imm.filter(|_| done.kind == CompletionKind::ReceiveWriteImm) else {
            return false;
        };
        let Ending { status, tag } = Ending::parse(imm);
        let index = self.index(tag);
        match self.states.get_mut(index) {
            Some(state) if *state == BufferState::Asked => {
                *state = BufferState::Came(KernelAnswer { tag, status, len: done.byte_len })
            }
            _ => return false,
        }
        true
    }

    /// The answer to a request, once, if it has come.
    pub fn answer(&mut self, tag: u32) -> Option<KernelAnswer> {
        let index = self.index(tag);
        let state = self.states.get_mut(index)?;
        let BufferState::Came(answer) = *state else { return None };
        *state = BufferState::Empty;
        Some(answer)
    }

    /// Polls until the answer to a request has come; earlier answers are kept. Other completions on the queue
    /// are dropped. A program that has other work there polls itself, and hands its completions to
    /// [`take`](AnswerBuffers::take).
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn wait(
        &mut self,
        cq: &mut CompletionQueue,
        tag: u32,
        timeout: Duration,
    ) -> Result<KernelAnswer, AnswerError> {
        let mut done = [EMPTY; AT_ONCE];
        loop {
            if let Some(answer) = self.answer(tag) {
                return Ok(answer);
            }
            let count = cq.wait(&mut done, timeout)?;
            for done in &done[..count] {
                if done.status != crate::Status::Success {
                    return Err(AnswerError::Ended(done.status));
                }
                self.take(done);
            }
        }
    }

    /// The first bytes of an answer.
    ///
    /// # Errors
    /// `OutOfBounds`: more than a buffer holds.
    pub fn read(&self, answer: &KernelAnswer, into: &mut [u8]) -> Result<(), AccessError> {
        if into.len() > self.size as usize {
            return Err(AccessError::OutOfBounds);
        }
        self.memory.read(self.index(answer.tag) * self.size as usize, into)
    }
}
