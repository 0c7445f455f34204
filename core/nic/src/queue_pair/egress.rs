//! Egress: the turn of a queue pair. The transport plans each packet, without I/O; then the packet is written
//! into a frame of the port.

use remora_memory::{Mem, Owner, Pd};
use remora_transport::rc::{Plan, ReplyKind};
use remora_transport::state::State;
use remora_transport::{Counters, Instant, Status};
use remora_wire::frame::Egress;
use remora_wire::{NakCode, Qpn, Syndrome, aeth};

use super::QueuePair;
use crate::chain::transmit_to_itself;
use crate::emit::{Fill, Gathered, Sent, emit_from, response_bth, response_headers};
use crate::event::AsyncEvent;
use crate::extended;
use crate::extras::{All, Extras, Plain, WithoutKernels};
use crate::gather::{self, LocalMemory};
use crate::kernel::{
    CheckResult, check_reply, clear_delayed_ack, delay_plain_ack, maybe_delay_ack, waits_for_bytes,
};
use crate::machine::{Connection, Machine};
use crate::path::PeerPath;
use crate::prism::{self, NextRequest, request_bundle, respond_bundle};
use crate::reliable::{self, GoBackN, PlannedRequest, ReliableRequester};
use crate::shared::{Shared, SharedView};
use crate::turn::{TURN_BYTES, TURN_PACKETS, TurnEnd, TurnUsage};

/// Number of requests, including answers of StRoM kernels, that are sent before responses in a turn.
const ANSWERS_FIRST: usize = TURN_PACKETS / 2;

impl QueuePair {
    /// Returns true if there may be packets to send. The test is cheap and may return true without reason.
    #[inline]
    pub(super) fn wants_turn(&self) -> bool {
        let begins = || self.state == State::Rts && self.queues.send.has_work();
        let goes_on = |Connection { requester, responder, .. }: &Connection| {
            responder.has_reply() || begins() || requester.outstanding() > 0 && requester.has_unsent()
        };
        match &self.machine {
            Machine::Plain(connection) => goes_on(connection),
            Machine::Rc(connection) => self.offloads.owes_notification() || goes_on(connection),
            Machine::Irn(irn) => self.offloads.owes_notification() || irn.has_unsent() || begins(),
            Machine::Unreliable(unreliable) => {
                self.offloads.owes_notification() || unreliable.is_busy() || begins()
            }
            Machine::Loopback => begins() && !self.schedule.waiting,
            Machine::Unconnected => false,
        }
    }

    /// Runs the queue pair's turn: sends responses before requests until the turn is used up. Adds the frames
    /// and bytes sent to `used`.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        match &self.machine {
            Machine::Plain(_) => self.transmit_rc::<Plain>(now, mem, out, shared, used),
            Machine::Rc(_) if self.offloads.strom.is_some() => {
                self.transmit_answers(now, mem, out, shared, used)
            }
            Machine::Rc(_) => self.transmit_extended(now, mem, out, shared, used),
            Machine::Irn(_) if self.offloads.is_empty() => {
                self.transmit_irn::<Plain>(now, mem, out, shared, used)
            }
            Machine::Irn(_) => self.transmit_irn::<All>(now, mem, out, shared, used),
            Machine::Unreliable(_) => self.transmit_unreliable(now, mem, out, shared, used),
            Machine::Loopback => transmit_to_itself(self, now, mem, shared, used),
            Machine::Unconnected => TurnEnd::Done,
        }
    }

    /// Sends the responses and then the requests of go-back-N without StRoM.
    #[inline(always)]
    fn transmit_rc<X: Extras>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        // No response becomes due while requests are sent.
        let mut responds = true;
        self.turn::<X, _>(now, out, shared, used, |qp, out, shared| {
            if responds {
                let sent = qp.respond::<X>(now, mem, out, shared);
                if sent.is_some() {
                    return sent;
                }
                responds = false;
            }
            qp.request::<GoBackN, X>(now, mem, out, shared)
        })
    }

    /// Sends the responses and then the requests of go-back-N without StRoM, but with anything else. The
    /// function is compiled out of line, so that the plain path stays small; the suffix `_outlined` always
    /// has this meaning.
    #[inline(never)]
    fn transmit_extended(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        self.transmit_rc::<WithoutKernels>(now, mem, out, shared, used)
    }

    /// Sends a CNP and then the requests of an unreliable service.
    #[inline(never)]
    fn transmit_unreliable(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        self.turn::<All, _>(now, out, shared, used, |qp, out, shared| match qp.notify_if_due(out, shared) {
            None => qp.request_unreliable(now, mem, out, shared),
            sent => sent,
        })
    }

    /// Sends the responses and then the requests of IRN.
    #[inline(never)]
    fn transmit_irn<X: Extras>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        self.turn::<X, _>(now, out, shared, used, |qp, out, shared| {
            match qp.respond_irn(now, mem, out, shared) {
                None => qp.request::<reliable::Irn, X>(now, mem, out, shared),
                sent => sent,
            }
        })
    }

    /// Sends a few requests before responses. A kernel's answer and the shorter acknowledgement after it can
    /// be sent as one train of segments; in the opposite order they need two frames. Two successive turns
    /// never both start with requests: on a port that accepts few frames at a time, the answers would use all
    /// of them, and the peer would never receive acknowledgements.
    #[inline(never)]
    fn transmit_answers(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        let ack_was_pending = self.offloads.strom.as_ref().is_some_and(|strom| strom.ack_was_pending);
        let mut first = if ack_was_pending { 0 } else { ANSWERS_FIRST };
        if self.machine.rc().is_some_and(|connection| connection.responder.has_reply()) {
            // The reply that is being sent includes the delayed ACK.
            clear_delayed_ack(self);
        }
        let mut dry = false;
        let turn = self.turn::<All, _>(now, out, shared, used, |qp, out, shared| {
            if first > 0 {
                first -= 1;
                let sent = qp.request_outlined(now, mem, out, shared);
                let sent = qp.unless_stopped(out, sent);
                if sent.is_none() || qp.has_sent_all() {
                    // No request is left, and sending a response creates none.
                    (first, dry) = (0, true);
                }
                if sent.is_some() {
                    return sent;
                }
            }
            let sent = if qp.has_response() { qp.respond::<All>(now, mem, out, shared) } else { None };
            match sent {
                None if !dry => qp.request_outlined(now, mem, out, shared),
                sent => sent,
            }
        });
        let ack_was_pending = self.machine.rc().is_some_and(|connection| connection.responder.has_reply());
        if let Some(strom) = &mut self.offloads.strom {
            strom.ack_was_pending = ack_was_pending;
        }
        turn
    }

    /// Sends the packets that `next` produces until the turn is used up. `X::ANY` is false for a
    /// [plain](Machine::Plain) queue pair.
    #[inline(always)]
    fn turn<X: Extras, E: Egress>(
        &mut self,
        now: Instant,
        out: &mut E,
        shared: &mut Shared,
        used: &mut TurnUsage,
        mut next: impl FnMut(&mut QueuePair, &mut E, &mut Shared) -> Option<Sent>,
    ) -> TurnEnd {
        while used.packets < shared.properties().turn_packets && used.bytes < TURN_BYTES {
            let Some(sent) = next(self, out, shared) else { return TurnEnd::Done };
            match sent {
                Sent::Yes(len) => {
                    used.packets += 1;
                    used.bytes += len;
                    if X::ANY
                        && let Some(congestion) = &mut self.offloads.congestion
                    {
                        congestion.sent(now, len);
                    }
                }
                Sent::Stopped(queue) if out.has_space_per_queue() => {
                    self.await_queue(queue);
                    return TurnEnd::Stopped;
                }
                Sent::Blocked | Sent::Stopped(_) => return TurnEnd::Blocked,
                // The state machine has recorded the reason: it sends a NAK next, or the connection ends.
                Sent::Denied => {}
            }
        }
        TurnEnd::More
    }

    /// Sends the next response packet of go-back-N. `X` is [`Plain`] for a [plain](Machine::Plain)
    /// queue pair; otherwise congestion control or a kernel may delay the data of READs. Always inlined, so
    /// that plain RC does not pay for the other variant.
    #[inline(always)]
    fn respond<X: Extras>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if !self.may_receive() {
            return None;
        }
        if X::ANY && self.offloads.owes_notification() {
            let sent = self.notify_peer(out, shared);
            if let Some(sent) = self.unless_stopped(out, sent) {
                return Some(sent);
            }
        }
        let held = X::ANY && self.is_held(now) || X::KERNELS && waits_for_bytes(self, now);
        if X::ANY
            && self.offloads.prism.is_some()
            && !held
            && let Some(sent) = respond_bundle(self, mem, out, shared)
        {
            return self.unless_stopped(out, Some(sent));
        }
        let connection = self.machine.rc_mut()?;
        let reply = connection.responder.plan().filter(|reply| !held || !reply.kind.has_data())?;
        let checked = if X::KERNELS {
            check_reply(self, now, mem, &reply.kind, shared)
        } else {
            CheckResult::NotChecked
        };
        if checked == CheckResult::Failed {
            return None;
        }
        let pd = self.id.pd;
        let owner = self.id.owner;
        let connection = self.machine.rc_mut()?;
        if checked == CheckResult::Refused {
            connection.responder.deny(NakCode::REMOTE_OPERATIONAL_ERROR, shared.counters_mut());
            return Some(Sent::Denied);
        }
        let path = &mut connection.path;
        let SharedView { counters, kernels, .. } = shared.view();
        let sent = if X::ANY && reply.kind.is_kept() {
            prism::emit_kept(path, out, counters, &reply, connection.responder.kept())
        } else if !X::ANY || path.service == 0 {
            let (ext, len) = response_headers(&reply);
            let bth = response_bth(&reply, path.remote);
            let checked = (checked == CheckResult::Passed).then(|| kernels.checked_bytes());
            let (class, fetched) =
                (path.reply_class(&reply.kind), Fetched { mem, pd, owner, kind: &reply.kind, checked });
            emit_from(&mut path.address_path, class, out, counters, &bth, &ext, len, fetched)
        } else {
            extended::emit_reply(path, out, counters, &reply, mem, owner)
        };
        match sent {
            Sent::Yes(_) => {
                if connection.responder.sent(&reply, shared.counters_mut()) {
                    self.fail(fatal_event(self.id.number, &reply.aeth), shared);
                }
            }
            // The memory region was deregistered after the READ request was accepted.
            Sent::Denied => connection.responder.deny(NakCode::REMOTE_ACCESS_ERROR, shared.counters_mut()),
            Sent::Blocked | Sent::Stopped(_) => {}
        }
        self.unless_stopped(out, Some(sent))
    }

    /// Sends the next request packet of go-back-N or IRN. `X::ANY` is false for a
    /// [plain](Machine::Plain) queue pair. Always inlined, so that plain RC does not pay for the other
    /// variants.
    #[inline(always)]
    fn request<R: EmitRequest, X: Extras>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if !self.may_send() || X::ANY && self.is_held(now) || R::is_idle(self) {
            return None;
        }
        let mut plan = loop {
            if self.may_submit::<R>() {
                self.submit::<R>(mem, shared);
            }
            if X::ANY && R::OPERATION_LISTS && self.offloads.prism.is_some() {
                match self.request_prism::<R>(now, mem, out, shared) {
                    NextRequest::Plain => {}
                    NextRequest::Waits => return None,
                    NextRequest::Emitted(sent) => return Some(sent),
                }
            }
            if let Some(plan) = R::of(&mut self.machine)?.plan(now) {
                break plan;
            }
            if X::ANY
                && !R::OPERATION_LISTS
                && self.offloads.prism.is_some()
                && let NextRequest::Emitted(sent) = self.request_prism::<R>(now, mem, out, shared)
            {
                return Some(sent);
            }
            // Local requests and failures may have reached the front without a packet, and requests that
            // waited for them may continue.
            if !self.retire::<R, X>(shared) || !self.queues.send.has_work() {
                return None;
            }
        };
        R::delay_ack::<X>(self, &mut plan);
        let pd = self.id.pd;
        let ring = self.queues.send.ring();
        let (path, requester) = R::with_path(&mut self.machine)?;
        let context = requester.context(&plan)?;
        let SharedView { counters, kernels, .. } = shared.view();
        let answer = if X::KERNELS { kernels.answer(context) } else { None };
        let gathered = Gathered { mem, pd, ring, context, offset: plan.offset(), answer };
        let sent = R::emit_request::<X>(path, out, counters, &plan, gathered);
        self.conclude_request::<R, X, false>(now, &plan, sent, out, shared);
        Some(sent)
    }

    /// Returns true if a CNP or a response is to be sent.
    fn has_response(&self) -> bool {
        self.offloads.owes_notification()
            || self.machine.rc().is_some_and(|connection| connection.responder.has_reply())
    }

    /// Returns true if all requests were sent and no ended message is left to retire.
    #[inline]
    fn has_sent_all(&self) -> bool {
        let unsent = |connection: &Connection| connection.requester.has_unsent();
        !self.queues.send.has_work() && !self.machine.rc().is_some_and(unsent)
    }

    /// Does the same as [`request`](QueuePair::request) for go-back-N beside the plain case.
    #[inline(never)]
    fn request_outlined(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        self.request::<GoBackN, All>(now, mem, out, shared)
    }

    /// Sends the next packet of a PRISM operation, together with the operations of the same bundle.
    #[inline(never)]
    fn request_prism<R: EmitRequest>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> NextRequest {
        if R::OPERATION_LISTS {
            let next = request_bundle(self, now, mem, out, shared);
            if next != NextRequest::Plain {
                return next;
            }
        }
        let local = LocalMemory { mem, pd: self.id.pd, ring: self.queues.send.ring() };
        let Some((path, requester)) = R::with_path(&mut self.machine) else { return NextRequest::Plain };
        let Some((plan, extended)) = requester.plan_prism(now) else { return NextRequest::Plain };
        let Some(context) = requester.context(&plan) else { return NextRequest::Plain };
        let bth = plan.bth(path.remote);
        let counters = shared.counters_mut();
        let offset = plan.offset();
        let len = plan.payload_len();
        let sent =
            prism::emit_request(path, out, counters, bth, plan.ext(), &extended, context, offset, len, local);
        self.conclude_request::<R, All, true>(now, &plan, sent, out, shared);
        NextRequest::Emitted(sent)
    }

    /// Finishes a planned packet, whether or not the packet was sent. `PRISM` is true for a packet of
    /// `plan_prism`.
    #[inline(always)]
    fn conclude_request<R: ReliableRequester, X: Extras, const PRISM: bool>(
        &mut self,
        now: Instant,
        plan: &R::Plan,
        sent: Sent,
        out: &impl Egress,
        shared: &mut Shared,
    ) {
        let Some(requester) = R::of(&mut self.machine) else { return };
        match sent {
            Sent::Yes(_) => {
                if PRISM {
                    requester.sent_prism(now, plan, shared.counters_mut());
                } else {
                    requester.sent(now, plan, shared.counters_mut());
                }
                if X::ANY
                    && let Some(congestion) = &mut self.offloads.congestion
                    && plan.asks_for_ack()
                {
                    congestion.ack_requested(now, requester.progress());
                }
            }
            Sent::Denied => {
                requester.refuse(plan, Status::LocalProtection);
                self.retire::<R, X>(shared);
            }
            Sent::Blocked if out.has_space_per_peer() => requester.blocked(now),
            Sent::Blocked | Sent::Stopped(_) => {}
        }
    }
}

/// The part of a requester that writes request packets.
pub(crate) trait EmitRequest: ReliableRequester {
    /// True if PRISM operation lists are sent in one frame, so that PRISM must be consulted before a packet
    /// is planned.
    const OPERATION_LISTS: bool;

    /// Returns true if certainly no packet is to be sent.
    fn is_idle(qp: &QueuePair) -> bool;

    /// Clears the acknowledgement request of a planned packet if the acknowledgement is not needed.
    fn delay_ack<X: Extras>(qp: &QueuePair, plan: &mut Self::Plan);

    /// Writes a planned packet. `X` is [`Plain`] for a [plain](Machine::Plain) queue pair.
    fn emit_request<X: Extras>(
        path: &mut PeerPath,
        out: &mut impl Egress,
        counters: &mut Counters,
        plan: &Self::Plan,
        gathered: Gathered<'_>,
    ) -> Sent;
}

impl EmitRequest for GoBackN {
    const OPERATION_LISTS: bool = true;

    /// Most turns end with this condition. Drained queues (SQD) raise their event on retirement instead.
    #[inline(always)]
    fn is_idle(qp: &QueuePair) -> bool {
        qp.state == State::Rts && qp.has_sent_all()
    }

    #[inline(always)]
    fn delay_ack<X: Extras>(qp: &QueuePair, plan: &mut Plan) {
        if X::KERNELS {
            maybe_delay_ack(qp, plan);
        } else if !X::ANY {
            delay_plain_ack(qp, plan);
        }
    }

    #[inline(always)]
    fn emit_request<X: Extras>(
        path: &mut PeerPath,
        out: &mut impl Egress,
        counters: &mut Counters,
        plan: &Plan,
        gathered: Gathered<'_>,
    ) -> Sent {
        if X::ANY && path.service != 0 {
            return extended::emit_request(path, out, counters, plan, gathered);
        }
        let bth = plan.bth(path.remote);
        let class = path.address_path.class;
        emit_from(&mut path.address_path, class, out, counters, &bth, &plan.ext, plan.len, gathered)
    }
}

/// Returns the event for a final response: a fatal NAK, or the acknowledgement before a key that could not be
/// invalidated.
#[cold]
#[inline(never)]
pub(crate) fn fatal_event(number: Qpn, aeth: &Option<(Syndrome, u32)>) -> AsyncEvent {
    match aeth.as_ref().map(|(syndrome, _)| syndrome.kind()) {
        Some(aeth::Kind::Nak(NakCode::REMOTE_ACCESS_ERROR) | aeth::Kind::Ack { .. }) => {
            AsyncEvent::QpAccess(number)
        }
        _ => AsyncEvent::QpRequest(number),
    }
}

/// The payload of a READ response.
struct Fetched<'a> {
    mem: Mem<'a>,
    pd: Pd,
    owner: Owner,
    kind: &'a ReplyKind,
    /// The data, if a kernel has checked it; otherwise it is read from memory.
    checked: Option<&'a [u8]>,
}

impl Fill for Fetched<'_> {
    #[inline(always)]
    fn fill(self, payload: &mut [u8]) -> bool {
        match self.checked {
            Some(checked) => {
                payload.copy_from_slice(&checked[..payload.len()]);
                true
            }
            None => gather::fetch(self.mem, self.pd, self.owner, self.kind, payload),
        }
    }
}
