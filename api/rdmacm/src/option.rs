//! Options of ids.

use remora_abi::cma::RdmaCmId;
use std::ffi::{c_int, c_void};

use crate::id::Phase;
use crate::{errno, id};

/// Sets an option: type of service, reuse of ports, IPv6 only, or ACK timeout.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut RdmaCmId,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    errno::minus_one((|| {
        let id = id::look(id)?;
        if value.is_null() {
            return Err(libc::EINVAL);
        }
        let byte = || {
            // SAFETY: the program states that it has `len` bytes there.
            if len == 1 { Ok(unsafe { *value.cast::<u8>() }) } else { Err(libc::EINVAL) }
        };
        let flag = || {
            let fits = len == size_of::<c_int>();
            // SAFETY: as above.
            if fits { Ok(unsafe { value.cast::<c_int>().read_unaligned() } != 0) } else { Err(libc::EINVAL) }
        };
        let mut state = id.state();
        let may_choose_port = state.phase == Phase::Idle;
        match (level, name) {
            (0, 0) => state.options.tos = byte()?,
            (0, 1) if may_choose_port || state.phase == Phase::Bound => state.options.reuses = flag()?,
            (0, 2) if may_choose_port => state.options.v6_only = flag()?,
            (0, 1 | 2) => return Err(libc::EINVAL),
            (0, 3) => match byte()? {
                code @ 0..=31 => state.options.ack_timeout = Some(code),
                _ => return Err(libc::EINVAL),
            },
            // Paths of a subnet manager, which RoCE does not have.
            _ => return Err(libc::EOPNOTSUPP),
        }
        Ok(())
    })())
}
