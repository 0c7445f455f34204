//! The client machine of the READ-based designs: a window of operations on one queue pair.

pub(super) mod asking;
mod check;

use super::client_config::ClientConfig;
use super::cursor::Cursor;
use super::hash::hash_key;
use super::lookup::{Ask, Lookup, Reads, Step};
use super::rpc::{HEADER, Refusal, Request, Response};
use super::session::{Grant, SessionError};
use super::{Broken, Operation, Post};
use crate::region::Registered;
use crate::send_queue::{Account, SendQueue};
use crate::work_id::{Work, WorkId};
use remora_nic::{CompletionKind, Flags, Payload, ReceiveRequest, Remote, Sge, WorkCompletion, WorkRequest};
use remora_transport::Status;
use std::collections::VecDeque;

/// The identity of an operation in flight: an index below the window. The slot is reused after the operation
/// has been returned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Slot(pub(super) u16);

impl Slot {
    /// Returns the index of the slot, below the window.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// The reason for which an operation was not started.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The window's maximum of operations is in flight.
    #[error("as many operations as the window allows are in flight")]
    WindowFull,
    /// The key is longer than the maximum of client or server.
    #[error("the key is longer than client or server take")]
    KeyTooLong,
    /// The value is longer than the maximum of client or server.
    #[error("the value is longer than client or server take")]
    ValueTooLong,
    /// The queue pair has failed. [`Client::abandon`] returns the operations in flight.
    #[error("{0}")]
    Broken(Broken),
}

/// The result of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// GET: the value. LIST: the bytes of a [`Page`](super::Page).
    Value(&'a [u8]),
    /// PUT or DELETE: the operation has happened.
    Done,
    /// GET or DELETE: the table does not contain the key.
    Absent,
    /// PUT: the server has no memory for the value.
    Refused(Refusal),
    /// GET: the value is longer than this client's buffers.
    TooLong,
    /// GET: the key changed during every attempt to read it. The operation may be retried.
    Contended,
    /// The queue pair failed, or, where READs complete independently, a READ of this GET. A PUT or DELETE
    /// may have happened or not.
    Failed(Broken),
}

/// An operation that has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Finished<'a> {
    /// The slot of the operation, free again.
    pub slot: Slot,
    /// The kind of the operation.
    pub operation: Operation,
    /// The result of the operation.
    pub outcome: Outcome<'a>,
    /// Number of round trips that the operation took.
    pub round_trips: u32,
    /// Number of those round trips that found torn or vanished data.
    pub tries: u32,
}

/// The activity of a slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// The next round trip waits for space in the send queue or for a staging piece.
    Waiting,
    /// READs of this many bytes in total are under way.
    Reading(u32),
    /// A request to a kernel of the server's NIC is under way.
    Asking,
    /// A request to the server is under way; a long request holds this staging piece.
    Calling(Option<u32>),
}

/// The next round trip of a slot.
#[derive(Copy, Clone, Debug)]
enum Next {
    Reads(Reads),
    Ask(Ask),
    /// Sends the request in the slot's buffer, which has this length.
    Message(u32),
}

/// The state of one slot of the window.
#[derive(Copy, Clone, Debug)]
struct Flight<P> {
    state: State,
    operation: Operation,
    key_len: u32,
    /// Distinguishes this operation's response from responses to earlier ones in the slot.
    sequence: u32,
    round_trips: u32,
    /// Number of READs that have not completed, and the first error among the completed ones.
    reads_left: u8,
    read_failed: Option<Status>,
    next: Next,
    progress: P,
}

/// The result of an operation, before the value is borrowed.
#[derive(Copy, Clone)]
enum OwnedOutcome {
    /// Start and length of the value in `scratch`.
    Value(usize, usize),
    Other(Outcome<'static>),
}

/// A client. It does no input or output itself: the owner of the queue pair passes completions to it. Its
/// memory is one block (see [`ClientConfig::arena_len`]), and no operation allocates memory. `Q` defines how
/// its requests complete.
#[derive(Debug)]
pub struct Client<L: Lookup, Q: Account = SendQueue> {
    lookup: L,
    config: ClientConfig,
    grant: Grant,
    arena: Registered,
    flights: Vec<Flight<L::Progress>>,
    /// The keys of the operations in flight, `max_key` bytes per slot.
    keys: Vec<u8>,
    idle: Vec<u16>,
    waiting: VecDeque<u16>,
    staging: Vec<u32>,
    queue: Q,
    /// The data that arrived last, in memory that the NIC cannot access.
    scratch: Vec<u8>,
    broken: Option<Broken>,
}

impl<L: Lookup> Client<L> {
    /// Returns a client of the server that sent `grant`, with its memory in `arena`.
    ///
    /// # Errors
    /// The grant is of another design or inconsistent, the window is larger than granted, or the arena is
    /// too small.
    pub fn new(config: ClientConfig, grant: &Grant, arena: Registered) -> Result<Client<L>, SessionError> {
        Client::with_account(config, grant, arena)
    }
}

impl<L: Lookup, Q: Account> Client<L, Q> {
    /// Returns a client whose send queue has the account `Q`.
    ///
    /// # Errors
    /// The errors of [`new`](Client::new).
    pub fn with_account(
        config: ClientConfig,
        grant: &Grant,
        arena: Registered,
    ) -> Result<Client<L, Q>, SessionError> {
        if grant.design != L::DESIGN {
            return Err(SessionError::OtherDesign(grant.design));
        }
        if config.window > grant.window {
            return Err(SessionError::WindowTooLarge { allowed: grant.window });
        }
        let longest = HEADER as u64 + u64::from(grant.max_key) + u64::from(grant.max_value);
        let staged = grant.staging_count > 0 && longest <= grant.staging_len;
        if !config.is_sound() || !(staged || longest <= u64::from(grant.eager)) {
            return Err(SessionError::Malformed);
        }
        let needed = config.arena_len::<L>();
        if arena.bytes.len() < needed {
            return Err(SessionError::ArenaTooSmall { needed });
        }
        let window = config.window as usize;
        let flight = Flight {
            state: State::Idle,
            operation: Operation::Get,
            key_len: 0,
            sequence: 0,
            round_trips: 0,
            reads_left: 0,
            read_failed: None,
            next: Next::Message(0),
            progress: L::Progress::default(),
        };
        Ok(Client {
            lookup: L::new(grant, config.buffer_len::<L>()),
            config,
            grant: *grant,
            arena,
            flights: vec![flight; window],
            keys: vec![0; window * config.max_key as usize],
            idle: (0..config.window as u16).rev().collect(),
            waiting: VecDeque::with_capacity(window),
            staging: (0..grant.staging_count).rev().collect(),
            queue: Q::new(config.window),
            scratch: vec![0; config.buffer_len::<L>().max(config.eager as usize)],
            broken: None,
        })
    }

    /// Posts the receive requests. Call it once, before the first operation.
    ///
    /// # Errors
    /// The queue did not take the requests.
    pub fn start(&mut self, nic: &mut impl Post) -> Result<(), Broken> {
        (0..self.config.window as u16).try_for_each(|buffer| self.post_receive(buffer, nic))
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.flights.len() - self.idle.len()
    }

    /// Starts reading the value of `key`.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    #[inline]
    pub fn get(&mut self, key: &[u8], nic: &mut impl Post) -> Result<Slot, Refused> {
        let slot = self.begin(Operation::Get, key)?;
        let hash = hash_key(self.grant.hash_seed, key);
        let mut progress = L::Progress::default();
        let step = self.lookup.begin(&mut progress, hash);
        self.flights[usize::from(slot)].progress = progress;
        let posted = match step {
            Step::Read(reads) => self.go(slot, Next::Reads(reads), nic),
            Step::Ask(ask) => self.go(slot, Next::Ask(ask), nic),
            _ => self.call(slot, key, &[], nic),
        };
        self.started(slot, posted)
    }

    /// Starts storing `value` under `key`. Both are copied before this returns.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    pub fn put(&mut self, key: &[u8], value: &[u8], nic: &mut impl Post) -> Result<Slot, Refused> {
        if value.len() > self.config.max_value.min(self.grant.max_value) as usize {
            return Err(Refused::ValueTooLong);
        }
        let slot = self.begin(Operation::Put, key)?;
        let posted = self.call(slot, key, value, nic);
        self.started(slot, posted)
    }

    /// Starts removing `key`.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started.
    pub fn delete(&mut self, key: &[u8], nic: &mut impl Post) -> Result<Slot, Refused> {
        let slot = self.begin(Operation::Delete, key)?;
        let posted = self.call(slot, key, &[], nic);
        self.started(slot, posted)
    }

    /// Starts listing the keys from `cursor` on. Only one such operation may be in flight.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started. `KeyTooLong`: the client's maximum key length is below
    /// [`Cursor::LEN`].
    pub fn list(&mut self, cursor: Cursor, nic: &mut impl Post) -> Result<Slot, Refused> {
        let cursor = cursor.encode();
        let slot = self.begin(Operation::List, &cursor)?;
        let posted = self.call(slot, &cursor, &[], nic);
        self.started(slot, posted)
    }

    /// Processes a completion of this client's queue pair, and returns the operation that the completion
    /// ends.
    ///
    /// # Errors
    /// The queue pair has failed. [`abandon`](Client::abandon) returns the operations in flight.
    #[inline]
    pub fn complete(
        &mut self,
        completion: &WorkCompletion,
        nic: &mut impl Post,
    ) -> Result<Option<Finished<'_>>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let ended = self.take(completion, nic).inspect_err(|broken| self.broken = Some(*broken))?;
        if let Some((slot, _)) = ended {
            self.release(slot);
        }
        if !self.waiting.is_empty() {
            // `post` notes a failure, and the next call returns it, because this call must return the ended
            // operation.
            let _ = self.resume(nic);
        }
        self.checked();
        Ok(ended.map(|(slot, end)| {
            let outcome = match end {
                OwnedOutcome::Value(start, len) => Outcome::Value(&self.scratch[start..start + len]),
                OwnedOutcome::Other(outcome) => outcome,
            };
            let flight = &self.flights[usize::from(slot)];
            finished(slot, flight, outcome, L::tries(&flight.progress))
        }))
    }

    /// Returns the operations in flight after a failure, one per call, and `None` when none is left.
    pub fn abandon(&mut self) -> Option<Finished<'static>> {
        let broken = self.broken?;
        let slot = self.flights.iter().position(|flight| flight.state != State::Idle)? as u16;
        self.release(slot);
        let flight = &self.flights[usize::from(slot)];
        Some(finished(slot, flight, Outcome::Failed(broken), L::tries(&flight.progress)))
    }

    /// Marks the client as failed, for instance because its server is gone. [`abandon`](Client::abandon)
    /// then returns the operations in flight.
    pub fn give_up(&mut self, status: Status) {
        self.broken.get_or_insert(Broken::Completion(status));
    }

    /// Takes a slot for an operation on `key`.
    #[inline]
    fn begin(&mut self, operation: Operation, key: &[u8]) -> Result<u16, Refused> {
        if let Some(broken) = self.broken {
            return Err(Refused::Broken(broken));
        }
        if key.len() > self.config.max_key.min(self.grant.max_key) as usize {
            return Err(Refused::KeyTooLong);
        }
        let slot = self.idle.pop().ok_or(Refused::WindowFull)?;
        let key_at = usize::from(slot) * self.config.max_key as usize;
        self.keys[key_at..key_at + key.len()].copy_from_slice(key);
        let flight = &mut self.flights[usize::from(slot)];
        flight.operation = operation;
        flight.key_len = key.len() as u32;
        flight.sequence = flight.sequence.wrapping_add(1);
        flight.round_trips = 0;
        flight.state = State::Waiting;
        Ok(slot)
    }

    /// Returns the slot of an operation whose first round trip was posted or waits. Frees the slot if the
    /// queue pair failed.
    #[inline]
    fn started(&mut self, slot: u16, posted: Result<(), Broken>) -> Result<Slot, Refused> {
        if let Err(broken) = posted {
            self.release(slot);
            return Err(Refused::Broken(broken));
        }
        self.checked();
        Ok(Slot(slot))
    }

    /// Frees a slot and its staging piece.
    #[inline]
    fn release(&mut self, slot: u16) {
        let flight = &mut self.flights[usize::from(slot)];
        if let State::Calling(Some(piece)) = flight.state {
            self.staging.push(piece);
        }
        flight.state = State::Idle;
        self.idle.push(slot);
    }

    /// Writes the request into the slot's buffer and sends it.
    fn call(&mut self, slot: u16, key: &[u8], value: &[u8], nic: &mut impl Post) -> Result<(), Broken> {
        let flight = &self.flights[usize::from(slot)];
        let request = Request {
            operation: flight.operation,
            slot,
            sequence: flight.sequence,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
        };
        let len = request.message_len();
        let mut header = [0; HEADER];
        request.emit(&mut header);
        if len <= self.config.inline.min(self.grant.eager) as usize
            && self.waiting.is_empty()
            && self.queue.has_space(1)
        {
            self.scratch[..HEADER].copy_from_slice(&header);
            self.scratch[HEADER..HEADER + key.len()].copy_from_slice(key);
            self.scratch[HEADER + key.len()..len].copy_from_slice(value);
            return self.post_inline(slot, len, nic);
        }
        let offset = self.buffer_at(slot);
        self.arena.write(offset, &header);
        self.arena.write(offset + HEADER, key);
        self.arena.write(offset + HEADER + key.len(), value);
        self.go(slot, Next::Message(len as u32), nic)
    }

    /// Posts a slot's next round trip, or queues it behind those that wait already.
    #[inline]
    fn go(&mut self, slot: u16, next: Next, nic: &mut impl Post) -> Result<(), Broken> {
        if self.waiting.is_empty() && self.post(slot, &next, nic)? {
            return Ok(());
        }
        let flight = &mut self.flights[usize::from(slot)];
        flight.state = State::Waiting;
        flight.next = next;
        self.waiting.push_back(slot);
        Ok(())
    }

    /// Posts waiting round trips until the send queue is full.
    #[cold]
    fn resume(&mut self, nic: &mut impl Post) -> Result<(), Broken> {
        while let Some(&slot) = self.waiting.front() {
            let next = self.flights[usize::from(slot)].next;
            if !self.post(slot, &next, nic)? {
                break;
            }
            self.waiting.pop_front();
        }
        Ok(())
    }

    /// Posts a round trip. Returns false if the queue has no space for it now.
    #[inline]
    fn post(&mut self, slot: u16, next: &Next, nic: &mut impl Post) -> Result<bool, Broken> {
        match next {
            Next::Reads(reads) => self.post_reads(slot, reads, nic),
            Next::Ask(ask) => self.post_ask(slot, ask, nic),
            Next::Message(len) if *len <= self.grant.eager => self.post_message(slot, *len, None, nic),
            Next::Message(len) => match self.staging.pop() {
                Some(piece) => self.post_message(slot, *len, Some(piece), nic),
                None => Ok(false),
            },
        }
        .inspect_err(|broken| self.broken = Some(*broken))
    }

    #[inline]
    fn post_reads(&mut self, slot: u16, reads: &Reads, nic: &mut impl Post) -> Result<bool, Broken> {
        let reads = reads.as_slice();
        if !self.queue.has_space(reads.len() as u32) {
            return Ok(false);
        }
        let mut offset = self.buffer_at(slot);
        for (index, read) in reads.iter().enumerate() {
            // READs of a queue pair complete in order, so only the last one needs a completion.
            let wanted = !Q::ORDERED || index + 1 == reads.len();
            let (number, signaled) = self.queue.enter(wanted);
            let work = if wanted { Work::Read } else { Work::Message };
            nic.post_send(&WorkRequest {
                id: WorkId { work, place: slot, number }.encode(),
                operation: remora_nic::Operation::Read(read.remote),
                payload: Payload::Sges(&[self.arena.sge(offset, read.len as usize)]),
                flags: Flags { signaled, ..Flags::default() },
            })?;
            offset += read.len as usize;
        }
        let len = offset - self.buffer_at(slot);
        let flight = &mut self.flights[usize::from(slot)];
        flight.state = State::Reading(len as u32);
        flight.reads_left = if Q::ORDERED { 1 } else { reads.len() as u8 };
        flight.round_trips += 1;
        Ok(true)
    }

    fn post_message(
        &mut self,
        slot: u16,
        len: u32,
        piece: Option<u32>,
        nic: &mut impl Post,
    ) -> Result<bool, Broken> {
        if !self.queue.has_space(1) {
            self.staging.extend(piece);
            return Ok(false);
        }
        let operation = match piece {
            None => remora_nic::Operation::Send,
            Some(piece) => remora_nic::Operation::WriteImm(self.piece_at(piece), piece),
        };
        let sges = [self.arena.sge(self.buffer_at(slot), len as usize)];
        self.post_request(slot, operation, Payload::Sges(&sges), nic)?;
        self.flights[usize::from(slot)].state = State::Calling(piece);
        Ok(true)
    }

    /// Sends the request that is at the beginning of `scratch`.
    fn post_inline(&mut self, slot: u16, len: usize, nic: &mut impl Post) -> Result<(), Broken> {
        let scratch = core::mem::take(&mut self.scratch);
        let posted =
            self.post_request(slot, remora_nic::Operation::Send, Payload::Inline(&scratch[..len]), nic);
        self.scratch = scratch;
        posted.inspect_err(|broken| self.broken = Some(*broken))?;
        self.flights[usize::from(slot)].state = State::Calling(None);
        Ok(())
    }

    fn post_request(
        &mut self,
        slot: u16,
        operation: remora_nic::Operation,
        payload: Payload<'_>,
        nic: &mut impl Post,
    ) -> Result<(), Broken> {
        // The response proves that the request arrived. A completion is needed only for the queue's account.
        let (number, signaled) = self.queue.enter(false);
        let id = WorkId { work: Work::Message, place: slot, number }.encode();
        let flags = Flags { signaled, ..Flags::default() };
        nic.post_send(&WorkRequest { id, operation, payload, flags })?;
        self.flights[usize::from(slot)].round_trips += 1;
        Ok(())
    }

    fn post_receive(&mut self, buffer: u16, nic: &mut impl Post) -> Result<(), Broken> {
        let offset = self.receive_at(buffer);
        let sges: [Sge; 1] = [self.arena.sge(offset, self.config.eager as usize)];
        let id = WorkId { work: Work::Receive, place: buffer, number: 0 }.encode();
        Ok(nic.post_receive(&ReceiveRequest { id, sges: &sges })?)
    }

    /// Processes a completion.
    #[inline]
    fn take(
        &mut self,
        completion: &WorkCompletion,
        nic: &mut impl Post,
    ) -> Result<Option<(u16, OwnedOutcome)>, Broken> {
        let id = WorkId::decode(completion.id).ok_or(Broken::Protocol)?;
        if completion.status != Status::Success {
            if Q::ORDERED || id.work != Work::Read {
                return Err(Broken::Completion(completion.status));
            }
            self.flights[usize::from(id.place)].read_failed.get_or_insert(completion.status);
        }
        match id.work {
            Work::Read => {
                self.queue.retire(id.number);
                self.landed(id.place, nic)
            }
            Work::Message => {
                self.queue.retire(id.number);
                Ok(None)
            }
            Work::Receive => self.answered(completion, id.place, nic),
        }
    }

    /// Processes the end of a READ of a slot.
    #[inline]
    fn landed(&mut self, slot: u16, nic: &mut impl Post) -> Result<Option<(u16, OwnedOutcome)>, Broken> {
        let flight = self.flights.get_mut(usize::from(slot)).ok_or(Broken::Protocol)?;
        let State::Reading(len) = flight.state else { return Err(Broken::Protocol) };
        if !Q::ORDERED {
            flight.reads_left -= 1;
            if flight.reads_left > 0 {
                return Ok(None);
            }
            if let Some(status) = flight.read_failed.take() {
                let failed = Outcome::Failed(Broken::Completion(status));
                return Ok(Some((slot, OwnedOutcome::Other(failed))));
            }
        }
        let offset = self.config.slot_stride::<L>() * usize::from(slot);
        let landed = &mut self.scratch[..len as usize];
        self.arena.read(offset, landed);
        let key_at = usize::from(slot) * self.config.max_key as usize;
        let key = &self.keys[key_at..key_at + flight.key_len as usize];
        let step = self.lookup.advance(&mut flight.progress, key, landed);
        self.walk(slot, step, nic)
    }

    /// Performs the next step of a lookup, which may end it.
    #[inline(always)]
    fn walk(
        &mut self,
        slot: u16,
        step: Step,
        nic: &mut impl Post,
    ) -> Result<Option<(u16, OwnedOutcome)>, Broken> {
        let end = match step {
            Step::Read(reads) => {
                self.go(slot, Next::Reads(reads), nic)?;
                return Ok(None);
            }
            Step::Ask(ask) => {
                self.go(slot, Next::Ask(ask), nic)?;
                return Ok(None);
            }
            Step::Found { start, len } => OwnedOutcome::Value(start, len),
            Step::Absent => OwnedOutcome::Other(Outcome::Absent),
            Step::TooLong { .. } => OwnedOutcome::Other(Outcome::TooLong),
            Step::Contended | Step::Call => OwnedOutcome::Other(Outcome::Contended),
        };
        Ok(Some((slot, end)))
    }

    /// Processes a response, which is in receive buffer `buffer` or in a slot's buffer.
    fn answered(
        &mut self,
        completion: &WorkCompletion,
        buffer: u16,
        nic: &mut impl Post,
    ) -> Result<Option<(u16, OwnedOutcome)>, Broken> {
        if let Some(slot) = self.asked(completion) {
            self.post_receive(buffer, nic)?;
            return self.kernel_answered(slot, completion, nic);
        }
        let len = completion.byte_len as usize;
        let (offset, most) = match (completion.kind, completion.imm) {
            (CompletionKind::ReceiveWriteImm, Some(slot)) if slot < self.config.window => {
                (self.buffer_at(slot as u16), self.config.buffer_len::<L>())
            }
            (CompletionKind::Receive, None) => (self.receive_at(buffer), self.config.eager as usize),
            _ => return Err(Broken::Protocol),
        };
        if len > most {
            return Err(Broken::Protocol);
        }
        let message = &mut self.scratch[..len];
        self.arena.read(offset, message);
        let response = Response::parse(message).ok_or(Broken::Protocol)?;
        self.post_receive(buffer, nic)?;
        let flight = self.flights.get(usize::from(response.slot)).ok_or(Broken::Protocol)?;
        if !matches!(flight.state, State::Calling(_)) || flight.sequence != response.sequence {
            return Err(Broken::Protocol);
        }
        let end = match (flight.operation, response.result) {
            (Operation::Get | Operation::List, Ok(())) => {
                OwnedOutcome::Value(HEADER, response.value_len as usize)
            }
            (_, Ok(())) => OwnedOutcome::Other(Outcome::Done),
            (_, Err(Refusal::Absent)) => OwnedOutcome::Other(Outcome::Absent),
            (Operation::Get, Err(Refusal::TooLong)) => OwnedOutcome::Other(Outcome::TooLong),
            (_, Err(refusal)) => OwnedOutcome::Other(Outcome::Refused(refusal)),
        };
        Ok(Some((response.slot, end)))
    }

    #[inline]
    fn buffer_at(&self, slot: u16) -> usize {
        self.config.slot_stride::<L>() * usize::from(slot)
    }

    fn receive_at(&self, buffer: u16) -> usize {
        self.config.receives_at::<L>() + usize::from(buffer) * self.config.receive_stride()
    }

    fn piece_at(&self, piece: u32) -> Remote {
        let addr = self.grant.staging.addr + u64::from(piece) * self.grant.staging_len;
        Remote { addr, rkey: self.grant.staging.rkey }
    }
}

fn finished<'a, P>(slot: u16, flight: &Flight<P>, outcome: Outcome<'a>, tries: u32) -> Finished<'a> {
    Finished {
        slot: Slot(slot),
        operation: flight.operation,
        outcome,
        round_trips: flight.round_trips,
        tries,
    }
}
