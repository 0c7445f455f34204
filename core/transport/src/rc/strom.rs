//! Requests to kernels on a reliable connection (StRoM paper, §5.1). They are sent, judged and acknowledged
//! like WRITEs, but their bytes go to a kernel and not to memory.

use remora_wire::packet::View;
use remora_wire::strom::TAG_MASK;
use remora_wire::{NakCode, Opcode, Operation, reth};

/// What one packet brings a kernel, beside its payload: in whole words, for the reason that
/// [`Extended`](super::prism::Extended) gives.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which kernel.
    pub opcode: u64,
    /// Bytes of the message from this packet on.
    pub left: u32,
    /// Tag, and flags above it.
    head: u32,
}

const PARAMS: u32 = 1 << 24;
const FIRST: u32 = 1 << 25;
const LAST: u32 = 1 << 26;

impl Part {
    /// A packet of the request `tag` to the kernel `opcode`: of parameters, or else of the bytes of an RPC
    /// WRITE; whether the message starts and ends with it.
    pub fn new(opcode: u64, tag: u32, left: u32, params: bool, [first, last]: [bool; 2]) -> Part {
        let flag = |there: bool, flag: u32| if there { flag } else { 0 };
        let flags = flag(params, PARAMS) | flag(first, FIRST) | flag(last, LAST);
        Part { opcode, left, head: tag & TAG_MASK | flags }
    }

    /// The requester's name for the request, 24 bits.
    pub fn tag(&self) -> u32 {
        self.head & TAG_MASK
    }

    /// Parameters; else bytes of an RPC WRITE.
    pub fn params(&self) -> bool {
        self.head & PARAMS != 0
    }

    /// The message starts here.
    pub fn first(&self) -> bool {
        self.head & FIRST != 0
    }

    /// It ends here.
    pub fn last(&self) -> bool {
        self.head & LAST != 0
    }

    /// What the packet behind one of `len` bytes brings, unless the message ends with it.
    pub(super) fn after(&self, len: u32) -> Part {
        Part { left: self.left - len, head: self.head & !FIRST, ..*self }
    }
}

/// Judges a packet with `len` bytes of payload. A first packet has a `reth`; for a later one `in_progress` is
/// what the packet before it left.
pub(super) fn judge(
    packet: &View<'_>,
    reth: Option<reth::Repr>,
    in_progress: Option<&Part>,
    len: u32,
) -> Result<Part, NakCode> {
    let opcode = packet.bth.opcode;
    let (starts, last) = (opcode.is_first() || opcode.is_only(), opcode.is_last() || opcode.is_only());
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

/// Op-code of a packet of parameters, or else of an RPC WRITE, by its place in the message.
pub(super) fn opcode(params: bool, first: bool, last: bool) -> Opcode {
    match (params, first, last) {
        (true, ..) => Opcode::STROM_RPC_PARAMS,
        (false, true, true) => Opcode::STROM_RPC_WRITE_ONLY,
        (false, true, false) => Opcode::STROM_RPC_WRITE_FIRST,
        (false, false, true) => Opcode::STROM_RPC_WRITE_LAST,
        (false, false, false) => Opcode::STROM_RPC_WRITE_MIDDLE,
    }
}
