//! Extended reliable connections (XRC): the machines of RC, between an initiator that only sends and a target that only
//! serves. Each request names a shared receive queue of the target's domain: where messages go, and in whose protection domain
//! memory is accessed (IBTA vol. 1 annex A14).

use remora_memory::{Key, Mem, Owner, Pd};
use remora_transport::rc::{Plan, Reply, ReplyKind};
use remora_transport::state::Service;
use remora_transport::{Action, Counters, Outcome};
use remora_wire::frame::Egress;
use remora_wire::{Extensions, NakCode, Opcode, Qpn, bth, packet, xrceth};

use crate::egress::{Fill, Gathered, Sent, emit_outlined, request_bth, response_bth, response_headers};
use crate::gather;
use crate::nic::{Nic, NicError, QueuePairInit, Receives, Shared};
use crate::queue_pair::{PeerPath, QueuePair, Srq, WqeContext};
use crate::receive_queue::ReceiveQueue;
use crate::send_queue::Fetching;
use crate::wqe::MAX_SLOTS;

/// The bits of an op-code that are its service; the others are the operation, the same in all services.
pub(crate) const SERVICE: u8 = 0xe0;
const OPERATION: u8 = !SERVICE;
/// XRC's.
pub(crate) const XRC: u8 = 0xa0;
/// UC's.
pub(crate) const UC: u8 = 0x20;

/// The packet as the machines of RC know it.
pub(crate) fn as_rc<'a>(packet: &packet::View<'a>) -> packet::View<'a> {
    let mut plain = *packet;
    plain.bth.opcode = Opcode(packet.bth.opcode.0 & OPERATION);
    plain
}

/// A header of theirs as it travels.
fn as_xrc(bth: bth::Repr) -> bth::Repr {
    bth::Repr { opcode: Opcode(bth.opcode.0 | XRC), ..bth }
}

/// The header that names the shared receive queue.
fn srq(context: &WqeContext) -> xrceth::Repr {
    xrceth::Repr { srq: Qpn::new(context.srq & 0x00ff_ffff) }
}

/// As [`emit`](crate::egress), for a response.
#[cold]
#[inline(never)]
pub(crate) fn emit_reply(
    path: &mut PeerPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    reply: &Reply,
    (mem, owner): (Mem<'_>, Owner),
) -> Sent {
    let ((ext, len), bth) = (response_headers(reply), response_bth(reply, path.remote));
    let kind = &reply.kind;
    emit_outlined(&mut path.address_path, out, counters, &as_xrc(bth), &ext, len, &mut |bytes| {
        fetch(mem, owner, kind, bytes)
    })
}

/// As [`emit`](crate::egress), for a request.
#[cold]
#[inline(never)]
pub(crate) fn emit_request(
    path: &mut PeerPath,
    out: &mut impl Egress,
    counters: &mut Counters,
    plan: &Plan,
    gathered: Gathered<'_>,
) -> Sent {
    let bth = request_bth(plan, path.remote);
    let ext = Extensions { xrceth: Some(srq(gathered.context)), ..plan.ext };
    emit_outlined(&mut path.address_path, out, counters, &as_xrc(bth), &ext, plan.len, &mut |bytes| {
        gathered.fill(bytes)
    })
}

/// Fills a READ response. Its domain is that of the shared receive queue that the request named. A key belongs to one domain for as long as it lives, so what was right for the request is right
/// still.
fn fetch(mem: Mem<'_>, owner: Owner, kind: &ReplyKind, out: &mut [u8]) -> bool {
    let ReplyKind::Memory { key, len, .. } = *kind else { return true };
    let Some(pd) = mem.domain(Key::new(key)) else { return len == 0 };
    gather::fetch(mem, (pd, owner), kind, out)
}

impl QueuePair {
    /// A request for an XRC target; `packet` has RC's op-code and the XRC header.
    pub fn serve_extended(&mut self, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        self.establish(shared);
        let Some(connection) = &mut self.connection else { return };
        let action = connection.responder.receive(packet, &mut shared.counters);
        if action == Action::Nothing {
            return;
        }
        let named = packet.xrceth().map(|header| header.srq);
        let outcome = match self.turn_to(named, shared) {
            true => self.execute_outlined(mem, action, packet.payload, shared),
            false => Outcome::Nak(NakCode::INVALID_REQUEST),
        };
        if let Some(connection) = &mut self.connection {
            connection.responder.conclude(outcome, &mut shared.counters);
        }
    }

    /// Takes receives, domain and completion queue of the shared receive queue that a request names. False: there is none of
    /// that number in this domain, or a message that has begun in another one goes on.
    fn turn_to(&mut self, named: Option<Qpn>, shared: &Shared) -> bool {
        let Some(place) = named.and_then(|number| shared.srqs.place(number)) else { return false };
        if self.current.is_some() && self.srq.is_some_and(|srq| srq.place != place) {
            return false;
        }
        let Some(queue) = shared.srqs.get(place) else { return false };
        let Some(xrc) = queue.xrc.filter(|xrc| xrc.domain == self.xrc_domain) else { return false };
        self.srq = Some(Srq { place, pd: queue.pd });
        self.pd = queue.pd;
        self.receive_cq = xrc.cq;
        true
    }
}

/// No completion queue: nothing of a target's own ever completes.
const NO_CQ: u32 = u32::MAX;

impl Nic {
    /// Makes the target of extended reliable connections in RESET; its number. It has no queues of its own.
    ///
    /// # Errors
    /// `Full`, also if there is no memory; `Unknown` domain.
    pub fn create_xrc_target(&mut self, domain: u32) -> Result<Qpn, NicError> {
        let room = ReceiveQueue::room(MAX_SLOTS as u64)?;
        let send_ring = ReceiveQueue::room(1)?.into_ring();
        self.shared.xrc_domains.join(domain)?;
        let init = QueuePairInit {
            service: Service::XrcTarget,
            pd: Pd::NONE,
            send_ring,
            receives: Receives::None,
            send_cq: NO_CQ,
            receive_cq: NO_CQ,
            signal_all: false,
            fetching: Fetching::Posted,
        };
        self.place_qp(init, room, None, domain).inspect_err(|_| self.shared.xrc_domains.leave(domain))
    }
}
