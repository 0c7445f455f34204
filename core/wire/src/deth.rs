//! Datagram extended transport header (DETH): source queue pair and Q_Key of a datagram (IBTA volume 1,
//! chapter 9.3).
//!
//! ```text
//!  +---------------------------------------------------------------+
//! 0|                             Q_Key                             |
//!  +---------------+-----------------------------------------------+
//! 4|   reserved    |                   source QP                   |
//!  +---------------+-----------------------------------------------+
//! ```
//!
//! The reserved byte is sent as zero and ignored on receipt.

use crate::Qpn;
use crate::header::header;

header! {
    "a DETH", 8, "qkey={qkey:#010x} src_qp={src_qp}";

    /// Q_Key, which must equal that of the destination queue pair.
    qkey: u32;
    /// Source queue pair number.
    src_qp: Qpn;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0x80, 0x01, 0x02, 0x03, 0x00, 0x12, 0x34, 0x56] =>
            Repr { qkey: 0x8001_0203, src_qp: Qpn::new(0x12_3456) },
        "qkey=0x80010203 src_qp=0x123456", reserved 4..5
    }
}
