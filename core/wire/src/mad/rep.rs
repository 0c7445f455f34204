//! REP: the passive side accepts a connection (IBTA volume 1, chapter 12.6.8).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!   0|                     local communication id                   |
//!   +---------------------------------------------------------------+
//!   4|                    remote communication id                   |
//!   +---------------------------------------------------------------+
//!   8|                          local Q_Key                         |
//!   +-----------------------------------------------+---------------+
//!  12|                   local QPN                  |   reserved    |
//!   +-----------------------------------------------+---------------+
//!  16|                   local EECN                 |   reserved    |
//!   +-----------------------------------------------+---------------+
//!  20|                 starting PSN                 |   reserved    |
//!   +---------------+---------------+---------+---+-+-----+-+-------+
//!  24| responder res.|initiator depth| ACK del.| O |F| RNR |S|  res  |
//!   +---------------+---------------+---------+---+-+-----+-+-------+
//!  28|                       local CA GUID (8)                      |
//!   +---------------------------------------------------------------+
//!  36|                      private data (196)                      |
//!   +---------------------------------------------------------------+
//! ```
//!
//! O: fail-over accepted, F: end-to-end flow control, S: shared receive queue. The reserved bits are sent as
//! zero and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::BODY_LEN;
use crate::{Psn, Qpn, WireError};

/// Length of the body in bytes.
pub const LEN: usize = BODY_LEN;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 196;

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    local_comm_id: U32,
    remote_comm_id: U32,
    local_qkey: U32,
    local_qpn: U32,
    local_eecn: U32,
    starting_psn: U32,
    responder_resources: u8,
    initiator_depth: u8,
    delay_flow: u8,
    rnr_srq: u8,
    local_ca_guid: U64,
    private_data: [u8; PRIVATE_LEN],
}
const _: () = assert!(size_of::<Raw>() == LEN);

/// A borrowed body whose length has been checked.
#[derive(Copy, Clone, Debug)]
pub struct View<'a>(&'a Raw);

impl<'a> View<'a> {
    /// Returns a view of the body at the start of `bytes`, or [`WireError::Truncated`] if `bytes` is too
    /// short.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        Raw::ref_from_prefix(bytes).map(|(raw, _)| View(raw)).map_err(|_| WireError::Truncated)
    }

    /// Communication id of the sender.
    #[inline]
    pub fn local_comm_id(&self) -> u32 {
        self.0.local_comm_id.get()
    }

    /// Communication id of the receiver.
    #[inline]
    pub fn remote_comm_id(&self) -> u32 {
        self.0.remote_comm_id.get()
    }

    /// Used by reliable datagram services only; otherwise 0.
    #[inline]
    pub fn local_qkey(&self) -> u32 {
        self.0.local_qkey.get()
    }

    /// Queue pair number of the sender; that of an XRC target is in `local_eecn` instead.
    #[inline]
    pub fn local_qpn(&self) -> Qpn {
        Qpn::new(self.0.local_qpn.get() >> 8)
    }

    /// Queue pair number of an XRC target; otherwise 0.
    #[inline]
    pub fn local_eecn(&self) -> u32 {
        self.0.local_eecn.get() >> 8
    }

    /// PSN of the first packet that the receiver's queue pair must send.
    #[inline]
    pub fn starting_psn(&self) -> Psn {
        Psn::new(self.0.starting_psn.get() >> 8)
    }

    /// Maximum number of outstanding READs and atomics that the sender's queue pair accepts as responder.
    #[inline]
    pub fn responder_resources(&self) -> u8 {
        self.0.responder_resources
    }

    /// Maximum number of READs and atomics that the sender's queue pair has outstanding as requester.
    #[inline]
    pub fn initiator_depth(&self) -> u8 {
        self.0.initiator_depth
    }

    /// Code of the sender's maximum delay before it sends an ACK, 5 bits.
    #[inline]
    pub fn target_ack_delay(&self) -> u8 {
        self.0.delay_flow >> 3
    }

    /// Response to the alternate path, 2 bits: 0 accepted, 1 not supported, 2 refused.
    #[inline]
    pub fn failover(&self) -> u8 {
        self.0.delay_flow >> 1 & 0x3
    }

    /// True if the sender's queue pair uses end-to-end flow control.
    #[inline]
    pub fn flow_control(&self) -> bool {
        self.0.delay_flow & 1 != 0
    }

    /// RNR retry count that the receiver's queue pair should use, 3 bits.
    #[inline]
    pub fn rnr_retry_count(&self) -> u8 {
        self.0.rnr_srq >> 5
    }

    /// True if the sender's queue pair uses a shared receive queue.
    #[inline]
    pub fn srq(&self) -> bool {
        self.0.rnr_srq & 0x10 != 0
    }

    /// GUID of the sender's channel adapter.
    #[inline]
    pub fn local_ca_guid(&self) -> u64 {
        self.0.local_ca_guid.get()
    }

    /// Private data, passed from the sender's program to the receiver's.
    #[inline]
    pub fn private_data(&self) -> &'a [u8; PRIVATE_LEN] {
        &self.0.private_data
    }
}

/// The body as a value.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Communication id of the sender.
    pub local_comm_id: u32,
    /// Communication id of the receiver.
    pub remote_comm_id: u32,
    /// Used by reliable datagram services only; otherwise 0.
    pub local_qkey: u32,
    /// Queue pair number of the sender; that of an XRC target is in `local_eecn` instead.
    pub local_qpn: Qpn,
    /// Queue pair number of an XRC target; otherwise 0; `emit` keeps 24 bits.
    pub local_eecn: u32,
    /// PSN of the first packet that the receiver's queue pair must send.
    pub starting_psn: Psn,
    /// Maximum number of outstanding READs and atomics that the sender's queue pair accepts as responder.
    pub responder_resources: u8,
    /// Maximum number of READs and atomics that the sender's queue pair has outstanding as requester.
    pub initiator_depth: u8,
    /// Code of the sender's maximum delay before it sends an ACK; `emit` keeps 5 bits.
    pub target_ack_delay: u8,
    /// Response to the alternate path: 0 accepted, 1 not supported, 2 refused; `emit` keeps 2 bits.
    pub failover: u8,
    /// True if the sender's queue pair uses end-to-end flow control.
    pub flow_control: bool,
    /// RNR retry count that the receiver's queue pair should use; `emit` keeps 3 bits.
    pub rnr_retry_count: u8,
    /// True if the sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// GUID of the sender's channel adapter.
    pub local_ca_guid: u64,
    /// Private data, passed from the sender's program to the receiver's.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Repr {
    /// Converts a checked body into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            local_comm_id: view.local_comm_id(),
            remote_comm_id: view.remote_comm_id(),
            local_qkey: view.local_qkey(),
            local_qpn: view.local_qpn(),
            local_eecn: view.local_eecn(),
            starting_psn: view.starting_psn(),
            responder_resources: view.responder_resources(),
            initiator_depth: view.initiator_depth(),
            target_ack_delay: view.target_ack_delay(),
            failover: view.failover(),
            flow_control: view.flow_control(),
            rnr_retry_count: view.rnr_retry_count(),
            srq: view.srq(),
            local_ca_guid: view.local_ca_guid(),
            private_data: *view.private_data(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a REP");
        *place = Raw {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            local_qkey: U32::new(self.local_qkey),
            local_qpn: U32::new(self.local_qpn.get() << 8),
            local_eecn: U32::new(self.local_eecn << 8),
            starting_psn: U32::new(self.starting_psn.get() << 8),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            delay_flow: (self.target_ack_delay & 0x1f) << 3
                | (self.failover & 0x3) << 1
                | u8::from(self.flow_control),
            rnr_srq: (self.rnr_retry_count & 0x7) << 5 | u8::from(self.srq) << 4,
            local_ca_guid: U64::new(self.local_ca_guid),
            private_data: self.private_data,
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { local_comm_id, remote_comm_id, local_qpn, starting_psn, .. } = self;
        write!(
            f,
            "local_comm_id={local_comm_id:#010x} remote_comm_id={remote_comm_id:#010x} \
             local_qpn={local_qpn} starting_psn={starting_psn}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::tests::{any_body, body};
    use proptest::prelude::*;

    /// Bytes of the first REP in the Soft-RoCE capture.
    fn bytes() -> [u8; LEN] {
        body("67571cca 88a881c1 00000000 00001c00 00000000 1fc3c400 01 01 78 e0 505400fffe4d0003")
    }

    fn value() -> Repr {
        Repr {
            local_comm_id: 0x6757_1cca,
            remote_comm_id: 0x88a8_81c1,
            local_qkey: 0,
            local_qpn: Qpn::new(0x1c),
            local_eecn: 0,
            starting_psn: Psn::new(0x1f_c3c4),
            responder_resources: 1,
            initiator_depth: 1,
            target_ack_delay: 15,
            failover: 0,
            flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            local_ca_guid: 0x5054_00ff_fe4d_0003,
            private_data: [0; PRIVATE_LEN],
        }
    }

    #[test]
    fn literal_bytes() {
        let (bytes, value) = (bytes(), value());
        assert_eq!(Repr::parse(&View::new(&bytes).unwrap()), value);
        let mut out = [0x5a; LEN + 1];
        value.emit(&mut out);
        assert_eq!((&out[..LEN], out[LEN]), (&bytes[..], 0x5a));
        assert_eq!(
            value.to_string(),
            "local_comm_id=0x67571cca remote_comm_id=0x88a881c1 local_qpn=0x00001c starting_psn=2081732"
        );
    }

    #[test]
    fn truncation_is_an_error() {
        let bytes = bytes();
        for len in 0..LEN {
            assert_eq!(View::new(&bytes[..len]).unwrap_err(), WireError::Truncated);
        }
    }

    #[test]
    fn values_beyond_their_field_do_not_reach_their_neighbours() {
        let mut out = [0; LEN];
        let large = Repr { target_ack_delay: 0xff, failover: 0xff, rnr_retry_count: 0xff, ..value() };
        large.emit(&mut out);
        assert_eq!(out[26..28], [0xfe, 0xe0]);
        Repr { flow_control: true, srq: true, target_ack_delay: 0, rnr_retry_count: 0, ..value() }
            .emit(&mut out);
        assert_eq!(out[26..28], [0x01, 0x10]);
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_bits(mut bytes in any_body()) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            for (at, bits) in [(15, 0xff), (19, 0xff), (23, 0xff), (27, 0xf)] {
                bytes[at] &= !bits;
            }
            prop_assert_eq!(out, bytes);
        }
    }
}
