//! Op-codes: the kind of a packet and its extension headers (IBTA volume 1, chapter 9.2 and annexes A14 and
//! A17). `docs/reference/wire/frames.md` shows the table.
//!
//! The upper three bits are the service, the lower five the operation. Reliable datagram is not supported.
//! Some op-codes of papers and later annexes use values that the base specification leaves free; a NIC
//! accepts them only from a peer that agreed on them.

use core::fmt;

/// The first byte of a BTH. Every value is representable; [`Opcode::is_known`] returns whether Remora
/// supports it.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

impl Opcode {
    /// RC SEND First.
    pub const RC_SEND_FIRST: Opcode = Opcode(0x00);
    /// RC SEND Middle.
    pub const RC_SEND_MIDDLE: Opcode = Opcode(0x01);
    /// RC SEND Last.
    pub const RC_SEND_LAST: Opcode = Opcode(0x02);
    /// RC SEND Last with Immediate.
    pub const RC_SEND_LAST_IMM: Opcode = Opcode(0x03);
    /// RC SEND Only.
    pub const RC_SEND_ONLY: Opcode = Opcode(0x04);
    /// RC SEND Only with Immediate.
    pub const RC_SEND_ONLY_IMM: Opcode = Opcode(0x05);
    /// RC RDMA WRITE First.
    pub const RC_RDMA_WRITE_FIRST: Opcode = Opcode(0x06);
    /// RC RDMA WRITE Middle.
    pub const RC_RDMA_WRITE_MIDDLE: Opcode = Opcode(0x07);
    /// RC RDMA WRITE Last.
    pub const RC_RDMA_WRITE_LAST: Opcode = Opcode(0x08);
    /// RC RDMA WRITE Last with Immediate.
    pub const RC_RDMA_WRITE_LAST_IMM: Opcode = Opcode(0x09);
    /// RC RDMA WRITE Only.
    pub const RC_RDMA_WRITE_ONLY: Opcode = Opcode(0x0a);
    /// RC RDMA WRITE Only with Immediate.
    pub const RC_RDMA_WRITE_ONLY_IMM: Opcode = Opcode(0x0b);
    /// RC RDMA READ Request.
    pub const RC_RDMA_READ_REQUEST: Opcode = Opcode(0x0c);
    /// RC RDMA READ Response First.
    pub const RC_RDMA_READ_RESPONSE_FIRST: Opcode = Opcode(0x0d);
    /// RC RDMA READ Response Middle.
    pub const RC_RDMA_READ_RESPONSE_MIDDLE: Opcode = Opcode(0x0e);
    /// RC RDMA READ Response Last.
    pub const RC_RDMA_READ_RESPONSE_LAST: Opcode = Opcode(0x0f);
    /// RC RDMA READ Response Only.
    pub const RC_RDMA_READ_RESPONSE_ONLY: Opcode = Opcode(0x10);
    /// RC Acknowledge: AETH.
    pub const RC_ACKNOWLEDGE: Opcode = Opcode(0x11);
    /// RC ATOMIC Acknowledge.
    pub const RC_ATOMIC_ACKNOWLEDGE: Opcode = Opcode(0x12);
    /// RC CmpSwap: AtomicETH.
    pub const RC_COMPARE_SWAP: Opcode = Opcode(0x13);
    /// RC FetchAdd: AtomicETH.
    pub const RC_FETCH_ADD: Opcode = Opcode(0x14);
    /// RC SEND Last with Invalidate.
    pub const RC_SEND_LAST_INV: Opcode = Opcode(0x16);
    /// RC SEND Only with Invalidate.
    pub const RC_SEND_ONLY_INV: Opcode = Opcode(0x17);
    /// RPC Params: a whole RPC request (StRoM paper, Table 1). This and the next four op-codes are used only
    /// between peers that agreed on StRoM.
    pub const STROM_RPC_PARAMS: Opcode = Opcode(0x18);
    /// RPC WRITE First.
    pub const STROM_RPC_WRITE_FIRST: Opcode = Opcode(0x19);
    /// RPC WRITE Middle.
    pub const STROM_RPC_WRITE_MIDDLE: Opcode = Opcode(0x1a);
    /// RPC WRITE Last.
    pub const STROM_RPC_WRITE_LAST: Opcode = Opcode(0x1b);
    /// RPC WRITE Only.
    pub const STROM_RPC_WRITE_ONLY: Opcode = Opcode(0x1c);
    /// ACK or NACK of READ and atomic responses (IRN paper, §5), used only between peers that agreed on IRN.
    pub const IRN_READ_ACKNOWLEDGE: Opcode = Opcode(0x1f);

    /// UC SEND First.
    pub const UC_SEND_FIRST: Opcode = Opcode(0x20);
    /// UC SEND Middle.
    pub const UC_SEND_MIDDLE: Opcode = Opcode(0x21);
    /// UC SEND Last.
    pub const UC_SEND_LAST: Opcode = Opcode(0x22);
    /// UC SEND Last with Immediate.
    pub const UC_SEND_LAST_IMM: Opcode = Opcode(0x23);
    /// UC SEND Only.
    pub const UC_SEND_ONLY: Opcode = Opcode(0x24);
    /// UC SEND Only with Immediate.
    pub const UC_SEND_ONLY_IMM: Opcode = Opcode(0x25);
    /// UC RDMA WRITE First.
    pub const UC_RDMA_WRITE_FIRST: Opcode = Opcode(0x26);
    /// UC RDMA WRITE Middle.
    pub const UC_RDMA_WRITE_MIDDLE: Opcode = Opcode(0x27);
    /// UC RDMA WRITE Last.
    pub const UC_RDMA_WRITE_LAST: Opcode = Opcode(0x28);
    /// UC RDMA WRITE Last with Immediate.
    pub const UC_RDMA_WRITE_LAST_IMM: Opcode = Opcode(0x29);
    /// UC RDMA WRITE Only.
    pub const UC_RDMA_WRITE_ONLY: Opcode = Opcode(0x2a);
    /// UC RDMA WRITE Only with Immediate.
    pub const UC_RDMA_WRITE_ONLY_IMM: Opcode = Opcode(0x2b);

    /// UD SEND Only.
    pub const UD_SEND_ONLY: Opcode = Opcode(0x64);
    /// UD SEND Only with Immediate.
    pub const UD_SEND_ONLY_IMM: Opcode = Opcode(0x65);

    /// Congestion notification packet (annex A17): a BTH and 16 reserved bytes.
    pub const CNP: Opcode = Opcode(0x81);

    /// Several PRISM packets in one frame. The op-code is from the range reserved for manufacturers.
    pub const BUNDLE: Opcode = Opcode(0xc0);
    /// The short operations of a PRISM operation list in one packet. The op-code is from the range reserved
    /// for manufacturers.
    pub const OPERATION_LIST: Opcode = Opcode(0xc1);
    /// The answers to the operations of a list in one packet. The op-code is from the range reserved for
    /// manufacturers.
    pub const OPERATION_LIST_ANSWER: Opcode = Opcode(0xc2);
    /// XRC SEND First.
    pub const XRC_SEND_FIRST: Opcode = Opcode(0xa0);
    /// XRC SEND Middle.
    pub const XRC_SEND_MIDDLE: Opcode = Opcode(0xa1);
    /// XRC SEND Last.
    pub const XRC_SEND_LAST: Opcode = Opcode(0xa2);
    /// XRC SEND Last with Immediate.
    pub const XRC_SEND_LAST_IMM: Opcode = Opcode(0xa3);
    /// XRC SEND Only.
    pub const XRC_SEND_ONLY: Opcode = Opcode(0xa4);
    /// XRC SEND Only with Immediate.
    pub const XRC_SEND_ONLY_IMM: Opcode = Opcode(0xa5);
    /// XRC RDMA WRITE First.
    pub const XRC_RDMA_WRITE_FIRST: Opcode = Opcode(0xa6);
    /// XRC RDMA WRITE Middle.
    pub const XRC_RDMA_WRITE_MIDDLE: Opcode = Opcode(0xa7);
    /// XRC RDMA WRITE Last.
    pub const XRC_RDMA_WRITE_LAST: Opcode = Opcode(0xa8);
    /// XRC RDMA WRITE Last with Immediate.
    pub const XRC_RDMA_WRITE_LAST_IMM: Opcode = Opcode(0xa9);
    /// XRC RDMA WRITE Only.
    pub const XRC_RDMA_WRITE_ONLY: Opcode = Opcode(0xaa);
    /// XRC RDMA WRITE Only with Immediate.
    pub const XRC_RDMA_WRITE_ONLY_IMM: Opcode = Opcode(0xab);
    /// XRC RDMA READ Request.
    pub const XRC_RDMA_READ_REQUEST: Opcode = Opcode(0xac);
    /// XRC RDMA READ Response First.
    pub const XRC_RDMA_READ_RESPONSE_FIRST: Opcode = Opcode(0xad);
    /// XRC RDMA READ Response Middle.
    pub const XRC_RDMA_READ_RESPONSE_MIDDLE: Opcode = Opcode(0xae);
    /// XRC RDMA READ Response Last.
    pub const XRC_RDMA_READ_RESPONSE_LAST: Opcode = Opcode(0xaf);
    /// XRC RDMA READ Response Only.
    pub const XRC_RDMA_READ_RESPONSE_ONLY: Opcode = Opcode(0xb0);
    /// XRC Acknowledge: AETH.
    pub const XRC_ACKNOWLEDGE: Opcode = Opcode(0xb1);
    /// XRC ATOMIC Acknowledge.
    pub const XRC_ATOMIC_ACKNOWLEDGE: Opcode = Opcode(0xb2);
    /// XRC CmpSwap: XRCETH and AtomicETH.
    pub const XRC_COMPARE_SWAP: Opcode = Opcode(0xb3);
    /// XRC FetchAdd: XRCETH and AtomicETH.
    pub const XRC_FETCH_ADD: Opcode = Opcode(0xb4);
    /// XRC SEND Last with Invalidate.
    pub const XRC_SEND_LAST_INV: Opcode = Opcode(0xb6);
    /// XRC SEND Only with Invalidate.
    pub const XRC_SEND_ONLY_INV: Opcode = Opcode(0xb7);
}

/// The transport service of an op-code: its upper three bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection (RC).
    Rc,
    /// Unreliable connection (UC).
    Uc,
    /// Unreliable datagram (UD).
    Ud,
    /// Congestion notification, which is independent of the service of the queue pair.
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// PRISM's own packets of a reliable connection: bundles, operation lists and their answers.
    Prism,
}

/// The operation of a packet, independent of its position in the message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND: a message for a posted receive.
    Send,
    /// WRITE: data for the responder's memory.
    Write,
    /// READ request: a request for data of the responder's memory.
    ReadRequest,
    /// READ response: data of the responder's memory.
    ReadResponse,
    /// ACK, RNR NAK or NAK.
    Acknowledge,
    /// ACK or NACK of READ and atomic responses (IRN).
    ReadAcknowledge,
    /// Response to an atomic operation.
    AtomicAcknowledge,
    /// Compare and swap.
    CompareSwap,
    /// Fetch and add.
    FetchAdd,
    /// Parameters for a kernel of the responder's NIC.
    Rpc,
    /// Data for a kernel of the responder's NIC.
    RpcWrite,
    /// Congestion notification packet (CNP).
    Congestion,
    /// PRISM bundle: several packets, each with its own operation.
    Bundle,
    /// PRISM operation list: several operations.
    OperationList,
    /// The answers to the operations of a list.
    OperationListAnswer,
}

// Bits of a word per op-code: its extension headers, its position in the message, and the header length in
// the top byte.
pub(crate) const XRCETH: u32 = 1;
pub(crate) const DETH: u32 = 1 << 1;
pub(crate) const RETH: u32 = 1 << 2;
pub(crate) const ATOMIC_ETH: u32 = 1 << 3;
pub(crate) const AETH: u32 = 1 << 4;
pub(crate) const ATOMIC_ACK: u32 = 1 << 5;
pub(crate) const IMM: u32 = 1 << 6;
pub(crate) const IETH: u32 = 1 << 7;
pub(crate) const EXTENSIONS: u32 = 0xff;
const KNOWN: u32 = 1 << 8;
const REQUEST: u32 = 1 << 9;
const RESPONSE: u32 = 1 << 10;
const FIRST: u32 = 1 << 11;
const MIDDLE: u32 = 1 << 12;
const LAST: u32 = 1 << 13;
const ONLY: u32 = 1 << 14;
const PAYLOAD: u32 = 1 << 15;
const HEADER_SHIFT: u32 = 24;

static SHAPE: [u32; 256] = shapes();

/// Returns the properties of an operation (the lower five bits) of the reliable services.
const fn reliable(operation: u8) -> u32 {
    match operation {
        0x00 => REQUEST | FIRST | PAYLOAD,
        0x01 => REQUEST | MIDDLE | PAYLOAD,
        0x02 => REQUEST | LAST | PAYLOAD,
        0x03 => REQUEST | LAST | PAYLOAD | IMM,
        0x04 => REQUEST | ONLY | PAYLOAD,
        0x05 => REQUEST | ONLY | PAYLOAD | IMM,
        0x06 => REQUEST | FIRST | PAYLOAD | RETH,
        0x07 => REQUEST | MIDDLE | PAYLOAD,
        0x08 => REQUEST | LAST | PAYLOAD,
        0x09 => REQUEST | LAST | PAYLOAD | IMM,
        0x0a => REQUEST | ONLY | PAYLOAD | RETH,
        0x0b => REQUEST | ONLY | PAYLOAD | RETH | IMM,
        0x0c => REQUEST | ONLY | RETH,
        0x0d => RESPONSE | FIRST | PAYLOAD | AETH,
        0x0e => RESPONSE | MIDDLE | PAYLOAD,
        0x0f => RESPONSE | LAST | PAYLOAD | AETH,
        0x10 => RESPONSE | ONLY | PAYLOAD | AETH,
        0x11 => RESPONSE | ONLY | AETH,
        0x12 => RESPONSE | ONLY | AETH | ATOMIC_ACK,
        0x13 | 0x14 => REQUEST | ONLY | ATOMIC_ETH,
        0x16 => REQUEST | LAST | PAYLOAD | IETH,
        0x17 => REQUEST | ONLY | PAYLOAD | IETH,
        _ => 0,
    }
}

const fn shape(opcode: u8) -> u32 {
    let bits = match opcode {
        // IRN's READ Acknowledge is neither a request nor a response to one.
        0x1f => ONLY | AETH,
        // StRoM's op-codes have the headers of WRITEs.
        0x18 | 0x1c => REQUEST | ONLY | PAYLOAD | RETH,
        0x19 => REQUEST | FIRST | PAYLOAD | RETH,
        0x1a => REQUEST | MIDDLE | PAYLOAD,
        0x1b => REQUEST | LAST | PAYLOAD,
        0x00..=0x17 | 0x1d..=0x1e => reliable(opcode),
        // The unreliable connection has the SENDs and WRITEs, without Invalidate.
        0x20..=0x2b => reliable(opcode & 0x1f),
        0x64 | 0x65 => reliable(opcode & 0x1f) | DETH,
        0x81 => RESPONSE | ONLY | PAYLOAD,
        // A bundle contains requests or responses and is neither itself.
        0xc0 => ONLY | PAYLOAD,
        0xc1 => REQUEST | ONLY | PAYLOAD,
        0xc2 => RESPONSE | ONLY | PAYLOAD,
        0xa0..=0xbf => match reliable(opcode & 0x1f) {
            // Only requests name a shared receive queue; responses name the initiator's queue pair.
            bits if bits & REQUEST != 0 => bits | XRCETH,
            bits => bits,
        },
        _ => 0,
    };
    if bits == 0 { 0 } else { bits | KNOWN | header_len(bits) << HEADER_SHIFT }
}

/// The extension headers in wire order, with their lengths in bytes.
pub(crate) const EXTENSION_LENS: [(u32, usize); 8] = [
    (XRCETH, crate::xrceth::LEN),
    (DETH, crate::deth::LEN),
    (RETH, crate::reth::LEN),
    (ATOMIC_ETH, crate::atomic_eth::LEN),
    (AETH, crate::aeth::LEN),
    (ATOMIC_ACK, crate::atomic_ack::LEN),
    (IMM, crate::immdt::LEN),
    (IETH, crate::ieth::LEN),
];

/// Length of the BTH in bytes. Defined here because the module `bth` depends on this one.
pub(crate) const BTH_LEN: usize = 12;

const fn header_len(bits: u32) -> u32 {
    let mut total = BTH_LEN;
    let mut i = 0;
    while i < EXTENSION_LENS.len() {
        if bits & EXTENSION_LENS[i].0 != 0 {
            total += EXTENSION_LENS[i].1;
        }
        i += 1;
    }
    total as u32
}

/// Returns the length of the BTH and the extension headers from the properties of an op-code.
#[inline(always)]
pub(crate) const fn header_len_of(shape: u32) -> usize {
    (shape >> HEADER_SHIFT) as usize
}

/// The operation of each op-code.
static OPERATIONS: [Option<Operation>; 256] = operations();

const fn operations() -> [Option<Operation>; 256] {
    let mut table = [None; 256];
    let mut opcode = 0;
    while opcode < 256 {
        table[opcode] = Opcode(opcode as u8).operation_of();
        opcode += 1;
    }
    table
}

const fn shapes() -> [u32; 256] {
    let mut table = [0; 256];
    let mut opcode = 0;
    while opcode < 256 {
        table[opcode] = shape(opcode as u8);
        opcode += 1;
    }
    table
}

impl Opcode {
    /// Returns the properties of the op-code as bits.
    #[inline]
    pub(crate) const fn shape(self) -> u32 {
        SHAPE[self.0 as usize]
    }

    #[inline]
    fn has(self, bits: u32) -> bool {
        self.shape() & bits != 0
    }

    /// Returns true for op-codes of RC, UC, UD and XRC, CNPs, and PRISM's own op-codes.
    #[inline]
    pub fn is_known(self) -> bool {
        self.has(KNOWN)
    }

    /// Returns the service, or `None` if the op-code is unknown.
    #[inline]
    pub const fn service(self) -> Option<Service> {
        if self.shape() == 0 {
            return None;
        }
        match self.0 >> 5 {
            0 => Some(Service::Rc),
            1 => Some(Service::Uc),
            3 => Some(Service::Ud),
            4 => Some(Service::Cnp),
            5 => Some(Service::Xrc),
            6 => Some(Service::Prism),
            _ => None,
        }
    }

    /// Returns the operation, or `None` if the op-code is unknown.
    #[inline]
    pub const fn operation(self) -> Option<Operation> {
        OPERATIONS[self.0 as usize]
    }

    const fn operation_of(self) -> Option<Operation> {
        if self.shape() == 0 {
            return None;
        }
        Some(match self.0 & 0x1f {
            _ if self.0 == Opcode::CNP.0 => Operation::Congestion,
            _ if self.0 == Opcode::BUNDLE.0 => Operation::Bundle,
            _ if self.0 == Opcode::OPERATION_LIST.0 => Operation::OperationList,
            _ if self.0 == Opcode::OPERATION_LIST_ANSWER.0 => Operation::OperationListAnswer,
            0x06..=0x0b => Operation::Write,
            0x0c => Operation::ReadRequest,
            0x0d..=0x10 => Operation::ReadResponse,
            0x11 => Operation::Acknowledge,
            0x12 => Operation::AtomicAcknowledge,
            0x13 => Operation::CompareSwap,
            0x14 => Operation::FetchAdd,
            0x18 => Operation::Rpc,
            0x19..=0x1c => Operation::RpcWrite,
            0x1f => Operation::ReadAcknowledge,
            _ => Operation::Send,
        })
    }

    /// Returns true for packets from requester to responder. A CNP belongs to no operation and counts as a
    /// response.
    #[inline]
    pub fn is_request(self) -> bool {
        self.has(REQUEST)
    }

    /// Returns true for packets from responder to requester.
    #[inline]
    pub fn is_response(self) -> bool {
        self.has(RESPONSE)
    }

    /// Returns true for the first of several packets of a message.
    #[inline]
    pub fn is_first(self) -> bool {
        self.has(FIRST)
    }

    /// Returns true for packets between the first and the last of a message; their payload is exactly one
    /// path MTU.
    #[inline]
    pub fn is_middle(self) -> bool {
        self.has(MIDDLE)
    }

    /// Returns true for the last of several packets of a message.
    #[inline]
    pub fn is_last(self) -> bool {
        self.has(LAST)
    }

    /// Returns true for a whole message in one packet: the Only op-codes, READ requests, ACKs and atomics.
    #[inline]
    pub fn is_only(self) -> bool {
        self.has(ONLY)
    }

    /// Returns true if a packet with this op-code may carry a payload.
    #[inline]
    pub fn has_payload(self) -> bool {
        self.has(PAYLOAD)
    }

    /// Returns true if the packet has an XRCETH.
    #[inline]
    pub fn has_xrceth(self) -> bool {
        self.has(XRCETH)
    }

    /// Returns true if the packet has a DETH.
    #[inline]
    pub fn has_deth(self) -> bool {
        self.has(DETH)
    }

    /// Returns true if the packet has a RETH.
    #[inline]
    pub fn has_reth(self) -> bool {
        self.has(RETH)
    }

    /// Returns true if the packet has an AtomicETH.
    #[inline]
    pub fn has_atomic_eth(self) -> bool {
        self.has(ATOMIC_ETH)
    }

    /// Returns true if the packet has an AETH.
    #[inline]
    pub fn has_aeth(self) -> bool {
        self.has(AETH)
    }

    /// Returns true if the packet has an AtomicAckETH.
    #[inline]
    pub fn has_atomic_ack(self) -> bool {
        self.has(ATOMIC_ACK)
    }

    /// Returns true if the packet has immediate data (ImmDt).
    #[inline]
    pub fn has_imm(self) -> bool {
        self.has(IMM)
    }

    /// Returns true if the packet has an IETH.
    #[inline]
    pub fn has_ieth(self) -> bool {
        self.has(IETH)
    }

    /// Returns the total length of the BTH and its extension headers in bytes, or 0 if the op-code is
    /// unknown.
    #[inline]
    pub fn header_len(self) -> usize {
        header_len_of(self.shape())
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#04x})", self.0)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(service), Some(operation)) = (self.service(), self.operation()) else {
            return write!(f, "op-code {:#04x}", self.0);
        };
        f.write_str(match service {
            Service::Rc => "RC ",
            Service::Uc => "UC ",
            Service::Ud => "UD ",
            Service::Xrc => "XRC ",
            Service::Cnp | Service::Prism => "",
        })?;
        f.write_str(match operation {
            Operation::Send => "SEND",
            Operation::Write => "RDMA WRITE",
            Operation::ReadRequest => return f.write_str("RDMA READ Request"),
            Operation::ReadResponse => "RDMA READ Response",
            Operation::Acknowledge => return f.write_str("Acknowledge"),
            Operation::AtomicAcknowledge => return f.write_str("ATOMIC Acknowledge"),
            Operation::ReadAcknowledge => return f.write_str("READ Acknowledge"),
            Operation::CompareSwap => return f.write_str("CmpSwap"),
            Operation::FetchAdd => return f.write_str("FetchAdd"),
            Operation::Rpc => return f.write_str("RPC Params"),
            Operation::RpcWrite => "RPC WRITE",
            Operation::Congestion => return f.write_str("CNP"),
            Operation::Bundle => return f.write_str("PRISM Bundle"),
            Operation::OperationList => return f.write_str("PRISM Operation List"),
            Operation::OperationListAnswer => return f.write_str("PRISM Operation List Answer"),
        })?;
        f.write_str(match () {
            () if self.is_first() => " First",
            () if self.is_middle() => " Middle",
            () if self.is_last() => " Last",
            () => " Only",
        })?;
        f.write_str(match () {
            () if self.has_imm() => " with Immediate",
            () if self.has_ieth() => " with Invalidate",
            () => "",
        })
    }
}

#[cfg(test)]
mod tests;
