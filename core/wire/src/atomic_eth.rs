//! Atomic extended transport header (AtomicETH): target and operands of compare-and-swap and fetch-and-add
//! (IBTA volume 1, chapter 9.3).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!  0|                                                               |
//!   +                        virtual address                        +
//!  4|                                                               |
//!   +---------------------------------------------------------------+
//!  8|                             R_Key                             |
//!   +---------------------------------------------------------------+
//! 12|                                                               |
//!   +                          swap or add                          +
//! 16|                                                               |
//!   +---------------------------------------------------------------+
//! 20|                                                               |
//!   +                            compare                            +
//! 24|                                                               |
//!   +---------------------------------------------------------------+
//! ```

use crate::header::header;

header! {
    /// Operands are numbers; the responder applies them in its own byte order.
    "an AtomicETH", 28, "va={va:#x} rkey={rkey:#010x} swap_add={swap_add:#x} compare={compare:#x}";

    /// Address of the 8-byte target, which must be aligned to 8 bytes.
    va: u64;
    /// Remote key (R_Key) of the responder's memory.
    rkey: u32;
    /// New value of a compare-and-swap, or addend of a fetch-and-add.
    swap_add: u64;
    /// Expected value of a compare-and-swap; ignored by a fetch-and-add.
    compare: u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [
            0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // va
            0x11, 0x12, 0x13, 0x14, // rkey
            0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, // swap or add
            0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, // compare
        ] => Repr {
            va: 0x0102_0304_0506_0708,
            rkey: 0x1112_1314,
            swap_add: 0x2122_2324_2526_2728,
            compare: 0x3132_3334_3536_3738,
        },
        "va=0x102030405060708 rkey=0x11121314 swap_add=0x2122232425262728 compare=0x3132333435363738"
    }
}
