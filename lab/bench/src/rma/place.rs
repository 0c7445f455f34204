//! Constants and formats that the bench shares with its peer: regions, keys, and the address of the grant
//! service.

use anyhow::{Context as _, Result};
use remora_grants::{Fingerprint, Token};
use remora_nic::rma::{Cipher as _, Identity};
use remora_verbs::rma::{Client, Grant};
use remora_wire::rma::Kind;

/// Length in bytes of a region of the peer: that of the longest transfer.
pub(crate) const REGION: usize = 4 << 20;

/// Name of the region that is granted over TLS.
pub(crate) const NAME: &str = "memory";

/// RegionId of the first region of a NIC.
pub(crate) const FIRST_REGION: u32 = 1;

/// The number of NICs of the incast.
pub(crate) const CROWD: usize = 32;

/// The length of a token as text, in bytes.
const TOKEN_TEXT: usize = 2 * Token::LEN;

/// Address and credentials of the peer's grant service.
pub(crate) struct Granting {
    /// TCP port on the loopback interface.
    pub port: u16,
    /// Fingerprint of the service's certificate.
    pub fingerprint: Fingerprint,
    /// Token that admits a client.
    pub token: Token,
}

impl Granting {
    /// Encodes the value as the peer's answer.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let port = self.port.to_le_bytes();
        [&port[..], &self.fingerprint.0, self.token.to_string().as_bytes()].concat()
    }

    /// Decodes the peer's answer.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Granting> {
        let (port, rest) = bytes.split_first_chunk().context("the port of the grant service")?;
        let (fingerprint, rest) = rest.split_first_chunk().context("the fingerprint of the peer")?;
        let token = rest.get(..TOKEN_TEXT).context("the token of the peer")?;
        Ok(Granting {
            port: u16::from_le_bytes(*port),
            fingerprint: Fingerprint(*fingerprint),
            token: std::str::from_utf8(token)?.parse()?,
        })
    }
}

/// Returns the key K_d of this client for one kind of operation.
pub(crate) fn derived(region_key: &[u8; 16], client: &Client, kind: Kind) -> [u8; 16] {
    let Client { address, pid, incarnation } = *client;
    let identity = Identity { address, pid, incarnation, kind };
    remora_host::key_deriver().derive(region_key, &identity.bytes())
}

/// Returns the grant of the same region under another key, as a server announces it.
pub(crate) fn under(grant: &Grant, region_key: &[u8; 16], client: &Client) -> Result<Grant> {
    let mut bytes = grant.to_bytes();
    let keys = &mut bytes[Grant::LEN - 3 * 16..];
    for (place, kind) in keys.chunks_exact_mut(16).zip([Kind::Read, Kind::Write, Kind::Rekey]) {
        place.copy_from_slice(&derived(region_key, client, kind));
    }
    Grant::from_bytes(&bytes).context("the bytes have the length of a grant")
}

/// A generator of distinct region keys. The memory of a benchmark holds no secrets.
#[derive(Default)]
pub(crate) struct RegionKeys(u64);

impl RegionKeys {
    /// Returns the next key.
    pub(crate) fn fresh(&mut self) -> [u8; 16] {
        self.0 += 1;
        (u128::from(self.0) << 64 | 0x1a).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::frame::{Address, Endpoint};

    #[test]
    fn where_grants_are_given_comes_back_as_it_went() {
        let token = Token::random().unwrap();
        let fingerprint = Fingerprint([0xab; 32]);
        let sent = Granting { port: 7501, fingerprint, token: token.clone() };
        let back = Granting::from_bytes(&sent.to_bytes()).unwrap();
        assert!((back.port, back.fingerprint, back.token) == (7501, fingerprint, token));
        assert!(Granting::from_bytes(&sent.to_bytes()[..97]).is_err());
    }

    #[test]
    fn a_grant_under_another_key_names_the_same_region_and_has_that_keys_keys() {
        let client = Client { address: Address([1; 16]), pid: 2, incarnation: 3 };
        let mut bytes = [0; Grant::LEN];
        bytes[16..30].copy_from_slice(&[4; 14]);
        let grant = Grant::from_bytes(&bytes).unwrap();
        let key = RegionKeys::default().fresh();
        let other = under(&grant, &key, &client).unwrap();
        assert_eq!(other.server, Endpoint { address: Address([0; 16]), udp_port: 0x0404 });
        assert_eq!((other.region, other.len), (grant.region, grant.len));
        let write = derived(&key, &client, Kind::Write);
        assert_eq!(other.to_bytes()[Grant::LEN - 32..Grant::LEN - 16], write);
        assert_ne!(write, derived(&key, &client, Kind::Read));
    }
}
