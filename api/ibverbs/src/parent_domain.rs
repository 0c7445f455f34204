//! Thread domains, which change nothing here, and parent domains, which stand for a protection domain.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi::context::IbvContext;
use crate::abi::memory::{IbvParentDomainInitAttr, IbvPd, IbvTd, IbvTdInitAttr};
use crate::handles::{self, Kind, Object};
use crate::pd::{self, Parent, PdObject};
use crate::{context, errno};

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS` and `_PD_CONTEXT`: taken, and not called.
const KNOWN: u32 = 3;

/// A thread domain: one thread at work has no lock to save here.
#[repr(C)]
pub struct TdObject {
    verbs: IbvTd,
    /// Parent domains that name it.
    users: AtomicU32,
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
            return Err(libc::EINVAL);
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

/// Allocates a parent domain.
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut IbvContext,
    attr: *mut IbvParentDomainInitAttr,
) -> *mut IbvPd {
    errno::pointer((|| {
        let adapter = &context::look(context)?.nic.adapter;
        // SAFETY: NULL, or the program's.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if attr.comp_mask & !KNOWN != 0 {
            return Err(libc::EINVAL);
        }
        let below = pd::look(attr.pd)?;
        if below.parent_of.is_some() {
            return Err(libc::EINVAL);
        }
        let td = handles::look_if_any::<TdObject>(attr.td)?;
        adapter.refuse_child().map_err(errno::of_create)?;
        below.children.fetch_add(1, Ordering::AcqRel);
        if let Some(td) = td {
            td.users.fetch_add(1, Ordering::AcqRel);
        }
        Ok(pd::give(context, below.pd, Some(Parent { of: attr.pd, td: attr.td })))
    })())
}

/// Ends a parent domain. Its objects are those of the domain that it stands for.
pub fn dealloc(parent: *mut IbvPd) -> Result<(), c_int> {
    let object = handles::take::<PdObject>(parent)?;
    let Some(Parent { of, td }) = object.parent_of else { return Ok(()) };
    pd::look(of)?.children.fetch_sub(1, Ordering::AcqRel);
    if let Some(td) = handles::look_if_any::<TdObject>(td)? {
        td.users.fetch_sub(1, Ordering::AcqRel);
    }
    Ok(())
}
