//! The messages over the channel: a length of 4 bytes, a kind, and what it has. Numbers are little-endian.

use remora_verbs::Address;
use remora_verbs::rma::{Client, Grant, Rights};
use std::fmt;
use std::time::Duration;
use zeroize::Zeroizing;

/// Bytes of a client's message at most.
pub(crate) const LONGEST_REQUEST: usize = 128;
/// Bytes of a server's message at most.
pub(crate) const LONGEST_REPLY: usize = 64 << 10;
/// Regions of a server at most.
pub(crate) const REGIONS: usize = 256;
/// Bytes of a region's name at most.
pub(crate) const LONGEST_NAME: usize = 64;

const MAGIC: [u8; 4] = *b"1RMG";
const VERSION: u8 = 1;

/// A region that a server grants to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionGrant {
    /// The region's name.
    pub name: String,
    /// Rights of the client on the region.
    pub rights: Rights,
    /// Address of the region and the client's keys.
    pub grant: Grant,
}

/// First message of a client: the request for its grants.
#[derive(PartialEq, Eq)]
pub(crate) struct GrantRequest {
    /// Identity of the client, with the address of its NIC.
    pub client: Client,
    /// True if the client stays connected for announcements.
    pub follow: bool,
    /// Token of the client; empty if it has none.
    pub token: Zeroizing<Vec<u8>>,
}

/// Message of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GrantReply {
    /// Answer of the program that uses the grant server.
    Call(Vec<u8>),
    /// Grants of all regions.
    Grants {
        /// True if the client may stay connected; announcements then follow.
        follows: bool,
        /// Grants of the regions.
        grants: Vec<RegionGrant>,
    },
    /// Announces that a region's key changes after this time, with the grant under the new key.
    Announcement(Duration, RegionGrant),
    /// The credential is not known.
    NotAdmitted,
    /// The client's connection comes from this address, which is not the address of its NIC.
    Translated(Address),
}

const REQUEST: u8 = 1;
const GRANTS: u8 = 2;
const ANNOUNCEMENT: u8 = 3;
const NOT_ADMITTED: u8 = 4;
const TRANSLATED: u8 = 5;
/// A message between the programs that use both ends; its bytes follow.
const CALL: u8 = 6;
/// A client requests new grants.
const RENEW: u8 = 7;

/// Message of a client that has its grants.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ClientMessage {
    /// A message to the program that uses the grant server.
    Call(Vec<u8>),
    /// A request for all grants under the present keys.
    Renew,
}

impl ClientMessage {
    /// A message of the program above, of either side.
    pub(crate) fn call(bytes: &[u8]) -> Vec<u8> {
        let len = (bytes.len() + 1) as u32;
        [&len.to_le_bytes()[..], &[CALL], bytes].concat()
    }

    /// The question for grants.
    pub(crate) const RENEW: [u8; 5] = [1, 0, 0, 0, RENEW];

    pub(crate) fn decode(bytes: &[u8]) -> Option<ClientMessage> {
        match bytes {
            [RENEW] => Some(ClientMessage::Renew),
            [CALL, bytes @ ..] => Some(ClientMessage::Call(bytes.to_vec())),
            _ => None,
        }
    }
}

/// Bytes in a message, taken from the front.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn counted(&mut self) -> Option<&'b [u8]> {
        let len = usize::from(self.byte()?);
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// Puts the length in front.
fn framed(fill: impl FnOnce(&mut Vec<u8>)) -> Zeroizing<Vec<u8>> {
    // As large as it can become: a vector that grows leaves keys behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST_REPLY));
    bytes.extend([0; 4]);
    fill(&mut bytes);
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes
}

/// Takes a message from the front of what came. `Ok(None)`: it is not whole yet. `Err`: it is longer than
/// `most`.
pub(crate) fn next<T>(
    came: &mut Zeroizing<Vec<u8>>,
    most: usize,
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, Malformed> {
    let Some(len) = came.first_chunk().map(|len| u32::from_le_bytes(*len) as usize) else { return Ok(None) };
    if len > most {
        return Err(Malformed);
    }
    if came.len() < 4 + len {
        return Ok(None);
    }
    let message = decode(&came[4..4 + len]);
    came.drain(..4 + len);
    message.map(Some).ok_or(Malformed)
}

/// The other side breaks the protocol.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl fmt::Debug for GrantRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GrantRequest {{ client: {:?}, follow: {} }}", self.client, self.follow)
    }
}

impl GrantRequest {
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        framed(|bytes| {
            bytes.push(REQUEST);
            bytes.extend(MAGIC);
            bytes.extend([VERSION, u8::from(self.follow)]);
            bytes.extend(self.client.address.0);
            bytes.extend(self.client.pid.to_le_bytes());
            bytes.extend(self.client.incarnation.to_le_bytes());
            bytes.push(self.token.len() as u8);
            bytes.extend(&*self.token);
        })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<GrantRequest> {
        let mut reader = Reader(bytes);
        let right = reader.byte()? == REQUEST && reader.take::<4>()? == MAGIC && reader.byte()? == VERSION;
        let follow = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let address = Address(reader.take()?);
        let [pid, incarnation] = [reader.take()?, reader.take()?].map(u32::from_le_bytes);
        let token = Zeroizing::new(reader.counted()?.to_vec());
        let client = Client { address, pid, incarnation };
        reader.end(GrantRequest { client, follow, token }).filter(|_| right)
    }
}

fn put_grant(bytes: &mut Vec<u8>, granted: &RegionGrant) {
    bytes.push(granted.name.len() as u8);
    bytes.extend(granted.name.as_bytes());
    bytes.push(granted.rights.0);
    bytes.extend(*Zeroizing::new(granted.grant.to_bytes()));
}

fn take_grant(reader: &mut Reader<'_>) -> Option<RegionGrant> {
    let name = std::str::from_utf8(reader.counted()?).ok()?;
    // A name is printed: it must not move a terminal's cursor.
    let plain = !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control);
    let rights = Rights(reader.byte()?);
    let grant = Grant::from_bytes(&reader.take::<{ Grant::LEN }>()?)?;
    plain.then(|| RegionGrant { name: name.to_owned(), rights, grant })
}

impl GrantReply {
    pub(crate) fn encode(&self) -> Zeroizing<Vec<u8>> {
        framed(|bytes| match self {
            GrantReply::Call(message) => {
                bytes.push(CALL);
                bytes.extend(message);
            }
            GrantReply::Grants { follows, grants } => {
                bytes.extend([GRANTS, u8::from(*follows)]);
                bytes.extend((grants.len() as u16).to_le_bytes());
                grants.iter().for_each(|granted| put_grant(bytes, granted));
            }
            GrantReply::Announcement(time, granted) => {
                bytes.push(ANNOUNCEMENT);
                bytes.extend((time.as_millis() as u32).to_le_bytes());
                put_grant(bytes, granted);
            }
            GrantReply::NotAdmitted => bytes.push(NOT_ADMITTED),
            GrantReply::Translated(seen) => {
                bytes.push(TRANSLATED);
                bytes.extend(seen.0);
            }
        })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<GrantReply> {
        let mut reader = Reader(bytes);
        let reply = match reader.byte()? {
            CALL => return Some(GrantReply::Call(reader.0.to_vec())),
            GRANTS => {
                let follows = reader.byte()? == 1;
                let count = usize::from(u16::from_le_bytes(reader.take()?));
                if count > REGIONS {
                    return None;
                }
                let grants = (0..count).map(|_| take_grant(&mut reader)).collect::<Option<_>>()?;
                GrantReply::Grants { follows, grants }
            }
            ANNOUNCEMENT => {
                let time = Duration::from_millis(u32::from_le_bytes(reader.take()?).into());
                GrantReply::Announcement(time, take_grant(&mut reader)?)
            }
            NOT_ADMITTED => GrantReply::NotAdmitted,
            TRANSLATED => GrantReply::Translated(Address(reader.take()?)),
            _ => return None,
        };
        reader.end(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn granted(name: &str) -> RegionGrant {
        let bytes: [u8; Grant::LEN] = std::array::from_fn(|index| index as u8);
        RegionGrant {
            name: name.to_owned(),
            rights: Rights::READ | Rights::REKEY,
            grant: Grant::from_bytes(&bytes).unwrap(),
        }
    }

    fn request() -> GrantRequest {
        let client = Client { address: Ipv4Addr::new(10, 0, 0, 7).into(), pid: 77, incarnation: 0xdead_beef };
        GrantRequest { client, follow: true, token: Zeroizing::new(vec![9; 32]) }
    }

    #[test]
    fn each_message_is_read_as_it_was_written_and_never_in_part() {
        let replies = [
            GrantReply::Grants { follows: true, grants: vec![granted("memory"), granted("m2")] },
            GrantReply::Grants { follows: false, grants: Vec::new() },
            GrantReply::Announcement(Duration::from_millis(1500), granted("memory")),
            GrantReply::NotAdmitted,
            GrantReply::Translated(Ipv4Addr::new(10, 0, 0, 7).into()),
        ];
        for reply in replies {
            let whole = reply.encode();
            for len in 0..whole.len() {
                assert_eq!(
                    next(&mut Zeroizing::new(whole[..len].to_vec()), 4096, GrantReply::decode),
                    Ok(None)
                );
                assert_eq!(
                    GrantReply::decode(whole[4..].get(..len.wrapping_sub(4)).unwrap_or_default()),
                    None
                );
            }
            let mut came = Zeroizing::new([&whole[..], &whole[..], b"x"].concat());
            assert_eq!(next(&mut came, 4096, GrantReply::decode), Ok(Some(reply)));
            assert_eq!(came.len(), whole.len() + 1);
        }
        let whole = request().encode();
        assert!(whole.len() <= 4 + LONGEST_REQUEST);
        assert_eq!(GrantRequest::decode(&whole[4..]), Some(request()));
        assert_eq!(GrantRequest::decode(&[&whole[4..], b"x"].concat()), None, "something behind it");
    }

    #[test]
    fn what_is_too_long_of_another_version_or_has_a_name_that_moves_the_cursor_is_malformed() {
        let mut long = Zeroizing::new((LONGEST_REQUEST as u32 + 1).to_le_bytes().to_vec());
        assert_eq!(next(&mut long, LONGEST_REQUEST, GrantRequest::decode), Err(Malformed));
        for index in 0..6 {
            let mut bytes = request().encode();
            bytes[4 + index] ^= 1;
            assert_eq!(GrantRequest::decode(&bytes[4..]), None, "byte {index}");
        }
        for name in ["", "a\x1b[2J", &"n".repeat(LONGEST_NAME + 1)] {
            let reply = GrantReply::Announcement(Duration::ZERO, granted(name));
            assert_eq!(GrantReply::decode(&reply.encode()[4..]), None, "{name:?}");
        }
    }

    #[test]
    fn what_a_client_says_later_is_read_as_it_was_written() {
        for bytes in [&b""[..], b"put"] {
            let whole = ClientMessage::call(bytes);
            assert_eq!(whole, GrantReply::Call(bytes.to_vec()).encode()[..], "either way");
            let mut came = Zeroizing::new(whole);
            let read = next(&mut came, 4, ClientMessage::decode);
            assert_eq!((read, came.len()), (Ok(Some(ClientMessage::Call(bytes.to_vec()))), 0));
        }
        assert_eq!(ClientMessage::decode(&ClientMessage::RENEW[4..]), Some(ClientMessage::Renew));
        for other in [&[][..], &[RENEW, 0], &[REQUEST]] {
            assert_eq!(ClientMessage::decode(other), None, "{other:?}");
        }
        let mut long = Zeroizing::new(ClientMessage::call(&[0; 4]));
        assert_eq!(next(&mut long, 4, ClientMessage::decode), Err(Malformed));
    }

    #[test]
    fn the_largest_reply_is_within_the_bound() {
        let grants = vec![granted(&"n".repeat(LONGEST_NAME)); REGIONS];
        assert!(GrantReply::Grants { follows: true, grants }.encode().len() <= LONGEST_REPLY);
    }
}
