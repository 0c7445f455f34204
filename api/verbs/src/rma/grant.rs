//! Grants, by which a client uses a region, and the identities of clients.

use remora_nic::rma::Rights;
use remora_wire::frame::{Address, Endpoint};
use remora_wire::rma::Kind;
use std::fmt;

/// The identity of a client towards servers, from which its keys are derived. Without a NIC daemon, the
/// client itself states its process id, so that only the secrecy of its keys protects the region.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The client's address, as the server sees it.
    pub address: Address,
    /// The client's process id.
    pub pid: u32,
    /// A random number that distinguishes successive processes with the same process id.
    pub incarnation: u32,
}

/// The secrets by which one client uses a region. A grant is of use to that client alone.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The endpoint of the server's NIC.
    pub server: Endpoint,
    /// The RegionId of the region.
    pub region: u32,
    /// Length of the region in bytes.
    pub len: u64,
    pub(super) keys: [[u8; 16]; 3],
}

impl Grant {
    /// Length of the encoded grant in bytes.
    pub const LEN: usize = 78;

    /// Encodes the grant: address, port, RegionId, length and three keys, numbers little-endian. Anyone who
    /// reads the bytes can do what the client can.
    pub fn to_bytes(&self) -> [u8; Grant::LEN] {
        let mut bytes = [0; Grant::LEN];
        bytes[..16].copy_from_slice(&self.server.address.0);
        bytes[16..18].copy_from_slice(&self.server.udp_port.to_le_bytes());
        bytes[18..22].copy_from_slice(&self.region.to_le_bytes());
        bytes[22..30].copy_from_slice(&self.len.to_le_bytes());
        for (place, key) in bytes[30..].chunks_exact_mut(16).zip(&self.keys) {
            place.copy_from_slice(key);
        }
        bytes
    }

    /// Decodes a grant from the front of `bytes`. Returns `None` if there are too few bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Grant> {
        let bytes = bytes.first_chunk::<{ Grant::LEN }>()?;
        let mut address = [0; 16];
        let mut keys = [[0; 16]; 3];
        address.copy_from_slice(&bytes[..16]);
        for (key, place) in keys.iter_mut().zip(bytes[30..].chunks_exact(16)) {
            key.copy_from_slice(place);
        }
        let word = |offset: usize| bytes[offset..].first_chunk().copied();
        Some(Grant {
            server: Endpoint {
                address: Address(address),
                udp_port: u16::from_le_bytes([bytes[16], bytes[17]]),
            },
            region: u32::from_le_bytes(word(18)?),
            len: u64::from_le_bytes(*bytes[22..].first_chunk()?),
            keys,
        })
    }

    /// Returns the grant without the keys of the operations that `rights` lack.
    #[must_use]
    pub fn restricted(mut self, rights: Rights) -> Grant {
        for (key, right) in self.keys.iter_mut().zip([Rights::READ, Rights::WRITE, Rights::REKEY]) {
            if !rights.contains(right) {
                *key = [0; 16];
            }
        }
        self
    }

    /// The key for one kind of operation.
    pub(crate) fn key(&self, kind: Kind) -> [u8; 16] {
        match kind {
            Kind::Write => self.keys[1],
            Kind::Rekey => self.keys[2],
            _ => self.keys[0],
        }
    }

    /// Overwrites the keys with zeros.
    pub(super) fn wipe(&mut self) {
        self.keys = [[0; 16]; 3];
        std::hint::black_box(&mut self.keys);
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { server, region, len, .. } = self;
        write!(f, "Grant {{ server: {server}, region: {region}, len: {len}, keys: .. }}")
    }
}
