//! The primary or alternate path in a REQ, from the sender's point of view (IBTA volume 1, chapter 12.6.5).
//!
//! ```text
//!  +-------------------------------+-------------------------------+
//!  0|           local LID           |          remote LID          |
//!  +-------------------------------+-------------------------------+
//!  4|                        local GID (16)                        |
//!  +---------------------------------------------------------------+
//! 20|                       remote GID (16)                        |
//!  +---------------------------------------+-----------+-----------+
//! 36|              flow label               |  reserved |   rate   |
//!  +---------------+---------------+-------+-+-----+---------+-----+
//! 40| traffic class |   hop limit   |  SL   |S| res | ACK t/o | res |
//!  +---------------+---------------+-------+-+-----+---------+-----+
//! ```
//!
//! S: both ends are in one subnet. On RoCE the LIDs are ffff, and the SL is the sender's priority. The
//! reserved bits are sent as zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Address, WireError};

/// Length of a path in bytes.
pub const LEN: usize = 44;

/// LID of ports that have none (permissive LID).
pub const PERMISSIVE_LID: u16 = 0xffff;

const FLOW_LABEL: u32 = 0x000f_ffff;
const FLOW_SHIFT: u32 = 12;
const RATE: u8 = 0x3f;
const SL_SHIFT: u32 = 4;
const SL: u8 = 0x0f;
const SUBNET_LOCAL: u8 = 0x08;
const TIMEOUT: u8 = 0x1f;
const TIMEOUT_SHIFT: u32 = 3;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Raw {
    local_lid: U16,
    remote_lid: U16,
    local_gid: [u8; 16],
    remote_gid: [u8; 16],
    flow_rate: U32,
    traffic_class: u8,
    hop_limit: u8,
    sl_local: u8,
    ack_timeout: u8,
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed path whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the path at the start of `bytes`, or [`WireError::Truncated`] if `bytes` is too
    /// short.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// Returns a view of a path within a REQ.
    #[inline]
    pub(crate) fn of(raw: &'a Raw) -> View<'a> {
        View(raw)
    }

    /// LID of the sender's port.
    #[inline]
    pub fn local_lid(&self) -> u16 {
        self.0.local_lid.get()
    }

    /// LID of the receiver's port.
    #[inline]
    pub fn remote_lid(&self) -> u16 {
        self.0.remote_lid.get()
    }

    /// GID of the sender's queue pair.
    #[inline]
    pub fn local_gid(&self) -> Address {
        Address(self.0.local_gid)
    }

    /// GID of the receiver's queue pair.
    #[inline]
    pub fn remote_gid(&self) -> Address {
        Address(self.0.remote_gid)
    }

    /// Flow label of the connection's packets, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.0.flow_rate.get() >> FLOW_SHIFT
    }

    /// Code of the static rate of the path, 6 bits.
    #[inline]
    pub fn rate(&self) -> u8 {
        self.0.flow_rate.get() as u8 & RATE
    }

    /// Traffic class; for IPv4 the type of service.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.0.traffic_class
    }

    /// Maximum number of routers on the path.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0.hop_limit
    }

    /// Service level, 4 bits.
    #[inline]
    pub fn sl(&self) -> u8 {
        self.0.sl_local >> SL_SHIFT
    }

    /// True if both ends are in one subnet.
    #[inline]
    pub fn subnet_local(&self) -> bool {
        self.0.sl_local & SUBNET_LOCAL != 0
    }

    /// Code of the local ACK timeout that the receiver's queue pair should use, 5 bits.
    #[inline]
    pub fn ack_timeout(&self) -> u8 {
        self.0.ack_timeout >> TIMEOUT_SHIFT
    }
}

/// A path as a value.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Repr {
    /// LID of the sender's port; [`PERMISSIVE_LID`] on RoCE.
    pub local_lid: u16,
    /// LID of the receiver's port; [`PERMISSIVE_LID`] on RoCE.
    pub remote_lid: u16,
    /// GID of the sender's queue pair.
    pub local_gid: Address,
    /// GID of the receiver's queue pair.
    pub remote_gid: Address,
    /// Flow label of the connection's packets; `emit` keeps 20 bits.
    pub flow_label: u32,
    /// Code of the static rate of the path; `emit` keeps 6 bits.
    pub rate: u8,
    /// Traffic class; for IPv4 the type of service.
    pub traffic_class: u8,
    /// Maximum number of routers on the path.
    pub hop_limit: u8,
    /// Service level; `emit` keeps 4 bits.
    pub sl: u8,
    /// True if both ends are in one subnet.
    pub subnet_local: bool,
    /// Code of the local ACK timeout that the receiver's queue pair should use; `emit` keeps 5 bits.
    pub ack_timeout: u8,
}

impl Repr {
    /// Converts a checked path into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            local_lid: view.local_lid(),
            remote_lid: view.remote_lid(),
            local_gid: view.local_gid(),
            remote_gid: view.remote_gid(),
            flow_label: view.flow_label(),
            rate: view.rate(),
            traffic_class: view.traffic_class(),
            hop_limit: view.hop_limit(),
            sl: view.sl(),
            subnet_local: view.subnet_local(),
            ack_timeout: view.ack_timeout(),
        }
    }

    /// Returns true if the REQ has this path. An absent path is all zero.
    pub fn is_present(&self) -> bool {
        self.local_lid != 0 || self.local_gid != Address::default()
    }

    /// Converts the path into its wire format.
    #[inline]
    pub(crate) fn raw(&self) -> Raw {
        let subnet_local = if self.subnet_local { SUBNET_LOCAL } else { 0 };
        Raw {
            local_lid: U16::new(self.local_lid),
            remote_lid: U16::new(self.remote_lid),
            local_gid: self.local_gid.0,
            remote_gid: self.remote_gid.0,
            flow_rate: U32::new((self.flow_label & FLOW_LABEL) << FLOW_SHIFT | u32::from(self.rate & RATE)),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            sl_local: (self.sl & SL) << SL_SHIFT | subnet_local,
            ack_timeout: (self.ack_timeout & TIMEOUT) << TIMEOUT_SHIFT,
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a path");
        *place = self.raw();
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { local_gid, remote_gid, flow_label, traffic_class, ack_timeout, .. } = self;
        write!(
            f,
            "{local_gid}->{remote_gid} flow_label={flow_label:#07x} traffic_class={traffic_class} \
             ack_timeout={ack_timeout}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    /// Primary path of the first REQ in the Soft-RoCE capture.
    const BYTES: [u8; LEN] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x0a, 0x4d, 0x00, 0x02, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x0a, 0x4d, 0x00, 0x03, 0x5f, 0x38, 0x70, 0x00, 0x00, 0x40, 0x00, 0x98,
    ];

    fn value() -> Repr {
        Repr {
            local_lid: PERMISSIVE_LID,
            remote_lid: PERMISSIVE_LID,
            local_gid: Ipv4Addr::new(10, 77, 0, 2).into(),
            remote_gid: Ipv4Addr::new(10, 77, 0, 3).into(),
            flow_label: 0x5f387,
            hop_limit: 64,
            ack_timeout: 19,
            ..Repr::default()
        }
    }

    #[test]
    fn literal_bytes() {
        assert_eq!(Repr::parse(&View::new(&BYTES).unwrap()), value());
        let mut out = [0x5a; LEN + 1];
        value().emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&BYTES[..], 0x5a));
        assert_eq!(
            value().to_string(),
            "10.77.0.2->10.77.0.3 flow_label=0x5f387 traffic_class=0 ack_timeout=19"
        );
    }

    #[test]
    fn a_path_of_zeros_is_none() {
        assert!(value().is_present() && !Repr::default().is_present());
    }

    #[test]
    fn truncation_is_an_error() {
        for len in 0..LEN {
            assert_eq!(View::new(&BYTES[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    #[test]
    fn values_beyond_their_field_do_not_reach_their_neighbours() {
        let large = Repr { flow_label: u32::MAX, rate: 0xff, sl: 0xff, ack_timeout: 0xff, ..Repr::default() };
        let mut out = [0; LEN];
        large.emit(&mut out);
        assert_eq!(out[36..], [0xff, 0xff, 0xf0, 0x3f, 0, 0, 0xf0, 0xf8]);
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_bits(mut bytes: [u8; LEN]) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            for (at, bits) in [(38, 0x0f), (39, 0xc0), (42, 0x07), (43, 0x07)] {
                bytes[at] &= !bits;
            }
            prop_assert_eq!(out, bytes);
        }
    }
}
