//! Handing objects around inside one process, by the descriptor of a context and by their numbers.

use remora_abi::memory::IbvDm;
use remora_abi::objects::{IbvContext, IbvMr, IbvPd};
use std::ffi::{c_int, c_void};

use crate::context::{self, ContextObject};
use crate::dm::DmObject;
use crate::handles;
use crate::mr::MrObject;
use crate::pd::{self, Parent, PdObject};
use crate::{device, errno, open};

/// Another view of the NIC that a context with this descriptor, or a duplicate of it, is a view of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_device(descriptor: c_int) -> *mut IbvContext {
    errno::pointer((|| {
        let is_it = |object: &ContextObject| context::is_command(object, descriptor);
        handles::find::<ContextObject>(is_it).ok_or(libc::EINVAL)?;
        open::open(device::device())
    })())
}

/// Another handle of the protection domain of this number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_pd(context: *mut IbvContext, number: u32) -> *mut IbvPd {
    errno::pointer((|| {
        context::look(context)?;
        let is_it = |object: &PdObject| object.verbs.handle == number && object.parent_of.is_none();
        let of = handles::find::<PdObject>(is_it).ok_or(libc::EINVAL)?;
        let object = pd::look(of)?;
        object.children.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        Ok(pd::give(context, object.pd, Some(Parent { of, td: std::ptr::null_mut() })))
    })())
}

/// Ends such a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut IbvPd) {
    if pd::look(pd).is_ok_and(|object| object.parent_of.is_some()) {
        let ended = pd::dealloc_parent(pd);
        debug_assert!(ended.is_ok(), "it has just been found");
    }
}

/// Another handle of the region of this number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_mr(pd: *mut IbvPd, number: u32) -> *mut IbvMr {
    errno::pointer((|| {
        pd::look(pd)?;
        handles::find::<MrObject>(|object| object.is_numbered(number)).ok_or(libc::EINVAL)?;
        crate::mr::give(pd, remora_verbs::Key::new(number), std::ptr::null_mut::<c_void>(), 0, 0)
    })())
}

/// Ends such a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut IbvMr) {
    drop(handles::take::<MrObject>(mr));
}

/// Another handle of the device memory of this number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_dm(context: *mut IbvContext, number: u32) -> *mut IbvDm {
    errno::pointer((|| {
        context::look(context)?;
        let found = handles::find::<DmObject>(|object| object.is_numbered(number)).ok_or(libc::EINVAL)?;
        Ok(handles::look::<DmObject>(found)?.again(context))
    })())
}

/// Ends such a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut IbvDm) {
    drop(handles::take::<DmObject>(dm));
}
