//! ClassPortInfo: the capabilities of a port's communication manager (IBTA volume 1, chapters 12.7 and
//! 13.4.8.1). Remora neither redirects requests nor sends traps: the last 64 bytes, which are about those,
//! are sent as zero and ignored on receipt.

use super::fields::mad;

/// Capability: reliable connections.
pub const RELIABLE_CONNECTION: u16 = 1 << 9;
/// Capability: unreliable connections.
pub const UNRELIABLE_CONNECTION: u16 = 1 << 12;
/// Capability bit of SIDR.
pub const SIDR: u16 = 1 << 13;

mad! {
    72, "class_version={class_version} capabilities={capabilities:#06x} response_time={response_time}";

    /// Base version of MADs.
    base_version: u8 = 0, 8;
    /// Version of the management class.
    class_version: u8 = 1, 8;
    /// Capabilities of the class, such as [`SIDR`].
    capabilities: u16 = 2, 16;
    /// Further capabilities, 27 bits.
    capabilities2: u32 = 4, 27;
    /// Code of the time within which requests are answered, 5 bits.
    response_time: u8 = 7 [3], 5;
}
