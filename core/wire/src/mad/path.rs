//! One path of a REQ: the primary or the alternate one, as its sender sees it (IBTA volume 1, chapter
//! 12.6.5).
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
//! S: both ends are in one subnet. On RoCE a LID is ffff, and of the SL the sender's priority is left. The
//! reserved bits are sent as zero and not looked at.

use core::fmt;

use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Address, WireError};

/// Bytes of a path.
pub const LEN: usize = 44;

/// The LID of ports without one.
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

/// A path whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// The path at the start of `bytes`; [`WireError::Truncated`] below [`LEN`] bytes.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// A path within a REQ.
    #[inline]
    pub(crate) fn of(raw: &'a Raw) -> View<'a> {
        View(raw)
    }

    /// The LID of the sender's port.
    #[inline]
    pub fn local_lid(&self) -> u16 {
        self.0.local_lid.get()
    }

    /// The LID of the receiver's port.
    #[inline]
    pub fn remote_lid(&self) -> u16 {
        self.0.remote_lid.get()
    }

    /// The GID of the sender's queue pair.
    #[inline]
    pub fn local_gid(&self) -> Address {
        Address(self.0.local_gid)
    }

    /// The GID of the receiver's queue pair.
    #[inline]
    pub fn remote_gid(&self) -> Address {
        Address(self.0.remote_gid)
    }

    /// The flow label of both queue pairs' packets, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        self.0.flow_rate.get() >> FLOW_SHIFT
    }

    /// The code of the path's static rate, 6 bits.
    #[inline]
    pub fn rate(&self) -> u8 {
        self.0.flow_rate.get() as u8 & RATE
    }

    /// The traffic class (of IPv4: the type of service).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.0.traffic_class
    }

    /// Routers that a packet may pass.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0.hop_limit
    }

    /// Service level, 4 bits.
    #[inline]
    pub fn sl(&self) -> u8 {
        self.0.sl_local >> SL_SHIFT
    }

    /// Are both ends in one subnet?
    #[inline]
    pub fn subnet_local(&self) -> bool {
        self.0.sl_local & SUBNET_LOCAL != 0
    }

    /// The code of the local ACK timeout that the receiver's queue pair should use, 5 bits.
    #[inline]
    pub fn ack_timeout(&self) -> u8 {
        self.0.ack_timeout >> TIMEOUT_SHIFT
    }
}

/// A path as a value.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Repr {
    /// The LID of the sender's port; [`PERMISSIVE_LID`] on RoCE.
    pub local_lid: u16,
    /// The LID of the receiver's port; [`PERMISSIVE_LID`] on RoCE.
    pub remote_lid: u16,
    /// The GID of the sender's queue pair.
    pub local_gid: Address,
    /// The GID of the receiver's queue pair.
    pub remote_gid: Address,
    /// The flow label of both queue pairs' packets; `emit` keeps 20 bits.
    pub flow_label: u32,
    /// The code of the path's static rate; `emit` keeps 6 bits.
    pub rate: u8,
    /// The traffic class (of IPv4: the type of service).
    pub traffic_class: u8,
    /// Routers that a packet may pass.
    pub hop_limit: u8,
    /// Service level; `emit` keeps 4 bits.
    pub sl: u8,
    /// Are both ends in one subnet?
    pub subnet_local: bool,
    /// The code of the local ACK timeout that the receiver's queue pair should use; `emit` keeps 5 bits.
    pub ack_timeout: u8,
}

impl Repr {
    /// The value of a checked path.
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

    /// Does a REQ have this path? One without is zero.
    pub fn is_present(&self) -> bool {
        self.local_lid != 0 || self.local_gid != Address::default()
    }

    /// The bytes.
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

    /// Writes [`LEN`] bytes at the start of `out`; panics if it is shorter.
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

    /// Of the first REQ in Soft-RoCE's capture: the primary path.
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
