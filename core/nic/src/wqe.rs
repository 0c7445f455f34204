//! Work queue entries: the 64 bytes of a work request as they stand in a queue's memory
//! (`docs/reference/wire/queues.md` draws
//! them).
//!
//! Eight little-endian words, each field alone in its own, so that a chain may add to one without touching
//! its neighbour:
//!
//! | byte | word | low half | high half |
//! | ---- | ---- | -------- | --------- |
//! | 0 | header | op-code 8, flags 8, lower 48 bits of the id | |
//! | 8 | local address | | |
//! | 16 | length in bytes | 32 bits | 0 (16 bits), upper 16 bits of the id |
//! | 24 | keys | local key | remote key |
//! | 32 | remote address | | |
//! | 40 | compare; elements of the list (2) | | |
//! | 48 | swap or add | | |
//! | 56 | immediate data or key to invalidate | 32 bits | shared receive queue |
//!
//! A datagram names its address handle in the remote address, and in swap or add the queue pair (low half)
//! and Q_Key (high half) that it is for. On an extended reliable connection the upper half of the last word
//! is the shared receive queue. WAIT and ENABLE have a completion queue's number, or a queue pair's, in the
//! remote address and their count in swap or add. BIND_MW has the range in local address and length, the
//! region's key and the window's as keys, the rights in compare and the new key as immediate data.
//!
//! A list of more than one element, and inline data, follow in further slots of 64 bytes: two elements a
//! slot, each in the shape of bytes 8 to 39 (address, length, key, reserved).

pub use crate::wqe_opcode::WqeOpcode;

use crate::request::{Flags, Operation, Payload, Remote, Sge, WorkRequest};
use remora_memory::{Access, Binding, Key};
use remora_transport::ud::Destination;
use remora_wire::Qpn;

/// Size of a slot in bytes.
pub const SLOT: usize = 64;
/// Maximum number of scatter/gather elements of a work request.
pub const MAX_SGE: usize = 30;
/// Maximum number of inline bytes of a work request.
pub const MAX_INLINE: usize = 15 * SLOT;
/// Maximum number of slots of a work request.
pub const MAX_SLOTS: usize = 16;
/// Slots that precede the list or the inline data of a PRISM work request.
pub(crate) const PRISM_HEAD: usize = 2;
/// Number of bits of a work request id that the header word holds. A chain's compare-and-swap compares these
/// bits.
pub const ID_BITS: u32 = 48;
/// Number of bits of the length word that hold the length. The bits above hold the rest of the id.
const LENGTH_BITS: u32 = 48;
/// The largest length that a work request can specify, in bytes. No memory region is that long.
const MAX_LENGTH: u64 = (1 << LENGTH_BITS) - 1;

/// Flag bits of the header.
pub mod flag {
    /// The request has a completion.
    pub const SIGNALED: u8 = 1;
    /// The request waits for earlier READs and atomics.
    pub const FENCE: u8 = 2;
    /// The receiver raises a solicited event.
    pub const SOLICITED: u8 = 4;
    /// The data follows inline, in the next slots.
    pub const INLINE: u8 = 8;
}

/// The first slot of a work request, as eight words.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Wqe {
    /// Opcode, flags, and the lower 48 bits of the id.
    pub header: u64,
    /// Address of the first byte of the first element.
    pub local: u64,
    /// Length in bytes of the first element or of the inline data (lower 48 bits); upper 16 bits of the id.
    pub len: u64,
    /// Local key (low half) and remote key (high half).
    pub keys: u64,
    /// Address of the first byte at the peer.
    pub remote: u64,
    /// Compare operand, in the header's layout; number of list elements for SEND, WRITE and READ.
    pub compare: u64,
    /// Swap operand or addend.
    pub swap_add: u64,
    /// Immediate data, or the key to invalidate (low half); the peer's shared receive queue (high half).
    pub imm: u64,
}

impl Wqe {
    /// Parses the 64 bytes of a slot. Every value is accepted.
    #[inline]
    pub fn parse(bytes: &[u8; SLOT]) -> Wqe {
        let word = |offset: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[offset..offset + 8]);
            u64::from_le_bytes(word)
        };
        Wqe {
            header: word(0),
            local: word(8),
            len: word(16),
            keys: word(24),
            remote: word(32),
            compare: word(40),
            swap_add: word(48),
            imm: word(56),
        }
    }

    /// Returns the 64 bytes of the slot.
    #[inline]
    pub fn emit(&self) -> [u8; SLOT] {
        let words = [
            self.header,
            self.local,
            self.len,
            self.keys,
            self.remote,
            self.compare,
            self.swap_add,
            self.imm,
        ];
        let mut bytes = [0; SLOT];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the opcode.
    #[inline]
    pub fn opcode(&self) -> WqeOpcode {
        WqeOpcode(self.header as u8)
    }

    /// Returns the flag bits, see [`flag`].
    #[inline]
    pub fn flags(&self) -> u8 {
        (self.header >> 8) as u8
    }

    /// Returns the work request id: 48 bits from the header word, 16 bits from the length word.
    #[inline]
    pub fn id(&self) -> u64 {
        self.header >> 16 | self.len >> LENGTH_BITS << ID_BITS
    }

    /// Returns the upper 16 bits of the id.
    #[inline]
    pub(crate) fn id_high(&self) -> u16 {
        (self.len >> LENGTH_BITS) as u16
    }

    /// Returns the length in bytes of the first element or of the inline data.
    #[inline]
    pub fn length(&self) -> u64 {
        self.len & MAX_LENGTH
    }

    /// Returns the local key of the first element.
    #[inline]
    pub fn lkey(&self) -> Key {
        Key::new(self.keys as u32)
    }

    /// Returns the remote key.
    #[inline]
    pub fn rkey(&self) -> u32 {
        (self.keys >> 32) as u32
    }

    /// Returns the number of the peer's shared receive queue (XRC).
    #[inline]
    pub fn srq(&self) -> u32 {
        (self.imm >> 32) as u32
    }

    /// Returns the number of the address handle of a datagram.
    #[inline]
    pub fn handle(&self) -> u64 {
        self.remote
    }

    /// Returns the destination queue pair and Q_Key of a datagram.
    #[inline]
    pub fn destination(&self) -> Destination {
        Destination { qp: Qpn::new(self.swap_add as u32 & 0x00ff_ffff), qkey: (self.swap_add >> 32) as u32 }
    }

    /// Returns the binding that a BIND_MW asks for, or `None` if the access rights are invalid.
    pub fn binding(&self) -> Option<Binding> {
        Some(Binding {
            window: Key::new(self.rkey()),
            key: Key::new(self.imm as u32),
            region: self.lkey(),
            va: self.local,
            len: self.length(),
            access: Access::from_bits(u32::try_from(self.compare).ok()?)?,
        })
    }

    /// Returns the first element.
    #[inline]
    pub fn sge(&self) -> Sge {
        Sge { addr: self.local, len: self.len as u32, lkey: self.lkey() }
    }

    /// Returns the number of elements: 1 for an atomic, 0 for a request without data.
    #[inline]
    pub fn elements(&self) -> usize {
        if self.opcode().has_list() {
            self.list_len()
        } else {
            let atomic = matches!(self.opcode(), WqeOpcode::COMPARE_SWAP | WqeOpcode::FETCH_ADD);
            usize::from(atomic || self.opcode().is_calculation())
        }
    }

    /// Returns the number of slots of the work request, including the first one. `None` if the number exceeds
    /// [`MAX_SLOTS`].
    #[inline]
    pub fn slots(&self) -> Option<usize> {
        if !self.opcode().has_list() {
            return if self.opcode().is_prism() { prism_slots(self) } else { Some(1) };
        }
        if self.flags() & flag::INLINE != 0 {
            let len = self.length();
            return (len <= MAX_INLINE as u64).then(|| 1 + (len as usize).div_ceil(SLOT));
        }
        let elements = self.list_len();
        (elements <= MAX_SGE).then(|| 1 + elements.saturating_sub(1).div_ceil(2))
    }

    /// Returns true for a SEND, WRITE or READ of one slot: with one element or none, and no inline data.
    #[inline(always)]
    pub(crate) fn is_simple(&self) -> bool {
        let opcode = self.opcode();
        matches!(opcode, WqeOpcode::WRITE | WqeOpcode::READ | WqeOpcode::SEND)
            && self.flags() & flag::INLINE == 0
            && self.list_len() <= 1
    }

    /// Returns the number of list elements, from the low two bytes of `compare`. The upper six bytes are
    /// free, as in the header, so that a chain can compare them.
    #[inline(always)]
    fn list_len(&self) -> usize {
        usize::from(self.compare as u16)
    }
}

/// Parses the two elements of a further slot.
pub fn sges(bytes: &[u8; SLOT]) -> [Sge; 2] {
    let wqe = Wqe::parse(bytes);
    let second = Sge { addr: wqe.remote, len: wqe.compare as u32, lkey: Key::new(wqe.swap_add as u32) };
    // Elements have the layout of bytes 8 to 39 of a first slot, here shifted to byte 0.
    let first = Sge { addr: wqe.header, len: wqe.local as u32, lkey: Key::new(wqe.len as u32) };
    [first, second]
}

/// Returns a further slot with up to two elements.
pub fn sge_slot(pair: &[Sge]) -> [u8; SLOT] {
    let mut bytes = [0; SLOT];
    for (sge, buffer) in pair.iter().zip(bytes.chunks_exact_mut(SLOT / 2)) {
        buffer[..8].copy_from_slice(&sge.addr.to_le_bytes());
        buffer[8..12].copy_from_slice(&sge.len.to_le_bytes());
        buffer[16..20].copy_from_slice(&sge.lkey.get().to_le_bytes());
    }
    bytes
}

/// The reason why a work request cannot be written into a queue. `ibv_post_send` returns EINVAL or ENOMEM.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue is full (ENOMEM).
    #[error("the queue is full: poll its completion queue, or create it deeper")]
    QueueFull,
    /// The work request has more elements than the queue was created for.
    #[error("more scatter/gather elements than the queue pair was created for (max_sge)")]
    TooManySges,
    /// The work request has more inline data than the queue was created for.
    #[error("more inline data than the queue pair was created for (max_inline)")]
    TooMuchInline,
    /// The payload does not fit the operation: an atomic needs exactly one element of 8 bytes; a READ cannot
    /// be inline.
    #[error(
        "the payload does not fit the operation: an atomic takes one element of 8 bytes, a READ cannot be \
         inline"
    )]
    BadPayload,
    /// The queue pair accepts no work requests in its present state.
    #[error("the queue pair takes no work in this state: bring it to RTS (RTR for receives)")]
    BadState,
}

/// Returns the header word of a work request, with the lower 48 bits of the id; see [`high_bits`].
pub(crate) fn header(opcode: WqeOpcode, flags: u8, id: u64) -> u64 {
    u64::from(opcode.0) | u64::from(flags) << 8 | id << 16
}

/// Returns the upper 16 bits of an id, at their position in the length word.
#[inline]
pub(crate) fn high_bits(id: u64) -> u64 {
    id >> ID_BITS << LENGTH_BITS
}

pub(crate) fn flag_bits(flags: Flags, inline: bool) -> u8 {
    (u8::from(flags.signaled) * flag::SIGNALED)
        | (u8::from(flags.fence) * flag::FENCE)
        | (u8::from(flags.solicited) * flag::SOLICITED)
        | (u8::from(inline) * flag::INLINE)
}

/// Limits that a queue was created with.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of scatter/gather elements.
    pub max_sge: u32,
    /// Maximum number of inline bytes.
    pub max_inline: u32,
}

/// The destination of a work request, for services where the connection does not define it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The connected peer.
    #[default]
    Peer,
    /// This shared receive queue of the peer (XRC).
    Srq(Qpn),
    /// The destination of a datagram.
    Datagram {
        /// Number of the address handle.
        handle: u32,
        /// The destination queue pair and its Q_Key.
        to: Destination,
    },
}

impl Target {
    #[inline]
    fn put(&self, wqe: &mut Wqe) {
        match self {
            Target::Peer => {}
            Target::Srq(number) => wqe.imm |= u64::from(number.get()) << 32,
            Target::Datagram { handle, to: destination } => {
                wqe.remote = u64::from(*handle);
                wqe.swap_add = u64::from(destination.qp.get()) | u64::from(destination.qkey) << 32;
            }
        }
    }
}

/// Returns the number of slots of a PRISM work request, or `None` if it exceeds the maximum.
fn prism_slots(wqe: &Wqe) -> Option<usize> {
    let behind = if wqe.flags() & flag::INLINE != 0 {
        let len = wqe.length();
        (len <= MAX_INLINE as u64).then(|| (len as usize).div_ceil(SLOT))?
    } else {
        (wqe.compare <= MAX_SGE as u64 || !has_prism_list(wqe)).then(|| prism_list_slots(wqe))?
    };
    (PRISM_HEAD + behind <= MAX_SLOTS).then_some(PRISM_HEAD + behind)
}

fn has_prism_list(wqe: &Wqe) -> bool {
    matches!(wqe.opcode(), WqeOpcode::PRISM_READ | WqeOpcode::PRISM_WRITE)
}

fn prism_list_slots(wqe: &Wqe) -> usize {
    if has_prism_list(wqe) { (wqe.compare as usize).saturating_sub(1).div_ceil(2) } else { 0 }
}

/// Encodes a work request into slots, first slot first, and returns the number of slots. `free` is the number
/// of free slots in the queue. `store` writes one slot; it is called at most [`MAX_SLOTS`] times, and not at
/// all on an error.
#[inline(always)]
pub(crate) fn write(
    request: &WorkRequest<'_>,
    target: &Target,
    bounds: &Bounds,
    free: usize,
    mut store: impl FnMut(usize, &[u8; SLOT]),
) -> Result<usize, PostError> {
    let mut wqe = encode(request, bounds)?;
    target.put(&mut wqe);
    let slots = 1 + further_slots(&wqe, &request.payload);
    if slots > MAX_SLOTS {
        return Err(PostError::TooManySges);
    }
    if slots > free {
        return Err(PostError::QueueFull);
    }
    // Hardware would write the first slot last. Here the order is free, because the producer index publishes
    // all slots together.
    store(0, &wqe.emit());
    match request.payload {
        Payload::Inline(bytes) => {
            for (index, chunk) in bytes.chunks(SLOT).enumerate() {
                let mut slot = [0; SLOT];
                slot[..chunk.len()].copy_from_slice(chunk);
                store(1 + index, &slot);
            }
        }
        Payload::Sges(list) if slots > 1 => {
            for (index, pair) in list[1..].chunks(2).enumerate() {
                store(1 + index, &sge_slot(pair));
            }
        }
        Payload::Sges(_) => {}
    }
    Ok(slots)
}

/// Returns the number of slots after the first one.
#[inline(always)]
fn further_slots(wqe: &Wqe, payload: &Payload<'_>) -> usize {
    match payload {
        Payload::Inline(bytes) => bytes.len().div_ceil(SLOT),
        Payload::Sges(list) if list.len() > 1 && wqe.opcode().has_list() => (list.len() - 1).div_ceil(2),
        Payload::Sges(_) => 0,
    }
}

#[inline(always)]
fn encode(request: &WorkRequest<'_>, bounds: &Bounds) -> Result<Wqe, PostError> {
    let mut wqe = operation(&request.operation);
    let opcode = wqe.opcode();
    let inline = matches!(request.payload, Payload::Inline(_));
    wqe.header = header(opcode, flag_bits(request.flags, inline && opcode.has_list()), request.id);
    match request.payload {
        Payload::Inline(bytes) => {
            if bytes.len() > bounds.max_inline as usize {
                return Err(PostError::TooMuchInline);
            }
            if opcode == WqeOpcode::READ || (!opcode.has_list() && !bytes.is_empty()) {
                return Err(PostError::BadPayload);
            }
            wqe.len = bytes.len() as u64;
        }
        Payload::Sges(list) => put_list(&mut wqe, list, bounds)?,
    }
    wqe.len |= high_bits(request.id);
    Ok(wqe)
}

#[inline(always)]
fn put_list(wqe: &mut Wqe, list: &[Sge], bounds: &Bounds) -> Result<(), PostError> {
    let opcode = wqe.opcode();
    let atomic = matches!(opcode, WqeOpcode::COMPARE_SWAP | WqeOpcode::FETCH_ADD) || opcode.is_calculation();
    if atomic && !(list.len() == 1 && list[0].len == 8) {
        return Err(PostError::BadPayload);
    }
    if list.len() > bounds.max_sge as usize {
        return Err(PostError::TooManySges);
    }
    if let Some(first) = list.first() {
        (wqe.local, wqe.len) = (first.addr, u64::from(first.len));
        wqe.keys |= u64::from(first.lkey.get());
    }
    if wqe.opcode().has_list() {
        wqe.compare = list.len() as u64;
    }
    Ok(())
}

#[inline(always)]
fn operation(operation: &Operation) -> Wqe {
    let one_sided = |opcode: WqeOpcode, remote: &Remote| Wqe {
        header: u64::from(opcode.0),
        keys: u64::from(remote.rkey.get()) << 32,
        remote: remote.addr,
        ..Wqe::default()
    };
    let control = |opcode: WqeOpcode, number: u32, count: u64| Wqe {
        header: u64::from(opcode.0),
        remote: u64::from(number),
        swap_add: count,
        ..Wqe::default()
    };
    let plain = |opcode: WqeOpcode, imm: u32| Wqe {
        header: u64::from(opcode.0),
        imm: u64::from(imm),
        ..Wqe::default()
    };
    let kernel = |opcode: WqeOpcode, rpc: u64, tag: u32| Wqe {
        header: u64::from(opcode.0),
        keys: u64::from(tag) << 32,
        remote: rpc,
        ..Wqe::default()
    };
    match operation {
        Operation::Send => plain(WqeOpcode::SEND, 0),
        Operation::SendImm(imm) => plain(WqeOpcode::SEND_IMM, *imm),
        Operation::SendInv(key) => plain(WqeOpcode::SEND_INV, key.get()),
        Operation::Write(remote) => one_sided(WqeOpcode::WRITE, remote),
        Operation::WriteImm(remote, imm) => {
            Wqe { imm: u64::from(*imm), ..one_sided(WqeOpcode::WRITE_IMM, remote) }
        }
        Operation::Read(remote) => one_sided(WqeOpcode::READ, remote),
        Operation::CompareSwap { remote, compare, swap } => {
            Wqe { compare: *compare, swap_add: *swap, ..one_sided(WqeOpcode::COMPARE_SWAP, remote) }
        }
        Operation::FetchAdd { remote, add } => {
            Wqe { swap_add: *add, ..one_sided(WqeOpcode::FETCH_ADD, remote) }
        }
        Operation::LocalInv(key) => plain(WqeOpcode::LOCAL_INV, key.get()),
        Operation::BindWindow(binding) => Wqe {
            local: binding.va,
            // A longer range is in no region, so the request fails as it would with the full length.
            len: binding.len.min(MAX_LENGTH),
            keys: u64::from(binding.region.get()) | u64::from(binding.window.get()) << 32,
            compare: u64::from(binding.access.bits()),
            ..plain(WqeOpcode::BIND_MW, binding.key.get())
        },
        Operation::Wait { cq, count } => control(WqeOpcode::WAIT, *cq, *count),
        Operation::Enable { qp, count } => control(WqeOpcode::ENABLE, qp.get(), *count),
        Operation::Calculate { calculation, remote, operand } => {
            Wqe { swap_add: *operand, ..one_sided(calculation.opcode(), remote) }
        }
        Operation::Rpc { opcode, tag } => kernel(WqeOpcode::RPC, *opcode, *tag),
        Operation::RpcWrite { opcode, tag } => kernel(WqeOpcode::RPC_WRITE, *opcode, *tag),
        Operation::Nop => plain(WqeOpcode::NOP, 0),
    }
}
