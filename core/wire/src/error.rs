//! Why bytes were refused. A value, not a log line: the receiver counts it and drops the frame.

use core::fmt;

/// Why bytes from the wire are not what they should be.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The bytes end before the header or the length that it announces.
    Truncated,
    /// A length field contradicts the header it stands in or the frame around it. Or the transport bytes are
    /// not a multiple of four, to which the pad count fills them up (IBTA volume 1, chapter 9.2).
    Length,
    /// The pad count is larger than what follows the headers.
    Pad,
    /// An op-code of no service that this crate knows: its extension headers are unknown.
    UnknownOpcode(u8),
    /// A message of 1RMA whose kind, version, class or status this crate does not know; the byte it stands
    /// in.
    UnknownMessage(u8),
    /// A MAD of a version that this crate does not know, or such a header of the IP CM service; the byte that
    /// says so.
    MadVersion(u8),
    /// A MAD of a class, method or attribute that this crate does not know; its attribute.
    UnsupportedMad(u16),
    /// Neither IPv4 nor IPv6, or the version nibble contradicts the EtherType.
    NotIp,
    /// An IPv4 header with options, or an IPv6 extension header: RoCE v2 has neither.
    IpOptions,
    /// A fragment; RoCE v2 packets are never fragmented (annex A17).
    Fragment,
    /// The IPv4 header checksum is wrong.
    IpChecksum,
    /// IP, but not UDP.
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
