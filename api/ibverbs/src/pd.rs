//! Functions for protection domains.

use remora_abi::memory::IbvTd;
use remora_abi::objects::{IbvContext, IbvPd};
use remora_verbs::raw::Pd;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::context;
use crate::errno;
use crate::handles::{self, Kind, Object};
use crate::td::TdObject;

/// A protection domain, or a parent domain that stands for one.
#[repr(C)]
pub(crate) struct PdObject {
    pub verbs: IbvPd,
    pub pd: Pd,
    /// The domains behind a parent domain; `None` for a protection domain.
    pub parent_of: Option<Parent>,
    /// The number of parent domains that stand for this domain.
    pub children: AtomicU32,
}

/// The domains that a parent domain refers to and keeps in use.
pub(crate) struct Parent {
    pub pd: *mut IbvPd,
    /// The thread domain, or NULL.
    pub td: *mut IbvTd,
}

impl Object for PdObject {
    type C = IbvPd;
    const KIND: Kind = Kind::Pd;
}

/// Returns the domain of this handle.
pub(crate) fn look<'a>(pd: *mut IbvPd) -> Result<&'a PdObject, c_int> {
    handles::look::<PdObject>(pd)
}

/// Hands a domain over to the program.
pub(crate) fn give(context: *mut IbvContext, pd: Pd, parent_of: Option<Parent>) -> *mut IbvPd {
    let verbs = IbvPd { context, handle: pd.get() };
    handles::give(Box::new(PdObject { verbs, pd, parent_of, children: 0.into() }))
}

/// Allocates a protection domain.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut IbvContext) -> *mut IbvPd {
    errno::pointer((|| {
        let adapter = &context::look(context)?.nic.adapter;
        adapter.refuse_child().map_err(errno::of_create)?;
        Ok(give(context, adapter.alloc_domain().map_err(errno::of_create)?, None))
    })())
}

/// Deallocates a protection domain. EBUSY while an object belongs to it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut IbvPd) -> c_int {
    errno::number((|| {
        let object = look(pd)?;
        if object.parent_of.is_some() {
            return dealloc_parent(pd);
        }
        if object.children.load(Ordering::Acquire) > 0 {
            return Err(libc::EBUSY);
        }
        let adapter = &context::look(object.verbs.context)?.nic.adapter;
        if !adapter.is_child() {
            adapter.free_domain(object.pd).map_err(errno::of_create)?;
        }
        handles::take::<PdObject>(pd).map(drop)
    })())
}

/// Deallocates a parent domain. Objects created with it belong to the domain that it stands for.
pub(crate) fn dealloc_parent(parent: *mut IbvPd) -> Result<(), c_int> {
    let object = handles::take::<PdObject>(parent)?;
    let Some(Parent { pd, td }) = object.parent_of else { return Ok(()) };
    look(pd)?.children.fetch_sub(1, Ordering::AcqRel);
    if let Some(td) = handles::look_if_any::<TdObject>(td)? {
        td.users.fetch_sub(1, Ordering::AcqRel);
    }
    Ok(())
}
