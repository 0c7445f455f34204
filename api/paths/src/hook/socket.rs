//! The kernel's RDMA subsystem by netlink: it knows other devices than this one, or none.

use std::ffi::c_int;

use crate::foreign;
use crate::next::set_errno;
use crate::rewrite::folder;

/// `NETLINK_RDMA`.
const NETLINK_RDMA: c_int = 20;

/// As the C library's; a socket of `NETLINK_RDMA` is EPROTONOSUPPORT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && folder().is_some() {
        // Remora's libraries never ask the kernel for devices.
        foreign::tell();
        set_errno(libc::EPROTONOSUPPORT);
        return -1;
    }
    // SAFETY: the program's arguments.
    unsafe { next!(c"socket" as fn(c_int, c_int, c_int) -> c_int, (domain, kind, protocol) or -1) }
}
