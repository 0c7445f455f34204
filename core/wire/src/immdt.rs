//! Immediate data (ImmDt): 32 bits that the receiver's completion reports (IBTA volume 1, chapter 9.3).
//!
//! ```text
//!  +---------------------------------------------------------------+
//! 0|                         immediate data                        |
//!  +---------------------------------------------------------------+
//! ```

use crate::header::header;

header! {
    "an ImmDt", 4, "imm={value:#010x}";

    /// The immediate data, converted from network byte order.
    value: u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0x01, 0x02, 0x03, 0x04] => Repr { value: 0x0102_0304 }, "imm=0x01020304"
    }
}
