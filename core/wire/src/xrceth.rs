//! XRC extended transport header (XRCETH): the shared receive queue of an XRC request (IBTA volume 1, annex
//! A14).
//!
//! ```text
//!  +---------------+-----------------------------------------------+
//! 0|   reserved    |             shared receive queue              |
//!  +---------------+-----------------------------------------------+
//! ```
//!
//! The reserved byte is sent as zero and ignored on receipt.

use crate::Qpn;
use crate::header::header;

header! {
    "an XRCETH", 4, "srq={srq}";

    /// Number of the responder's shared receive queue.
    srq: Qpn;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0x00, 0x12, 0x34, 0x56] => Repr { srq: Qpn::new(0x12_3456) }, "srq=0x123456", reserved ..1
    }
}
