//! The options of an id.

/// The options that an id has.
#[derive(Copy, Clone, Debug, Default)]
pub struct IdOptions {
    /// The type of service of packets.
    pub tos: u8,
    /// Others that say so may have the same port.
    pub reuses: bool,
    /// An IPv6 address stands for itself alone. The broker's port of all addresses is one of both families.
    pub v6_only: bool,
    /// The code of the local ACK timeout, in place of the one that follows from the path.
    pub ack_timeout: Option<u8>,
}
