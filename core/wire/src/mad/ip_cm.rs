//! Header of the RDMA IP CM service at the start of the private data of a REQ or SIDR_REQ: the IP addresses
//! and the source port of the connection (IBTA volume 1, annex A11).
//!
//! ```text
//!  +-------+-------+-------+-------+-------------------------------+
//!  0| major | minor |  IPV  |  res  |          source port          |
//!  +-------+-------+-------+-------+-------------------------------+
//!  4|                      source address (16)                     |
//!  +---------------------------------------------------------------+
//! 20|                   destination address (16)                   |
//!  +---------------------------------------------------------------+
//! ```
//!
//! Major and minor version are 0. An IPv4 address occupies the last four bytes of its field; the twelve
//! bytes before it and the reserved bits are sent as zero and ignored on receipt. The destination port is in
//! the service id.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Address, WireError};

/// Length of the header in bytes.
pub const LEN: usize = 36;

const IPV4: u8 = 4;
const IPV6: u8 = 6;
const VERSION_SHIFT: u32 = 4;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    version: u8,
    ip_version: u8,
    port: U16,
    source: [u8; 16],
    destination: [u8; 16],
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// Both IP addresses of a connection, of the same version.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Both addresses are IPv4.
    V4 {
        /// Address of the active side.
        source: Ipv4Addr,
        /// Address of the passive side.
        destination: Ipv4Addr,
    },
    /// Both addresses are IPv6.
    V6 {
        /// Address of the active side.
        source: Ipv6Addr,
        /// Address of the passive side.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Returns the addresses of two GIDs: IPv4 if both are mapped IPv4 addresses, otherwise IPv6.
    pub fn of(source: Address, destination: Address) -> Addresses {
        match (source.as_ipv4(), destination.as_ipv4()) {
            (Some(source), Some(destination)) => Addresses::V4 { source, destination },
            _ => Addresses::V6 { source: source.as_ipv6(), destination: destination.as_ipv6() },
        }
    }

    /// Returns the address of the active side as a GID.
    pub fn source(&self) -> Address {
        match *self {
            Addresses::V4 { source, .. } => source.into(),
            Addresses::V6 { source, .. } => source.into(),
        }
    }

    /// Returns the address of the passive side as a GID.
    pub fn destination(&self) -> Address {
        match *self {
            Addresses::V4 { destination, .. } => destination.into(),
            Addresses::V6 { destination, .. } => destination.into(),
        }
    }
}

/// Returns the IPv4 address in the last four bytes of an address field.
fn ipv4(bytes: &[u8; 16]) -> Ipv4Addr {
    let [.., a, b, c, d] = *bytes;
    Ipv4Addr::new(a, b, c, d)
}

/// Returns an address field with an IPv4 address.
fn field(address: Ipv4Addr) -> [u8; 16] {
    u128::from(address.to_bits()).to_be_bytes()
}

/// A borrowed header whose length and versions have been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the header at the start of private data.
    ///
    /// Fails with [`WireError::Truncated`] if `bytes` is too short, [`WireError::MadVersion`] if the version
    /// is not 0.0, or [`WireError::NotIp`] if the IP version is neither 4 nor 6.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        match (raw.version, raw.ip_version >> VERSION_SHIFT) {
            (0, IPV4 | IPV6) => Ok(View(raw)),
            (0, _) => Err(WireError::NotIp),
            (version, _) => Err(WireError::MadVersion(version)),
        }
    }

    /// Port of the active side.
    #[inline]
    pub fn port(&self) -> u16 {
        self.0.port.get()
    }

    /// IP addresses of both sides.
    #[inline]
    pub fn addresses(&self) -> Addresses {
        let Raw { source, destination, .. } = self.0;
        if self.0.ip_version >> VERSION_SHIFT == IPV4 {
            return Addresses::V4 { source: ipv4(source), destination: ipv4(destination) };
        }
        let ipv6 = |bytes: &[u8; 16]| Ipv6Addr::from_octets(*bytes);
        Addresses::V6 { source: ipv6(source), destination: ipv6(destination) }
    }
}

/// The header as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Port of the active side.
    pub port: u16,
    /// IP addresses of both sides.
    pub addresses: Addresses,
}

impl Repr {
    /// Converts a checked header into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr { port: view.port(), addresses: view.addresses() }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for the header of the IP CM service");
        let port = U16::new(self.port);
        *place = match self.addresses {
            Addresses::V4 { source, destination } => {
                let source = field(source);
                let destination = field(destination);
                Raw { version: 0, ip_version: IPV4 << VERSION_SHIFT, port, source, destination }
            }
            Addresses::V6 { source, destination } => {
                let source = source.octets();
                let destination = destination.octets();
                Raw { version: 0, ip_version: IPV6 << VERSION_SHIFT, port, source, destination }
            }
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}->{}", self.addresses.source(), self.port, self.addresses.destination())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of the first REQ in the Soft-RoCE capture.
    const BYTES: [u8; LEN] = [
        0x00, 0x40, 0xb4, 0x5f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 77, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 10, 77, 0, 3,
    ];
    const VALUE: Repr = Repr {
        port: 0xb45f,
        addresses: Addresses::V4 {
            source: Ipv4Addr::new(10, 77, 0, 2),
            destination: Ipv4Addr::new(10, 77, 0, 3),
        },
    };

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), VALUE);
        let mut out = [0x5a; LEN + 1];
        VALUE.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(VALUE.to_string(), "10.77.0.2:46175->10.77.0.3");
    }

    #[test]
    fn literal_bytes_of_ipv6() {
        let source = "fd00::2".parse().unwrap();
        let destination = "fd00::3".parse().unwrap();
        let value = Repr { port: 1, addresses: Addresses::V6 { source, destination } };
        let mut out = [0; LEN];
        value.emit(&mut out);
        assert_eq!(out[..6], [0x00, 0x60, 0x00, 0x01, 0xfd, 0x00]);
        assert_eq!((out[19], out[35]), (2, 3));
        assert_eq!(Repr::parse(&View::new(&out).unwrap()), value);
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    #[test]
    fn other_versions_are_errors() {
        for version in 0..=u8::MAX {
            let mut bytes = BYTES;
            bytes[0] = version;
            let expected = if version == 0 { None } else { Some(WireError::MadVersion(version)) };
            assert_eq!(View::new(&bytes).err(), expected);
            let mut bytes = BYTES;
            bytes[1] = version;
            let expected = if matches!(version >> 4, 4 | 6) { None } else { Some(WireError::NotIp) };
            assert_eq!(View::new(&bytes).err(), expected);
        }
    }

    #[test]
    fn two_gids_are_ipv4_only_if_both_are() {
        let four = Address::from(Ipv4Addr::LOCALHOST);
        let six = Address::from(Ipv6Addr::LOCALHOST);
        assert!(matches!(Addresses::of(four, four), Addresses::V4 { .. }));
        for (source, destination) in [(four, six), (six, four), (six, six)] {
            let addresses = Addresses::of(source, destination);
            assert!(matches!(addresses, Addresses::V6 { .. }));
            assert_eq!((addresses.source(), addresses.destination()), (source, destination));
        }
    }

    proptest! {
        #[test]
        fn any_header_round_trips_but_for_what_is_reserved(mut bytes: [u8; 32], start: [u8; 4], is_ipv4: bool) {
            let version = if is_ipv4 { 0x40 } else { 0x60 };
            let mut header = [0; LEN];
            header[..4].copy_from_slice(&[0, version | start[1] & 0xf, start[2], start[3]]);
            header[4..].copy_from_slice(&bytes);
            let mut out = [0; LEN];
            Repr::parse(&View::new(&header).unwrap()).emit(&mut out);
            if is_ipv4 {
                bytes[..12].fill(0);
                bytes[16..28].fill(0);
            }
            prop_assert_eq!(&out[..4], [0, version, start[2], start[3]]);
            prop_assert_eq!(&out[4..], bytes);
        }
    }
}
