//! rsockets, streams over RDMA: the symbols are there for programs to load. Each answers -1 with EOPNOTSUPP.

use crate::errno;

macro_rules! absent {
    ($($name:ident)*) => {
        $(
            /// Answers -1 with EOPNOTSUPP. C passes arguments that nobody takes; some results have 64 bits.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> isize {
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
