//! The reason why received bytes were refused. The receiver counts the error and drops the frame.

use core::fmt;

/// The reason why bytes from the wire are invalid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The bytes end inside a header, or before the length that a header announces.
    Truncated,
    /// A length field contradicts its header or the frame around it, or the transport bytes are not a
    /// multiple of four (IBTA volume 1, chapter 9.2).
    Length,
    /// The pad count exceeds the number of bytes after the headers.
    Pad,
    /// Unknown op-code, whose extension headers are therefore unknown.
    UnknownOpcode(u8),
    /// A 1RMA message with an unknown kind, version, class or status. Holds the byte that contains it.
    UnknownMessage(u8),
    /// A MAD or an IP CM header of an unknown version. Holds the version byte.
    MadVersion(u8),
    /// A MAD of an unknown class, method or attribute. Holds the attribute.
    UnsupportedMad(u16),
    /// The packet is neither IPv4 nor IPv6, or its version contradicts the EtherType.
    NotIp,
    /// An IPv4 header with options, or an IPv6 extension header. RoCE v2 uses neither.
    IpOptions,
    /// An IP fragment. RoCE v2 packets are never fragmented (annex A17).
    Fragment,
    /// The IPv4 header checksum is wrong.
    IpChecksum,
    /// An IP packet that is not UDP.
    NotUdp,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Truncated => f.write_str("frame ends inside a header or before its announced length"),
            WireError::Length => f.write_str("length fields contradict each other"),
            WireError::Pad => f.write_str("pad count exceeds the payload"),
            WireError::UnknownOpcode(opcode) => write!(f, "unknown op-code {opcode:#04x}"),
            WireError::UnknownMessage(byte) => write!(f, "unknown message of 1RMA ({byte:#04x})"),
            WireError::MadVersion(byte) => write!(f, "unknown version of a MAD ({byte:#04x})"),
            WireError::UnsupportedMad(attribute) => write!(f, "unsupported MAD (attribute {attribute:#06x})"),
            WireError::NotIp => f.write_str("not an IPv4 or IPv6 packet"),
            WireError::IpOptions => f.write_str("IP options or extension headers"),
            WireError::Fragment => f.write_str("IP fragment"),
            WireError::IpChecksum => f.write_str("wrong IPv4 header checksum"),
            WireError::NotUdp => f.write_str("not UDP"),
        }
    }
}

impl core::error::Error for WireError {}
