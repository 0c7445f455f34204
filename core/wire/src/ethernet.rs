//! Ethernet II header, untagged.
//!
//! ```text
//!   +---------------------------------------------------------------+
//!  0|                          destination                          |
//!   +                               +-------------------------------+
//!  4|                               |                               |
//!   +-------------------------------+                               +
//!  8|                            source                             |
//!   +-------------------------------+-------------------------------+
//! 12|           EtherType           |
//!   +-------------------------------+
//! ```

use core::fmt;

use crate::header::header;

/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;

header! {
    "an Ethernet header", 14;

    /// Destination MAC address.
    destination: [u8; 6];
    /// Source MAC address.
    source: [u8; 6];
    /// The protocol of the payload (EtherType).
    ethertype: u16;
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.source;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} > ")?;
        let [a, b, c, d, e, g] = self.destination;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x} type={:#06x}", self.ethertype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::header::tests! {
        [0x02, 0x11, 0x12, 0x13, 0x14, 0x15, 0x06, 0x21, 0x22, 0x23, 0x24, 0x25, 0x86, 0xdd] => Repr {
            destination: [0x02, 0x11, 0x12, 0x13, 0x14, 0x15],
            source: [0x06, 0x21, 0x22, 0x23, 0x24, 0x25],
            ethertype: TYPE_IPV6,
        },
        "06:21:22:23:24:25 > 02:11:12:13:14:15 type=0x86dd"
    }
}
