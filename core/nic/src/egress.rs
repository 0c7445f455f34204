//! Egress: each packet is a plan of the transport (pure), then written into the frame that the port lends (dumb).

use remora_memory::{Mem, Owner, Pd};
use remora_transport::rc::{Plan, Reply, ReplyKind};
use remora_transport::state::State;
use remora_transport::{Counters, Instant, Status};
use remora_wire::frame::Egress;
use remora_wire::{Extensions, NakCode, Qpn, aeth, atomic_ack, bth, icrc, packet};

use crate::event::AsyncEvent;
use crate::extended;
use crate::gather;
use crate::headers::Headers;
use crate::kernel::Judged;
use crate::nic::Shared;
use crate::prism;
use crate::queue_pair::{AddressPath, Connection, QueuePair, WqeContext};
use crate::reliable::GoBackN;
use crate::ring::Ring;

/// Packets, and bytes, that one queue pair sends before the next one's turn.
pub(crate) const TURN_PACKETS: usize = 16;
pub(crate) const TURN_BYTES: usize = 16 << 10;
/// Requests, answers of kernels among them, that leave before responses in a turn.
const ANSWERS_FIRST: usize = TURN_PACKETS / 2;

/// How much of a turn is used up.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct TurnUsage {
    pub packets: usize,
    pub bytes: usize,
}

/// How a queue pair's turn ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// It has nothing to send now.
    Done,
    /// It has more.
    More,
    /// The port has no room.
    Blocked,
}

/// What became of one packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Yes(usize),
    NoRoom,
    /// Its bytes may not be read.
    Denied,
}

impl QueuePair {
    /// Its turn: responses before requests, until the turn is used up. Adds what left to `used`.
    #[inline]
    pub fn transmit(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        if self.connection.is_none() || self.strom.is_some() {
            return self.transmit_outlined(now, mem, out, shared, used);
        }
        self.turn(now, out, shared, used, |qp, out, shared| {
            match qp.respond::<false>(now, mem, out, shared) {
                None => qp.request::<false>(now, mem, out, shared),
                sent => sent,
            }
        })
    }

    /// As [`transmit`](QueuePair::transmit), for the queue pairs that are not to enlarge the busy path of RC.
    #[inline(never)]
    fn transmit_outlined(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        if self.loopback {
            return if self.is_held(now) {
                TurnEnd::Done
            } else {
                self.transmit_to_itself(now, mem, shared, used)
            };
        }
        if self.connection.is_some() {
            return self.transmit_answers(now, mem, out, shared, used);
        }
        if self.irn.is_some() {
            return self.turn(now, out, shared, used, |qp, out, shared| {
                match qp.respond_irn(now, mem, out, shared) {
                    None => qp.request_irn(now, mem, out, shared),
                    sent => sent,
                }
            });
        }
        self.turn(now, out, shared, used, |qp, out, shared| match qp.notify_if_due(out, shared) {
            None => qp.request_unreliable(now, mem, out, shared),
            sent => sent,
        })
    }

    /// Requests first, a few of them: an answer of a kernel's and the shorter acknowledgement behind it make one train, the other
    /// way round they are two frames. Not twice in a row: where a port has room for a few frames at a time, answers would take all of it,
    /// and the peer's queue fill up with what was never acknowledged.
    fn transmit_answers(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        let owed_ack = self.strom.as_ref().is_some_and(|strom| strom.owed_ack);
        let mut first = if owed_ack { 0 } else { ANSWERS_FIRST };
        if self.connection.as_ref().is_some_and(|connection| connection.responder.has_reply()) {
            // It leaves now, and with it what was not asked for.
            self.acknowledged();
        }
        let mut dry = false;
        let turn = self.turn(now, out, shared, used, |qp, out, shared| {
            if first > 0 {
                first -= 1;
                let sent = qp.request_outlined(now, mem, out, shared);
                if sent.is_none() || qp.has_sent_all() {
                    // There is none left, and a response makes none.
                    (first, dry) = (0, true);
                }
                if sent.is_some() {
                    return sent;
                }
            }
            let sent = if qp.has_response() { qp.respond::<true>(now, mem, out, shared) } else { None };
            match sent {
                None if !dry => qp.request_outlined(now, mem, out, shared),
                sent => sent,
            }
        });
        let owed_ack = self.connection.as_ref().is_some_and(|connection| connection.responder.has_reply());
        if let Some(strom) = &mut self.strom {
            strom.owed_ack = owed_ack;
        }
        turn
    }

    /// Sends what `next` gives until the turn is used up.
    #[inline(always)]
    fn turn<E: Egress>(
        &mut self,
        now: Instant,
        out: &mut E,
        shared: &mut Shared,
        used: &mut TurnUsage,
        mut next: impl FnMut(&mut QueuePair, &mut E, &mut Shared) -> Option<Sent>,
    ) -> TurnEnd {
        while used.packets < TURN_PACKETS && used.bytes < TURN_BYTES {
            let Some(sent) = next(self, out, shared) else { return TurnEnd::Done };
            match sent {
                Sent::Yes(len) => {
                    used.packets += 1;
                    used.bytes += len;
                    if let Some(congestion) = &mut self.congestion {
                        congestion.left(now, len);
                    }
                }
                Sent::NoRoom => return TurnEnd::Blocked,
                // The machine knows why and says so in its next packet, or ends.
                Sent::Denied => {}
            }
        }
        TurnEnd::More
    }

    /// Inlined always: plain RC must not pay for its other caller.
    #[inline(always)]
    fn respond<const STROM: bool>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if !self.may_receive() {
            return None;
        }
        if self.cnp_due {
            return self.notify_peer(out, shared);
        }
        let held = self.is_held(now) || STROM && self.waits_for_bytes(now);
        if self.prism.is_some()
            && !held
            && let Some(sent) = self.respond_bundle(mem, out, shared)
        {
            return Some(sent);
        }
        let connection = self.connection.as_mut()?;
        let reply = connection.responder.plan().filter(|reply| !held || !reply.kind.has_data())?;
        let judged = if STROM { self.judge_reply(now, mem, &reply.kind, shared) } else { Judged::Unasked };
        if judged == Judged::Unfit {
            return None;
        }
        let rights = (self.pd, self.owner);
        let connection = self.connection.as_mut()?;
        if judged == Judged::Refused {
            connection.responder.deny(NakCode::REMOTE_OPERATIONAL_ERROR, &mut shared.counters);
            return Some(Sent::Denied);
        }
        let (path, counters) = (&mut connection.path, &mut shared.counters);
        let sent = if reply.kind.is_kept() {
            prism::emit_kept(path, out, counters, &reply, connection.responder.kept())
        } else if path.service == 0 {
            let (ext, len) = response_headers(&reply);
            let bth = response_bth(&reply, path.remote);
            let judged = (judged == Judged::Fit).then(|| shared.kernels.judged());
            let fetched = Fetched { mem, rights, kind: &reply.kind, judged };
            emit_from(&mut path.address_path, out, counters, (&bth, &ext), len, fetched)
        } else {
            extended::emit_reply(path, out, counters, &reply, (mem, rights.1))
        };
        match sent {
            Sent::Yes(_) => {
                if connection.responder.sent(&reply, &mut shared.counters) {
                    let access = remora_wire::Syndrome::nak(NakCode::REMOTE_ACCESS_ERROR);
                    let access = reply.aeth.is_some_and(|(syndrome, _)| syndrome == access);
                    self.fail(fatal_event(self.number, access), shared);
                }
            }
            // The region went away under a READ that was allowed when it came.
            Sent::Denied => connection.responder.deny(NakCode::REMOTE_ACCESS_ERROR, &mut shared.counters),
            Sent::NoRoom => {}
        }
        Some(sent)
    }

    /// Inlined always: plain RC must not pay for its other caller.
    #[inline(always)]
    fn request<const STROM: bool>(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        if !self.may_send() || self.is_held(now) {
            return None;
        }
        // How most turns end. (A queue that is drained says so when it retires.)
        if self.state == State::Rts && self.has_sent_all() {
            return None;
        }
        let mut plan = loop {
            self.submit::<GoBackN>(mem, shared);
            if self.prism.is_some()
                && let Some(sent) = self.request_prism(now, mem, out, shared)
            {
                return sent;
            }
            if let Some(plan) = self.connection.as_ref()?.requester.plan(now) {
                break plan;
            }
            // Local work and failures may have come to the front without any packet, and what had to wait for their end
            // may go on.
            if !self.retire::<GoBackN>(shared) || !self.send.has_work() {
                return None;
            }
        };
        if STROM {
            self.maybe_delay_ack(&mut plan);
        }
        let (pd, send) = (self.pd, &self.send);
        let Connection { path, requester, .. } = self.connection.as_mut()?;
        let context = requester.context(&plan)?;
        let (counters, kernels) = (&mut shared.counters, &shared.kernels);
        let answer = if STROM { kernels.answer(context) } else { None };
        let gathered = || Gathered { mem, pd, ring: send.ring(), context, offset: plan.offset, answer };
        let sent = if path.service == 0 {
            let bth = request_bth(&plan, path.remote);
            emit_from(&mut path.address_path, out, counters, (&bth, &plan.ext), plan.len, gathered())
        } else {
            extended::emit_request(path, out, counters, &plan, gathered())
        };
        self.concluded(now, &plan, sent, out, shared);
        Some(sent)
    }

    /// Has it anything to tell its peer beside requests?
    fn has_response(&self) -> bool {
        self.cnp_due || self.connection.as_ref().is_some_and(|connection| connection.responder.has_reply())
    }

    /// Have all its requests left, and has none ended that is not retired? Then there is no next one to look for.
    #[inline]
    fn has_sent_all(&self) -> bool {
        let unsent = |connection: &Connection| connection.requester.has_unsent();
        !self.send.has_work() && !self.connection.as_ref().is_some_and(unsent)
    }

    /// As [`request`](QueuePair::request), for the queue pairs that agreed on StRoM.
    #[inline(never)]
    fn request_outlined(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Sent> {
        self.request::<true>(now, mem, out, shared)
    }

    /// The next packet of an operation of PRISM, or of what travels with one. None: it is a plain verb's; `Some(None)`: it waits.
    #[inline(never)]
    fn request_prism(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<Option<Sent>> {
        let sent = self.request_bundle(now, mem, out, shared);
        if sent.is_some() {
            return sent;
        }
        let (pd, ring) = (self.pd, self.send.ring());
        let Connection { path, requester, .. } = self.connection.as_mut()?;
        let (plan, extended) = requester.plan_prism(now)?;
        let context = requester.context(&plan)?;
        let head = (request_bth(&plan, path.remote), &plan.ext);
        let (what, place) = ((&extended, context), (plan.offset, plan.len));
        let sent = prism::emit_request(path, out, &mut shared.counters, head, what, place, (mem, pd, ring));
        self.concluded(now, &plan, sent, out, shared);
        Some(Some(sent))
    }

    /// A planned packet has left, or has not.
    #[inline(always)]
    fn concluded(&mut self, now: Instant, plan: &Plan, sent: Sent, out: &impl Egress, shared: &mut Shared) {
        let Some(Connection { requester, .. }) = &mut self.connection else { return };
        match sent {
            Sent::Yes(_) => {
                requester.sent(now, plan, &mut shared.counters);
                if let Some(congestion) = &mut self.congestion
                    && plan.ack_req
                {
                    congestion.asked(now, requester.progress());
                }
            }
            Sent::Denied => {
                requester.refuse(plan, Status::LocalProtection);
                self.retire::<GoBackN>(shared);
            }
            Sent::NoRoom if out.has_rooms() => requester.blocked(now),
            Sent::NoRoom => {}
        }
    }
}

/// The event that goes with a fatal NAK of ours.
pub(crate) fn fatal_event(number: Qpn, access: bool) -> AsyncEvent {
    if access { AsyncEvent::QpAccess(number) } else { AsyncEvent::QpRequest(number) }
}

#[inline]
pub(crate) fn request_bth(plan: &Plan, remote: Qpn) -> bth::Repr {
    bth::Repr {
        solicited: plan.solicited,
        ack_req: plan.ack_req,
        pad: packet::pad_for(plan.len as usize),
        ..bth::Repr::new(plan.opcode, remote, plan.psn)
    }
}

#[inline]
pub(crate) fn response_bth(reply: &Reply, remote: Qpn) -> bth::Repr {
    let len = if let ReplyKind::Memory { len, .. } = reply.kind { len } else { 0 };
    bth::Repr { pad: packet::pad_for(len as usize), ..bth::Repr::new(reply.opcode, remote, reply.psn) }
}

#[inline]
pub(crate) fn response_headers(reply: &Reply) -> (Extensions, u32) {
    let mut ext = Extensions {
        aeth: reply.aeth.map(|(syndrome, msn)| aeth::Repr { syndrome, msn }),
        ..Extensions::default()
    };
    match reply.kind {
        ReplyKind::Memory { len, .. } => (ext, len),
        ReplyKind::Value(original) => {
            ext.atomic_ack = Some(atomic_ack::Repr { original });
            (ext, 0)
        }
        // Kept bytes leave by another way.
        _ => (ext, 0),
    }
}

/// Where a packet's payload comes from. What plain RC sends has types of its own, because a closure cannot be told to be
/// inlined: shared by the ports' copies of the path, it would be called, with its captures in memory.
pub(crate) trait Fill {
    /// Fills `payload`. False: it may not be read.
    fn fill(self, payload: &mut [u8]) -> bool;
}

impl<F: FnOnce(&mut [u8]) -> bool> Fill for F {
    #[inline(always)]
    fn fill(self, payload: &mut [u8]) -> bool {
        self(payload)
    }
}

/// Bytes of a message, from `offset` on.
#[derive(Copy, Clone)]
pub(crate) struct Gathered<'a> {
    pub mem: Mem<'a>,
    pub pd: Pd,
    pub ring: &'a Ring,
    pub context: &'a WqeContext,
    pub offset: u32,
    /// All of it, if a kernel of ours sends it.
    pub answer: Option<&'a [u8]>,
}

impl Fill for Gathered<'_> {
    #[inline(always)]
    fn fill(self, payload: &mut [u8]) -> bool {
        let Some(bytes) = self.answer else {
            return gather::gather(self.mem, self.pd, self.ring, self.context, self.offset, payload);
        };
        let from = self.offset as usize;
        let part = bytes.get(from..from + payload.len());
        part.map(|part| payload.copy_from_slice(part)).is_some()
    }
}

/// Bytes that a READ asked for.
struct Fetched<'a> {
    mem: Mem<'a>,
    rights: (Pd, Owner),
    kind: &'a ReplyKind,
    /// They were judged, and stand here.
    judged: Option<&'a [u8]>,
}

impl Fill for Fetched<'_> {
    #[inline(always)]
    fn fill(self, payload: &mut [u8]) -> bool {
        match self.judged {
            Some(judged) => {
                payload.copy_from_slice(&judged[..payload.len()]);
                true
            }
            None => gather::fetch(self.mem, self.rights, self.kind, payload),
        }
    }
}

/// Writes one packet whose payload `fill` writes.
#[inline(always)]
pub(crate) fn emit(
    address_path: &mut AddressPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    bth: &bth::Repr,
    ext: &Extensions,
    len: u32,
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Sent {
    emit_from(address_path, out, counters, (bth, ext), len, fill)
}

/// Writes one packet: headers, payload, pad, ICRC. Inlined always: plain RC must not pay for its other callers.
#[inline(always)]
fn emit_from(
    address_path: &mut AddressPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    (bth, ext): (&bth::Repr, &Extensions),
    len: u32,
    payload_of: impl Fill,
) -> Sent {
    let headers = bth.opcode.header_len();
    let total = packet::transport_len(headers, len as usize);
    let seals = out.seals();
    let route = &address_path.route;
    // The first frame finds out what the port's frames begin with; a port never changes its mind.
    let below_bth = address_path.headers.get_or_insert_with(|| Headers::new(route, out.start()));
    let below = below_bth.len();
    let Some(lease) = out.lend(address_path.peer, below + total) else { return Sent::NoRoom };
    below_bth.emit(lease.ip_id, total, lease.bytes);
    let frame = &mut lease.bytes[below..below + total];
    packet::emit_headers(bth, ext, frame);
    let (payload, rest) = frame[headers..].split_at_mut(len as usize);
    if !payload.is_empty() && !payload_of.fill(payload) {
        return Sent::Denied;
    }
    // Pad and ICRC: four bytes nearly always, and then one store instead of a call.
    match <&mut [u8; icrc::LEN]>::try_from(&mut *rest) {
        Ok(four) => *four = [0; icrc::LEN],
        Err(_) => rest.fill(0),
    }
    if seals {
        let (covered, trailer) = frame.split_at_mut(total - icrc::LEN);
        icrc::write(trailer, address_path.sending.seal(lease.ip_id, covered));
    }
    out.commit();
    count(counters, total);
    Sent::Yes(total)
}

/// As [`emit`], for the services that are not to enlarge the busy path of RC.
#[cold]
#[inline(never)]
pub(crate) fn emit_outlined(
    address_path: &mut AddressPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    bth: &bth::Repr,
    ext: &Extensions,
    len: u32,
    fill: &mut dyn FnMut(&mut [u8]) -> bool,
) -> Sent {
    emit(address_path, out, counters, bth, ext, len, fill)
}

#[inline]
fn count(counters: &mut Counters, bytes: usize) {
    counters.sent_pkts += 1;
    counters.sent_bytes += bytes as u64;
}

/// Is there, or could there be, something to send? Cheap and generous: a turn finds out.
#[inline]
pub(crate) fn wants_turn(qp: &QueuePair) -> bool {
    let machines = match &qp.connection {
        Some(connection) => {
            connection.responder.has_reply()
                || qp.state == State::Rts && qp.send.has_work()
                || connection.requester.outstanding() > 0 && connection.requester.has_unsent()
        }
        None => qp.wants_turn_outlined(),
    };
    machines || qp.cnp_due
}
