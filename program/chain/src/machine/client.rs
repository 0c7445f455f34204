//! A client of a queue, without a network. Its messages use the queue's receives, and it receives the
//! queue's answers.

use remora_memory::{Access, Bytes, Pd, Range, Table};
use remora_nic::chain::LoopbackInit;
use remora_nic::cqe::Cqe;
use remora_nic::wqe::{MAX_INLINE, SLOT, Wqe, WqeOpcode, flag};
use remora_nic::{CompletionKind, Fetching, Nic, Ring, Sge, Status, Word, write_receive};
use remora_wire::Qpn;

use super::{COMPLETIONS, LoadError, ring};

/// Number of slots for pending messages.
const SLOTS: u32 = 64;
/// Number of answers that are kept, and maximum length of each in bytes.
const ANSWERS: u64 = 16;
const ANSWER: u64 = 4096;

/// An answer of a queue to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Length of the answer in bytes.
    pub len: u32,
    /// Bytes of a SEND; `None` for a WRITE, whose bytes are at its remote address.
    pub message: Option<Vec<u8>>,
}

/// Number of list elements of a receive in the inbox.
pub(super) const INBOX_SGE: u32 = 1;

/// A loopback queue pair that acts as client of a queue and uses that queue's receives.
pub(super) struct Client {
    pub qp: Qpn,
    pub inbox_cq: u32,
    send: Ring,
    posted: u64,
    received: Ring,
    inbox: Bytes,
    inbox_receives: Ring,
    inbox_completions: Ring,
    taken: u64,
}

impl Client {
    pub(crate) fn create(
        nic: &mut Nic,
        table: &Table,
        pd: Pd,
        receive_ring: Ring,
        receive_max_sge: u32,
        receive_cq: u32,
        received: Ring,
    ) -> Result<Client, LoadError> {
        let full = |_| LoadError::TooBig;
        let (send, inbox_receives, inbox_completions) =
            (ring(SLOTS)?, ring(ANSWERS as u32)?, ring(COMPLETIONS)?);
        let own_cq = nic.create_cq_ignoring_overrun(ring(1)?).map_err(full)?;
        let inbox_cq = nic.create_cq_ignoring_overrun(inbox_completions.clone()).map_err(full)?;
        let qp = nic.create_loopback(LoopbackInit {
            pd,
            send_ring: send.clone(),
            receive_ring,
            receive_max_sge,
            send_cq: own_cq,
            receive_cq,
            fetching: Fetching::Posted,
        });
        let inbox = Bytes::heap((ANSWERS * ANSWER) as usize).map_err(|_| LoadError::TooBig)?;
        let key = table.register(pd, &[Range::whole(&inbox)], Access::LOCAL_WRITE);
        let key = key.map_err(|_| LoadError::TooBig)?;
        for index in 0..ANSWERS {
            let addr = inbox.address() + index * ANSWER;
            let buffer = [Sge { addr, len: ANSWER as u32, lkey: key }];
            write_receive(index, &buffer, |_, slot| inbox_receives.store(index, slot));
        }
        inbox_receives.recycle();
        Ok(Client {
            qp: qp.map_err(full)?,
            inbox_cq,
            send,
            posted: 0,
            received,
            inbox,
            inbox_receives,
            inbox_completions,
            taken: 0,
        })
    }

    /// Returns the receive ring for the queue's messages.
    pub(crate) fn inbox(&self) -> Ring {
        self.inbox_receives.clone()
    }

    /// Appends a message to the send queue. Returns false if the message does not fit.
    pub(crate) fn push(&mut self, message: &[u8]) -> bool {
        let header = u64::from(WqeOpcode::SEND.0) | u64::from(flag::INLINE) << 8;
        let first = Wqe { header, len: message.len() as u64, ..Wqe::default() };
        let needed = 1 + message.len().div_ceil(SLOT) as u64;
        let free = self.send.slots() - (self.posted - self.send.word(Word::Consumed));
        if needed > free || message.len() > MAX_INLINE {
            return false;
        }
        self.send.store(self.posted, &first.emit());
        for (index, piece) in message.chunks(SLOT).enumerate() {
            let mut slot = [0; SLOT];
            slot[..piece.len()].copy_from_slice(piece);
            self.send.store(self.posted + 1 + index as u64, &slot);
        }
        self.posted += needed;
        self.send.set_word(Word::Produced, self.posted);
        true
    }

    /// Returns the next message that arrived.
    pub(crate) fn answer(&mut self) -> Option<Reply> {
        let (sequence, entry) = entry(&self.inbox_completions, self.taken);
        if sequence != self.taken + 1 || entry.completion.status != Status::Success {
            return None;
        }
        let mut answer = Reply { len: entry.completion.byte_len, message: None };
        if entry.completion.kind == CompletionKind::Receive {
            let mut bytes = vec![0; answer.len as usize];
            self.inbox.read((self.taken % ANSWERS * ANSWER) as usize, &mut bytes).ok()?;
            answer.message = Some(bytes);
        }
        self.taken += 1;
        Some(answer)
    }

    /// Returns the status with which the queue refused a message, or `None`.
    pub(crate) fn refused(&self) -> Option<Status> {
        first_fault(&self.received).map(|entry| entry.completion.status)
    }
}

/// Posts receives into a ring with `stride` slots per receive.
pub(super) fn post(ring: &Ring, stride: u64, receives: &[Vec<Sge>]) {
    for (index, sges) in receives.iter().enumerate() {
        let first = index as u64 * stride;
        write_receive(index as u64, sges, |offset, slot| ring.store(first + offset as u64, slot));
    }
    ring.set_word(Word::Produced, receives.len() as u64 * stride);
}

/// Returns the sequence number and the entry at an index of a completion queue.
fn entry(completions: &Ring, index: u64) -> (u64, Cqe) {
    let mut slot = [0; SLOT];
    completions.load(index, &mut slot);
    let words: [u64; 8] = std::array::from_fn(|word| {
        u64::from_le_bytes(slot[8 * word..8 * word + 8].try_into().expect("eight bytes"))
    });
    (words[7], Cqe::parse(&words))
}

/// Returns the first completion that reports an error other than a flush.
pub(super) fn first_fault(completions: &Ring) -> Option<Cqe> {
    let entries = (0..completions.slots()).map(|index| entry(completions, index));
    let faults = entries.filter(|(sequence, entry)| {
        *sequence > 0 && !matches!(entry.completion.status, Status::Success | Status::WrFlushed)
    });
    faults.min_by_key(|(sequence, _)| *sequence).map(|(_, entry)| entry)
}
