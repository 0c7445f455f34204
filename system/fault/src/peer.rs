//! Peers in rules.

use remora_wire::frame::{Address, Endpoint};
use std::net::IpAddr;
use std::str::FromStr;

use crate::rules_error::RulesError;

/// A peer, with any UDP port or a specific one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PeerMatch {
    /// IP address of the peer.
    pub address: Address,
    /// UDP port of the peer; `None` matches any.
    pub udp_port: Option<u16>,
}

impl PeerMatch {
    /// Returns true if `peer` matches.
    pub fn matches(&self, peer: Endpoint) -> bool {
        peer.address == self.address && self.udp_port.is_none_or(|port| port == peer.udp_port)
    }
}

impl FromStr for PeerMatch {
    type Err = RulesError;

    /// Parses `10.0.0.2`, `10.0.0.2:4791`, `fd00::2` or `[fd00::2]:4791`.
    fn from_str(text: &str) -> Result<Self, RulesError> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(PeerMatch { address: ip.into(), udp_port: None });
        }
        let whole: std::net::SocketAddr = text
            .parse()
            .map_err(|_| RulesError(format!("peer `{text}` is neither an address nor address:port")))?;
        Ok(PeerMatch { address: whole.ip().into(), udp_port: Some(whole.port()) })
    }
}
