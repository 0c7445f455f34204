//! PRISM work requests and their encoding in slots (`docs/reference/wire/offloads.md` draws the slots).

use remora_memory::Key;
use remora_wire::prism::Flags;
use remora_wire::prism::operands::{MAX_LEN, Repr as Operands};

use crate::request::{Flags as Completion, Operation as Plain, Payload, Remote, Sge};
use crate::wqe::{
    Bounds, MAX_SGE, MAX_SLOTS, PRISM_HEAD as HEAD, PostError, SLOT, Target, Wqe, WqeOpcode, flag_bits,
    header, high_bits, sge_slot,
};

/// Maximum number of slots for operands.
const OPERAND_SLOTS: usize = MAX_LEN.div_ceil(SLOT);

/// The target of a READ, a WRITE or an atomic.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Address and key of the target, or of the pointer to it.
    pub remote: Remote,
    /// Follows the 8-byte pointer at `remote` to the target.
    pub indirect: bool,
    /// Limits the length of the target by the 8-byte bound after the pointer. Only with `indirect`, and not
    /// for atomics.
    pub bounded: bool,
}

impl Address {
    /// Returns a direct address.
    pub fn direct(remote: Remote) -> Address {
        Address { remote, indirect: false, bounded: false }
    }

    /// Returns an address behind a pointer.
    pub fn indirect(remote: Remote) -> Address {
        Address { remote, indirect: true, bounded: false }
    }

    /// Returns an address behind a pointer that is followed by a bound.
    pub fn bounded(remote: Remote) -> Address {
        Address { remote, indirect: true, bounded: true }
    }
}

/// The data source of a WRITE or ALLOCATE.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Data of the requester's memory.
    Local(Payload<'a>),
    /// Data in the peer's memory, under the key of the operation: at most [`COPY_MAX`](super::COPY_MAX)
    /// bytes.
    There {
        /// Address of the first byte.
        addr: u64,
        /// Length in bytes.
        len: u32,
    },
}

/// A PRISM operation (Table 1).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// READ: the data is delivered to `into`, or with a redirection copied to the redirection's address (at
    /// most [`COPY_MAX`](super::COPY_MAX) bytes).
    Read {
        /// Source in the peer's memory.
        from: Address,
        /// Maximum length in bytes.
        len: u32,
        /// Local buffers; empty with a redirection.
        into: &'a [Sge],
    },
    /// WRITE. Its result is the number of bytes written.
    Write {
        /// Target in the peer's memory.
        to: Address,
        /// Data to write.
        data: Data<'a>,
    },
    /// ALLOCATE. Its result is the address of the allocated buffer, also with a redirection.
    Allocate {
        /// Number of the free list.
        list: u64,
        /// Key of the memory region of the buffers.
        rkey: Key,
        /// Data to write into the buffer.
        data: Data<'a>,
    },
    /// Enhanced compare-and-swap. Its result is the old value.
    CompareSwap {
        /// Target, aligned to its size.
        at: Address,
        /// Mode, size, masks and operands.
        operands: Operands,
    },
    /// Fetch-and-add within fields. Its result is the old value.
    FetchAdd {
        /// Target, aligned to its size.
        at: Address,
        /// Size, the highest bit of each field, the addend.
        operands: Operands,
    },
}

/// A PRISM work request. A READ or WRITE without pointer, condition and redirection is the plain verb and has
/// no result. On success, the completion's `outcome` holds the [`Verdict`](super::Verdict).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WorkRequest<'a> {
    /// Value chosen by the program; the completion returns it.
    pub id: u64,
    /// Operation that is executed.
    pub operation: Operation<'a>,
    /// Executes the operation only if the previous operation of this queue was successful.
    pub conditional: bool,
    /// Address at the peer to which the output is written instead of being returned, under the key of the
    /// operation or in scratch memory.
    pub redirect: Option<u64>,
    /// Local element for the result, in host byte order: 8 bytes, or the width of the atomic. With a
    /// redirection, the result of a READ or an atomic is the number of bytes written. READs without a
    /// redirection have none.
    pub result: Option<Sge>,
    /// Flags of the request's completion.
    pub flags: Completion,
}

impl WorkRequest<'_> {
    fn flag_bits(&self) -> Flags {
        let when = |there: bool, flag: Flags| if there { flag } else { Flags::NONE };
        let flags_of = |address: &Address| {
            when(address.indirect, Flags::ADDR_INDIRECT).and(when(address.bounded, Flags::ADDR_BOUNDED))
        };
        let data = |data: &Data<'_>| when(matches!(data, Data::There { .. }), Flags::DATA_INDIRECT);
        let own = match &self.operation {
            Operation::Read { from, .. } => flags_of(from),
            Operation::Write { to, data: content } => flags_of(to).and(data(content)),
            Operation::Allocate { data: content, .. } => Flags::ALLOCATE.and(data(content)),
            Operation::CompareSwap { at: target, operands }
            | Operation::FetchAdd { at: target, operands } => {
                flags_of(target).and(Flags::EXTENDED).and(when(operands.is_indirect(), Flags::DATA_INDIRECT))
            }
        };
        own.and(when(self.conditional, Flags::CONDITIONAL))
            .and(when(self.redirect.is_some(), Flags::REDIRECT))
    }
}

/// Encodes a work request into slots, like [`wqe::write`](crate::wqe::write) but in any order. Returns the
/// number of slots.
///
/// # Errors
/// [`PostError`]: the request does not fit the queue; `store` has not been called.
pub(crate) fn write(
    request: &WorkRequest<'_>,
    bounds: &Bounds,
    free: usize,
    mut store: impl FnMut(usize, &[u8; SLOT]),
) -> Result<usize, PostError> {
    let flags = request.flag_bits();
    if flags == Flags::NONE {
        return write_plain(request, bounds, free, store);
    }
    let mut wqe = Wqe { imm: u64::from(flags.bits()), ..Wqe::default() };
    let (opcode, behind) = encode(&request.operation, &mut wqe)?;
    wqe.header = header(opcode, flag_bits(request.flags, behind.is_inline()), request.id);
    let count = HEAD + behind.slots(bounds)?;
    if count > MAX_SLOTS {
        return Err(if behind.is_inline() { PostError::TooMuchInline } else { PostError::TooManySges });
    }
    if count > free {
        return Err(PostError::QueueFull);
    }
    match behind {
        Behind::List(list) => {
            if let Some(first) = list.first() {
                (wqe.local, wqe.len) = (first.addr, u64::from(first.len));
                wqe.keys |= u64::from(first.lkey.get());
                wqe.compare = list.len() as u64;
            }
            for (index, pair) in list.get(1..).unwrap_or_default().chunks(2).enumerate() {
                store(HEAD + index, &sge_slot(pair));
            }
        }
        Behind::Inline(bytes) => {
            wqe.len = bytes.len() as u64;
            for (index, bytes) in bytes.chunks(SLOT).enumerate() {
                let mut slot = [0; SLOT];
                slot[..bytes.len()].copy_from_slice(bytes);
                store(HEAD + index, &slot);
            }
        }
        Behind::Operands(operands, swaps) => {
            let mut slots = [[0; SLOT]; OPERAND_SLOTS];
            let (len, compare, swap_add) = operands.emit(swaps, slots.as_flattened_mut());
            (wqe.len, wqe.compare, wqe.swap_add) = (len as u64, compare, swap_add);
            let used = slots[..count - HEAD].iter();
            used.enumerate().for_each(|(index, slot)| store(HEAD + index, slot));
        }
    }
    wqe.len |= high_bits(request.id);
    store(0, &wqe.emit());
    store(1, &second(request).emit());
    Ok(count)
}

/// Encodes an operation that is a plain verb.
fn write_plain(
    request: &WorkRequest<'_>,
    bounds: &Bounds,
    free: usize,
    store: impl FnMut(usize, &[u8; SLOT]),
) -> Result<usize, PostError> {
    let mut list = [NO_SGE; MAX_SGE];
    let (operation, payload) = match request.operation {
        Operation::Read { from, len, into } => {
            let count = trim(into, len, &mut list).ok_or(PostError::BadPayload)?;
            (Plain::Read(from.remote), Payload::Sges(&list[..count]))
        }
        Operation::Write { to, data: Data::Local(payload) } => (Plain::Write(to.remote), payload),
        _ => return Err(PostError::BadPayload),
    };
    let plain = crate::request::WorkRequest { id: request.id, operation, payload, flags: request.flags };
    crate::wqe::write(&plain, &Target::Peer, bounds, free, store)
}

const NO_SGE: Sge = Sge { addr: 0, len: 0, lkey: Key::new(0) };

/// Copies the elements for the first `len` bytes of a list to `out`, and returns their number.
fn trim(list: &[Sge], len: u32, out: &mut [Sge; MAX_SGE]) -> Option<usize> {
    let mut left = len;
    let mut count = 0;
    for sge in list {
        if left == 0 {
            break;
        }
        let len = sge.len.min(left);
        *out.get_mut(count)? = Sge { len, ..*sge };
        (left, count) = (left - len, count + 1);
    }
    (left == 0).then_some(count)
}

/// The part of a work request after its first two slots.
enum Behind<'a> {
    /// Elements of the list, without the first.
    List(&'a [Sge]),
    /// Data in the work request.
    Inline(&'a [u8]),
    /// Operands of an atomic; true for a compare-and-swap.
    Operands(&'a Operands, bool),
}

impl Behind<'_> {
    fn is_inline(&self) -> bool {
        !matches!(self, Behind::List(_))
    }

    /// Returns the number of slots.
    #[inline(always)]
    fn slots(&self, bounds: &Bounds) -> Result<usize, PostError> {
        match *self {
            Behind::List(list) if list.len() > bounds.max_sge as usize => Err(PostError::TooManySges),
            Behind::List(list) => Ok(list.len().saturating_sub(1).div_ceil(2)),
            Behind::Inline(bytes) if bytes.len() > bounds.max_inline as usize => {
                Err(PostError::TooMuchInline)
            }
            Behind::Inline(bytes) => Ok(bytes.len().div_ceil(SLOT)),
            Behind::Operands(operands, swaps) => Ok(operands.len(swaps).div_ceil(SLOT)),
        }
    }
}

impl<'a> From<Payload<'a>> for Behind<'a> {
    #[inline(always)]
    fn from(payload: Payload<'a>) -> Behind<'a> {
        match payload {
            Payload::Sges(list) => Behind::List(list),
            Payload::Inline(bytes) => Behind::Inline(bytes),
        }
    }
}

/// Encodes the operation. Returns its opcode and the part after the first two slots.
#[inline(always)]
fn encode<'a>(operation: &'a Operation<'a>, wqe: &mut Wqe) -> Result<(WqeOpcode, Behind<'a>), PostError> {
    let mut set_remote = |remote: &Remote| {
        (wqe.remote, wqe.keys) = (remote.addr, u64::from(remote.rkey.get()) << 32);
    };
    match operation {
        Operation::Read { from, len, into } => {
            set_remote(&from.remote);
            let capacity: u64 = into.iter().map(|sge| u64::from(sge.len)).sum();
            if !into.is_empty() && capacity < u64::from(*len) {
                return Err(PostError::BadPayload);
            }
            wqe.swap_add = u64::from(*len);
            Ok((WqeOpcode::PRISM_READ, Behind::List(into)))
        }
        Operation::Write { to, data } => {
            set_remote(&to.remote);
            Ok((WqeOpcode::PRISM_WRITE, put_data(data, wqe)))
        }
        Operation::Allocate { list, rkey, data } => {
            set_remote(&Remote { addr: *list, rkey: *rkey });
            Ok((WqeOpcode::PRISM_WRITE, put_data(data, wqe)))
        }
        Operation::CompareSwap { at: target, operands } | Operation::FetchAdd { at: target, operands } => {
            set_remote(&target.remote);
            if !matches!(operands.size, 8 | 16 | 32) {
                return Err(PostError::BadPayload);
            }
            let swaps = matches!(operation, Operation::CompareSwap { .. });
            let opcode = if swaps { WqeOpcode::PRISM_COMPARE_SWAP } else { WqeOpcode::PRISM_FETCH_ADD };
            Ok((opcode, Behind::Operands(operands, swaps)))
        }
    }
}

#[inline(always)]
fn put_data<'a>(data: &Data<'a>, wqe: &mut Wqe) -> Behind<'a> {
    match data {
        Data::Local(payload) => (*payload).into(),
        Data::There { addr, len } => {
            (wqe.swap_add, wqe.len) = (*addr, u64::from(*len));
            Behind::List(&[])
        }
    }
}

/// Returns the second slot: the redirection and the location of the result.
fn second(request: &WorkRequest<'_>) -> Wqe {
    let result = request.result.unwrap_or(NO_SGE);
    Wqe {
        header: request.redirect.unwrap_or(0),
        local: result.addr,
        len: u64::from(result.len),
        keys: u64::from(result.lkey.get()),
        ..Wqe::default()
    }
}
