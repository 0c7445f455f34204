//! Buffers for the answers of StRoM kernels, found by the tags of their requests.

use remora_nic::kernel::{Ending, Place, Status, TAG_MASK};
use remora_nic::{CompletionKind, Flags, Operation, Sge, WorkCompletion, WorkRequest};
use std::time::Duration;

use crate::queue_pair::with_head;
use crate::{
    Access, AccessError, CompletionQueue, CreateError, EMPTY, MemoryRegion, PollError, PostError,
    ProtectionDomain, QueueError, QueuePair, work,
};

/// Maximum number of buffers. A tag holds the index of its buffer and a count of the buffer's uses.
const MOST: u32 = 1 << 12;

/// Completions that [`AnswerBuffers::wait`] polls at a time. Clearing a larger array would take longer than
/// polling a second time.
const AT_ONCE: usize = 4;

/// The answer of a kernel to one request. [`AnswerBuffers::read`] reads its bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct KernelAnswer {
    /// The tag of the request.
    pub tag: u32,
    /// The outcome of the request, as the kernel or the peer's NIC reports it.
    pub status: Status,
    /// Length of the answer in bytes.
    pub len: u32,
}

/// The state of a buffer: free, lent to a request, or holding its answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum BufferState {
    Empty,
    Asked,
    Came(KernelAnswer),
}

/// Buffers for the answers of kernels, used in turn, and the state of the request that each belongs to.
/// Requests of several queue pairs may share the buffers.
///
/// A request takes the next buffer in turn; it is refused while that buffer's previous answer is outstanding
/// or has not been handed out. The bytes of an answer therefore stay in place until every other buffer was
/// used.
#[derive(Debug)]
pub struct AnswerBuffers {
    memory: MemoryRegion,
    size: u32,
    states: Box<[BufferState]>,
    asked: u32,
}

/// The reason why [`AnswerBuffers::wait`] returns no answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Polling the completion queue failed.
    #[error("{0}")]
    Poll(PollError),
    /// A work request has failed with this status, so its connection has ended.
    #[error("the connection has ended: {}", .0.explain())]
    Ended(crate::Status),
}

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

    /// Returns the buffer for the answer to request `tag`, in the form that the peer's kernel receives.
    pub fn place(&self, tag: u32) -> Place {
        let remote = self.memory.remote(self.index(tag) as u64 * u64::from(self.size));
        Place { addr: remote.addr, rkey: remote.rkey.get(), len: self.size }
    }

    /// Returns the next tag.
    ///
    /// # Errors
    /// `Queue(QueueFull)` if the buffer of that tag is in use.
    fn begin(&self) -> Result<u32, PostError> {
        let count = self.states.len() as u32;
        let index = self.asked % count;
        let use_of_it = self.asked / count;
        if self.states[index as usize] != BufferState::Empty {
            return Err(PostError::Queue(QueueError::QueueFull));
        }
        Ok((use_of_it * MOST + index) & TAG_MASK)
    }

    fn asked(&mut self, tag: u32) -> u32 {
        self.states[self.index(tag)] = BufferState::Asked;
        // The count wraps where the tags repeat.
        self.asked = (self.asked + 1) % (self.states.len() as u32 * ((TAG_MASK + 1) / MOST));
        tag
    }

    /// Sends a request to a kernel of the peer's NIC, as [`post_rpc`](QueuePair::post_rpc) does, but without
    /// a completion of its own, and posts a receive work request for the answer. Returns the request's tag.
    ///
    /// # Errors
    /// `Queue(QueueFull)` if the answer in the next buffer has not been handed out, or if a queue of the
    /// queue pair is full. Otherwise the errors of [`post_rpc`](QueuePair::post_rpc) and
    /// [`post_recv`](QueuePair::post_recv). After an error, nothing has been posted.
    pub fn ask(&mut self, pair: &mut QueuePair, opcode: u64, params: &[u8]) -> Result<u32, PostError> {
        let tag = self.begin()?;
        let place = self.place(tag);
        with_head(&place, params, |bytes| {
            let request = work::inline(u64::from(tag), Operation::Rpc { opcode, tag }, bytes);
            pair.post_asking(&WorkRequest { flags: Flags::default(), ..request })
        })?;
        Ok(self.asked(tag))
    }

    /// Sends bytes to a kernel, as [`post_rpc_write`](QueuePair::post_rpc_write) does. The bytes must not
    /// change until the answer has come. Returns the request's tag. The bytes of its answer go to the buffer
    /// of the preceding [`ask`](AnswerBuffers::ask).
    ///
    /// # Errors
    /// The errors of [`ask`](AnswerBuffers::ask).
    pub fn give(&mut self, pair: &mut QueuePair, opcode: u64, local: &[Sge]) -> Result<u32, PostError> {
        let tag = self.begin()?;
        let request = work::rpc_write(u64::from(tag), opcode, tag, local);
        pair.post_asking(&WorkRequest { flags: Flags::default(), ..request })?;
        Ok(self.asked(tag))
    }

    /// Offers a completion to the buffers. Returns true if it was an answer, which
    /// [`answer`](AnswerBuffers::answer) then hands out.
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

    /// Returns the answer to request `tag`, once. `None` until the answer has come, and after it was handed
    /// out.
    pub fn answer(&mut self, tag: u32) -> Option<KernelAnswer> {
        let index = self.index(tag);
        let state = self.states.get_mut(index)?;
        let BufferState::Came(answer) = *state else { return None };
        *state = BufferState::Empty;
        Some(answer)
    }

    /// Polls until the answer to request `tag` has come. Answers to other requests are kept; any other
    /// completion on the queue is dropped. A program with other work on that queue polls it itself and passes
    /// the completions to [`take`](AnswerBuffers::take).
    ///
    /// # Errors
    /// [`AnswerError`] if polling fails or a work request has failed.
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

    /// Copies the first `target.len()` bytes of an answer's buffer to `target`.
    ///
    /// # Errors
    /// `OutOfBounds` if `target` is longer than a buffer.
    pub fn read(&self, answer: &KernelAnswer, target: &mut [u8]) -> Result<(), AccessError> {
        if target.len() > self.size as usize {
            return Err(AccessError::OutOfBounds);
        }
        self.memory.read(self.index(answer.tag) * self.size as usize, target)
    }
}
