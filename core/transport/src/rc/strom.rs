//! Requests to kernels on a reliable connection (StRoM paper, §5.1). They are sent, validated and
//! acknowledged like WRITEs, but their payload goes to a kernel instead of memory.

use remora_wire::packet::View;
use remora_wire::strom::TAG_MASK;
use remora_wire::{NakCode, Opcode, Operation, reth};

/// Description of one packet for a kernel, without the payload. All fields are whole words, for the reason
/// given at [`Extended`](super::prism::Extended).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// RPC op-code of the kernel.
    pub opcode: u64,
    /// Number of bytes of the message from this packet on.
    pub left: u32,
    /// Tag in the low 24 bits, flags in the bits above.
    head: u32,
}

const PARAMS: u32 = 1 << 24;
const FIRST: u32 = 1 << 25;
const LAST: u32 = 1 << 26;

impl Part {
    /// Returns the description of a packet of request `tag` to kernel `opcode`. `params` selects parameters
    /// or RPC WRITE data. `first` and `last` mark the first and last packet of the message.
    pub fn new(opcode: u64, tag: u32, left: u32, params: bool, [first, last]: [bool; 2]) -> Part {
        let flag = |there: bool, flag: u32| if there { flag } else { 0 };
        let flags = flag(params, PARAMS) | flag(first, FIRST) | flag(last, LAST);
        Part { opcode, left, head: tag & TAG_MASK | flags }
    }

    /// Returns the 24-bit number that the requester chose for the request.
    pub fn tag(&self) -> u32 {
        self.head & TAG_MASK
    }

    /// Returns true for parameters, false for the data of an RPC WRITE.
    pub fn params(&self) -> bool {
        self.head & PARAMS != 0
    }

    /// Returns true for the first packet of the message.
    pub fn first(&self) -> bool {
        self.head & FIRST != 0
    }

    /// Returns true for the last packet of the message.
    pub fn last(&self) -> bool {
        self.head & LAST != 0
    }

    /// Returns the description of the next packet, after this one of `len` bytes.
    pub(super) fn after(&self, len: u32) -> Part {
        Part { left: self.left - len, head: self.head & !FIRST, ..*self }
    }
}

/// Validates a packet with `len` bytes of payload. A first packet has a `reth`; for a later packet,
/// `in_progress` describes the rest of the message.
pub(super) fn judge(
    packet: &View<'_>,
    reth: Option<reth::Repr>,
    in_progress: Option<&Part>,
    len: u32,
) -> Result<Part, NakCode> {
    let opcode = packet.bth.opcode();
    let starts = opcode.is_first() || opcode.is_only();
    let last = opcode.is_last() || opcode.is_only();
    let params = opcode.operation() == Some(Operation::Rpc);
    let part = match (reth, in_progress) {
        (Some(reth), None) if reth.rkey <= TAG_MASK && reth.dma_len <= 1 << 31 => {
            Part::new(reth.va, reth.rkey, reth.dma_len, params, [starts, last])
        }
        (None, Some(in_progress)) => {
            Part::new(in_progress.opcode, in_progress.tag(), in_progress.left, params, [false, last])
        }
        _ => return Err(NakCode::INVALID_REQUEST),
    };
    let exact = if last { len == part.left } else { len < part.left };
    if exact { Ok(part) } else { Err(NakCode::INVALID_REQUEST) }
}

/// Returns the op-code of a packet with parameters or RPC WRITE data, by its position in the message.
pub(super) fn opcode(params: bool, first: bool, last: bool) -> Opcode {
    match (params, first, last) {
        (true, ..) => Opcode::STROM_RPC_PARAMS,
        (false, true, true) => Opcode::STROM_RPC_WRITE_ONLY,
        (false, true, false) => Opcode::STROM_RPC_WRITE_FIRST,
        (false, false, true) => Opcode::STROM_RPC_WRITE_LAST,
        (false, false, false) => Opcode::STROM_RPC_WRITE_MIDDLE,
    }
}
