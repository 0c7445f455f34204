//! Binding of type 1 windows by `ibv_bind_mw`.

use remora_abi::objects::{IbvMw, IbvMwBind, IbvQp};
use remora_verbs::{Access, Key};
use std::ffi::c_int;

use crate::handles;
use crate::mw::{MwObject, TYPE_1, binding, posted};
use crate::requests::{Work, flags};
use crate::{errno, mr, post};

/// Binds a type 1 window by a work request of this queue pair, and gives it a new key.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut IbvQp, mw: *mut IbvMw, bind: *mut IbvMwBind) -> c_int {
    errno::number((|| {
        let object = handles::look::<MwObject>(mw)?;
        // SAFETY: NULL, or the program's arguments.
        let bind = unsafe { bind.as_ref() }.ok_or(libc::EINVAL)?;
        // SAFETY: programs do not use a window while they bind it.
        let verbs = unsafe { *object.verbs.get() };
        let info = &bind.bind_info;
        if verbs.r#type != TYPE_1 || mr::access(info.mw_access_flags)?.contains(Access::ZERO_BASED) {
            return Err(libc::EINVAL);
        }
        let next = Key::new(verbs.rkey).next().get();
        let work = Work::bind(bind.wr_id, flags(bind.send_flags), binding(mw, next, info)?);
        post::post_one(qp, &work)?;
        posted(mw, next);
        Ok(())
    })())
}
