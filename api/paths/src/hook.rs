//! The functions that programs call instead of the C library's, in one file for each group. Each function
//! checks if its path belongs to the device, and calls the next function of its name.

/// Calls the next function of the given name and type, inside an unsafe block. If there is none, the result
/// is the value after `or`, and errno is ENOSYS.
macro_rules! next {
    ($name:literal as fn($($type:ty),*) -> $result:ty, ($($argument:expr),*) or $none:expr) => {{
        static FOUND: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let symbol = crate::next::look(&FOUND, $name);
        // The pointer is NULL or the C library's function of this name, and its manual page gives the type.
        let function: Option<unsafe extern "C" fn($($type),*) -> $result> = std::mem::transmute(symbol);
        match function {
            Some(function) => function($($argument),*),
            None => {
                crate::next::set_errno(libc::ENOSYS);
                $none
            }
        }
    }};
}

mod folder;
mod link;
mod open;
mod socket;
mod stat;
