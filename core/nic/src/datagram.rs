//! Queue pairs of the unreliable datagram service (UD). Each send work request names an address handle. A
//! received datagram is delivered behind a 40-byte header that identifies its sender.

use remora_memory::{Mem, Pd};
use remora_transport::rc::{Kind, Message, Retired};
use remora_transport::{Status, ud};
use remora_wire::frame::{Egress, Endpoint, IpFields, Network, Route};
use remora_wire::icrc::{self, Flow};
use remora_wire::{bth, ipv6, packet};

use crate::arrived::Arrived;
use crate::context::WqeContext;
use crate::emit::{Sent, emit_outlined};
use crate::gather;
use crate::identification::Identifications;
use crate::send_queue::SendQueue;
use crate::shared::{Shared, SharedView};
use crate::wqe::Wqe;

/// Size of the global route header before a received datagram's payload (IBTA vol. 1 §8.3). RoCE v2 fills it
/// with the IP header; an IPv4 header is in the last 20 bytes (annex A17).
pub const GRH: usize = 40;
const _: () = assert!(GRH == ipv6::LEN, "an IPv6 header is a global route header");

/// State of a UD queue pair: its sender, and the flows of recent peers.
pub(crate) struct Datagrams {
    pub sender: ud::Sender<WqeContext>,
    /// Number of the address handle of the datagram that is being sent.
    handle: u64,
    seen: Senders,
}

/// Number of senders whose flow a UD queue pair remembers.
const SENDERS: usize = 16;

/// The most recent senders. A new sender replaces the oldest one.
struct Senders {
    places: [Option<Sender>; SENDERS],
    /// Index of the sender of the last datagram; datagrams of one sender tend to arrive in a row.
    last: usize,
    /// Index of the entry that the next new sender replaces.
    next: usize,
}

/// A sender's flow, with the state that checks the ICRC of its datagrams.
struct Sender {
    /// Source and destination endpoints of the datagrams.
    ends: (Endpoint, Endpoint),
    flow: Flow,
    identifications: Identifications,
}

impl Senders {
    const NONE: Senders = Senders { places: [const { None }; SENDERS], last: 0, next: 0 };

    /// Returns the entry for datagrams from `source` to `here`, and creates it if necessary.
    fn of(&mut self, source: Endpoint, here: Endpoint) -> &mut Sender {
        let ends = (source, here);
        let is_it = |place: &Option<Sender>| place.as_ref().is_some_and(|sender| sender.ends == ends);
        if !is_it(&self.places[self.last]) {
            self.last = self.places.iter().position(is_it).unwrap_or_else(|| {
                let place = self.next;
                self.next = (place + 1) % SENDERS;
                self.places[place] = None;
                place
            });
        }
        self.places[self.last].get_or_insert_with(|| Sender {
            ends,
            flow: Flow::new(source, here),
            identifications: Identifications::Unseen,
        })
    }
}

impl Datagrams {
    pub(crate) fn new(sender: ud::Sender<WqeContext>) -> Self {
        Datagrams { sender, handle: 0, seen: Senders::NONE }
    }

    /// Starts a work request. An error is the status with which the request completes immediately.
    pub(crate) fn begin(
        &mut self,
        pd: Pd,
        wqe: &Wqe,
        message: &Message<WqeContext>,
        shared: &mut Shared,
    ) -> Result<(), Status> {
        let imm = match message.kind {
            Kind::Send => None,
            Kind::SendImm(imm) => Some(imm),
            _ => return Err(Status::LocalQpOperation),
        };
        if message.len > shared.properties().mtu {
            return Err(Status::LocalLength);
        }
        let handle = shared.objects_mut().handles.get_mut(wqe.handle()).filter(|handle| handle.pd == pd);
        handle.ok_or(Status::LocalQpOperation)?;
        self.handle = wqe.handle();
        let destination = wqe.destination();
        let Message { len, solicited, context, .. } = *message;
        self.sender.submit(ud::Datagram { to: destination, imm, len, solicited, context });
        Ok(())
    }

    /// Sends the current datagram and returns it as completed.
    pub(crate) fn transmit(
        &mut self,
        mem: Mem<'_>,
        pd: Pd,
        send: &SendQueue,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<(Sent, Option<Retired<WqeContext>>)> {
        let plan = self.sender.plan()?;
        let context = *self.sender.context()?;
        let SharedView { objects, counters, .. } = shared.view();
        let Some(handle) = objects.handles.get_mut(self.handle) else {
            // The address handle was destroyed while the port had no free frame.
            return Some((Sent::Denied, self.sender.end(Status::LocalQpOperation)));
        };
        let bth = bth::Repr {
            solicited: plan.solicited,
            pad: packet::pad_for(plan.len as usize),
            ..bth::Repr::new(plan.opcode, plan.to, plan.psn)
        };
        let peer = out.nearest(handle.address_path.peer, plan.to);
        let sent =
            emit_outlined(handle.path_by(peer), out, counters, &bth, &plan.ext, plan.len, &mut |bytes| {
                gather::gather_outlined(mem, pd, send.ring(), &context, 0, bytes)
            });
        let retired = match sent {
            Sent::Yes(_) => self.sender.sent(),
            Sent::Denied => self.sender.end(Status::LocalProtection),
            Sent::Blocked | Sent::Stopped(_) => None,
        };
        Some((sent, retired))
    }

    /// Returns true if the ICRC is correct.
    pub(crate) fn intact(&mut self, arrived: &Arrived<'_>, shared: &mut Shared) -> bool {
        let SharedView { properties, spans, now, .. } = shared.view();
        let own = properties.endpoint;
        let here = Endpoint {
            address: arrived.destination().unwrap_or(own.address),
            udp_port: arrived.destination_port.unwrap_or(own.udp_port),
        };
        let Sender { flow, identifications, .. } = self.seen.of(arrived.source, here);
        let Some(split) = arrived.transport.len().checked_sub(icrc::LEN) else { return false };
        let (covered, trailer) = arrived.transport.split_at(split);
        let Some(received) = icrc::read(trailer) else { return false };
        match arrived.ip_id {
            Some(id) => flow.accepts(id, covered, received),
            None => identifications.admit(flow.syndrome(covered, received), spans, now),
        }
    }
}

/// Returns the GRH of a received datagram. If the port does not provide the IP header, the GRH is
/// reconstructed.
pub(crate) fn grh(arrived: &Arrived<'_>, own: Endpoint) -> [u8; GRH] {
    let mut grh = [0; GRH];
    if let Some(header) = arrived.header() {
        let start = GRH.saturating_sub(header.len());
        grh[start..].copy_from_slice(&header[..GRH - start]);
        return grh;
    }
    let here = Endpoint { address: arrived.destination().unwrap_or(own.address), ..own };
    let IpFields { traffic_class, hop_limit } = arrived.ip_fields().unwrap_or_default();
    let route = Route { traffic_class, hop_limit, ..Route::new(arrived.source, here) };
    let (_, network, _) = route.headers(0, arrived.transport.len() as u16);
    let start = if matches!(network, Network::V4(_)) { GRH - remora_wire::ipv4::LEN } else { 0 };
    network.emit(&mut grh[start..]);
    grh
}
