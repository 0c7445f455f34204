//! The public ABI of librdmacm, and the part of libibverbs' that it needs: the shapes of what programs and
//! these libraries hand to each other. They are written from the ABI itself; `layout_tests.rs` compares each
//! size and offset with the C compiler's.
//!
//! Names are those of C in Rust's spelling.

/// `#[repr(C)]` structs with their C names, and the list by which a test compares them. A field that begins
/// with `_` has no name in C, and is not compared.
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
#[cfg(test)]
mod layout_tests;
pub mod verbs;

/// The layout of one struct.
#[cfg(test)]
struct Layout {
    name: &'static str,
    size: usize,
    fields: &'static [(&'static str, usize)],
}
