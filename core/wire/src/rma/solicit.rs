//! The fields that a 1RMA solicit adds to the [header](super::header): the slot for the data, and the time
//! for which the server waits (1RMA paper, Figure 7).
//!
//! ```text
//!  +-------------------------------+-------------------------------+
//!  0|        server's slot         |  payload per message at most  |
//!  +-------------------------------+-------------------------------+
//!  4|                server's timeout in nanoseconds               |
//!  +---------------------------------------------------------------+
//! ```

use crate::header::header;

header! {
    "the fields of a solicit", 8,
    "server_slot={server_slot} max_payload={max_payload} timeout={timeout}ns";

    /// The server's slot for the operation, to which the data must be sent.
    server_slot: u16;
    /// Maximum payload per message that the server accepts, in bytes.
    max_payload: u16;
    /// Time for which the server waits for the data, in nanoseconds.
    timeout: u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0x01, 0x02, 0x04, 0x00, 0x00, 0x00, 0x4e, 0x20] =>
            Repr { server_slot: 0x0102, max_payload: 1024, timeout: 20_000 },
        "server_slot=258 max_payload=1024 timeout=20000ns"
    }
}
