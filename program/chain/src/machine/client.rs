//! A client of a queue, without a network. Its messages use the queue's receives, and it receives the
//! queue's answers.

use remora_memory::{Access, Bytes, Pd, Range, Table};
use remora_nic::chain::LoopbackInit;
use remora_nic::cqe::Cqe;
use remora_nic::wqe::{Bounds, MAX_INLINE};
use remora_nic::{
    Bare, Command, CompletionKind, CompletionPoller, Fetching, Flags, Operation, Payload, ReceiveQueue,
    ReceiveRequest, Ring, SendQueue, Sge, Status, WorkRequest,
};
use remora_wire::Qpn;

use super::queues::{COMPLETIONS, LoadError, create_counted_cq, ring};

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
    send: SendQueue,
    received: Ring,
    inbox: Bytes,
    inbox_receives: ReceiveQueue,
    inbox_completions: CompletionPoller,
}

impl Client {
    pub(crate) fn create(
        nic: &Bare,
        table: &Table,
        pd: Pd,
        receive_ring: Ring,
        receive_max_sge: u32,
        receive_cq: u32,
        received: Ring,
    ) -> Result<Client, LoadError> {
        let full = |_| LoadError::TooBig;
        let bounds = Bounds { max_sge: 0, max_inline: MAX_INLINE as u32 };
        let send = SendQueue::new(ring(SLOTS)?, bounds);
        let mut inbox_receives = ReceiveQueue::new(ring(ANSWERS as u32)?, INBOX_SGE);
        let inbox_completions = ring(COMPLETIONS)?;
        let own_cq = create_counted_cq(nic, ring(1)?)?;
        let inbox_cq = create_counted_cq(nic, inbox_completions.clone())?;
        let qp = nic.ask(Command::CreateLoopback(LoopbackInit {
            pd,
            send_ring: nic.hand(send.ring().clone()),
            receive_ring: nic.hand(receive_ring),
            receive_max_sge,
            send_cq: own_cq,
            receive_cq,
            fetching: Fetching::Posted,
        }));
        let inbox = Bytes::heap((ANSWERS * ANSWER) as usize).map_err(|_| LoadError::TooBig)?;
        let key = table.register(pd, &[Range::whole(&inbox)], Access::LOCAL_WRITE);
        let key = key.map_err(|_| LoadError::TooBig)?;
        for index in 0..ANSWERS {
            let addr = inbox.address() + index * ANSWER;
            let buffer = [Sge { addr, len: ANSWER as u32, lkey: key }];
            let request = ReceiveRequest { id: index, sges: &buffer };
            inbox_receives.post(&request).map_err(|_| LoadError::TooBig)?;
        }
        inbox_receives.recycle().map_err(|_| LoadError::TooBig)?;
        Ok(Client {
            qp: qp.map_err(full)?,
            inbox_cq,
            send,
            received,
            inbox,
            inbox_receives,
            inbox_completions: CompletionPoller::new(inbox_completions),
        })
    }

    /// Returns the receive ring for the queue's messages.
    pub(crate) fn inbox(&self) -> Ring {
        self.inbox_receives.ring().clone()
    }

    /// Appends a message to the send queue. Returns false if the message does not fit.
    pub(crate) fn push(&mut self, message: &[u8]) -> bool {
        let payload = Payload::Inline(message);
        let request = WorkRequest { id: 0, operation: Operation::Send, payload, flags: Flags::default() };
        self.send.push(&request).is_ok() && self.send.publish()
    }

    /// Returns the next message that arrived.
    pub(crate) fn answer(&mut self) -> Option<Reply> {
        let completion = self.inbox_completions.poll()?.completion;
        self.inbox_completions.free();
        if completion.status != Status::Success {
            return None;
        }
        let mut answer = Reply { len: completion.byte_len, message: None };
        if completion.kind == CompletionKind::Receive {
            let mut bytes = vec![0; answer.len as usize];
            self.inbox.read((completion.id * ANSWER) as usize, &mut bytes).ok()?;
            answer.message = Some(bytes);
        }
        Some(answer)
    }

    /// Returns the status with which the queue refused a message, or `None`.
    pub(crate) fn refused(&self) -> Option<Status> {
        first_fault(&self.received).map(|entry| entry.completion.status)
    }
}

/// Returns the first completion that reports an error other than a flush.
pub(super) fn first_fault(completions: &Ring) -> Option<Cqe> {
    let entries = (0..completions.slots()).map(|index| completions.words(index));
    let entries = entries.map(|words| (words[7], Cqe::parse(&words)));
    let faults = entries.filter(|(sequence, entry)| {
        *sequence > 0 && !matches!(entry.completion.status, Status::Success | Status::WrFlushed)
    });
    faults.min_by_key(|(sequence, _)| *sequence).map(|(_, entry)| entry)
}
