//! XRC targets that several parts of a program open.

use remora_abi::objects::{IbvContext, IbvQp};
use remora_abi::queue_pair::{IbvQpOpenAttr, QPT_XRC_RECV};
use std::sync::Arc;

use crate::qp::{self, QpObject};
use crate::xrc::XrcdObject;
use crate::{context, errno, handles};

/// The bits `IBV_QP_OPEN_ATTR_NUM`, `_XRCD` and `_TYPE`, which a caller must set.
const NEEDED: u32 = 1 | 2 | 8;
/// The bit `IBV_QP_OPEN_ATTR_CONTEXT`.
const CONTEXT: u32 = 4;

/// Opens a target that this process has created, by one more handle.
pub(crate) unsafe extern "C" fn open_qp(context: *mut IbvContext, attr: *mut IbvQpOpenAttr) -> *mut IbvQp {
    errno::pointer((|| {
        let view = context::look(context)?;
        // SAFETY: NULL, or the program's attributes.
        let attr = unsafe { attr.as_ref() }.ok_or(libc::EINVAL)?;
        if attr.comp_mask & !(NEEDED | CONTEXT) != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        if attr.comp_mask & NEEDED != NEEDED || attr.qp_type != QPT_XRC_RECV {
            return Err(libc::EINVAL);
        }
        let domain = handles::look::<XrcdObject>(attr.xrcd)?.number;
        let is_it =
            |object: &QpObject| object.raw.number().get() == attr.qp_num && object.xrc_domain == Some(domain);
        let qp = handles::find::<QpObject>(is_it).ok_or(libc::EINVAL)?;
        let raw = Arc::clone(&handles::look::<QpObject>(qp)?.raw);
        let qp_context = if attr.comp_mask & CONTEXT != 0 { attr.qp_context } else { std::ptr::null_mut() };
        Ok(qp::give_opened(context, view, raw, qp_context, domain))
    })())
}
