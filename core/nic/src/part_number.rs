//! The number by which a command names memory or code.

use serde::{Deserialize, Serialize};

/// The number of a part that the host has handed to the NIC.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartNumber(pub u32);

impl PartNumber {
    /// The number of no part.
    pub const NONE: PartNumber = PartNumber(u32::MAX);
}
