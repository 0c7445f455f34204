//! PRISM on a reliable connection: the requests to the NIC and its answers (PRISM paper, §3, §4.2).
//!
//! Each operation is answered once, with data: a READ by READ responses, any other operation by an ATOMIC
//! Acknowledge with the PSN of its last packet. All operations therefore count towards `max_rd_atomic`, and
//! duplicates are answered from the responder's memory as for READs and atomics.

use super::{Allowed, Seq, packets};
use remora_wire::packet::View;
use remora_wire::prism::operation_list::{self, Target};
use remora_wire::prism::{Flags, SCRATCH, Verdict, addresses, operands};
use remora_wire::{Extensions, NakCode, Opcode, Operation, atomic_eth, reth};

/// Maximum number of bytes copied by a redirected READ, or by a WRITE whose source is at the responder. The
/// copy is made at once, and every primitive must run in short, bounded time (§4.1).
pub const COPY_MAX: u32 = 64 << 10;

/// Maximum length of a READ whose bytes are read at once, so that the result is atomic.
pub const SNAPSHOT: u32 = 32;

/// Maximum total length of the answers to an operation list in one packet. The answers are kept until the
/// peer can no longer repeat the operation list.
pub const KEPT: usize = 128;

/// The base verb of a PRISM operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// An RDMA READ.
    Read,
    /// WRITE, or ALLOCATE if that flag is set.
    Write,
    /// Enhanced compare-and-swap (masked, up to 32 bytes).
    CompareSwap,
    /// A fetch-and-add operation.
    FetchAdd,
}

/// An operation as submitted by its requester.
///
/// All fields are whole words. The compiler would otherwise use spare values of a byte as the tag of
/// [`Kind`](super::Kind), and each copy of a message would stall on the store of that byte.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Verb, flags and key.
    head: u64,
    /// Target address, address of a pointer to the target, or the number of the free list for an ALLOCATE.
    pub va: u64,
    /// Source address at the responder for a WRITE with DATA_INDIRECT, or the AtomicETH's swap or add
    /// operand.
    pub operand: u64,
    /// The AtomicETH's compare operand.
    pub compare: u64,
}

const FLAGS_SHIFT: u32 = 32;
const VERB_SHIFT: u32 = 40;

impl Extended {
    /// Returns an operation on `va` under `rkey`.
    pub fn new(verb: Verb, flags: Flags, rkey: u32, va: u64, [compare, operand]: [u64; 2]) -> Extended {
        let verb = match verb {
            Verb::Read => 0,
            Verb::Write => 1,
            Verb::CompareSwap => 2,
            Verb::FetchAdd => 3,
        };
        let head = u64::from(rkey) | u64::from(flags.bits()) << FLAGS_SHIFT | verb << VERB_SHIFT;
        Extended { head, va, operand, compare }
    }

    /// Returns the base verb.
    pub fn verb(&self) -> Verb {
        // Each value of two bits is a verb, so no comparison can fail.
        match self.head >> VERB_SHIFT & 3 {
            0 => Verb::Read,
            1 => Verb::Write,
            2 => Verb::CompareSwap,
            _ => Verb::FetchAdd,
        }
    }

    /// Returns the flags.
    pub fn flags(&self) -> Flags {
        Flags::from_bits((self.head >> FLAGS_SHIFT) as u8)
    }

    /// Returns the key of all addresses except those of scratch memory.
    pub fn rkey(&self) -> u32 {
        self.head as u32
    }

    /// Returns the number of PSNs that the operation uses: the packets of its request, or of its response if
    /// that has more.
    pub(super) fn packets(&self, len: u32, mtu: u32) -> u32 {
        let travels = match self.verb() {
            Verb::Read => !self.flags().has(Flags::REDIRECT),
            Verb::Write => !self.flags().has(Flags::DATA_INDIRECT),
            Verb::CompareSwap | Verb::FetchAdd => false,
        };
        if travels { packets(len, mtu) } else { 1 }
    }

    /// Returns the number of request packets.
    pub(super) fn requests(&self, len: u32, mtu: u32) -> u32 {
        if self.asks() { 1 } else { self.packets(len, mtu) }
    }

    /// Returns the number of packets of the longest possible answer.
    pub(super) fn answers(&self, len: u32, mtu: u32) -> u32 {
        if self.asks() { self.packets(len, mtu) } else { 1 }
    }

    /// Returns the op-code of a request that is a single packet.
    pub fn opcode(&self) -> Opcode {
        match self.verb() {
            Verb::Read => Opcode::RC_RDMA_READ_REQUEST,
            Verb::Write => Opcode::RC_RDMA_WRITE_ONLY,
            Verb::CompareSwap => Opcode::RC_COMPARE_SWAP,
            Verb::FetchAdd => Opcode::RC_FETCH_ADD,
        }
    }

    /// Returns the payload length, without addresses, of a single-packet request with a message of `len`
    /// bytes.
    pub fn payload(&self, len: u32) -> u32 {
        let stands_there = self.verb() == Verb::Write && self.flags().has(Flags::DATA_INDIRECT);
        if self.asks() || stands_there { 0 } else { len }
    }

    /// Returns the maximum length of the answer in an operation list's answer packet, or `None` if it may be
    /// too long for one.
    pub fn answer_len(&self, len: u32) -> Option<usize> {
        let redirects = self.flags().has(Flags::REDIRECT);
        match self.verb() {
            Verb::Read if !redirects => (len <= SNAPSHOT).then(|| operation_list::answer_len(len as usize)),
            Verb::CompareSwap | Verb::FetchAdd if !redirects => {
                let swaps = self.verb() == Verb::CompareSwap;
                Some(operation_list::answer_len(operands::size_at_most(swaps, len as usize)))
            }
            _ => Some(operation_list::answer_len(8)),
        }
    }

    /// Returns true if one request covers all PSNs of the operation (READs).
    pub(super) fn asks(&self) -> bool {
        self.verb() == Verb::Read
    }

    /// Returns the addresses that follow the headers of the first packet. `redirect` is the output address
    /// for REDIRECT.
    pub fn addresses(&self, redirect: u64) -> addresses::Repr {
        let source = self.verb() == Verb::Write && self.flags().has(Flags::DATA_INDIRECT);
        addresses::Repr {
            redirect: self.flags().has(Flags::REDIRECT).then_some(redirect),
            source: source.then_some(self.operand),
        }
    }
}

/// A packet of an operation, as the NIC must execute it. Additional addresses and operands are read from the
/// packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Base verb of the operation.
    pub verb: Verb,
    /// Flags of the operation.
    pub flags: Flags,
    /// True for the first packet of the operation, which supplies `key`, `va` and `len`.
    pub first: bool,
    /// True for the last packet of the operation, which is answered.
    pub last: bool,
    /// Remote key of the accessed region.
    pub key: u32,
    /// Target address, address of a pointer, or number of a free list.
    pub va: u64,
    /// Length of the whole operation in bytes.
    pub len: u32,
    /// Offset of this packet's payload in the operation, in bytes.
    pub offset: u32,
}

/// A [`Request`] packed into whole words for an `Action`, for the reason given at [`Extended`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Packed([u64; 3]);

const FIRST: u64 = 1 << 48;
const LAST: u64 = 1 << 49;

impl From<Request> for Packed {
    fn from(request: Request) -> Packed {
        let Request { verb, flags, first, last, key, va, len, offset } = request;
        let ends = if first { FIRST } else { 0 } | if last { LAST } else { 0 };
        let Extended { head, .. } = Extended::new(verb, flags, key, 0, [0, 0]);
        Packed([head | ends, va, u64::from(len) << 32 | u64::from(offset)])
    }
}

impl From<Packed> for Request {
    fn from(Packed([head, va, place]): Packed) -> Request {
        let operation = Extended { head: head & !(FIRST | LAST), va, operand: 0, compare: 0 };
        Request {
            verb: operation.verb(),
            flags: operation.flags(),
            first: head & FIRST != 0,
            last: head & LAST != 0,
            key: operation.rkey(),
            va,
            len: (place >> 32) as u32,
            offset: place as u32,
        }
    }
}

impl Request {
    /// Returns the number of PSNs that this packet uses.
    pub(super) fn packets(&self, mtu: u32) -> u32 {
        if self.verb == Verb::Read && !self.flags.has(Flags::REDIRECT) { packets(self.len, mtu) } else { 1 }
    }
}

/// The result of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status of the operation.
    pub verdict: Verdict,
    /// Data of the answer.
    pub output: Output,
}

/// The data that an operation returns.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A number: bytes written, an address, or the old value of 8 bytes.
    Number(u64),
    /// The old value of 16 or 32 bytes, in network byte order.
    Wide {
        /// The value in the first `size` bytes.
        bytes: [u8; 32],
        /// Length in bytes, 16 or 32.
        size: u8,
    },
    /// The bytes of a READ of at most 32 bytes, read atomically.
    Snapshot {
        /// The data in the first `len` bytes.
        bytes: [u8; 32],
        /// Length in bytes, 0 to 32.
        len: u8,
    },
    /// The memory range of a longer READ, which is read while the responses are sent. Never longer than
    /// requested.
    Memory {
        /// Remote key of the accessed region.
        key: u32,
        /// Address of the first byte, after the pointer was dereferenced.
        va: u64,
        /// Length in bytes.
        len: u32,
    },
}

/// The operation whose packets are arriving.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct OperationInProgress {
    pub flags: Flags,
    pub offset: u32,
    pub total: u32,
}

/// Returns true if the flags are valid for the verb and the peer has the required access rights.
pub(super) fn allows(verb: Verb, flags: Flags, allowed: Allowed) -> bool {
    let [indirect, bounded] = [Flags::ADDR_INDIRECT, Flags::ADDR_BOUNDED].map(|flag| flags.has(flag));
    let fits = match verb {
        Verb::Read => !flags.any(Flags::DATA_INDIRECT.and(Flags::ALLOCATE).and(Flags::EXTENDED)),
        Verb::Write if flags.has(Flags::ALLOCATE) => {
            !flags.any(Flags::ADDR_INDIRECT.and(Flags::ADDR_BOUNDED).and(Flags::EXTENDED))
        }
        Verb::Write => !flags.any(Flags::REDIRECT.and(Flags::EXTENDED)),
        Verb::CompareSwap => {
            flags.has(Flags::EXTENDED) && !flags.any(Flags::ADDR_BOUNDED.and(Flags::ALLOCATE))
        }
        Verb::FetchAdd => !flags.any(Flags::ADDR_BOUNDED.and(Flags::ALLOCATE)),
    };
    let reads = verb == Verb::Read || flags.any(Flags::ADDR_INDIRECT.and(Flags::DATA_INDIRECT));
    let writes = verb == Verb::Write || flags.has(Flags::REDIRECT);
    let atomic = matches!(verb, Verb::CompareSwap | Verb::FetchAdd);
    fits && (indirect || !bounded)
        && (allowed.read || !reads)
        && (allowed.write || !writes)
        && (allowed.atomic || !atomic)
}

/// Validates a packet with PRISM flags: op-code order, lengths, flags and rights. `in_progress` is the
/// operation whose packets are arriving.
#[inline(always)]
pub(super) fn judge(
    packet: &View<'_>,
    in_progress: Option<OperationInProgress>,
    mtu: u32,
    allowed: Allowed,
) -> Result<Request, NakCode> {
    let opcode = packet.bth.opcode();
    let flags = Flags::from_bits(packet.bth.resv7());
    let verb = match opcode.operation() {
        Some(Operation::ReadRequest) => Verb::Read,
        Some(Operation::Write) if packet.imm().is_none() => Verb::Write,
        Some(Operation::CompareSwap) => Verb::CompareSwap,
        Some(Operation::FetchAdd) => Verb::FetchAdd,
        _ => return Err(NakCode::INVALID_REQUEST),
    };
    let split = addresses::Repr::split(opcode, flags, packet.payload);
    let (_, payload) = split.map_err(|_| NakCode::INVALID_REQUEST)?;
    let request = match (packet.reth(), packet.atomic(), in_progress) {
        (Some(reth), None, None) => Request {
            verb,
            flags,
            first: true,
            last: opcode.is_only(),
            key: reth.rkey,
            va: reth.va,
            len: reth.dma_len,
            offset: 0,
        },
        (None, Some(eth), None) => {
            let len = payload.len() as u32;
            Request { verb, flags, first: true, last: true, key: eth.rkey, va: eth.va, len, offset: 0 }
        }
        (None, None, Some(in_progress)) if in_progress.flags == flags => Request {
            verb,
            flags,
            first: false,
            last: opcode.is_last(),
            key: 0,
            va: 0,
            len: in_progress.total,
            offset: in_progress.offset,
        },
        _ => return Err(NakCode::INVALID_REQUEST),
    };
    if allows(verb, flags, allowed) && fits(&request, payload.len() as u32, mtu) {
        Ok(request)
    } else {
        Err(NakCode::INVALID_REQUEST)
    }
}

/// Returns true if the payload length is valid for the packet's position in its operation.
fn fits(request: &Request, payload: u32, mtu: u32) -> bool {
    let Request { verb, flags, first, last, len, offset, .. } = *request;
    match verb {
        Verb::Read => {
            let limit = if flags.has(Flags::REDIRECT) { COPY_MAX } else { 1 << 31 };
            payload == 0 && len <= limit
        }
        Verb::Write if flags.has(Flags::DATA_INDIRECT) => first && last && payload == 0 && len <= COPY_MAX,
        Verb::Write => {
            let left = len - offset;
            len <= 1 << 31
                && if last { payload == left && payload <= mtu } else { payload == mtu && payload < left }
        }
        // Without EXTENDED, no operands follow the AtomicETH.
        Verb::CompareSwap | Verb::FetchAdd => flags.has(Flags::EXTENDED) || payload == 0,
    }
}

/// The access rights and the MTU against which the operations of a list are checked.
#[derive(Copy, Clone, Debug)]
pub struct Rules {
    pub(super) allowed: Allowed,
    pub(super) mtu: u32,
}

/// The addresses behind the headers of an operation, and the bytes after these.
type Behind<'a> = (addresses::Repr, &'a [u8]);

impl Rules {
    /// Validates one operation of an operation list that arrived as one packet. Also returns its addresses
    /// and the bytes after them.
    ///
    /// # Errors
    /// The code of the NAK to send.
    #[inline(always)]
    pub fn judge<'a>(
        &self,
        operation: &operation_list::Operation<'a>,
    ) -> Result<(Request, Behind<'a>), NakCode> {
        let opcode = operation.opcode;
        let flags = operation.flags;
        let behind = addresses::Repr::split(opcode, flags, operation.bytes);
        let behind = behind.map_err(|_| NakCode::INVALID_REQUEST)?;
        let payload = behind.1.len() as u32;
        let (verb, key, va, len) = match operation.target {
            Target::Range(reth) if opcode == Opcode::RC_RDMA_WRITE_ONLY => {
                (Verb::Write, reth.rkey, reth.va, reth.dma_len)
            }
            Target::Range(reth) => (Verb::Read, reth.rkey, reth.va, reth.dma_len),
            Target::Atomic(eth) if opcode == Opcode::RC_COMPARE_SWAP => {
                (Verb::CompareSwap, eth.rkey, eth.va, payload)
            }
            Target::Atomic(eth) => (Verb::FetchAdd, eth.rkey, eth.va, payload),
        };
        let request = Request { verb, flags, first: true, last: true, key, va, len, offset: 0 };
        if allows(verb, flags, self.allowed) && fits(&request, payload, self.mtu) {
            Ok((request, behind))
        } else {
            Err(NakCode::INVALID_REQUEST)
        }
    }
}

/// Returns op-code and extension headers of one packet of an operation of `len` bytes.
pub(super) fn headers(extended: &Extended, first: bool, last: bool, len: u32) -> (Opcode, Extensions) {
    let Extended { va, operand, compare, .. } = *extended;
    let verb = extended.verb();
    let rkey = extended.rkey();
    let mut ext = Extensions::default();
    let opcode = match verb {
        Verb::Read => Opcode::RC_RDMA_READ_REQUEST,
        Verb::Write => match (first, last) {
            (true, true) => Opcode::RC_RDMA_WRITE_ONLY,
            (true, false) => Opcode::RC_RDMA_WRITE_FIRST,
            (false, true) => Opcode::RC_RDMA_WRITE_LAST,
            (false, false) => Opcode::RC_RDMA_WRITE_MIDDLE,
        },
        Verb::CompareSwap => Opcode::RC_COMPARE_SWAP,
        Verb::FetchAdd => Opcode::RC_FETCH_ADD,
    };
    match verb {
        Verb::Read | Verb::Write => ext.reth = first.then_some(reth::Repr { va, rkey, dma_len: len }),
        Verb::CompareSwap | Verb::FetchAdd => {
            ext.atomic = Some(atomic_eth::Repr { va, rkey, swap_add: operand, compare });
        }
    }
    (opcode, ext)
}

/// A parsed response to an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum ParsedResponse {
    /// The operation ended with a number.
    Number { head: u64, verdict: Verdict },
    /// Data of a READ at this offset; more responses follow.
    Part { offset: u32 },
    /// Data of a READ at this offset. The READ ends and returned `len` bytes in total.
    End { offset: u32, len: u32, verdict: Verdict },
}

/// Parses response `seq` to an operation whose answer starts at `first` and has at most `len` bytes. Returns
/// `None` if the response does not match the operation.
pub(super) fn parse_response(
    extended: &Extended,
    first: Seq,
    len: u32,
    seq: Seq,
    mtu: u32,
    packet: &View<'_>,
) -> Option<ParsedResponse> {
    let verdict = packet.aeth().and_then(|aeth| Verdict::of(aeth.syndrome));
    let memory = extended.asks() && !extended.flags().has(Flags::REDIRECT);
    if !memory {
        let ack = packet.atomic_ack()?;
        let verdict = verdict?;
        return Some(ParsedResponse::Number { head: ack.original, verdict });
    }
    if packet.atomic_ack().is_some() {
        return None;
    }
    let ends = packet.bth.opcode().is_last() || packet.bth.opcode().is_only();
    let offset = (seq - first) as u32 * mtu;
    let left = len.checked_sub(offset)?;
    let here = packet.payload.len() as u32;
    if !ends {
        return (here == mtu && here < left).then_some(ParsedResponse::Part { offset });
    }
    let verdict = verdict.unwrap_or_default();
    (here <= left.min(mtu)).then_some(ParsedResponse::End { offset, len: offset + here, verdict })
}

/// The result of one operation of an operation list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ListedResult<'a> {
    /// A number in network byte order: its most significant 8 bytes, and the remaining bytes.
    Number(u64, &'a [u8]),
    /// Data returned by a READ.
    Bytes(&'a [u8]),
}

/// Parses the result of an operation of `len` bytes from its part of an operation list's answer. Returns
/// `None` if it does not match the operation.
#[inline(always)]
pub(super) fn listed_result<'a>(extended: &Extended, len: u32, bytes: &'a [u8]) -> Option<ListedResult<'a>> {
    if extended.asks() && !extended.flags().has(Flags::REDIRECT) {
        return (bytes.len() <= len as usize).then_some(ListedResult::Bytes(bytes));
    }
    let (head, rest) = bytes.split_first_chunk()?;
    Some(ListedResult::Number(u64::from_be_bytes(*head), rest))
}

/// Returns true if the packet belongs to a PRISM operation. A READ of scratch memory counts as one even
/// without flags, because the next operation may change the memory before the response is sent.
#[inline]
pub(super) fn is_asked(packet: &View<'_>) -> bool {
    packet.bth.resv7() != 0
        || packet.bth.opcode() == Opcode::RC_RDMA_READ_REQUEST
            && packet.reth().is_some_and(|reth| is_scratch(reth.va))
}

/// Returns true if `va` is in the address range of scratch memory.
pub fn is_scratch(va: u64) -> bool {
    va >= SCRATCH
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Allowed = Allowed { write: true, read: true, atomic: true };

    #[test]
    fn bounded_without_indirect_and_flags_of_other_verbs_are_refused() {
        let both = Flags::ADDR_INDIRECT.and(Flags::ADDR_BOUNDED);
        assert!(allows(Verb::Read, both, ALL) && !allows(Verb::Read, Flags::ADDR_BOUNDED, ALL));
        assert!(allows(Verb::Write, both, ALL) && !allows(Verb::Write, Flags::ADDR_BOUNDED, ALL));
        assert!(allows(Verb::Read, Flags::REDIRECT, ALL) && !allows(Verb::Write, Flags::REDIRECT, ALL));
        assert!(allows(Verb::Write, Flags::REDIRECT.and(Flags::ALLOCATE), ALL));
        assert!(!allows(Verb::Write, Flags::ALLOCATE.and(Flags::ADDR_INDIRECT), ALL));
        assert!(!allows(Verb::Read, Flags::ALLOCATE, ALL) && !allows(Verb::Read, Flags::EXTENDED, ALL));
        assert!(!allows(Verb::CompareSwap, Flags::CONDITIONAL, ALL));
        assert!(allows(Verb::CompareSwap, Flags::CONDITIONAL.and(Flags::EXTENDED), ALL));
        assert!(allows(Verb::FetchAdd, Flags::CONDITIONAL, ALL));
    }

    #[test]
    fn each_part_of_an_operation_needs_the_right_that_its_plain_verb_needs() {
        let without =
            |write: bool, read: bool, atomic: bool| Allowed { write: !write, read: !read, atomic: !atomic };
        let pointer = Flags::ADDR_INDIRECT;
        assert!(!allows(Verb::Write, pointer, without(false, true, false)));
        assert!(!allows(Verb::Write, Flags::CONDITIONAL, without(true, false, false)));
        assert!(!allows(Verb::Read, Flags::REDIRECT, without(true, false, false)));
        assert!(allows(Verb::Read, Flags::CONDITIONAL, without(true, false, true)));
        assert!(!allows(Verb::FetchAdd, Flags::CONDITIONAL, without(false, false, true)));
        assert!(!allows(Verb::FetchAdd, Flags::DATA_INDIRECT, without(false, true, false)));
    }

    #[test]
    fn what_is_packed_comes_back() {
        for (number, verb) in
            [Verb::Read, Verb::Write, Verb::CompareSwap, Verb::FetchAdd].into_iter().enumerate()
        {
            for bits in 0..4 {
                let request = Request {
                    verb,
                    flags: Flags::from_bits(0x55 << number),
                    first: bits & 1 == 1,
                    last: bits & 2 == 2,
                    key: u32::MAX - bits,
                    va: u64::MAX / 3,
                    len: 1 << 31,
                    offset: u32::MAX - 7,
                };
                assert_eq!(Request::from(Packed::from(request)), request);
            }
        }
    }

    #[test]
    fn operations_take_the_packets_that_travel() {
        let packets = |verb, flags| Extended::new(verb, flags, 7, 0, [0, 0]).packets(3000, 1024);
        assert_eq!(packets(Verb::Read, Flags::ADDR_INDIRECT), 3);
        assert_eq!(packets(Verb::Read, Flags::REDIRECT), 1);
        assert_eq!(packets(Verb::Write, Flags::ALLOCATE.and(Flags::REDIRECT)), 3);
        assert_eq!(packets(Verb::Write, Flags::DATA_INDIRECT), 1);
        assert_eq!(packets(Verb::CompareSwap, Flags::EXTENDED), 1);
    }
}
