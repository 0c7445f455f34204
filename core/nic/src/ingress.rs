//! Ingress: a frame becomes a packet, the packet an action, the action is executed at once.

use remora_memory::{Access, AccessError, Key, Mem, Pd};
use remora_transport::rc::Reaction;
use remora_transport::state::{Service as Kind, State};
use remora_transport::{Action, Atomic, Instant, Notice, Outcome, Status};
use remora_wire::frame::{Address, Endpoint, Ingress, Network, Start};
use remora_wire::icrc::{Flow, IdSpans};
use remora_wire::prism::{Flags, bundle};
use remora_wire::{NakCode, Opcode, WireError, ethernet, icrc, packet, udp};

use crate::congestion::MARKED;
use crate::event::AsyncEvent;
use crate::extended;
use crate::gather;
use crate::nic::Shared;
use crate::prism;
use crate::queue_pair::{PeerPath, QueuePair, WqeContext};
use crate::receive_queue::Receive;
use crate::reliable::GoBackN;
use crate::request::{CompletionKind, WorkCompletion};
use crate::ring::Ring;
use crate::unreliable::Unreliable;

/// What a received frame is, below the transport.
pub(crate) struct Arrived<'a> {
    /// From the BTH to the end of the ICRC.
    pub transport: &'a [u8],
    pub source: Endpoint,
    /// The UDP port it was sent to, where the port shows it.
    pub destination_port: Option<u16>,
    /// IPv4 identification, where the port shows it.
    pub ip_id: Option<u16>,
    /// The ECN field of the IP header; 0 where the port does not show it.
    pub ecn: u8,
    frame: &'a Ingress<'a>,
}

impl<'a> Arrived<'a> {
    /// The IP header and what follows it, where the port shows them.
    fn from_ip(frame: &Ingress<'a>) -> Option<&'a [u8]> {
        match frame.start {
            Start::Bth => None,
            Start::Ip => Some(frame.bytes),
            Start::Ethernet => frame.bytes.get(ethernet::LEN..),
        }
    }

    /// The IP header, where the port shows it.
    pub fn header(&self) -> Option<&'a [u8]> {
        let from_ip = Arrived::from_ip(self.frame)?;
        let (network, _) = Network::parse(from_ip).ok()?;
        from_ip.get(..network.header_len())
    }

    /// The address that it was sent to, where the port shows it or knows it to be a group's.
    pub fn destination(&self) -> Option<Address> {
        let Some(from_ip) = Arrived::from_ip(self.frame) else {
            return self.frame.group.map(|group| group.address);
        };
        Network::parse(from_ip).ok().map(|(network, _)| network.addresses().1)
    }
}

/// Takes off what precedes the BTH.
#[inline]
pub(crate) fn strip<'a>(frame: &'a Ingress<'a>) -> Result<Arrived<'a>, WireError> {
    let from_ip = match frame.start {
        Start::Bth => {
            let (source, ip_id) = (frame.source, None);
            let destination_port = frame.group.map(|group| group.udp_port);
            return Ok(Arrived { transport: frame.bytes, source, destination_port, ip_id, ecn: 0, frame });
        }
        Start::Ip => frame.bytes,
        Start::Ethernet => {
            ethernet::View::new(frame.bytes)?;
            &frame.bytes[ethernet::LEN..]
        }
    };
    let (network, rest) = Network::parse(from_ip)?;
    let header = udp::View::new(rest)?;
    let len = usize::from(header.payload_len());
    let transport = rest.get(udp::LEN..udp::LEN + len).ok_or(WireError::Truncated)?;
    let (address, _) = network.addresses();
    let (ip_id, ecn) = match network {
        Network::V4(header) => (Some(header.ident), header.ecn),
        Network::V6(header) => (None, header.traffic_class & 3),
    };
    let source = Endpoint { address, udp_port: header.source_port() };
    Ok(Arrived { transport, source, destination_port: Some(header.destination_port()), ip_id, ecn, frame })
}

impl PeerPath {
    /// Is this the peer's address? Its UDP port may be any.
    #[inline]
    pub fn is_from(&self, address: &Address) -> bool {
        self.address_path.route.destination.address.is(address)
    }

    /// Is the ICRC right?
    #[inline]
    pub fn intact(&mut self, arrived: &Arrived<'_>, spans: &mut IdSpans) -> bool {
        let Some(split) = arrived.transport.len().checked_sub(icrc::LEN) else { return false };
        let (covered, trailer) = arrived.transport.split_at(split);
        let Some(received) = icrc::read(trailer) else { return false };
        // The port that the peer sends to need not be the one that we send from (RoCE: 4791 and any).
        let ports = (
            arrived.source.udp_port,
            arrived.destination_port.unwrap_or(self.address_path.route.source.udp_port),
        );
        if self.receiving_ports != ports {
            let here = Endpoint { udp_port: ports.1, ..self.address_path.route.source };
            self.receiving = Flow::new(arrived.source, here);
            self.receiving_ports = ports;
        }
        match arrived.ip_id {
            Some(id) => self.receiving.accepts(id, covered, received),
            None => self.receiving.accepts_unknown_id(spans, covered, received).is_some(),
        }
    }
}

impl QueuePair {
    /// Is the packet one for this queue pair, from its peer, whole?
    #[inline]
    pub fn admits(&mut self, arrived: &Arrived<'_>, packet: &packet::View<'_>, shared: &mut Shared) -> bool {
        let may_receive = self.may_receive();
        let path = match (&mut self.connection, &mut self.irn) {
            (Some(connection), _) => &mut connection.path,
            (None, Some(irn)) => &mut irn.path,
            (None, None) => return self.admits_unreliable(arrived, packet, shared),
        };
        let fits = may_receive
            && path.is_from(&arrived.source.address)
            && path.carries(packet.bth.opcode)
            && (packet.bth.opcode.0 & extended::SERVICE != Opcode::BUNDLE.0 || self.prism.is_some())
            && packet.bth.pkey & 0x7fff == 0x7fff
            && packet.bth.tver == 0;
        if !fits {
            shared.counters.unknown_qp += 1;
            return false;
        }
        if shared.checks_icrc && !path.intact(arrived, &mut shared.spans) {
            shared.counters.rx_icrc_encapsulated += 1;
            return false;
        }
        true
    }

    /// A request or response of its peer.
    #[inline]
    pub fn take(
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
        if packet.bth.opcode.0 & extended::SERVICE != 0 {
            return self.take_other_service(now, mem, arrived, packet, shared);
        }
        self.take_plain(now, mem, packet, shared);
    }

    /// As [`take_plain`](QueuePair::take_plain), for packets that did not come alone.
    #[inline(never)]
    pub fn take_plain_outlined(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        packet: &packet::View<'_>,
        shared: &mut Shared,
    ) {
        self.take_plain(now, mem, packet, shared);
    }

    /// A packet of RC. Inlined always: plain RC must not pay for its other callers.
    #[inline(always)]
    fn take_plain(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        if self.connection.is_none() {
            self.take_irn(now, mem, packet, shared);
        } else if packet.bth.opcode.is_request() {
            self.serve(now, mem, packet, shared);
        } else {
            self.answer(now, mem, packet, shared);
        }
    }

    /// A packet of another service than RC, which its queue pair has admitted.
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
        if packet.bth.opcode == Opcode::CNP {
            return self.notified(now, shared);
        }
        if packet.bth.opcode == Opcode::BUNDLE {
            return self.take_bundle(now, mem, packet, shared);
        }
        if packet.bth.opcode.0 & extended::SERVICE == Opcode::BUNDLE.0 {
            return self.take_chain(now, mem, packet, shared);
        }
        if self.connection.is_none() {
            return self.take_unreliable(mem, arrived, packet, shared);
        }
        let plain = extended::as_rc(packet);
        match (self.service, packet.bth.opcode.is_request()) {
            (Kind::XrcTarget, true) => self.serve_extended(mem, &plain, shared),
            (Kind::XrcInitiator, false) => self.answer(now, mem, &plain, shared),
            _ => shared.counters.unknown_qp += 1,
        }
    }

    /// Mixed bundles come over a wire: what lies behind their pointers comes near while the first ones are executed.
    #[inline(never)]
    fn prefetch_all(&self, mem: Mem<'_>, packet: &packet::View<'_>) {
        for part in bundle::parts(packet.payload).flatten() {
            if part.bth.resv7 & Flags::ADDR_INDIRECT.bits() != 0 {
                self.prefetch(mem, &part);
            }
        }
    }

    /// Packets of PRISM in one frame: each as if it had come alone.
    fn take_bundle(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        if shared.checks_icrc {
            self.prefetch_all(mem, packet);
        }
        for part in bundle::parts(packet.payload) {
            let Ok(part) = part else { return malformed(shared) };
            let chain = matches!(part.bth.opcode, Opcode::CHAIN | Opcode::CHAIN_ANSWER);
            if part.bth.dest_qp != self.number || part.bth.opcode.0 & extended::SERVICE != 0 && !chain {
                return malformed(shared);
            }
            // One before it may have ended the connection.
            if !self.may_receive() {
                return;
            }
            if chain {
                self.take_chain(now, mem, &part, shared);
            } else {
                self.take_plain_outlined(now, mem, &part, shared);
            }
        }
    }

    /// The first packet before it is ready to send tells the program that its peer is.
    #[inline]
    pub fn establish(&mut self, shared: &mut Shared) {
        if self.state == State::Rtr && !self.established {
            self.established = true;
            shared.event(AsyncEvent::CommunicationEstablished(self.number));
        }
    }

    #[inline]
    fn serve(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        self.establish(shared);
        let Some(connection) = &mut self.connection else { return };
        let action = connection.responder.receive(packet, &mut shared.counters);
        if action == Action::Nothing {
            return;
        }
        if let Action::Prism(request) = action {
            return self.serve_prism(now, mem, &request.into(), packet, shared);
        }
        if let Action::Rpc(part) = action {
            return self.serve_rpc(now, mem, &part, packet.payload, shared);
        }
        if self.strom.is_some() {
            return self.execute_strom(now, mem, action, packet.payload, shared);
        }
        let outcome = self.execute(mem, action, packet.payload, shared);
        if let Some(connection) = &mut self.connection {
            connection.responder.conclude(outcome, &mut shared.counters);
        }
    }

    /// As [`execute`](QueuePair::execute), for the services that are not to enlarge the busy path of RC.
    #[inline(never)]
    pub fn execute_outlined(
        &mut self,
        mem: Mem<'_>,
        action: Action,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Outcome {
        self.execute(mem, action, payload, shared)
    }

    /// Does what a request asks for.
    #[inline(always)]
    pub fn execute(&mut self, mem: Mem<'_>, action: Action, payload: &[u8], shared: &mut Shared) -> Outcome {
        match action {
            Action::Nothing => Outcome::Done,
            Action::Place { key, va, extent } => self.place(mem, key, va, extent, payload),
            Action::PlaceAndNotify { key, va, extent } => {
                if self.current.is_none() && !self.can_receive(shared) {
                    return Outcome::NotReady;
                }
                let placed = self.place(mem, key, va, extent, payload);
                if placed == Outcome::Done
                    && let Some(receive) = self.current.take().or_else(|| self.take_receive(shared))
                {
                    return self.arrived(mem, &receive, shared);
                }
                placed
            }
            Action::Receive { offset, first, last } => {
                self.deliver(mem, offset, first, last, payload, shared)
            }
            Action::Fetch { key, va, len } => {
                let (key, len) = (Key::new(key), len as usize);
                let span = mem.check_for(self.pd, self.owner, key, va, len, Access::REMOTE_READ);
                // It is read when the response leaves, and comes near while other packets are looked at.
                access(span.map(|span| span.prefetch()))
            }
            Action::Atomic { key, va, atomic } => self.atomic(mem, key, va, atomic),
            // `serve_prism` does them.
            Action::Prism(_) => Outcome::Nak(NakCode::INVALID_REQUEST),
            Action::Rpc(part) => self.hand_over(mem, &part, payload, shared),
        }
    }

    /// Inlined always: plain RC must not pay for its other callers.
    #[inline(always)]
    pub fn place(&mut self, mem: Mem<'_>, key: u32, va: u64, extent: u32, payload: &[u8]) -> Outcome {
        let extent = (extent as usize).max(payload.len());
        match mem.check_for(self.pd, self.owner, Key::new(key), va, extent, Access::REMOTE_WRITE) {
            Ok(span) => {
                span.write(payload);
                Outcome::Done
            }
            Err(_) => self.place_in_scratch(mem, va, payload),
        }
    }

    pub fn atomic(&self, mem: Mem<'_>, key: u32, va: u64, atomic: Atomic) -> Outcome {
        if !va.is_multiple_of(8) {
            // IBTA vol. 1 §9.4.5: a misaligned atomic is an invalid request.
            return Outcome::Nak(NakCode::INVALID_REQUEST);
        }
        let span = mem.check_for(self.pd, self.owner, Key::new(key), va, 8, Access::REMOTE_ATOMIC);
        let old = span.and_then(|span| match atomic {
            Atomic::CompareSwap { compare, swap } => span.compare_swap64(compare, swap),
            Atomic::FetchAdd { add } => span.fetch_add64(add),
        });
        match old {
            Ok(old) => Outcome::Value(old),
            // Right by address, but the memory behind it is not aligned.
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
        // One that an unreliable message left waits for the next.
        if first && (self.current.is_none() || self.unreliable.is_none()) {
            self.current = self.take_receive(shared);
        }
        let Some(receive) = self.current else { return Outcome::NotReady };
        if let Err(too_long) =
            gather::deliver(mem, self.receive_pd(), &self.receive, &receive, offset, payload)
        {
            if self.unreliable.is_some() {
                return self.undelivered_quietly(&receive, too_long, shared);
            }
            self.current = None;
            return self.undelivered(&receive, too_long, shared);
        }
        if last {
            self.current = None;
            return self.arrived(mem, &receive, shared);
        }
        Outcome::Done
    }

    /// The message does not fit its receive work request, or that is not writable: an error on both sides.
    pub fn undelivered(&mut self, receive: &Receive, too_long: bool, shared: &mut Shared) -> Outcome {
        shared.counters.resp_cqe_error += 1;
        let (status, code) = if too_long {
            shared.counters.resp_local_length_error += 1;
            (Status::LocalLength, NakCode::INVALID_REQUEST)
        } else {
            (Status::LocalProtection, NakCode::REMOTE_OPERATIONAL_ERROR)
        };
        let completion = self.received(receive, status);
        self.complete_receive(receive, completion, false, shared);
        Outcome::Nak(code)
    }

    /// A message is complete: tells the program.
    #[inline]
    fn arrived(&mut self, mem: Mem<'_>, receive: &Receive, shared: &mut Shared) -> Outcome {
        let notice = match (&self.connection, &self.unreliable) {
            (Some(connection), _) => connection.responder.notice(),
            (_, Some(Unreliable::Connected(connected))) => connected.responder.notice(),
            _ => return Outcome::Done,
        };
        self.finish(mem, receive, &notice, shared)
    }

    /// The same, for what the message brings.
    #[inline]
    pub fn finish(
        &mut self,
        mem: Mem<'_>,
        receive: &Receive,
        notice: &Notice,
        shared: &mut Shared,
    ) -> Outcome {
        let invalidated = notice.invalidate.map(Key::new);
        if let Some(key) = invalidated
            && mem.invalidate(self.pd, self.owner, key).is_err()
        {
            let completion = self.received(receive, Status::LocalProtection);
            shared.counters.resp_cqe_error += 1;
            self.complete_receive(receive, completion, false, shared);
            return Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR);
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

    /// A response of the peer: data to local memory, then whatever has ended.
    #[inline]
    fn answer(&mut self, now: Instant, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        let (pd, ring) = (self.pd, self.send.ring());
        let Some(connection) = &mut self.connection else { return };
        let reaction = connection.requester.receive(now, packet, &mut shared.counters);
        if let Some(congestion) = &mut self.congestion {
            congestion.answered(now, connection.requester.progress());
        }
        if let Err((number, status)) = react(mem, pd, ring, &reaction, packet.payload) {
            connection.requester.fail(number, status);
        }
        self.retire::<GoBackN>(shared);
    }
}

/// Brings what a response carries to the local memory of its message. The error: which message fails, and how.
#[inline]
pub(crate) fn react(
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
        // The old value lands in the program's byte order, as on every NIC.
        Reaction::Value { context, number, value } => {
            (*number, gather::scatter(mem, pd, ring, context, 0, &value.to_ne_bytes()))
        }
        Reaction::Number { context, number, head } => {
            (*number, prism::put_result(mem, pd, ring, context, *head, payload))
        }
    };
    if fine { Ok(()) } else { Err((number, Status::LocalProtection)) }
}

pub(crate) fn malformed(shared: &mut Shared) {
    shared.counters.malformed_pkts += 1;
}

fn access(result: Result<(), AccessError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(_) => Outcome::Nak(NakCode::REMOTE_ACCESS_ERROR),
    }
}
