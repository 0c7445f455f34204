//! A multicast group that an id has joined.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::outstanding::Outstanding;

/// A group that an id has joined.
pub(crate) struct Membership {
    pub number: u64,
    pub group: SocketAddr,
    pub context: usize,
    pub sends_only: bool,
    pub is_attached: bool,
    pub outstanding: Arc<Outstanding>,
}
