//! Invalidate extended transport header (IETH): the remote key that a SEND with Invalidate invalidates (IBTA
//! volume 1, chapter 9.3).
//!
//! ```text
//!  +---------------------------------------------------------------+
//! 0|                             R_Key                             |
//!  +---------------------------------------------------------------+
//! ```

use crate::header::header;

header! {
    "an IETH", 4, "rkey={rkey:#010x}";

    /// Remote key that the receiver's NIC must invalidate.
    rkey: u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0x01, 0x02, 0x03, 0x04] => Repr { rkey: 0x0102_0304 }, "rkey=0x01020304"
    }
}
