//! The symbols of rsockets, streams over RDMA, so that programs can be loaded. Each function returns -1 with
//! EOPNOTSUPP.

use crate::errno;

macro_rules! absent {
    ($($name:ident)*) => {
        $(
            /// Returns -1 with EOPNOTSUPP. In C's ABI, arguments that a function does not take are ignored;
            /// some results have 64 bits.
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name() -> isize {
                errno::minus_one(Err(libc::EOPNOTSUPP)) as isize
            }
        )*
    };
}

absent! {
    rsocket rbind rlisten raccept rconnect rshutdown rclose rrecv rrecvfrom rrecvmsg rsend rsendto rsendmsg
    rread rreadv rwrite rwritev rpoll rselect rgetpeername rgetsockname rsetsockopt rgetsockopt rfcntl riomap
    riounmap riowrite repoll_create repoll_ctl repoll_wait
}
