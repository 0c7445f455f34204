//! IRN message header: the receive work request that a SEND or a WRITE with immediate data uses at the
//! responder, and the offset of the packet's payload in the message (IRN paper, §5).
//!
//! ```text
//!  +---------------+-----------------------------------------------+
//! 0|       0       |                    WQE_SN                     |
//!  +---------------+-----------------------------------------------+
//! 4|                            Offset                             |
//!  +---------------------------------------------------------------+
//! ```

use crate::header::header;

header! {
    "an IRN message header", 8, "wqe={number} offset={offset}";

    /// Number of the receive work request, counted from the first of the connection, modulo 2^24; `emit`
    /// keeps 24 bits.
    number: u32, mask 0x00ff_ffff;
    /// Offset of the payload in the message, in bytes.
    offset: u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0, 0x01, 0x02, 0x03, 0x00, 0x00, 0x10, 0x00] => Repr { number: 0x01_0203, offset: 4096 },
        "wqe=66051 offset=4096", reserved ..1
    }
}
