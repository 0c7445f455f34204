//! Sending of 1RMA messages. The transport plans a message; the message is sealed in private memory and then
//! copied into a frame of the port.

use remora_memory::{Access, Mem};
use remora_transport::Instant;
use remora_transport::rma::{DataPiece, Party, Response, Status};
use remora_wire::frame::{Class, Egress, Route};
use remora_wire::rma::{
    Body, DSCP, Kind, MAX_AAD, Message, Nonce, TAG_LEN, TagSequence, completion, header, request, solicit,
};

use super::cipher::KEY_LEN;
use super::{Destination, Refusal, Rma, SERVED};
use crate::shared::Shared;
use crate::turn::{TurnEnd, TurnUsage};

/// Maximum number of messages in one turn, after which queue pairs have theirs.
const TURN_MESSAGES: usize = 16;

/// Number of message sources that take turns: refusals, responses of served operations, answers to solicits,
/// and new requests and solicits.
const SOURCES: u8 = 4;

/// Maximum number of messages to full peers that are skipped in one turn.
const PASSED: usize = 64;

/// The result of one attempt to send a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Left {
    /// The message was sent, or no route exists; with its nonce.
    Yes(Nonce),
    Blocked,
}

/// A message to send, without its nonce.
struct Outgoing<'a> {
    destination: &'a Destination,
    header: header::Repr,
    body: Body,
    tags: &'a TagSequence,
    key: &'a [u8; KEY_LEN],
}

impl Rma {
    /// Runs the turn of 1RMA: sends up to `TURN_MESSAGES` messages and about `most` bytes, or fewer if the
    /// port is full. Adds the usage to `used`. On ports with buffers per peer, a full peer does not delay
    /// messages to others.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut dyn Egress,
        shared: &mut Shared,
        most: usize,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        self.solicitation.advance(now);
        self.fetch(now, mem, shared);
        let end = self.take_turns(now, mem, out, shared, most, used);
        self.delays.look(now, &self.solicitation);
        end
    }

    fn take_turns(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut dyn Egress,
        shared: &mut Shared,
        most: usize,
        used: &mut TurnUsage,
    ) -> TurnEnd {
        let mut idle = 0;
        let mut passed = 0;
        while used.packets < TURN_MESSAGES && used.bytes < most {
            if idle == SOURCES || passed == PASSED {
                return if passed > 0 { TurnEnd::Blocked } else { TurnEnd::Done };
            }
            let before = shared.counters_mut().sent_bytes;
            self.turn = (self.turn + 1) % SOURCES;
            let left = match self.turn {
                0 => self.send_refusal(out, shared),
                1 => self.send_response(now, mem, out, shared),
                2 => self.send_answer(now, mem, out, shared),
                _ => self.send_solicited(now, out, shared),
            };
            match left {
                Some(true) => {
                    (used.packets, idle) = (used.packets + 1, 0);
                    used.bytes += (shared.counters_mut().sent_bytes - before) as usize;
                }
                Some(false) if !out.has_space_per_peer() => return TurnEnd::Blocked,
                Some(false) => (passed, idle) = (passed + 1, 0),
                None => idle += 1,
            }
        }
        TurnEnd::More
    }

    /// Sends a refusal. Returns `None` if there is none, and `Some(false)` if its peer is full and others
    /// have their turns first.
    fn send_refusal(&mut self, out: &mut dyn Egress, shared: &mut Shared) -> Option<bool> {
        let key = std::mem::take(&mut self.refusals.front_mut()?.key);
        let Refusal { destination, header, body, tags, .. } = self.refusals.pop_front()?;
        let outgoing = Outgoing { destination: &destination, header, body, tags: &tags, key: &key };
        let left = self.send(&outgoing, out, shared);
        if left == Left::Blocked {
            self.refusals.push_back(Refusal { destination, header, body, tags, key });
        }
        Some(left != Left::Blocked)
    }

    /// Sends the next message of the operations that are served.
    fn send_response(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut dyn Egress,
        shared: &mut Shared,
    ) -> Option<bool> {
        let (slot, response) = self.responder.plan(shared.properties().mtu)?;
        let served = self.responder.served(slot)?;
        let context = served.context;
        let request = *served.request();
        let tags = served.tags();
        let plain = header::Repr {
            kind: Kind::Nack,
            class: request.class,
            slot: context.slot,
            region: context.region,
            offset: 0,
            length: 0,
            nonce: Nonce::default(),
        };
        let (header, body) = match response {
            Response::Data { offset, len } => {
                if !self.fetch_region(mem, slot, u64::from(offset), len) {
                    self.revoke(now, slot, shared);
                    return Some(true);
                }
                let header = header::Repr { kind: Kind::Data, offset: offset.into(), length: len, ..plain };
                (header, Body::None)
            }
            Response::Completion => {
                if request.kind == Kind::Rekey && self.regions.is_in_use(context.region) {
                    // Another engine is copying under the old key.
                    self.responder.defer(slot);
                    return Some(false);
                }
                let status = completion::Status::Ok;
                let header = header::Repr { kind: Kind::Completion, length: request.size, ..plain };
                (header, Body::Completion(completion::Repr { status }))
            }
            Response::Nack => (plain, Body::None),
            Response::Solicit => return None,
        };
        let outgoing =
            Outgoing { destination: &context.destination, header, body, tags: &tags, key: &context.key };
        match self.send(&outgoing, out, shared) {
            Left::Yes(_) => self.responder.sent(slot, response),
            Left::Blocked => {
                self.responder.defer(slot);
                return Some(false);
            }
        }
        Some(true)
    }

    /// Copies data of a served operation's region into the buffer. Returns false if the region has another
    /// key, or if the region or its memory is gone.
    fn fetch_region(&mut self, mem: Mem<'_>, slot: u16, offset: u64, len: u32) -> bool {
        let Some(served) = self.responder.served(slot) else { return false };
        let context = served.context;
        let Some(_in_use) = self.regions.enter(context.region, context.epoch) else { return false };
        let Some(region) = self.regions.get(context.region) else { return false };
        let va = region.memory.base + context.offset + offset;
        let Some(domain) = mem.domain(region.memory.key) else { return false };
        match mem.check(domain, region.memory.key, va, len as usize, Access::NONE) {
            Ok(span) => span.read(&mut self.buffer[..len as usize]) == len as usize,
            Err(_) => false,
        }
    }

    /// Sends the next piece that a server has solicited. Region, offset and length are those of the slot; the
    /// server's message cannot change them.
    fn send_answer(
        &mut self,
        now: Instant,
        mem: Mem<'_>,
        out: &mut dyn Egress,
        shared: &mut Shared,
    ) -> Option<bool> {
        let answer = self.requester.plan(shared.properties().mtu)?;
        let DataPiece { slot, server_slot, offset, len, tags } = answer;
        let command = self.commands[usize::from(slot)].clone()?;
        let pd = self.portals.owner(slot).map(|portal| portal.pd);
        let span = pd.and_then(|pd| self.local(mem, pd, &command, offset, len));
        // A `match` is used because a closure with a guarded copy is not inlined.
        let read = match &span {
            Some(span) => span.read(&mut self.buffer[..len as usize]) == len as usize,
            None => false,
        };
        if !read {
            self.requester.stop_answering(slot);
            let ended = self.requester.fail(now, slot, Status::LocalError, &mut self.solicitation);
            if let Some(ended) = ended {
                self.complete(&ended, shared);
            }
            return Some(true);
        }
        let header = header::Repr {
            kind: Kind::Data,
            class: command.class,
            slot: server_slot,
            region: command.remote.region,
            offset: offset.into(),
            length: len,
            nonce: Nonce::default(),
        };
        let destination = Destination { endpoint: command.server, origin: None };
        let outgoing =
            Outgoing { destination: &destination, header, body: Body::None, tags: &tags, key: &command.key };
        match self.send(&outgoing, out, shared) {
            Left::Yes(nonce) => self.requester.answered(&answer, nonce),
            Left::Blocked => {
                self.requester.defer();
                return Some(false);
            }
        }
        Some(true)
    }

    /// Sends the request or solicit of the operation that may enter service.
    fn send_solicited(&mut self, now: Instant, out: &mut dyn Egress, shared: &mut Shared) -> Option<bool> {
        let waiting = self.solicitation.next()?;
        let left = match waiting.party {
            Party::Command(slot) => self.send_request(slot, out, shared)?,
            Party::Served(slot) => self.send_solicit(slot, out, shared)?,
        };
        let Left::Yes(nonce) = left else { return Some(false) };
        self.solicitation.enter(now);
        match waiting.party {
            Party::Command(slot) => self.requester.sent(now, slot, nonce),
            Party::Served(slot) => self.responder.solicited(now, slot, nonce),
        }
        Some(true)
    }

    fn send_request(&mut self, slot: u16, out: &mut dyn Egress, shared: &mut Shared) -> Option<Left> {
        let command = self.commands[usize::from(slot)].clone()?;
        let portal = self.portals.owner(slot)?;
        let header = header::Repr {
            kind: command.kind,
            class: command.class,
            slot,
            region: command.remote.region,
            offset: command.remote.offset,
            length: command.size,
            nonce: Nonce::default(),
        };
        let body = Body::Request(request::Repr {
            pid: portal.pid,
            incarnation: portal.incarnation,
            max_payload: shared.properties().mtu.min(u32::from(u16::MAX)) as u16,
        });
        let destination = Destination { endpoint: command.server, origin: None };
        let outgoing = Outgoing {
            destination: &destination,
            header,
            body,
            tags: &TagSequence::EMPTY,
            key: &command.key,
        };
        Some(self.send(&outgoing, out, shared))
    }

    fn send_solicit(&mut self, slot: u16, out: &mut dyn Egress, shared: &mut Shared) -> Option<Left> {
        let served = self.responder.served(slot)?;
        let context = served.context;
        let request = *served.request();
        let tags = served.tags();
        let header = header::Repr {
            kind: Kind::Solicit,
            class: request.class,
            slot: context.slot,
            region: context.region,
            offset: context.offset,
            length: request.size,
            nonce: Nonce::default(),
        };
        let body = Body::Solicit(solicit::Repr {
            server_slot: slot | SERVED,
            max_payload: shared.properties().mtu.min(u32::from(u16::MAX)) as u16,
            timeout: self.responder.timeout(slot) as u32,
        });
        let outgoing =
            Outgoing { destination: &context.destination, header, body, tags: &tags, key: &context.key };
        Some(self.send(&outgoing, out, shared))
    }

    /// Seals a message whose payload is in the buffer, and writes it into a frame. Without a route to the
    /// destination, the message is lost.
    fn send(&mut self, outgoing: &Outgoing<'_>, out: &mut dyn Egress, shared: &mut Shared) -> Left {
        let Outgoing { destination, header, body, tags, key } = outgoing;
        let len = Message::len(header, body);
        let is_ipv4 =
            shared.properties().endpoint.address.is_ipv4() && destination.endpoint.address.is_ipv4();
        let Some(peer) = out.peer_of(&destination.endpoint, destination.origin) else {
            shared.counters_mut().rma_unreachable += 1;
            return Left::Yes(self.next_nonce(key));
        };
        let start = out.start(peer);
        let below = start.overhead(is_ipv4);
        let route = Route {
            traffic_class: DSCP << 2,
            ..Route::new(shared.properties().endpoint, destination.endpoint)
        };
        out.mark(route.ip_fields());
        let Some(lease) = out.lend(peer, Class::default(), below + len) else {
            self.full_peer = peer;
            return Left::Blocked;
        };
        let header = header::Repr { nonce: self.next_nonce(key), ..*header };
        // The frame may be shared memory, so the authenticated part is first written to private memory.
        // Because a polling peer takes the frame's cache lines, nothing is stored in the frame before the
        // message is sealed.
        let mut private = [0; header::LEN + request::LEN];
        let clear = Message::emit_clear(&header, body, &mut private);
        let mut aad = [0; MAX_AAD];
        let aad = tags.aad(&private[..clear], &mut aad);
        let text = &mut self.buffer[..len - clear - TAG_LEN];
        let place = self.keys.place(key);
        let tag = self.keys.cipher().seal(place, &header.nonce.bytes(), aad, text);
        route.emit(start, lease.ip_id, len as u16, lease.bytes);
        let frame = &mut lease.bytes[below..];
        frame[..clear].copy_from_slice(&private[..clear]);
        frame[clear..len - TAG_LEN].copy_from_slice(text);
        frame[len - TAG_LEN..].copy_from_slice(&tag);
        out.commit();
        shared.counters_mut().sent_pkts += 1;
        shared.counters_mut().sent_bytes += len as u64;
        Left::Yes(header.nonce)
    }
}
