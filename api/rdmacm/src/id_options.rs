//! The options of an id.

/// The options of an id.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct IdOptions {
    /// The type of service of the id's packets.
    pub tos: u8,
    /// True if other ids with this option may have the same port.
    pub reuses: bool,
    /// True if an IPv6 address stands for IPv6 alone. The broker's port of all addresses covers both families
    /// all the same.
    pub v6_only: bool,
    /// The code of the local ACK timeout, instead of the one that is derived from the path.
    pub ack_timeout: Option<u8>,
}
