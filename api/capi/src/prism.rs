//! C functions that post PRISM operations.

use remora_verbs::prism::{Address, Data, Mode, Operand, Operands, Operation, WorkRequest};
use remora_verbs::{Flags, Key, Payload, PostError, Remote, Sge};
use std::ffi::c_int;
use std::sync::PoisonError;

use crate::errno::{Fault, number};
use crate::handle::{Handle, filled, list, look};
use crate::queue_pair::{Qp, Stage};

/// `remora_sge`: one element of a scatter/gather list.
#[derive(Copy, Clone)]
#[repr(C)]
pub(crate) struct CSge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// `remora_prism_atomic`: mode, size, masks and operands of an atomic.
#[derive(Copy, Clone)]
#[repr(C)]
pub(crate) struct Atomic {
    pub mode: u32,
    pub size: u32,
    pub compare_mask: [u64; 4],
    pub swap_mask: [u64; 4],
    pub compare: [u64; 4],
    pub swap_add: [u64; 4],
}

/// `remora_prism_wr`: one work request of PRISM.
#[repr(C)]
pub(crate) struct Wr {
    pub wr_id: u64,
    pub next: *mut Wr,
    pub sg_list: *const CSge,
    pub num_sge: u32,
    pub opcode: u32,
    pub send_flags: u32,
    pub prism_flags: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    pub length: u32,
    pub redirect_addr: u64,
    pub source_addr: u64,
    pub result: CSge,
    pub atomic: Atomic,
}

const READ: u32 = 0;
const WRITE: u32 = 1;
const ALLOCATE: u32 = 2;
const COMPARE_SWAP: u32 = 3;
const FETCH_ADD: u32 = 4;

const SIGNALED: u32 = 1;
const FENCE: u32 = 2;
const INLINE: u32 = 4;

const ADDR_INDIRECT: u32 = 0x40;
const ADDR_BOUNDED: u32 = 0x20;
const DATA_INDIRECT: u32 = 0x10;
const CONDITIONAL: u32 = 0x08;
const REDIRECT: u32 = 0x04;
const COMPARE_INDIRECT: u32 = 0x100;
const SWAP_INDIRECT: u32 = 0x200;

/// The flags that each operation may have, indexed by opcode.
const MAY: [u32; 5] = [
    ADDR_INDIRECT | ADDR_BOUNDED | CONDITIONAL | REDIRECT,
    ADDR_INDIRECT | ADDR_BOUNDED | DATA_INDIRECT | CONDITIONAL,
    DATA_INDIRECT | CONDITIONAL | REDIRECT,
    ADDR_INDIRECT | CONDITIONAL | REDIRECT | COMPARE_INDIRECT | SWAP_INDIRECT,
    ADDR_INDIRECT | CONDITIONAL | REDIRECT | SWAP_INDIRECT,
];

/// The maximum numbers of list elements and of inline bytes.
const MAX_SGE: usize = 30;
const MAX_INLINE: usize = 960;

/// Buffers for the list elements and the inline bytes of a work request while it is posted.
struct Buffers {
    sges: [Sge; MAX_SGE],
    inline: [u8; MAX_INLINE],
}

fn sge(element: &CSge) -> Sge {
    Sge { addr: element.addr, len: element.length, lkey: Key::new(element.lkey) }
}

/// Returns true if the work request needs the PRISM extension.
fn needs_prism(wr: &Wr) -> bool {
    wr.prism_flags != 0 || !matches!(wr.opcode, READ | WRITE)
}

fn check(wr: &Wr) -> Result<(), Fault> {
    let may = MAY.get(wr.opcode as usize).ok_or_else(|| Fault::invalid("no such operation"))?;
    if wr.prism_flags & !may != 0 {
        return Err(Fault::invalid("a flag that this operation cannot have"));
    }
    if wr.prism_flags & (ADDR_BOUNDED | ADDR_INDIRECT) == ADDR_BOUNDED {
        return Err(Fault::invalid("a bound stands behind a pointer: bounded only with indirect"));
    }
    if wr.send_flags & !(SIGNALED | FENCE | INLINE) != 0 {
        return Err(Fault::invalid("a send flag that is not known"));
    }
    let inline = wr.send_flags & INLINE != 0;
    let data = matches!(wr.opcode, WRITE | ALLOCATE) && wr.prism_flags & DATA_INDIRECT == 0;
    if inline && !data {
        return Err(Fault::invalid("only data that this side writes can be inline"));
    }
    let here = data || wr.opcode == READ && wr.prism_flags & REDIRECT == 0;
    if !here && wr.num_sge != 0 {
        return Err(Fault::invalid("a list for an operation that moves no bytes to or from this side"));
    }
    Ok(())
}

/// The used lengths of the buffers after [`fill`] has copied a request.
struct Filled {
    elements: usize,
    /// The number of inline bytes.
    inline: usize,
}

/// Copies the list elements to `buffers`, or the bytes that they refer to if the request is inline.
fn fill(wr: &Wr, most: u32, buffers: &mut Buffers) -> Result<Filled, Fault> {
    if wr.num_sge as usize > MAX_SGE {
        return Err(Fault::invalid("more elements than any queue pair takes"));
    }
    // SAFETY: the header requires `num_sge` elements.
    let elements = unsafe { list(wr.sg_list, wr.num_sge as usize)? };
    for (place, element) in buffers.sges.iter_mut().zip(elements) {
        *place = sge(element);
    }
    let mut len = 0;
    if wr.send_flags & INLINE != 0 {
        for element in elements {
            let end = len + element.length as usize;
            let most = MAX_INLINE.min(most as usize);
            if end > most {
                return Err(Fault::invalid("more inline data than the queue pair was created for"));
            }
            // SAFETY: the header requires each element of an inline request to refer to readable bytes.
            let bytes = unsafe { list(element.addr as *const u8, element.length as usize)? };
            buffers.inline[len..end].copy_from_slice(bytes);
            len = end;
        }
    }
    Ok(Filled { elements: elements.len(), inline: len })
}

fn operands(wr: &Wr) -> Result<Operands, Fault> {
    let atomic = &wr.atomic;
    let operand = |flag: u32, value: [u64; 4]| match wr.prism_flags & flag != 0 {
        true => Operand::At(value[0]),
        false => Operand::Immediate(value),
    };
    let swaps = wr.opcode == COMPARE_SWAP;
    let mode = u8::try_from(atomic.mode).ok().and_then(Mode::from_number);
    let mode = mode.filter(|mode| swaps || *mode == Mode::Equal);
    if !matches!(atomic.size, 8 | 16 | 32) {
        return Err(Fault::invalid("atomics have 8, 16 or 32 bytes"));
    }
    Ok(Operands {
        mode: mode.ok_or_else(|| Fault::invalid("no such mode"))?,
        size: atomic.size as u8,
        compare_mask: atomic.compare_mask,
        swap_mask: if swaps { atomic.swap_mask } else { [0; 4] },
        compare: if swaps { operand(COMPARE_INDIRECT, atomic.compare) } else { Operand::default() },
        swap_add: operand(SWAP_INDIRECT, atomic.swap_add),
    })
}

/// Builds the operation from the elements or bytes that `fill` has put into `buffers`.
fn operation<'a>(wr: &Wr, filled: &Filled, buffers: &'a Buffers) -> Result<Operation<'a>, Fault> {
    let has = |flag: u32| wr.prism_flags & flag != 0;
    let sges = &buffers.sges[..filled.elements];
    let remote = Remote { addr: wr.remote_addr, rkey: Key::new(wr.rkey) };
    let address = Address { remote, indirect: has(ADDR_INDIRECT), bounded: has(ADDR_BOUNDED) };
    let data = if has(DATA_INDIRECT) {
        Data::There { addr: wr.source_addr, len: wr.length }
    } else if wr.send_flags & INLINE != 0 {
        Data::Local(Payload::Inline(&buffers.inline[..filled.inline]))
    } else {
        Data::Local(Payload::Sges(sges))
    };
    Ok(match wr.opcode {
        READ => {
            let here = sges.iter().map(|sge| u64::from(sge.len)).sum::<u64>();
            let here = u32::try_from(here).map_err(|_| Fault::invalid("a list of 4 GiB or more"))?;
            let len = if has(REDIRECT) { wr.length } else { here };
            Operation::Read { from: address, len, into: sges }
        }
        WRITE => Operation::Write { to: address, data },
        ALLOCATE => Operation::Allocate { list: wr.remote_addr, rkey: remote.rkey, data },
        COMPARE_SWAP => Operation::CompareSwap { at: address, operands: operands(wr)? },
        FETCH_ADD => Operation::FetchAdd { at: address, operands: operands(wr)? },
        _ => return Err(Fault::invalid("no such operation")),
    })
}

fn post_one(
    wr: &Wr,
    max_inline: u32,
    buffers: &mut Buffers,
    post: impl FnOnce(&WorkRequest<'_>) -> Result<(), PostError>,
) -> Result<(), Fault> {
    check(wr)?;
    let filled = fill(wr, max_inline, buffers)?;
    let flag = |bit: u32| wr.send_flags & bit != 0;
    let flags = Flags { signaled: flag(SIGNALED), fence: flag(FENCE), ..Flags::default() };
    let request = WorkRequest {
        id: wr.wr_id,
        operation: operation(wr, &filled, buffers)?,
        conditional: wr.prism_flags & CONDITIONAL != 0,
        redirect: (wr.prism_flags & REDIRECT != 0).then_some(wr.redirect_addr),
        result: (wr.result.length != 0).then(|| sge(&wr.result)),
        flags,
    };
    Ok(post(&request)?)
}

/// Posts a list of work requests. After a failure, `next` points to the request that was refused.
///
/// # Safety
/// The caller meets the conditions of the header.
unsafe fn post(qp: *const Handle<Qp>, next: &mut *mut Wr) -> Result<(), Fault> {
    // SAFETY: the caller meets the conditions of the header.
    let qp = unsafe { look(qp)? };
    filled(*next)?;
    let mut stage = qp.stage.lock().unwrap_or_else(PoisonError::into_inner);
    let Stage::Ready(pair) = &mut *stage else {
        return Err(Fault::new(libc::ENOTCONN, "it is not connected"));
    };
    let agreed = pair.agreement().is_some_and(|agreed| agreed.prism);
    let nothing = Sge { addr: 0, len: 0, lkey: Key::new(0) };
    let mut buffers = Buffers { sges: [nothing; MAX_SGE], inline: [0; MAX_INLINE] };
    let mut batch = pair.batch()?;
    while !next.is_null() {
        filled(*next)?;
        // SAFETY: the pointer is not null and aligned, and the header requires a list of work requests.
        let wr = unsafe { &**next };
        if needs_prism(wr) && !agreed {
            return Err(Fault::new(libc::EOPNOTSUPP, "the peer did not agree on PRISM"));
        }
        post_one(wr, qp.max_inline, &mut buffers, |request| batch.post_prism(request))?;
        *next = wr.next;
    }
    Ok(())
}

/// Posts a list of operations. After a failure, `bad_wr` receives the first request that was refused.
///
/// # Safety
/// The caller meets the conditions of the header.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn remora_post_prism(
    qp: *const Handle<Qp>,
    wr: *mut Wr,
    bad_wr: *mut *mut Wr,
) -> c_int {
    let mut next = wr;
    // SAFETY: the caller meets the conditions of the header.
    let done = unsafe { post(qp, &mut next) };
    if done.is_err()
        && let Ok(bad) = filled(bad_wr)
    {
        // SAFETY: the pointer is not null, and the caller meets the conditions of the header.
        unsafe { bad.write(next) };
    }
    number(done)
}

/// Each queue pair has its own `max_inline`; this constant is the greatest possible value.
const _: () = assert!(MAX_INLINE == remora_nic::wqe::MAX_INLINE && MAX_SGE == remora_nic::wqe::MAX_SGE);
