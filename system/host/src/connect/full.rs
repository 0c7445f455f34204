//! "No place for you now", as a value that a client can act upon.

use std::fmt;

/// What there are no more places for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// Clients of the server.
    Clients,
    /// Connections that are being set up.
    Handshakes,
}

/// A server has no place for another connection. It is worth trying again when a client has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// What there are no more places for.
    pub places: Places,
    /// Places that are taken.
    pub taken: u32,
    /// Places that there are.
    pub most: u32,
}

impl Full {
    /// All places for clients are taken.
    pub fn clients(most: u32) -> Full {
        Full { places: Places::Clients, taken: most, most }
    }

    /// Bytes of the body of its message.
    pub(super) const LEN: usize = 12;

    pub(super) fn emit(self) -> Vec<u8> {
        let places: u32 = match self.places {
            Places::Clients => 1,
            Places::Handshakes => 2,
        };
        [places, self.taken, self.most].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    pub(super) fn parse(body: &[u8]) -> Option<Full> {
        let body = <&[u8; Full::LEN]>::try_from(body).ok()?;
        let word = |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let places = match word(0) {
            1 => Places::Clients,
            2 => Places::Handshakes,
            _ => return None,
        };
        Some(Full { places, taken: word(4), most: word(8) })
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { taken, most, .. } = self;
        match self.places {
            Places::Clients => write!(f, "server full: {taken} of {most} clients"),
            Places::Handshakes => write!(f, "server busy: {taken} of {most} connections are being set up"),
        }
    }
}

impl std::error::Error for Full {}
