//! Processing of received 1RMA messages: each is authenticated first, then interpreted.
//!
//! Invalid messages are counted and dropped, except for requests, which receive a response no longer than the
//! request. Ciphertext is copied before decryption, and data is written to a region only if its tag was
//! correct.

use remora_memory::{Access, Mem};
use remora_transport::Instant;
use remora_transport::rma::{Accepted, Request, Status};
use remora_wire::frame::{Endpoint, Origin};
use remora_wire::rma::{Body, Kind, MAX_AAD, Message, TAG_LEN, TagSequence, completion, header, request};

use super::cipher::KEY_LEN;
use super::regions::Snapshot;
use super::{Destination, Identity, MAX_REFUSALS, Refusal, RegionKey, Rights, Rma, SERVED, ServedContext};
use crate::arrived::Arrived;
use crate::shared::Shared;

impl Rma {
    /// Processes one received message.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        origin: Option<Origin>,
        shared: &mut Shared,
    ) {
        let Ok(message) = Message::parse(arrived.transport) else {
            shared.counters_mut().malformed_pkts += 1;
            return;
        };
        shared.received(arrived.transport.len());
        let destination = Destination { endpoint: arrived.source, origin };
        match (message.header.kind, &message.body) {
            (_, Body::Request(request)) => {
                self.take_request(now, mem, &message, request, destination, shared)
            }
            (Kind::Data, _) if message.header.slot & SERVED != 0 => {
                self.take_written(now, mem, &message, shared);
            }
            (Kind::Data, _) => self.take_read(now, mem, &message, shared),
            (kind, body) => self.take_answer(now, kind, body, &message, arrived.source, shared),
        }
    }

    /// Returns true if the message has a valid tag for this key and tag sequence. The plaintext is then in
    /// the buffer.
    fn opens(&mut self, key: &[u8; KEY_LEN], tags: &TagSequence, message: &Message<'_>) -> bool {
        let place = self.keys.place(key);
        self.opens_at(place, tags, message)
    }

    fn opens_at(&mut self, place: usize, tags: &TagSequence, message: &Message<'_>) -> bool {
        let mut aad = [0; MAX_AAD];
        let aad = tags.aad(message.clear, &mut aad);
        // The text is copied once: if the frame is shared memory, its sender may change it at any time.
        let text = &mut self.buffer[..message.sealed.len()];
        text.copy_from_slice(message.sealed);
        let tag: [u8; TAG_LEN] = *message.tag;
        self.keys.cipher().open(place, &message.header.nonce.bytes(), aad, text, &tag)
    }

    /// Hop 1. The tag comes first; then rights and bounds; then whether there is time for it.
    fn take_request(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        message: &Message<'_>,
        request: &request::Repr,
        destination: Destination,
        shared: &mut Shared,
    ) {
        let header = &message.header;
        let region = self.regions.get(header.region);
        // The check of a nonexistent region takes as long as that of a region with another key.
        let (epoch, region_key) = match &region {
            Some(Snapshot { epoch, region_key, .. }) => (*epoch, region_key.clone()),
            None => (0, self.decoy.clone()),
        };
        let identity = Identity {
            address: destination.endpoint.address,
            pid: request.pid,
            incarnation: request.incarnation,
            kind: header.kind,
        };
        let key = self.keys.derive(header.region, epoch, region_key.bytes(), &identity);
        let authentic = self.opens(&key, &TagSequence::EMPTY, message);
        let Some(region) = region.filter(|_| authentic) else {
            shared.counters_mut().rma_bad_requests += 1;
            self.fail_request(now, header, destination, super::RESERVED_KEY, shared);
            return;
        };
        if !permitted(mem, header, &region) {
            shared.counters_mut().rma_access_errors += 1;
            let body = Body::Completion(completion::Repr { status: completion::Status::AccessError });
            self.refuse(Kind::Completion, header, body, destination, key, shared);
            return;
        }
        let accepted = Request {
            kind: header.kind,
            class: header.class,
            size: header.length,
            max_payload: u32::from(request.max_payload),
            nonce: header.nonce,
            initiator: destination.endpoint,
        };
        let context = ServedContext {
            destination,
            slot: header.slot,
            region: header.region,
            epoch: region.epoch,
            offset: header.offset,
            key,
            new_key: [0; KEY_LEN],
        };
        match self.responder.accept(now, accepted, context, &mut self.solicitation) {
            Accepted::Slot(_) => shared.counters_mut().rma_served += 1,
            Accepted::Nack => {
                shared.counters_mut().rma_nacks_sent += 1;
                self.refuse(Kind::Nack, header, Body::None, destination, key, shared);
            }
        }
    }

    /// Sends an authentication failure for a request: under the reserved key, or under that of the operation
    /// if it was in service until now.
    fn fail_request(
        &mut self,
        now: Instant,
        header: &header::Repr,
        destination: Destination,
        key: [u8; KEY_LEN],
        shared: &mut Shared,
    ) {
        if !self.may_fail(now) {
            shared.counters_mut().rma_failures_suppressed += 1;
            return;
        }
        self.refuse(Kind::AuthenticationFailure, header, Body::None, destination, key, shared);
    }

    /// Queues a refusal of a request.
    fn refuse(
        &mut self,
        kind: Kind,
        header: &header::Repr,
        body: Body,
        destination: Destination,
        key: [u8; KEY_LEN],
        shared: &mut Shared,
    ) {
        if self.refusals.len() == MAX_REFUSALS {
            shared.counters_mut().rma_refusals_dropped += 1;
            return;
        }
        let tags = TagSequence::new(header.nonce);
        let header = header::Repr { kind, offset: 0, length: 0, ..*header };
        self.refusals.push_back(Refusal { destination, header, body, tags, key });
    }

    /// Processes data of a local read command.
    fn take_read(&mut self, now: Instant, mem: Mem<'_>, message: &Message<'_>, shared: &mut Shared) {
        let header = &message.header;
        let slot = header.slot;
        let offset = header.offset;
        let len = header.length;
        let expected = self.requester.expects(slot, Kind::Data);
        let Some((_, tags)) = expected.filter(|_| self.requester.awaits(slot, offset, len)) else {
            shared.counters_mut().rma_unexpected += 1;
            return;
        };
        let Some(command) = self.commands[usize::from(slot)].clone() else { return };
        if !self.opens(&command.key, &tags, message) {
            shared.counters_mut().rma_bad_responses += 1;
            return;
        }
        let pd = self.portals.owner(slot).map(|portal| portal.pd);
        let span = pd.and_then(|pd| self.local(mem, pd, &command, offset as u32, len));
        let ended = match span {
            Some(span) if span.write(&self.buffer[..len as usize]) == len as usize => {
                self.requester.placed(now, slot, offset, len, &mut self.solicitation)
            }
            _ => Some(self.requester.end(now, slot, Status::LocalError, &mut self.solicitation)),
        };
        if let Some(ended) = ended {
            self.complete(&ended, shared);
        }
    }

    /// Processes a message without data that answers a local command. An authentication failure under the
    /// reserved key, which everybody knows, is accepted only from the address and UDP port of the command's
    /// server.
    fn take_answer(
        &mut self,
        now: Instant,
        kind: Kind,
        body: &Body,
        message: &Message<'_>,
        source: Endpoint,
        shared: &mut Shared,
    ) {
        let slot = message.header.slot;
        let Some((_, tags)) = self.requester.expects(slot, kind) else {
            shared.counters_mut().rma_unexpected += 1;
            return;
        };
        let Some(command) = &self.commands[usize::from(slot)] else { return };
        let key = command.key;
        let server = command.server;
        let authentic = self.opens(&key, &tags, message);
        let may_be_reserved = kind == Kind::AuthenticationFailure && source == server;
        let anyone = !authentic && may_be_reserved && {
            let reserved = self.keys.reserved();
            self.opens_at(reserved, &tags, message)
        };
        if !authentic && !anyone {
            shared.counters_mut().rma_bad_responses += 1;
            return;
        }
        if anyone {
            let failure = Status::RemoteAuthenticationFailure;
            let ended = self.requester.fail(now, slot, failure, &mut self.solicitation);
            ended.iter().for_each(|ended| self.complete(ended, shared));
            return;
        }
        let status = match body {
            Body::Solicit(solicit) => {
                let nonce = message.header.nonce;
                let most = u32::from(solicit.max_payload);
                let timeout = u64::from(solicit.timeout);
                // The time of the pass may lie before the solicit left, if this engine was stopped since.
                let now = self.time_of_copy(now);
                return self.requester.solicited(now, slot, nonce, solicit.server_slot, most, timeout);
            }
            Body::Completion(completion) if completion.status == completion::Status::Ok => Status::Ok,
            Body::Completion(_) => Status::RemoteAccessError,
            _ if kind == Kind::Nack => Status::Nack,
            _ => Status::RemoteAuthenticationFailure,
        };
        match self.requester.completed(now, slot, status, &mut self.solicitation) {
            Some(ended) => self.complete(&ended, shared),
            None => shared.counters_mut().rma_unexpected += 1,
        }
    }

    /// Processes data of a write or rekey that this engine serves. The time is read again immediately before
    /// the data is placed, because the initiator relies on the fact that nothing is placed later.
    fn take_written(&mut self, now: Instant, mem: Mem<'_>, message: &Message<'_>, shared: &mut Shared) {
        let header = &message.header;
        let slot = header.slot & !SERVED;
        let offset = header.offset;
        let len = header.length;
        let Some(served) = self.responder.expects(slot) else {
            shared.counters_mut().rma_unexpected += 1;
            return;
        };
        let context = served.context;
        let tags = served.tags();
        let request = *served.request();
        if !self.opens(&context.key, &tags, message) {
            shared.counters_mut().rma_bad_responses += 1;
            return;
        }
        let regions = self.regions.clone();
        let Some(in_use) = regions.enter(context.region, context.epoch) else {
            self.revoke(now, slot, shared);
            return;
        };
        let now = self.time_of_copy(now);
        if !self.responder.awaits(now, slot, offset, len) {
            shared.counters_mut().rma_late_pieces += 1;
            return;
        }
        let placed = match request.kind {
            Kind::Rekey => self.keep_new_key(slot, offset, len),
            _ => {
                let memory = regions.get(context.region).map(|region| region.memory);
                let span = memory.and_then(|memory| {
                    let va = memory.base + context.offset + offset;
                    mem.check(mem.domain(memory.key)?, memory.key, va, len as usize, Access::LOCAL_WRITE).ok()
                });
                span.is_some_and(|span| span.write(&self.buffer[..len as usize]) == len as usize)
            }
        };
        drop(in_use);
        if !placed {
            // The memory region is gone, although the 1RMA region still exists.
            self.revoke(now, slot, shared);
            return;
        }
        let complete = self.responder.placed(now, slot, header.nonce, offset, len, &mut self.solicitation);
        if complete && request.kind == Kind::Rekey {
            self.install(now, slot, shared);
        }
    }

    /// Stores the new key of a rekey, which arrives in one piece.
    fn keep_new_key(&mut self, slot: u16, offset: u64, len: u32) -> bool {
        if offset != 0 || len as usize != KEY_LEN {
            return false;
        }
        let mut key = [0; KEY_LEN];
        key.copy_from_slice(&self.buffer[..KEY_LEN]);
        self.buffer[..KEY_LEN].fill(0);
        if let Some(context) = self.responder.context_mut(slot) {
            context.new_key = key;
        }
        true
    }

    /// Installs the new key of a region. Operations in service under the old key end.
    fn install(&mut self, now: Instant, slot: u16, shared: &mut Shared) {
        let Some(served) = self.responder.served(slot) else { return };
        let ServedContext { region, epoch, new_key, .. } = served.context;
        let installed = RegionKey::new(new_key).is_some_and(|key| self.regions.rekey_at(region, epoch, &key));
        if !installed {
            self.revoke(now, slot, shared);
            return;
        }
        shared.counters_mut().rma_rekeys += 1;
        self.keys.forget(region);
        for other in (0..self.settings.served).filter(|other| *other != slot) {
            let stale = self.responder.served(other).is_some_and(|served| {
                let context = &served.context;
                context.region == region && context.epoch <= epoch && !served.is_done()
            });
            if stale {
                self.revoke(now, other, shared);
            }
        }
    }

    /// Ends an operation whose region has another key or is gone.
    pub(crate) fn revoke(&mut self, now: Instant, slot: u16, shared: &mut Shared) {
        let Some(served) = self.responder.served(slot) else { return };
        let context = served.context;
        let request = *served.request();
        let header = header::Repr {
            kind: request.kind,
            class: request.class,
            slot: context.slot,
            region: context.region,
            offset: context.offset,
            length: request.size,
            nonce: request.nonce,
        };
        self.responder.abort(slot, &mut self.solicitation);
        shared.counters_mut().rma_revoked += 1;
        self.fail_request(now, &header, context.destination, context.key, shared);
    }
}

/// Returns true if the region grants the right that an authentic request needs, and contains its range.
fn permitted(mem: Mem<'_>, header: &header::Repr, region: &Snapshot) -> bool {
    let memory = &region.memory;
    let (right, access) = match header.kind {
        Kind::Read => (Rights::READ, Access::NONE),
        Kind::Write => (Rights::WRITE, Access::LOCAL_WRITE),
        _ => (Rights::REKEY, Access::NONE),
    };
    if !memory.rights.contains(right) {
        return false;
    }
    if header.kind == Kind::Rekey {
        return header.offset == 0 && header.length as usize == KEY_LEN;
    }
    let sized = (1..=remora_wire::rma::MAX_OPERATION).contains(&header.length);
    let end = header.offset.checked_add(u64::from(header.length));
    if !sized || end.is_none_or(|end| end > memory.len) {
        return false;
    }
    let va = memory.base + header.offset;
    let domain = mem.domain(memory.key);
    domain.is_some_and(|pd| mem.check(pd, memory.key, va, header.length as usize, access).is_ok())
}
