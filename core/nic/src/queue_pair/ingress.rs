//! Ingress: the processing of received packets. The transport derives an action from each packet, and the
//! action is executed at once.

use std::marker::PhantomData;

use remora_memory::{Access, AccessError, Key, Mem, Owner, Pd};
use remora_transport::rc::{Execute, Reaction};
use remora_transport::state::{Service, State};
use remora_transport::{Action, Atomic, Instant, Notice, Outcome, Status};
use remora_wire::prism::{Flags, bundle};
use remora_wire::{NakCode, Opcode, packet};

use super::QueuePair;
use crate::arrived::Arrived;
use crate::congestion::MARKED;
use crate::context::WqeContext;
use crate::event::AsyncEvent;
use crate::extended;
use crate::extras::{All, Extras, Plain};
use crate::gather;
use crate::kernel::{execute_strom, hand_over, serve_rpc};
use crate::machine::{Connection, Machine};
use crate::path::PeerPath;
use crate::prism::{self, place_in_scratch, prefetch_pointer, serve_prism, take_operation_list};
use crate::receive_queue::Receive;
use crate::reliable::{GoBackN, ReliableRequester};
use crate::request::{CompletionKind, WorkCompletion};
use crate::ring::Ring;
use crate::service_bits;
use crate::shared::{Shared, SharedView};
use crate::unreliable::Unreliable;

impl QueuePair {
    /// Processes a packet for a [plain](Machine::Plain) queue pair. Returns false if the packet is damaged or
    /// was not sent to this queue pair by its peer.
    #[inline]
    pub(crate) fn receive_plain(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) -> bool {
        let may_receive = self.may_receive();
        let Machine::Plain(Connection { path, .. }) = &mut self.machine else { return false };
        if !admits(path, may_receive, false, arrived, packet, shared) {
            return false;
        }
        shared.received(arrived.transport.len());
        if arrived.ecn == MARKED {
            self.marked(now, shared);
        }
        if packet.bth.opcode().0 & service_bits::SERVICE != 0 {
            self.notified(now, shared);
        } else if packet.bth.opcode().is_request() {
            self.serve::<Plain>(now, mem, packet, shared);
        } else {
            self.answer::<GoBackN, Plain>(now, mem, packet, shared);
        }
        true
    }

    /// Returns true if the packet is intact and was sent to this queue pair by its peer.
    #[inline]
    pub(crate) fn admits(
        &mut self,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) -> bool {
        let may_receive = self.may_receive();
        let bundles = self.offloads.prism.is_some();
        match &mut self.machine {
            Machine::Plain(Connection { path, .. }) | Machine::Rc(Connection { path, .. }) => {
                admits(path, may_receive, bundles, arrived, packet, shared)
            }
            Machine::Irn(irn) => admits(&mut irn.path, may_receive, bundles, arrived, packet, shared),
            Machine::Unreliable(_) | Machine::Loopback | Machine::Unconnected => {
                self.admits_unreliable(arrived, packet, shared)
            }
        }
    }

    /// Processes a request or response packet of the peer.
    #[inline]
    pub(crate) fn take(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        if arrived.ecn == MARKED {
            self.marked(now, shared);
        }
        if packet.bth.opcode().0 & service_bits::SERVICE != 0 {
            return self.take_other_service(now, mem, arrived, packet, shared);
        }
        self.take_reliable(now, mem, packet, shared);
    }

    /// Does the same as `take` for a packet of a PRISM bundle and a prefetched packet.
    #[inline(never)]
    pub(crate) fn take_outlined(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        self.take_reliable(now, mem, packet, shared);
    }

    /// Processes one RC or IRN packet.
    #[inline(always)]
    fn take_reliable(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        match &self.machine {
            Machine::Irn(_) => self.take_irn(now, mem, packet, shared),
            _ if packet.bth.opcode().is_request() => self.serve::<All>(now, mem, packet, shared),
            _ => self.answer::<GoBackN, All>(now, mem, packet, shared),
        }
    }

    /// Processes an admitted packet of a service other than RC.
    #[cold]
    #[inline(never)]
    fn take_other_service(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        arrived: &Arrived<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        if packet.bth.opcode() == Opcode::CNP {
            return self.notified(now, shared);
        }
        if packet.bth.opcode() == Opcode::BUNDLE {
            return self.take_bundle(now, mem, packet, shared);
        }
        if packet.bth.opcode().0 & service_bits::SERVICE == Opcode::BUNDLE.0 {
            return take_operation_list(self, now, mem, packet, shared);
        }
        if !self.machine.is_rc() {
            return self.take_unreliable(mem, arrived, packet, shared);
        }
        let plain = extended::as_rc(packet);
        match (self.id.service, packet.bth.opcode().is_request()) {
            (Service::XrcTarget, true) => self.serve_extended(mem, &plain, shared),
            (Service::XrcInitiator, false) => self.answer::<GoBackN, All>(now, mem, &plain, shared),
            _ => shared.counters_mut().unknown_qp += 1,
        }
    }

    /// Prefetches the memory that the pointers of a PRISM bundle refer to, while the first packets of the
    /// bundle are executed.
    #[inline(never)]
    fn prefetch_all(&self, mem: Mem<'_>, packet: &packet::View<'_>) {
        for part in bundle::parts(packet.payload).flatten() {
            if part.bth.resv7() & Flags::ADDR_INDIRECT.bits() != 0 {
                prefetch_pointer(self, mem, &part);
            }
        }
    }

    /// Processes the packets of a PRISM bundle, one after the other, as if each had arrived in its own frame.
    fn take_bundle(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        if shared.properties().checks_icrc {
            self.prefetch_all(mem, packet);
        }
        for part in bundle::parts(packet.payload) {
            let Ok(part) = part else { return malformed(shared) };
            let is_list = matches!(part.bth.opcode(), Opcode::OPERATION_LIST | Opcode::OPERATION_LIST_ANSWER);
            if part.bth.dest_qp() != self.id.number
                || part.bth.opcode().0 & service_bits::SERVICE != 0 && !is_list
            {
                return malformed(shared);
            }
            // An earlier packet of the bundle may have ended the connection.
            if !self.may_receive() {
                return;
            }
            if is_list {
                take_operation_list(self, now, mem, &part, shared);
            } else {
                self.take_outlined(now, mem, &part, shared);
            }
        }
    }

    /// Raises the event `CommunicationEstablished` on the first packet in RTR.
    #[inline]
    pub(crate) fn establish(&mut self, shared: &mut Shared) {
        if self.state == State::Rtr && !self.raised.established {
            self.raised.established = true;
            shared.event(AsyncEvent::CommunicationEstablished(self.id.number));
        }
    }

    #[inline]
    fn serve<X: Extras>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        self.establish(shared);
        let Some(connection) = self.machine.rc_mut() else { return };
        if X::KERNELS && self.offloads.strom.is_some() {
            let action = connection.responder.receive(packet, shared.counters_mut());
            return self.serve_action(now, mem, action, packet, shared);
        }
        let extras = PhantomData::<X>;
        let at_once = AtOnce { mem, pd: self.id.pd, owner: self.id.owner, payload: packet.payload, extras };
        let action = connection.responder.receive_with(packet, shared.counters_mut(), at_once);
        if !matches!(action, Action::Nothing) {
            self.serve_action(now, mem, action, packet, shared);
        }
    }

    /// Executes the action of a request, which may be that of an offload.
    #[inline(never)]
    fn serve_action(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        action: Action,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        if action == Action::Nothing {
            return;
        }
        if let Action::Prism(request) = action {
            return serve_prism(self, now, mem, &request.into(), packet, shared);
        }
        if let Action::Rpc(part) = action {
            return serve_rpc(self, now, mem, &part, packet.payload, shared);
        }
        if self.offloads.strom.is_some() {
            return execute_strom(self, now, mem, action, packet.payload, shared);
        }
        let outcome = self.execute(mem, action, packet.payload, shared);
        if let Some(connection) = self.machine.rc_mut() {
            connection.responder.conclude(outcome, shared.counters_mut());
        }
    }

    /// Does the same as [`execute`](QueuePair::execute); compiled out of line, so that other services do not
    /// enlarge the RC path.
    #[inline(never)]
    pub(crate) fn execute_outlined(
        &mut self,
        mem: Mem<'_>,
        action: Action,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Outcome {
        self.execute(mem, action, payload, shared)
    }

    /// Executes the action of a request.
    #[inline(always)]
    pub(crate) fn execute(
        &mut self,
        mem: Mem<'_>,
        action: Action,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Outcome {
        match action {
            Action::Nothing => Outcome::Done,
            Action::Place { key, va, extent } => self.place(mem, key, va, extent, payload),
            Action::PlaceAndNotify { key, va, extent } => {
                if self.queues.current.is_none() && !self.can_receive(shared) {
                    return Outcome::NotReady;
                }
                let placed = self.place(mem, key, va, extent, payload);
                if placed == Outcome::Done
                    && let Some(receive) = self.queues.current.take().or_else(|| self.take_receive(shared))
                {
                    return self.arrived(mem, &receive, shared);
                }
                placed
            }
            Action::Receive { offset, first, last } => {
                self.deliver(mem, offset, first, last, payload, shared)
            }
            Action::Fetch { key, va, len } => may_fetch(mem, self.id.pd, self.id.owner, key, va, len),
            Action::Atomic { key, va, atomic } => self.atomic(mem, key, va, atomic),
            // `serve_prism` executes PRISM operations.
            Action::Prism(_) => Outcome::Nak(NakCode::INVALID_REQUEST),
            Action::Rpc(part) => hand_over(self, mem, &part, payload, shared),
        }
    }

    /// Writes a payload to the memory that a remote key refers to. Always inlined, so that plain RC does not
    /// pay for the other callers.
    #[inline(always)]
    pub(crate) fn place(&mut self, mem: Mem<'_>, key: u32, va: u64, extent: u32, payload: &[u8]) -> Outcome {
        place_plain(mem, self.id.pd, self.id.owner, key, va, extent, payload)
            .unwrap_or_else(|| place_in_scratch(self, mem, va, payload))
    }

    pub(crate) fn atomic(&self, mem: Mem<'_>, key: u32, va: u64, atomic: Atomic) -> Outcome {
        if !va.is_multiple_of(8) {
            // IBTA vol. 1 §9.4.5: a misaligned atomic is an invalid request.
            return Outcome::Nak(NakCode::INVALID_REQUEST);
        }
        let span = mem.check_for(self.id.pd, self.id.owner, Key::new(key), va, 8, Access::REMOTE_ATOMIC);
        let old = span.and_then(|span| match atomic {
            Atomic::CompareSwap { compare, swap } => span.compare_swap64(compare, swap),
            Atomic::FetchAdd { add } => span.fetch_add64(add),
        });
        match old {
            Ok(old) => Outcome::Value(old),
            // The virtual address is aligned, but the memory that it maps to is not.
            Err(AccessError::Misaligned) => Outcome::Nak(NakCode::INVALID_REQUEST),
            Err(_) => Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR),
        }
    }

    #[inline]
    fn deliver(
        &mut self,
        mem: Mem<'_>,
        offset: u32,
        first: bool,
        last: bool,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Outcome {
        // A receive work request that an incomplete unreliable message left unused serves the next message.
        if first && (self.queues.current.is_none() || !self.machine.is_unreliable()) {
            self.queues.current = self.take_receive(shared);
        }
        let Some(receive) = self.queues.current else { return Outcome::NotReady };
        if let Err(too_long) =
            gather::deliver(mem, self.receive_pd(), &self.queues.receive, &receive, offset, payload)
        {
            if self.machine.is_unreliable() {
                return self.undelivered_quietly(&receive, too_long, shared);
            }
            self.queues.current = None;
            return self.undelivered(&receive, too_long, shared);
        }
        if last {
            self.queues.current = None;
            return self.arrived(mem, &receive, shared);
        }
        Outcome::Done
    }

    /// Handles a message that does not fit its receive work request (`too_long`), or whose buffer is not
    /// writable. Both sides report an error.
    pub(crate) fn undelivered(&mut self, receive: &Receive, too_long: bool, shared: &mut Shared) -> Outcome {
        shared.counters_mut().resp_cqe_error += 1;
        let (status, code) = if too_long {
            shared.counters_mut().resp_local_length_error += 1;
            (Status::LocalLength, NakCode::INVALID_REQUEST)
        } else {
            (Status::LocalProtection, NakCode::REMOTE_OPERATIONAL_ERROR)
        };
        let completion = self.received(receive, status);
        self.complete_receive(receive, completion, false, shared);
        Outcome::Nak(code)
    }

    /// Completes the receive work request of a completely received message.
    #[inline]
    fn arrived(&mut self, mem: Mem<'_>, receive: &Receive, shared: &mut Shared) -> Outcome {
        let notice = match &self.machine {
            Machine::Plain(connection) | Machine::Rc(connection) => connection.responder.notice(),
            Machine::Unreliable(Unreliable::Connected(connected)) => connected.responder.notice(),
            _ => return Outcome::Done,
        };
        self.finish(mem, receive, &notice, shared)
    }

    /// Completes the receive work request of a message with this notification.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        mem: Mem<'_>,
        receive: &Receive,
        notice: &Notice,
        shared: &mut Shared,
    ) -> Outcome {
        let invalidated = notice.invalidate.map(Key::new);
        if let Some(key) = invalidated
            && mem.invalidate(self.id.pd, self.id.owner, key).is_err()
        {
            return self.keeps_key(receive, shared);
        }
        let kind = if notice.write { CompletionKind::ReceiveWriteImm } else { CompletionKind::Receive };
        let completion = WorkCompletion {
            kind,
            byte_len: notice.len,
            imm: notice.imm,
            invalidated,
            ..self.received(receive, Status::Success)
        };
        self.complete_receive(receive, completion, notice.solicited, shared);
        Outcome::Done
    }

    /// Ends a message that asks to invalidate a key for which it has no permission. The SEND before the
    /// invalidation may already be acknowledged, so no NAK is sent.
    #[cold]
    #[inline(never)]
    fn keeps_key(&mut self, receive: &Receive, shared: &mut Shared) -> Outcome {
        let completion = self.received(receive, Status::MwBind);
        shared.counters_mut().resp_cqe_error += 1;
        self.complete_receive(receive, completion, false, shared);
        Outcome::End
    }

    /// Processes a response of the peer: writes its data to local memory and completes the messages that have
    /// ended.
    #[inline]
    pub(crate) fn answer<R: ReliableRequester, X: Extras>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        let pd = self.id.pd;
        let ring = self.queues.send.ring();
        let Some(requester) = R::of(&mut self.machine) else { return };
        let reaction = requester.receive(now, packet, shared.counters_mut());
        if X::ANY
            && let Some(congestion) = &mut self.offloads.congestion
        {
            congestion.answered(now, requester.progress());
        }
        if let Err((number, status)) = react(mem, pd, ring, &reaction, packet.payload) {
            requester.fail(number, status);
        }
        self.retire::<R, X>(shared);
    }
}

/// Returns true if the packet is intact and comes from the peer of a connection. `bundles` is true if the
/// peer may send PRISM's bundles and operation lists.
#[inline(always)]
fn admits(
    path: &mut PeerPath,
    may_receive: bool,
    bundles: bool,
    arrived: &Arrived<'_>,
    packet: &packet::View<'_>,
    shared: &mut Shared,
) -> bool {
    let opcode = packet.bth.opcode();
    let carries = path.carries(opcode) || bundles && opcode.0 & service_bits::SERVICE == Opcode::BUNDLE.0;
    if !(may_receive && path.is_from(arrived) && carries && packet.bth.is_default()) {
        shared.counters_mut().unknown_qp += 1;
        return false;
    }
    let SharedView { properties, counters, spans, now, .. } = shared.view();
    let checks = properties.checks_icrc && arrived.is_sealed();
    if checks && !path.intact(arrived, properties.endpoint.udp_port, spans, now) {
        counters.rx_icrc_encapsulated += 1;
        return false;
    }
    true
}

/// Executes WRITEs and READs while their packets are validated.
struct AtOnce<'a, X> {
    mem: Mem<'a>,
    pd: Pd,
    owner: Owner,
    payload: &'a [u8],
    extras: PhantomData<X>,
}

impl<X: Extras> Execute for AtOnce<'_, X> {
    const PRISM: bool = X::ANY;

    #[inline(always)]
    fn execute(self, action: Action) -> Option<Outcome> {
        let AtOnce { mem, pd, owner, payload, .. } = self;
        match action {
            Action::Place { key, va, extent } => place_plain(mem, pd, owner, key, va, extent, payload),
            Action::Fetch { key, va, len } => Some(may_fetch(mem, pd, owner, key, va, len)),
            _ => None,
        }
    }
}

/// Writes a payload to the memory that a remote key refers to. Returns `None` if the key does not allow it.
#[inline(always)]
fn place_plain(
    mem: Mem<'_>,
    pd: Pd,
    owner: Owner,
    key: u32,
    va: u64,
    extent: u32,
    payload: &[u8],
) -> Option<Outcome> {
    let extent = (extent as usize).max(payload.len());
    match mem.check_for(pd, owner, Key::new(key), va, extent, Access::REMOTE_WRITE) {
        Ok(span) if span.write(payload) == payload.len() => Some(Outcome::Done),
        Ok(_) => Some(Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR)),
        Err(_) => None,
    }
}

/// Checks that a READ may have its data, and prefetches it: the data is read when the response is sent.
#[inline(always)]
fn may_fetch(mem: Mem<'_>, pd: Pd, owner: Owner, key: u32, va: u64, len: u32) -> Outcome {
    let span = mem.check_for(pd, owner, Key::new(key), va, len as usize, Access::REMOTE_READ);
    access(span.map(|span| span.prefetch()))
}

/// Writes the data of a response to the local memory of its message. An error contains the number of the
/// message that fails, and its status.
#[inline]
fn react(
    mem: Mem<'_>,
    pd: Pd,
    ring: &Ring,
    reaction: &Reaction<WqeContext>,
    payload: &[u8],
) -> Result<(), (u64, Status)> {
    let (number, fine) = match reaction {
        Reaction::Nothing => return Ok(()),
        Reaction::Scatter { context, number, offset } => {
            (*number, gather::scatter(mem, pd, ring, context, *offset, payload))
        }
        // The old value is stored in host byte order, as on all NICs.
        Reaction::Value { context, number, value } => {
            (*number, gather::scatter(mem, pd, ring, context, 0, &value.to_ne_bytes()))
        }
        Reaction::Number { context, number, head } => {
            (*number, prism::put_result(mem, pd, ring, context, *head, payload))
        }
    };
    if fine { Ok(()) } else { Err((number, Status::LocalProtection)) }
}

fn malformed(shared: &mut Shared) {
    shared.counters_mut().malformed_pkts += 1;
}

fn access(result: Result<(), AccessError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(_) => Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR),
    }
}
