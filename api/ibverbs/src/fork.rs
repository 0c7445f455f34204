//! Fork needs no preparation: this NIC accesses memory as the program's own CPU does, so pages may be copied
//! on write.

use std::ffi::{c_int, c_void};

/// The status `IBV_FORK_UNNEEDED`.
const UNNEEDED: c_int = 2;

/// Does nothing, and succeeds.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// Returns that preparation is not needed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    UNNEEDED
}

/// Does nothing, and succeeds.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Does nothing, and succeeds.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
