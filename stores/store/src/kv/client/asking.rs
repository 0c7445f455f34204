//! Requests to a kernel of the server's NIC, and the kernel's answers.

use super::super::client_config::ASK_STRIDE;
use super::super::lookup::{Ask, Lookup};
use super::super::{Broken, Post};
use super::{Client, OwnedOutcome, State};
use crate::send_queue::Account;
use crate::work_id::{Work, WorkId};
use remora_nic::kernel::{Ending, HEAD_LEN, Place, Status};
use remora_nic::{CompletionKind, Flags, Payload, WorkCompletion, WorkRequest};

/// Bytes of a request: the address for the answer, then the parameters.
const REQUEST: usize = HEAD_LEN + Ask::LEN;
const _: () = assert!(REQUEST <= ASK_STRIDE);

impl<L: Lookup, Q: Account> Client<L, Q> {
    /// Posts the request to the kernel. Returns false if the queue has no space for it now.
    #[inline]
    pub(super) fn post_ask(&mut self, slot: u16, ask: &Ask, nic: &mut impl Post) -> Result<bool, Broken> {
        if !self.queue.has_space(1) {
            return Ok(false);
        }
        let request_offset = self.ask_at(slot);
        let answer_offset = self.buffer_at(slot);
        let len = self.config.buffer_len::<L>() as u32;
        let place = Place { addr: self.arena.addr + answer_offset as u64, rkey: self.arena.key.get(), len };
        let mut request = [0; REQUEST];
        request[..HEAD_LEN].copy_from_slice(&place.emit());
        request[HEAD_LEN..].copy_from_slice(&ask.params);
        self.arena.write(request_offset, &request);
        // The answer proves that the request arrived. A completion is needed only for the queue's account.
        let (number, signaled) = self.queue.enter(false);
        nic.post_send(&WorkRequest {
            id: WorkId { work: Work::Message, place: slot, number }.encode(),
            operation: remora_nic::Operation::Rpc { opcode: ask.opcode, tag: self.tag(slot) },
            payload: Payload::Sges(&[self.arena.sge(request_offset, REQUEST)]),
            flags: Flags { signaled, ..Flags::default() },
        })?;
        let flight = &mut self.flights[usize::from(slot)];
        flight.state = State::Asking;
        flight.round_trips += 1;
        Ok(true)
    }

    /// Returns the slot to which a kernel's answer belongs, or `None` if the completion is no such answer.
    #[inline]
    pub(super) fn asked(&self, completion: &WorkCompletion) -> Option<u16> {
        let ending = Ending::parse(completion.imm?);
        let slot = ending.tag as u16;
        let flight = self.flights.get(usize::from(slot))?;
        let mine = completion.kind == CompletionKind::ReceiveWriteImm
            && flight.state == State::Asking
            && ending.tag == self.tag(slot);
        mine.then_some(slot)
    }

    /// Processes a kernel's answer.
    #[inline]
    pub(super) fn kernel_answered(
        &mut self,
        slot: u16,
        completion: &WorkCompletion,
        nic: &mut impl Post,
    ) -> Result<Option<(u16, OwnedOutcome)>, Broken> {
        let offset = self.buffer_at(slot);
        let len = completion.byte_len as usize;
        let status = completion.imm.map_or(Status::FAILED, |imm| Ending::parse(imm).status);
        let landed = self.scratch.get_mut(..len).ok_or(Broken::Protocol)?;
        self.arena.read(offset, landed);
        let key_at = usize::from(slot) * self.config.max_key as usize;
        let flight = &mut self.flights[usize::from(slot)];
        let key = &self.keys[key_at..key_at + flight.key_len as usize];
        let step = self.lookup.kernel_answered(&mut flight.progress, key, status, landed);
        self.walk(slot, step, nic)
    }

    /// Returns the slot with the low bits of its sequence number, so that a late answer matches no
    /// operation.
    fn tag(&self, slot: u16) -> u32 {
        let sequence = self.flights[usize::from(slot)].sequence;
        (sequence & 0xff) << 16 | u32::from(slot)
    }

    fn ask_at(&self, slot: u16) -> usize {
        self.config.asks_at::<L>() + usize::from(slot) * ASK_STRIDE
    }
}
