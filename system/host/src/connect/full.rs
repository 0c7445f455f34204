//! The "server full" answer, as a value on which a client can act.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The resource that is used up.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Capacity {
    /// Clients of the server.
    Clients,
    /// Connections that are being set up.
    Handshakes,
}

/// Error: the server cannot accept a further connection now. Trying once more is worthwhile when a client
/// has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Full {
    /// The resource that is used up.
    pub capacity: Capacity,
    /// Number of units in use.
    pub taken: u32,
    /// Number of units available in total.
    pub most: u32,
}

impl Full {
    /// Returns the error of a server that has its maximum number of clients.
    pub fn clients(most: u32) -> Full {
        Full { capacity: Capacity::Clients, taken: most, most }
    }

    /// Length in bytes of the body of the message.
    pub(super) const LEN: usize = 12;

    pub(super) fn emit(self) -> Vec<u8> {
        let kind: u32 = match self.capacity {
            Capacity::Clients => 1,
            Capacity::Handshakes => 2,
        };
        [kind, self.taken, self.most].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(super) fn parse(body: &[u8]) -> Option<Full> {
        let body = <&[u8; Full::LEN]>::try_from(body).ok()?;
        let word = |offset: usize| {
            u32::from_le_bytes([body[offset], body[offset + 1], body[offset + 2], body[offset + 3]])
        };
        let capacity = match word(0) {
            1 => Capacity::Clients,
            2 => Capacity::Handshakes,
            _ => return None,
        };
        Some(Full { capacity, taken: word(4), most: word(8) })
    }
}

impl Full {
    /// Returns the advice to the client.
    pub(super) fn remedy(&self) -> &'static str {
        match self.capacity {
            Capacity::Clients => "try again when one has ended, or start the server with more (--clients)",
            Capacity::Handshakes => "try again",
        }
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { taken, most, .. } = self;
        match self.capacity {
            Capacity::Clients => write!(f, "server full: {taken} of {most} clients"),
            Capacity::Handshakes => write!(f, "server busy: {taken} of {most} connections are being set up"),
        }
    }
}

impl std::error::Error for Full {}
