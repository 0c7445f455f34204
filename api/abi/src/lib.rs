//! The public ABIs of libibverbs and librdmacm: the shapes of what programs and these libraries hand to each
//! other. They are written from the ABIs themselves; `layout_tests.rs` compares each size and offset with the
//! C compiler's.
//!
//! `cma.rs` is what `rdma_cma.h` shows, `sa.rs` is `sa.h`, and all other shapes are of `verbs.h`. In
//! `errno.rs` is how functions return.
//!
//! Names are those of C in Rust's spelling. A union stands as the words that it takes.
#![allow(missing_docs, reason = "fields are those of C, which its manual pages explain")]
#![allow(non_snake_case, reason = "some names of the ABI are not")]

/// `#[repr(C)]` structs with their C names, and the list by which a test compares them.
macro_rules! abi {
    ($($(#[$doc:meta])+ struct $name:ident = $c:literal { $($field:ident: $type:ty,)+ })+) => {
        $(
            $(#[$doc])+
            #[repr(C)]
            #[derive(Copy, Clone)]
            pub struct $name {
                $(pub $field: $type,)+
            }
        )+

        /// Each struct: its name in C, its size, and the offsets of its fields.
        #[cfg(test)]
        pub(super) const LAYOUTS: &[super::Layout] = &[$(super::Layout {
            name: $c,
            size: size_of::<$name>(),
            fields: &[$((stringify!($field), std::mem::offset_of!($name, $field)),)+],
        },)+];
    };
}

pub mod cma;
pub mod completion;
pub mod context;
pub mod device;
pub mod errno;
#[cfg(test)]
mod layout_tests;
pub mod memory;
pub mod objects;
pub mod queue_pair;
pub mod receive;
pub mod sa;
pub mod work;

/// The layout of one struct.
#[cfg(test)]
struct Layout {
    name: &'static str,
    size: usize,
    fields: &'static [(&'static str, usize)],
}
