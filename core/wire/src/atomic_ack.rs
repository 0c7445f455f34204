//! Atomic acknowledge extended transport header (AtomicAckETH): the old value of an atomic's target (IBTA
//! volume 1, chapter 9.3).
//!
//! ```text
//!  +---------------------------------------------------------------+
//! 0|                                                               |
//!  +                     original remote data                      +
//! 4|                                                               |
//!  +---------------------------------------------------------------+
//! ```

use crate::header::header;

header! {
    "an AtomicAckETH", 8, "original={original:#x}";

    /// Value of the target before the operation.
    original: u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08] => Repr { original: 0x0102_0304_0506_0708 },
        "original=0x102030405060708"
    }
}
