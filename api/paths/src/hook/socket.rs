//! The socket function. It refuses netlink sockets of the kernel's RDMA subsystem, which does not know this
//! device.

use std::ffi::c_int;

use crate::foreign;
use crate::next::set_errno;
use crate::rewrite::folder;

/// The number of the netlink protocol `NETLINK_RDMA`.
const NETLINK_RDMA: c_int = 20;

/// Replaces the C library's function of this name. A `NETLINK_RDMA` socket fails with EPROTONOSUPPORT.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA && folder().is_some() {
        // Remora's libraries never ask the kernel for devices, so another library does.
        foreign::tell();
        set_errno(libc::EPROTONOSUPPORT);
        return -1;
    }
    // SAFETY: the arguments are the program's.
    unsafe { next!(c"socket" as fn(c_int, c_int, c_int) -> c_int, (domain, kind, protocol) or -1) }
}
