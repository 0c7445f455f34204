//! Fields of headers in network byte order, and the macros that declare and test a header.

use zerocopy::network_endian::{U16, U32, U64};

use crate::{Psn, Qpn};

/// A value that fills a field of a header.
pub(crate) trait Field {
    /// The bytes of the field.
    type Wire;

    fn load(wire: &Self::Wire) -> Self;
    fn store(&self) -> Self::Wire;
}

macro_rules! fields {
    ($($type:ty = $wire:ty, $number:ident => $load:expr, $value:ident => $store:expr;)*) => {$(
        impl Field for $type {
            type Wire = $wire;

            #[inline(always)]
            fn load($number: &$wire) -> $type {
                $load
            }

            #[inline(always)]
            fn store(&self) -> $wire {
                let $value = self;
                $store
            }
        }
    )*};
}

fields! {
    u16 = U16, number => number.get(), value => U16::new(*value);
    u32 = U32, number => number.get(), value => U32::new(*value);
    u64 = U64, number => number.get(), value => U64::new(*value);
    [u8; 6] = [u8; 6], bytes => *bytes, value => *value;
    // A reserved byte, then 24 bits.
    Qpn = U32, number => Qpn::new(number.get()), value => U32::new(value.get());
    Psn = U32, number => Psn::new(number.get()), value => U32::new(value.get());
}

/// Declares `LEN`, `View` and `Repr` of a header from its name, its length in bytes, its fields in order, and
/// the format of its one-line text, if it has no `Display` of its own. A field with a mask has only the bits
/// of the mask. Bytes behind the last field are sent as zero and ignored on receipt.
macro_rules! header {
    ($(#[$about:meta])* $name:literal, $len:expr, $format:literal; $($fields:tt)*) => {
        $crate::header::header!($(#[$about])* $name, $len; $($fields)*);
        $crate::header::header!(@text $format; $($fields)*);
    };
    (@text $format:literal; $($(#[$doc:meta])* $field:ident: $type:ty $(, mask $mask:expr)?;)*) => {
        impl core::fmt::Display for Repr {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let Repr { $($field),* } = self;
                write!(f, $format)
            }
        }
    };
    (
        $(#[$about:meta])*
        $name:literal, $len:expr;
        $($(#[$doc:meta])* $field:ident: $type:ty $(, mask $mask:expr)?;)*
    ) => {
        /// Length in bytes.
        pub const LEN: usize = $len;

        #[derive(
            Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
            zerocopy::Unaligned,
        )]
        #[repr(C)]
        struct Raw {
            $($field: <$type as $crate::header::Field>::Wire,)*
            reserved: [u8; LEN $(- size_of::<<$type as $crate::header::Field>::Wire>())*],
        }

        /// Borrowed bytes whose length has been checked.
        #[derive(Copy, Clone, Debug)]
        pub struct View<'a>(&'a Raw);

        impl<'a> View<'a> {
            /// Returns a view of the start of `bytes`, or [`Truncated`](crate::WireError::Truncated) if
            /// `bytes` is too short.
            #[inline]
            pub fn new(bytes: &'a [u8]) -> Result<View<'a>, crate::WireError> {
                let raw = <Raw as zerocopy::FromBytes>::ref_from_prefix(bytes);
                raw.map(|(raw, _)| View(raw)).map_err(|_| crate::WireError::Truncated)
            }

            $($(#[$doc])*
            #[inline]
            pub fn $field(&self) -> $type {
                <$type as $crate::header::Field>::load(&self.0.$field) $(& $mask)?
            })*
        }

        /// The fields as values.
        $(#[$about])*
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub struct Repr {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Repr {
            /// Converts checked bytes into a value.
            #[inline]
            pub fn parse(view: &View<'_>) -> Repr {
                Repr { $($field: view.$field(),)* }
            }

            /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
            #[inline(always)]
            pub fn emit(&self, out: &mut [u8]) {
                let place = <Raw as zerocopy::FromBytes>::mut_from_prefix(out);
                let (place, _) = place.expect(concat!("space for ", $name));
                *place = Raw {
                    $($field: $crate::header::Field::store(&(self.$field $(& $mask)?)),)*
                    reserved: Default::default(),
                };
            }
        }
    };
}
pub(crate) use header;

/// Declares the tests of a header by its bytes, their value and text, and its reserved bytes, if it has any.
#[cfg(test)]
macro_rules! tests {
    ($bytes:expr => $value:expr, $text:literal $(, reserved $reserved:expr)?) => {
        const BYTES: [u8; LEN] = $bytes;

        #[test]
        fn literal_bytes() {
            let value = $value;
            assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), value);
            let mut out = [0x5a; LEN + 1];
            value.emit(&mut out);
            assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
            assert_eq!(value.to_string(), $text);
        }

        #[test]
        fn truncation_is_an_error() {
            for len in 0..LEN {
                assert_eq!(View::new(&BYTES[..len]).unwrap_err(), $crate::WireError::Truncated);
            }
        }

        proptest::proptest! {
            #[test]
            fn all_bytes_but_reserved_ones_round_trip(bytes: [u8; LEN]) {
                let mut out = [0x5a; LEN];
                Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
                #[allow(unused_mut, reason = "not every header has reserved bytes")]
                let mut expected = bytes;
                $(expected[$reserved].fill(0);)?
                proptest::prop_assert_eq!(out, expected);
            }
        }
    };
}
#[cfg(test)]
pub(crate) use tests;
