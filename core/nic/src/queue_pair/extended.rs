//! Requests that arrive at the target of an extended reliable connection.

use remora_memory::Mem;
use remora_transport::{Action, Outcome};
use remora_wire::{NakCode, Qpn, packet};

use super::{QueuePair, Srq};
use crate::shared::Shared;

impl QueuePair {
    /// A request for an XRC target; `packet` has RC's op-code and the XRC header.
    pub(crate) fn serve_extended(&mut self, mem: Mem<'_>, packet: &packet::View<'_>, shared: &mut Shared) {
        self.establish(shared);
        let Some(connection) = self.machine.rc_mut() else { return };
        let action = connection.responder.receive(packet, shared.counters_mut());
        if action == Action::Nothing {
            return;
        }
        let named = packet.xrceth().map(|header| header.srq);
        let outcome = match self.turn_to(named, shared) {
            true => self.execute_outlined(mem, action, packet.payload, shared),
            false => Outcome::Nak(NakCode::INVALID_REQUEST),
        };
        if let Some(connection) = self.machine.rc_mut() {
            connection.responder.conclude(outcome, shared.counters_mut());
        }
    }

    /// Takes on the domain and completion queue of the shared receive queue that a request names. False: this
    /// domain has no queue of that number, or a message that began in another queue goes on.
    fn turn_to(&mut self, named: Option<Qpn>, shared: &Shared) -> bool {
        let Some(place) = named.and_then(|number| shared.objects().srqs.place(number)) else { return false };
        if self.queues.current.is_some() && self.queues.srq.is_some_and(|srq| srq.place != place) {
            return false;
        }
        let Some(queue) = shared.objects().srqs.get(place) else { return false };
        let Some(xrc) = queue.xrc.filter(|xrc| xrc.domain == self.id.xrc_domain) else { return false };
        self.queues.srq = Some(Srq { place, pd: queue.pd });
        self.id.pd = queue.pd;
        self.queues.receive_cq = xrc.cq;
        true
    }
}
