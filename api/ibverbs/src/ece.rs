//! Vendor options of connections (ECE), of which this NIC has none, and the order in which a message's bytes
//! arrive.

use remora_abi::device::IbvEce;
use remora_abi::objects::IbvQp;
use std::ffi::{c_int, c_uint};

use crate::errno;
use crate::handles;
use crate::qp::QpObject;

/// Returns empty options.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_ece(qp: *mut IbvQp, out: *mut IbvEce) -> c_int {
    errno::number((|| {
        handles::look::<QpObject>(qp)?;
        // SAFETY: NULL, or the program's structure.
        *unsafe { out.as_mut() }.ok_or(libc::EINVAL)? = IbvEce { vendor_id: 0, options: 0, comp_mask: 0 };
        Ok(())
    })())
}

/// Accepts only empty options, which have no effect.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_set_ece(qp: *mut IbvQp, ece: *mut IbvEce) -> c_int {
    errno::number((|| {
        handles::look::<QpObject>(qp)?;
        // SAFETY: NULL, or the program's structure.
        let ece = unsafe { ece.as_ref() }.ok_or(libc::EINVAL)?;
        if ece.vendor_id == 0 && ece.comp_mask == 0 { Ok(()) } else { Err(libc::EOPNOTSUPP) }
    })())
}

/// Returns 0: the NIC does not promise that the bytes of a message arrive in order.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    _qp: *mut IbvQp,
    _op: c_int,
    _flags: c_uint,
) -> c_int {
    0
}
