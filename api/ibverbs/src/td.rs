//! Thread domains, which change nothing here: one thread at work pays for no lock.

use remora_abi::memory::{IbvTd, IbvTdInitAttr};
use remora_abi::objects::IbvContext;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::handles::{self, Kind, Object};
use crate::{context, errno};

/// A thread domain.
#[repr(C)]
pub struct TdObject {
    verbs: IbvTd,
    /// Parent domains that name it.
    pub users: AtomicU32,
}

impl Object for TdObject {
    type C = IbvTd;
    const KIND: Kind = Kind::Td;
}

/// Allocates a thread domain.
pub unsafe extern "C" fn alloc_td(context: *mut IbvContext, attr: *mut IbvTdInitAttr) -> *mut IbvTd {
    errno::pointer((|| {
        context::look(context)?;
        // SAFETY: NULL, or the program's.
        if unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?.comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(handles::give(Box::new(TdObject { verbs: IbvTd { context }, users: AtomicU32::new(0) })))
    })())
}

/// Ends a thread domain; EBUSY while a parent domain names it.
pub unsafe extern "C" fn dealloc_td(td: *mut IbvTd) -> c_int {
    errno::number((|| {
        let object = handles::look::<TdObject>(td)?;
        if object.users.load(Ordering::Acquire) > 0 {
            return Err(libc::EBUSY);
        }
        context::look(object.verbs.context)?;
        handles::take::<TdObject>(td).map(drop)
    })())
}
