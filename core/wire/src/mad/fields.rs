//! Fields of MADs by their position, and the macro that declares a MAD as the list of its fields.

use crate::{Address, Psn, Qpn};

/// Position of a field, as the tables of IBTA volume 1, chapter 12 name it: a byte, the first bit in that
/// byte (0 is the most significant one), and the number of bits.
#[derive(Copy, Clone)]
pub(crate) struct Bits {
    pub(crate) byte: usize,
    pub(crate) first: usize,
    pub(crate) width: usize,
}

impl Bits {
    const fn end(self) -> usize {
        self.first + self.width
    }

    const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.width)
    }

    /// Returns the number in the field, which has at most 64 bits.
    pub(crate) fn load(self, bytes: &[u8]) -> u64 {
        let len = self.end().div_ceil(8);
        let number = bytes[self.byte..][..len].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        number >> (len * 8 - self.end()) & self.mask()
    }

    /// Writes the low bits of `number` into the field, whose bits are zero.
    pub(crate) fn store(self, number: u64, out: &mut [u8]) {
        let len = self.end().div_ceil(8);
        let bytes = ((number & self.mask()) << (len * 8 - self.end())).to_be_bytes();
        for (out, byte) in out[self.byte..][..len].iter_mut().zip(&bytes[8 - len..]) {
            *out |= byte;
        }
    }
}

/// A value that fills a field of a MAD.
pub(crate) trait Field: Sized {
    fn load(bytes: &[u8], bits: Bits) -> Self;
    /// Writes the value into a field whose bits are zero. Keeps the low bits of a larger value.
    fn store(&self, bits: Bits, out: &mut [u8]);
}

/// Implements [`Field`] for types of at most 64 bits from their conversions from and to `u64`.
macro_rules! numbers {
    ($($type:ty: $number:ident => $from:expr, $value:ident => $to:expr;)*) => {$(
        impl $crate::mad::fields::Field for $type {
            fn load(bytes: &[u8], bits: $crate::mad::fields::Bits) -> $type {
                let $number = bits.load(bytes);
                $from
            }

            fn store(&self, bits: $crate::mad::fields::Bits, out: &mut [u8]) {
                let $value = *self;
                bits.store($to, out);
            }
        }
    )*};
}

numbers! {
    u8: number => number as u8, value => value.into();
    u16: number => number as u16, value => value.into();
    u32: number => number as u32, value => value.into();
    u64: number => number, value => value;
    bool: number => number != 0, value => value.into();
    Qpn: number => Qpn::new(number as u32), value => value.get().into();
    Psn: number => Psn::new(number as u32), value => value.get().into();
}

impl<const N: usize> Field for [u8; N] {
    fn load(bytes: &[u8], bits: Bits) -> [u8; N] {
        bytes[bits.byte..][..N].try_into().expect("N bytes")
    }

    fn store(&self, bits: Bits, out: &mut [u8]) {
        out[bits.byte..][..N].copy_from_slice(self);
    }
}

impl Field for Address {
    fn load(bytes: &[u8], bits: Bits) -> Address {
        Address(Field::load(bytes, bits))
    }

    fn store(&self, bits: Bits, out: &mut [u8]) {
        self.0.store(bits, out);
    }
}

/// Declares `LEN`, `View` and `Repr` of a part of a MAD from the part's length in bytes, the format of its
/// one-line text, and its fields. Each field has a type and a position: `BYTE [FIRST BIT], BITS`, in
/// ascending order. Bits of no field are sent as zero and ignored on receipt.
///
/// `check` is a condition without which `View::new` fails with `WireError::Length`.
macro_rules! mad {
    (
        $len:expr, $format:literal $(, check $view:ident => $check:expr)?;
        $($(#[$doc:meta])* $name:ident: $type:ty = $byte:literal $([$first:literal])?, $width:expr;)*
    ) => {
        /// Length in bytes.
        pub const LEN: usize = $len;

        const _: () = {
            let mut end = 0;
            $(
                let start = $byte * 8 $(+ $first)?;
                assert!(end <= start, "fields overlap");
                end = start + $width;
            )*
            assert!(end <= LEN * 8, "the last field ends behind the end");
        };

        /// Borrowed bytes that have been checked.
        #[derive(Copy, Clone, Debug)]
        pub struct View<'a>(&'a [u8; LEN]);

        impl<'a> View<'a> {
            /// Returns a view of the start of `bytes`. Fails with [`Truncated`](crate::WireError::Truncated)
            /// if `bytes` has less than [`LEN`] bytes, and with [`Length`](crate::WireError::Length) if a
            /// length among the fields exceeds the field that it describes.
            pub fn new(bytes: &'a [u8]) -> Result<View<'a>, crate::WireError> {
                let view = View(bytes.first_chunk().ok_or(crate::WireError::Truncated)?);
                $(
                    let $view = &view;
                    if !$check {
                        return Err(crate::WireError::Length);
                    }
                )?
                Ok(view)
            }

            $($(#[$doc])* pub fn $name(&self) -> $type {
                let bits = $crate::mad::fields::Bits { byte: $byte, first: 0 $(+ $first)?, width: $width };
                $crate::mad::fields::Field::load(self.0, bits)
            })*
        }

        /// The fields as values. Of a value that is larger than its field, the low bits are sent.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub struct Repr {
            $(
                $(#[$doc])*
                #[doc = concat!("(Byte ", $byte, $(" bit ", $first,)? ".)")]
                pub $name: $type,
            )*
        }

        impl Repr {
            /// Converts checked bytes into a value.
            pub fn parse(view: &View<'_>) -> Repr {
                Repr { $($name: view.$name(),)* }
            }

            /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
            pub fn emit(&self, out: &mut [u8]) {
                let out = &mut out[..LEN];
                out.fill(0);
                $(
                    let bits = $crate::mad::fields::Bits { byte: $byte, first: 0 $(+ $first)?, width: $width };
                    $crate::mad::fields::Field::store(&self.$name, bits, out);
                )*
            }
        }

        /// All fields are zero.
        impl Default for Repr {
            fn default() -> Repr {
                Repr::parse(&View(&[0; LEN]))
            }
        }

        impl core::fmt::Display for Repr {
            #[allow(unused_variables, reason = "the text has some of the fields")]
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let Repr { $($name),* } = self;
                write!(f, $format)
            }
        }
    };
}
pub(crate) use {mad, numbers};
