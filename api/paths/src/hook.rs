//! The functions that programs call, one file for each group. Every one asks whether its path is the
//! device's, and calls the next function of its name.

/// Calls the next function of this name and type, inside an unsafe block; where there is none, the value
/// behind `or` is the result, and errno is ENOSYS.
macro_rules! next {
    ($name:literal as fn($($type:ty),*) -> $result:ty, ($($argument:expr),*) or $none:expr) => {{
        static FOUND: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let found = crate::next::look(&FOUND, $name);
        // NULL, or the C library's function of this name, whose type the manual page has.
        let function: Option<unsafe extern "C" fn($($type),*) -> $result> = std::mem::transmute(found);
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
