//! IRN fetch header: the number of a READ or atomic among the READs and atomics of its connection. The
//! responder uses it to keep an early request until all earlier packets have arrived (IRN paper, §5:
//! `read_WQE_SN`).
//!
//! ```text
//!  +---------------+-----------------------------------------------+
//! 0|       0       |                    WQE_SN                     |
//!  +---------------+-----------------------------------------------+
//! ```

use crate::header::header;

header! {
    "an IRN fetch header", 4, "fetch={number}";

    /// Number of the READ or atomic, counted from the first of the connection, modulo 2^24; `emit` keeps 24
    /// bits.
    number: u32, mask 0x00ff_ffff;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0, 0x01, 0x02, 0x03] => Repr { number: 0x01_0203 }, "fetch=66051", reserved ..1
    }
}
