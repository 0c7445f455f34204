//! The public ABIs of libibverbs and librdmacm: the structures that programs and these libraries exchange.
//! They were written from the ABIs themselves; `layout_tests.rs` compares each size and offset with those of
//! the C compiler.
//!
//! `cma.rs` has the structures of `rdma_cma.h`, `sa.rs` those of `sa.h`, and the other files those of
//! `verbs.h`. `errno.rs` has the ways in which functions report errors.
//!
//! The names are those of C in Rust's spelling. A union of C appears as words of the same size.
#![allow(missing_docs, reason = "fields are those of C, which its manual pages explain")]
#![allow(non_snake_case, reason = "some names of the ABI are not")]

/// Defines `#[repr(C)]` structs with their C names, and the list with which a test compares them.
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

        /// The name in C, the size, and the offsets of the fields of each struct.
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
