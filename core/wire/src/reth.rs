//! RDMA extended transport header (RETH): address, key and length of a WRITE or READ (IBTA volume 1, chapter
//! 9.3).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!  0|                                                               |
//!   +                        virtual address                        +
//!  4|                                                               |
//!   +---------------------------------------------------------------+
//!  8|                             R_Key                             |
//!   +---------------------------------------------------------------+
//! 12|                   DMA length of the message                   |
//!   +---------------------------------------------------------------+
//! ```

use crate::header::header;

header! {
    "a RETH", 16, "va={va:#x} rkey={rkey:#010x} len={dma_len}";

    /// Virtual address of the first byte of the message in the responder's memory.
    va: u64;
    /// Remote key (R_Key) of the responder's memory.
    rkey: u32;
    /// Length of the whole message (not of the packet) in bytes; valid up to 2^31.
    dma_len: u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [
            0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, // va
            0x11, 0x12, 0x13, 0x14, // rkey
            0x00, 0x00, 0x10, 0x01, // length
        ] => Repr { va: 0x0102_0304_0506_0708, rkey: 0x1112_1314, dma_len: 4097 },
        "va=0x102030405060708 rkey=0x11121314 len=4097"
    }
}
