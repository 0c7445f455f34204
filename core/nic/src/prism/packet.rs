//! The packet of a request that leaves with others or alone: op-code, headers, addresses and payload.

use remora_transport::rc::prism::{Extended, Verb};
use remora_transport::rc::{Kind, Message, Part};
use remora_wire::prism::Flags;
use remora_wire::prism::addresses::Repr as Addresses;
use remora_wire::prism::operation_list::Target;
use remora_wire::{Opcode, Qpn, atomic_eth, bth, packet, reth};

use super::egress::addresses;
use crate::context::WqeContext;
use crate::gather::{LocalMemory, gather_outlined};
use crate::ring::Ring;

/// Returns the headers that follow the BTH of an operation.
fn target_of(extended: &Extended, dma_len: u32) -> Target {
    let va = extended.va;
    let rkey = extended.rkey();
    match extended.verb() {
        Verb::Read | Verb::Write => Target::Range(reth::Repr { va, rkey, dma_len }),
        Verb::CompareSwap | Verb::FetchAdd => {
            let Extended { operand, compare, .. } = *extended;
            Target::Atomic(atomic_eth::Repr { va, rkey, swap_add: operand, compare })
        }
    }
}

/// Op-code of a request that travels with others, and how many bytes its packet has behind its addresses.
pub(super) fn shape(message: &Message<WqeContext>) -> (Opcode, u32) {
    match &message.kind {
        Kind::Prism(extended) => (extended.opcode(), extended.payload(message.len)),
        // Of the plain verbs only WRITEs begin a bundle.
        _ => (Opcode::RC_RDMA_WRITE_ONLY, message.len),
    }
}

/// The packet of a request, but for its bytes.
pub(super) struct RequestPacket {
    pub opcode: Opcode,
    pub flags: Flags,
    pub target: Target,
    addresses: Addresses,
    pub payload: usize,
}

impl RequestPacket {
    /// The packet of a message. None: it is no WRITE and no operation of PRISM.
    #[inline(always)]
    pub(crate) fn of(message: &Message<WqeContext>, ring: &Ring) -> Option<RequestPacket> {
        let Message { kind, context, len: dma_len, .. } = message;
        let (opcode, len) = shape(message);
        let (flags, target, addresses) = match *kind {
            Kind::Prism(ref extended) => {
                (extended.flags(), target_of(extended, *dma_len), addresses(extended, ring, context))
            }
            Kind::Write { va, rkey } => {
                let range = Target::Range(reth::Repr { va, rkey, dma_len: len });
                (Flags::NONE, range, Addresses::default())
            }
            _ => return None,
        };
        let payload = addresses.len() + len as usize;
        Some(RequestPacket { opcode, flags, target, addresses, payload })
    }

    /// Returns the BTH of the packet.
    #[inline(always)]
    pub(crate) fn bth(&self, part: &Part<'_, WqeContext>, remote: Qpn) -> bth::Repr {
        let plain = bth::Repr::new(self.opcode, remote, part.psn);
        let solicited = part.message.solicited;
        let ack_req = part.ack_req;
        bth::Repr {
            solicited,
            ack_req,
            resv7: self.flags.bits(),
            pad: packet::pad_for(self.payload),
            ..plain
        }
    }

    /// Writes what follows its headers. False: it may not be read.
    #[inline(always)]
    pub(crate) fn fill(&self, bytes: &mut [u8], context: &WqeContext, local: LocalMemory<'_>) -> bool {
        let start = self.addresses.emit(bytes);
        let rest = &mut bytes[start..];
        rest.is_empty() || gather_outlined(local.mem, local.pd, local.ring, context, 0, rest)
    }
}
