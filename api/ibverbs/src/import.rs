//! Sharing objects inside one process, by the descriptor of a context and by their numbers.

use remora_abi::memory::IbvDm;
use remora_abi::objects::{IbvContext, IbvMr, IbvPd};
use std::ffi::{c_int, c_void};

use crate::context::{self, ContextObject};
use crate::dm::DmObject;
use crate::handles;
use crate::mr::MrObject;
use crate::pd::{self, Parent, PdObject};
use crate::{device, errno, open};

/// Opens another view of the NIC whose context has this descriptor, or a duplicate of it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_device(descriptor: c_int) -> *mut IbvContext {
    errno::pointer((|| {
        let is_it = |object: &ContextObject| context::is_command(object, descriptor);
        handles::find::<ContextObject>(is_it).ok_or(libc::EINVAL)?;
        open::open(device::device())
    })())
}

/// Creates another handle of the protection domain with this number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_pd(context: *mut IbvContext, number: u32) -> *mut IbvPd {
    errno::pointer((|| {
        context::look(context)?;
        let is_it = |object: &PdObject| object.verbs.handle == number && object.parent_of.is_none();
        let pd = handles::find::<PdObject>(is_it).ok_or(libc::EINVAL)?;
        let object = pd::look(pd)?;
        object.children.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        Ok(pd::give(context, object.pd, Some(Parent { pd, td: std::ptr::null_mut() })))
    })())
}

/// Drops an imported protection domain handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut IbvPd) {
    if pd::look(pd).is_ok_and(|object| object.parent_of.is_some()) {
        let ended = pd::dealloc_parent(pd);
        debug_assert!(ended.is_ok(), "the lookup above has found the handle");
    }
}

/// Creates another handle of the region with this number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_mr(pd: *mut IbvPd, number: u32) -> *mut IbvMr {
    errno::pointer((|| {
        pd::look(pd)?;
        handles::find::<MrObject>(|object| object.is_numbered(number)).ok_or(libc::EINVAL)?;
        crate::mr::give(pd, remora_verbs::Key::new(number), std::ptr::null_mut::<c_void>(), 0, 0)
    })())
}

/// Drops an imported region handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut IbvMr) {
    drop(handles::take::<MrObject>(mr));
}

/// Creates another handle of the device memory with this number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_dm(context: *mut IbvContext, number: u32) -> *mut IbvDm {
    errno::pointer((|| {
        context::look(context)?;
        let dm = handles::find::<DmObject>(|object| object.is_numbered(number)).ok_or(libc::EINVAL)?;
        Ok(handles::look::<DmObject>(dm)?.again(context))
    })())
}

/// Drops an imported device memory handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut IbvDm) {
    drop(handles::take::<DmObject>(dm));
}
