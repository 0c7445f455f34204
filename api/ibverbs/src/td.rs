//! Thread domains, which have no effect here: a single thread does not pay for the lock.

use remora_abi::memory::{IbvTd, IbvTdInitAttr};
use remora_abi::objects::IbvContext;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::handles::{self, Kind, Object};
use crate::{context, errno};

/// A thread domain.
#[repr(C)]
pub(crate) struct TdObject {
    verbs: IbvTd,
    /// The number of parent domains that refer to the thread domain.
    pub users: AtomicU32,
}

impl Object for TdObject {
    type C = IbvTd;
    const KIND: Kind = Kind::Td;
}

/// Allocates a thread domain.
pub(crate) unsafe extern "C" fn alloc_td(context: *mut IbvContext, attr: *mut IbvTdInitAttr) -> *mut IbvTd {
    errno::pointer((|| {
        context::look(context)?;
        // SAFETY: NULL, or the program's attributes.
        if unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?.comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(handles::give(Box::new(TdObject { verbs: IbvTd { context }, users: AtomicU32::new(0) })))
    })())
}

/// Deallocates a thread domain. EBUSY while a parent domain refers to it.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut IbvTd) -> c_int {
    errno::number((|| {
        let object = handles::look::<TdObject>(td)?;
        if object.users.load(Ordering::Acquire) > 0 {
            return Err(libc::EBUSY);
        }
        context::look(object.verbs.context)?;
        handles::take::<TdObject>(td).map(drop)
    })())
}
