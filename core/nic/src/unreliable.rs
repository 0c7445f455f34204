//! The state machines of the unreliable services. One message is sent at a time, and completes when it was
//! sent.
//!
//! A failed send moves an unreliable queue pair to SQE rather than ERR: its send queue is flushed until the
//! program returns the queue pair to RTS, while its receive queue continues (IBTA vol. 1 §10.3.1.6).

use remora_memory::{Mem, Pd};
use remora_transport::rc::Retired;
use remora_transport::{Status, uc};
use remora_wire::frame::Egress;
use remora_wire::{bth, packet};

use crate::context::WqeContext;
use crate::datagram::Datagrams;
use crate::emit::{Sent, emit_outlined};
use crate::gather;
use crate::path::PeerPath;
use crate::send_queue::SendQueue;
use crate::shared::Shared;

/// The state machine of an unreliable queue pair.
pub(crate) enum Unreliable {
    Connected(Box<Connected>),
    Datagrams(Box<Datagrams>),
}

/// The state machines of an unreliable connection.
pub(crate) struct Connected {
    pub path: PeerPath,
    pub requester: uc::Requester<WqeContext>,
    pub responder: uc::Responder,
}

impl Unreliable {
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Unreliable::Connected(connected) => connected.requester.is_busy(),
            Unreliable::Datagrams(datagrams) => datagrams.sender.is_busy(),
        }
    }

    /// Asserts the invariants of both state machines; a datagram has at most `mtu` bytes.
    pub(crate) fn check(&self, mtu: u32) {
        match self {
            Unreliable::Connected(connected) => {
                connected.requester.check();
                connected.responder.check();
            }
            Unreliable::Datagrams(datagrams) => datagrams.sender.check(mtu),
        }
    }

    /// Ends the message that is being sent.
    pub(crate) fn end(&mut self, status: Status) -> Option<Retired<WqeContext>> {
        match self {
            Unreliable::Connected(connected) => connected.requester.end(status),
            Unreliable::Datagrams(datagrams) => datagrams.sender.end(status),
        }
    }
}

impl Connected {
    /// Sends the next packet of the current message, and returns the message after its last packet.
    pub(crate) fn transmit(
        &mut self,
        mem: Mem<'_>,
        pd: Pd,
        send: &SendQueue,
        out: &mut impl Egress,
        shared: &mut Shared,
    ) -> Option<(Sent, Option<Retired<WqeContext>>)> {
        let plan = self.requester.plan()?;
        let context = *self.requester.context()?;
        let bth = bth::Repr {
            solicited: plan.solicited,
            pad: packet::pad_for(plan.len as usize),
            ..bth::Repr::new(plan.opcode, self.path.remote, plan.psn)
        };
        let sent = emit_outlined(
            &mut self.path.address_path,
            out,
            shared.counters_mut(),
            &bth,
            &plan.ext,
            plan.len,
            &mut |bytes| gather::gather_outlined(mem, pd, send.ring(), &context, plan.offset, bytes),
        );
        let retired = match sent {
            Sent::Yes(_) => self.requester.sent(&plan),
            Sent::Denied => self.requester.end(Status::LocalProtection),
            Sent::Blocked | Sent::Stopped(_) => None,
        };
        Some((sent, retired))
    }
}
