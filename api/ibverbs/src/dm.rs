//! Device memory (`ibv_alloc_dm`).

use remora_abi::memory::{IbvAllocDmAttr, IbvDm};
use remora_abi::objects::{IbvContext, IbvMr, IbvPd};
use remora_verbs::{Access, Bytes, Range};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::handles::{self, Kind, Object};
use crate::{context, errno, mr, pd};

/// Offsets and lengths of copies must be multiples of this, as on hardware.
const GRAIN: u64 = 4;
/// The largest alignment that a program may request, as a power of two: the alignment of the memory itself.
const MAX_LOG_ALIGN: u32 = 6;

/// A piece of device memory.
#[repr(C)]
pub(crate) struct DmObject {
    verbs: IbvDm,
    bytes: Bytes,
    length: usize,
}

impl Object for DmObject {
    type C = IbvDm;
    const KIND: Kind = Kind::Dm;
}

impl DmObject {
    /// Returns whether `number` is this object's handle number.
    pub(crate) fn is_numbered(&self, number: u32) -> bool {
        self.verbs.handle == number
    }

    /// Creates another handle of the same memory.
    pub(crate) fn again(&self, context: *mut IbvContext) -> *mut IbvDm {
        let verbs = IbvDm { context, ..self.verbs };
        handles::give(Box::new(DmObject { verbs, bytes: self.bytes.clone(), length: self.length }))
    }
}

/// Allocates device memory.
pub(crate) unsafe extern "C" fn alloc_dm(context: *mut IbvContext, attr: *mut IbvAllocDmAttr) -> *mut IbvDm {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    errno::pointer((|| {
        let adapter = &context::look(context)?.nic.adapter;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if attr.comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if attr.log_align_req > MAX_LOG_ALIGN || attr.length > crate::attributes::DM_BYTES {
            return Err(libc::EINVAL);
        }
        // A forked child has no device, but gets memory that it can copy to and from.
        let taken = match adapter.is_child() {
            true => Bytes::heap(attr.length).map_err(errno::of_memory),
            false => adapter.on_nic(attr.length).map_err(errno::of_create),
        };
        let bytes = taken?;
        let verbs = IbvDm {
            context,
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: 0,
            handle: NEXT.fetch_add(1, Ordering::Relaxed),
        };
        Ok(handles::give(Box::new(DmObject { verbs, bytes, length: attr.length })))
    })())
}

/// Frees device memory. Regions over the memory keep it until they end.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut IbvDm) -> c_int {
    errno::number((|| {
        context::look(handles::look::<DmObject>(dm)?.verbs.context)?;
        handles::take::<DmObject>(dm).map(drop)
    })())
}

/// Returns `offset` if `length` bytes from there are within the memory.
fn place(object: &DmObject, offset: u64, length: usize) -> Result<usize, c_int> {
    let offset = usize::try_from(offset).map_err(|_| libc::EINVAL)?;
    let end = offset.checked_add(length).ok_or(libc::EINVAL)?;
    if end > object.length { Err(libc::EINVAL) } else { Ok(offset) }
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut IbvDm,
    offset: u64,
    source: *const c_void,
    length: usize,
) -> c_int {
    errno::number((|| {
        let object = handles::look::<DmObject>(dm)?;
        let position = place(object, offset, length)?;
        if !offset.is_multiple_of(GRAIN) || !(length as u64).is_multiple_of(GRAIN) {
            return Err(libc::EINVAL);
        }
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the program states that it has `length` bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), length) };
        object.bytes.write(position, bytes).map_err(|_| libc::EINVAL)
    })())
}

unsafe extern "C" fn memcpy_from_dm(
    destination: *mut c_void,
    dm: *mut IbvDm,
    offset: u64,
    length: usize,
) -> c_int {
    errno::number((|| {
        let object = handles::look::<DmObject>(dm)?;
        let position = place(object, offset, length)?;
        if !offset.is_multiple_of(GRAIN) || !(length as u64).is_multiple_of(GRAIN) {
            return Err(libc::EINVAL);
        }
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the program states that it has `length` bytes there.
        let bytes = unsafe { std::slice::from_raw_parts_mut(destination.cast::<u8>(), length) };
        object.bytes.read(position, bytes).map_err(|_| libc::EINVAL)
    })())
}

/// Registers a part of device memory. Its addresses count from 0, which the program must request.
pub(crate) unsafe extern "C" fn reg_dm_mr(
    pd: *mut IbvPd,
    dm: *mut IbvDm,
    offset: u64,
    length: usize,
    flags: c_uint,
) -> *mut IbvMr {
    errno::pointer((|| {
        let domain = pd::look(pd)?;
        let object = handles::look::<DmObject>(dm)?;
        let access = mr::access(flags)?;
        let offset = place(object, offset, length)?;
        if !access.contains(Access::ZERO_BASED) {
            return Err(libc::EINVAL);
        }
        let adapter = &context::look(domain.verbs.context)?.nic.adapter;
        adapter.refuse_child().map_err(errno::of_create)?;
        // A region of length 0 is registered with one byte, to which no peer has access.
        let (len, access) = if length == 0 { (1, Access::ZERO_BASED) } else { (length, access) };
        let range = Range { bytes: object.bytes.clone(), offset, len, iova: 0 };
        let key = adapter.register(domain.pd, &[range], access).map_err(errno::of_create)?;
        mr::give(pd, key, std::ptr::null_mut(), length, flags)
    })())
}
