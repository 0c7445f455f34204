//! The fields that a 1RMA request adds to the [header](super::header): identity of the initiator and maximum
//! payload.
//!
//! ```text
//!  +---------------------------------------------------------------+
//!  0|                     PID of the initiator                     |
//!  +---------------------------------------------------------------+
//!  4|                         incarnation                          |
//!  +-------------------------------+-------------------------------+
//!  8|  payload per message at most  |           0                   |
//!  +-------------------------------+-------------------------------+
//! ```
//!
//! The IP header has the initiator's address. Address, PID and incarnation are the identity from which the
//! initiator's key is derived.

use crate::header::header;

header! {
    "the fields of a 1RMA request", 12,
    "pid={pid} incarnation={incarnation:08x} max_payload={max_payload}";

    /// Process id of the initiator, as its NIC knows it.
    pid: u32;
    /// Random number chosen when the NIC started or the program attached to it.
    incarnation: u32;
    /// Maximum payload per message that the initiator accepts or sends, in bytes.
    max_payload: u16;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0, 0, 0x30, 0x39, 0xca, 0xfe, 0xba, 0xbe, 0x10, 0, 0, 0] =>
            Repr { pid: 12345, incarnation: 0xcafe_babe, max_payload: 4096 },
        "pid=12345 incarnation=cafebabe max_payload=4096", reserved 10..
    }
}
