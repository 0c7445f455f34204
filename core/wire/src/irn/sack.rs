//! IRN selective acknowledgement: the PSN of the packet that arrived out of order (IRN paper, §3.1). The BTH
//! carries the cumulative acknowledgement, the next PSN expected in order.
//!
//! ```text
//!  +---------------+-----------------------------------------------+
//! 0|       0       |                      PSN                      |
//!  +---------------+-----------------------------------------------+
//! ```

use crate::Psn;
use crate::header::header;

header! {
    "an IRN selective acknowledgement", 4, "sack={psn}";

    /// PSN of the packet that arrived out of order.
    psn: Psn;
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0, 0x01, 0x02, 0x03] => Repr { psn: Psn::new(0x01_0203) }, "sack=66051", reserved ..1
    }
}
