//! An exchange of messages: a SEND to the peer and a SEND back, each into a posted receive request. Messages
//! longer than a receive buffer are WRITEs with immediate data. The bench and the peer use the same type.

use anyhow::{Result, ensure};
use remora_verbs::{
    CompletionKind, CompletionQueue, EMPTY, Flags, MemoryRegion, Operation, Payload, QueuePair, Ready,
    ReceiveRequest, RemoteMemory, Status, WorkCompletion, WorkRequest,
};

/// The size of a receive buffer in bytes, as in the stores. Longer messages are written.
const EAGER: usize = 1024;
/// The maximum length of a message that is posted inline, as in the stores.
const INLINE: usize = 256;
/// The number of posted receive requests.
const RECEIVES: usize = 8;
/// The interval of signaled messages, in messages. They are signaled so that the queue learns which earlier
/// ones have completed. The stores do the same.
const SIGNALED_EVERY: u32 = 64;

/// An end of the echo: its memory and that of the other end. Receive buffers lie at the beginning of the
/// memory, outgoing messages behind them.
pub(crate) struct Echo {
    receive: remora_verbs::Sge,
    message: remora_verbs::Sge,
    theirs: RemoteMemory,
    inline: [u8; INLINE],
    started: bool,
    sent: u32,
}

impl Echo {
    /// Creates an end on its memory, which has at least four megabytes.
    pub(crate) fn new(own: &MemoryRegion, theirs: RemoteMemory) -> Echo {
        Echo {
            receive: own.sge(0, EAGER),
            message: own.sge(1 << 20, 0),
            theirs,
            inline: [0x5a; INLINE],
            started: false,
            sent: 0,
        }
    }

    /// Posts the receive requests, before the first message.
    pub(crate) fn start(&mut self, qp: &mut QueuePair<Ready>) -> Result<()> {
        if !self.started {
            (0..RECEIVES).try_for_each(|_| self.post_receive(qp))?;
            self.started = true;
        }
        Ok(())
    }

    /// Posts one receive request in place of a consumed one.
    #[inline]
    pub(crate) fn post_receive(&self, qp: &mut QueuePair<Ready>) -> Result<()> {
        Ok(qp.post_recv(&ReceiveRequest { id: 1, sges: &[self.receive] })?)
    }

    /// Sends a message of `len` bytes.
    #[inline]
    pub(crate) fn send(&mut self, qp: &mut QueuePair<Ready>, len: usize) -> Result<()> {
        self.sent = self.sent.wrapping_add(1);
        let list = [remora_verbs::Sge { len: len as u32, ..self.message }];
        let (operation, payload) = match self.inline.get(..len) {
            Some(bytes) => (Operation::Send, Payload::Inline(bytes)),
            None if len <= EAGER => (Operation::Send, Payload::Sges(&list)),
            None => (Operation::WriteImm(self.theirs.at(2 << 20), 0), Payload::Sges(&list)),
        };
        let flags = Flags { signaled: self.sent.is_multiple_of(SIGNALED_EVERY), ..Flags::default() };
        Ok(qp.post_send(&WorkRequest { id: 0, operation, payload, flags })?)
    }

    /// Sends a message of `len` bytes and waits for the answer to it.
    #[inline]
    pub(crate) fn round_trip(
        &mut self,
        qp: &mut QueuePair<Ready>,
        cq: &mut CompletionQueue,
        len: usize,
    ) -> Result<()> {
        self.send(qp, len)?;
        let mut done = [EMPTY; 2];
        let mut answered = false;
        while !answered {
            let got = cq.poll(&mut done)?;
            for completion in &done[..got] {
                if Echo::is_message(completion)? {
                    self.post_receive(qp)?;
                    answered = true;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the completion is a message from the other end.
    #[inline]
    pub(crate) fn is_message(completion: &WorkCompletion) -> Result<bool> {
        ensure!(
            completion.status == Status::Success,
            "the benchmark's message failed: {}",
            completion.status.explain()
        );
        Ok(matches!(completion.kind, CompletionKind::Receive | CompletionKind::ReceiveWriteImm))
    }
}
