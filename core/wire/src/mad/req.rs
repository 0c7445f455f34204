//! REQ: the connection request of the active side (IBTA volume 1, chapter 12.6.5).
//!
//! ```text
//!   +---------------------------------------------------------------+
//!   0|                     local communication id                   |
//!   +---------------------------------------------------------------+
//!   4|                           reserved                           |
//!   +---------------------------------------------------------------+
//!   8|                        service id (8)                        |
//!   +---------------------------------------------------------------+
//!  16|                       local CA GUID (8)                      |
//!   +---------------------------------------------------------------+
//!  24|                           reserved                           |
//!   +---------------------------------------------------------------+
//!  28|                          local Q_Key                         |
//!   +-----------------------------------------------+---------------+
//!  32|                   local QPN                  |responder res. |
//!   +-----------------------------------------------+---------------+
//!  36|                   local EECN                 |initiator depth|
//!   +-----------------------------------------------+---------+---+-+
//!  40|                  remote EECN                 |rem. t/o | T |F|
//!   +-----------------------------------------------+---------+---+-+
//!  44|                 starting PSN                 |local t/o|retry|
//!   +-------------------------------+-------+-+-----+-------+-+-----+
//!  48|             P_Key            |  MTU  |R| RNR |retries|S|  X  |
//!   +-------------------------------+-------+-+-----+-------+-+-----+
//!  52|                       primary path (44)                      |
//!   +---------------------------------------------------------------+
//!  96|                      alternate path (44)                     |
//!   +---------------------------------------------------------------+
//! 140|                       private data (92)                      |
//!   +---------------------------------------------------------------+
//! ```
//!
//! T: transport service, F: end-to-end flow control, R: an RDC exists, S: shared receive queue, X: extended
//! transport. Bytes 4 to 7 hold the vendor id of ECE in later versions. All reserved bytes are sent as zero
//! and ignored on receipt.

use core::fmt;

use zerocopy::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BODY_LEN, ServiceId, path};
use crate::{Psn, Qpn, WireError};

/// Length of the body in bytes.
pub const LEN: usize = BODY_LEN;

/// Length of the private data in bytes.
pub const PRIVATE_LEN: usize = 92;

/// The transport service of a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConnectedService {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram, which has no known implementation.
    Rd,
    /// Extended reliable connection.
    Xrc,
}

impl ConnectedService {
    /// Returns the fields `transport` and `extended_transport` of a REQ.
    pub const fn codes(self) -> [u8; 2] {
        match self {
            ConnectedService::Rc => [0, 0],
            ConnectedService::Uc => [1, 0],
            ConnectedService::Rd => [2, 0],
            ConnectedService::Xrc => [3, 1],
        }
    }
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    local_comm_id: U32,
    reserved: U32,
    service_id: U64,
    local_ca_guid: U64,
    reserved2: U32,
    local_qkey: U32,
    qpn_resources: U32,
    eecn_depth: U32,
    remote_eecn_timeout: U32,
    psn_timeout: U32,
    pkey: U16,
    mtu_rnr: u8,
    retries_srq: u8,
    primary: path::Raw,
    alternate: path::Raw,
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

    /// Requested service.
    #[inline]
    pub fn service_id(&self) -> ServiceId {
        ServiceId(self.0.service_id.get())
    }

    /// GUID of the sender's channel adapter.
    #[inline]
    pub fn local_ca_guid(&self) -> u64 {
        self.0.local_ca_guid.get()
    }

    /// Used by reliable datagram services only; otherwise 0.
    #[inline]
    pub fn local_qkey(&self) -> u32 {
        self.0.local_qkey.get()
    }

    /// Queue pair number of the sender.
    #[inline]
    pub fn local_qpn(&self) -> Qpn {
        Qpn::new(self.0.qpn_resources.get() >> 8)
    }

    /// Maximum number of outstanding READs and atomics that the sender's queue pair accepts as responder.
    #[inline]
    pub fn responder_resources(&self) -> u8 {
        self.0.qpn_resources.get() as u8
    }

    /// Used by reliable datagram services only; otherwise 0.
    #[inline]
    pub fn local_eecn(&self) -> u32 {
        self.0.eecn_depth.get() >> 8
    }

    /// Number of READs and atomics that the sender's queue pair would like to have outstanding as requester.
    #[inline]
    pub fn initiator_depth(&self) -> u8 {
        self.0.eecn_depth.get() as u8
    }

    /// Used by reliable datagram services only; otherwise 0.
    #[inline]
    pub fn remote_eecn(&self) -> u32 {
        self.0.remote_eecn_timeout.get() >> 8
    }

    /// Code of the time within which the receiver should answer, 5 bits.
    #[inline]
    pub fn remote_response_timeout(&self) -> u8 {
        (self.0.remote_eecn_timeout.get() >> 3) as u8 & 0x1f
    }

    /// Transport service, 2 bits: 0 RC, 1 UC, 2 RD, 3 given by `extended_transport`.
    #[inline]
    pub fn transport(&self) -> u8 {
        (self.0.remote_eecn_timeout.get() >> 1) as u8 & 0x3
    }

    /// True if the sender's queue pair uses end-to-end flow control.
    #[inline]
    pub fn flow_control(&self) -> bool {
        self.0.remote_eecn_timeout.get() & 1 != 0
    }

    /// PSN of the first packet that the receiver's queue pair must send.
    #[inline]
    pub fn starting_psn(&self) -> Psn {
        Psn::new(self.0.psn_timeout.get() >> 8)
    }

    /// Code of the time within which the sender answers, 5 bits.
    #[inline]
    pub fn local_response_timeout(&self) -> u8 {
        (self.0.psn_timeout.get() >> 3) as u8 & 0x1f
    }

    /// Retry count that the receiver's queue pair should use, 3 bits.
    #[inline]
    pub fn retry_count(&self) -> u8 {
        self.0.psn_timeout.get() as u8 & 0x7
    }

    /// Partition key of the connection.
    #[inline]
    pub fn pkey(&self) -> u16 {
        self.0.pkey.get()
    }

    /// Code of the path MTU, 4 bits: 1 for 256 bytes to 5 for 4096 bytes.
    #[inline]
    pub fn path_mtu(&self) -> u8 {
        self.0.mtu_rnr >> 4
    }

    /// Used by reliable datagram services only; otherwise false.
    #[inline]
    pub fn rdc_exists(&self) -> bool {
        self.0.mtu_rnr & 0x8 != 0
    }

    /// RNR retry count that the receiver's queue pair should use, 3 bits.
    #[inline]
    pub fn rnr_retry_count(&self) -> u8 {
        self.0.mtu_rnr & 0x7
    }

    /// Number of retransmissions of a CM message before either side gives up, 4 bits.
    #[inline]
    pub fn max_cm_retries(&self) -> u8 {
        self.0.retries_srq >> 4
    }

    /// True if the sender's queue pair uses a shared receive queue.
    #[inline]
    pub fn srq(&self) -> bool {
        self.0.retries_srq & 0x8 != 0
    }

    /// Extended transport service if `transport` is 3, 3 bits: 1 XRC.
    #[inline]
    pub fn extended_transport(&self) -> u8 {
        self.0.retries_srq & 0x7
    }

    /// Primary path of the connection.
    #[inline]
    pub fn primary(&self) -> path::View<'a> {
        path::View::of(&self.0.primary)
    }

    /// Alternate path for path migration; all zero if absent.
    #[inline]
    pub fn alternate(&self) -> path::View<'a> {
        path::View::of(&self.0.alternate)
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
    /// Requested service.
    pub service_id: ServiceId,
    /// GUID of the sender's channel adapter.
    pub local_ca_guid: u64,
    /// Used by reliable datagram services only; otherwise 0.
    pub local_qkey: u32,
    /// Queue pair number of the sender.
    pub local_qpn: Qpn,
    /// Maximum number of outstanding READs and atomics that the sender's queue pair accepts as responder.
    pub responder_resources: u8,
    /// Used by reliable datagram services only; otherwise 0; `emit` keeps 24 bits.
    pub local_eecn: u32,
    /// Number of READs and atomics that the sender's queue pair would like to have outstanding as requester.
    pub initiator_depth: u8,
    /// Used by reliable datagram services only; otherwise 0; `emit` keeps 24 bits.
    pub remote_eecn: u32,
    /// Code of the time within which the receiver should answer; `emit` keeps 5 bits.
    pub remote_response_timeout: u8,
    /// Transport service: 0 RC, 1 UC, 2 RD, 3 given by `extended_transport`; `emit` keeps 2 bits.
    pub transport: u8,
    /// True if the sender's queue pair uses end-to-end flow control.
    pub flow_control: bool,
    /// PSN of the first packet that the receiver's queue pair must send.
    pub starting_psn: Psn,
    /// Code of the time within which the sender answers; `emit` keeps 5 bits.
    pub local_response_timeout: u8,
    /// Retry count that the receiver's queue pair should use; `emit` keeps 3 bits.
    pub retry_count: u8,
    /// Partition key of the connection.
    pub pkey: u16,
    /// Code of the path MTU: 1 for 256 bytes to 5 for 4096 bytes; `emit` keeps 4 bits.
    pub path_mtu: u8,
    /// Used by reliable datagram services only; otherwise false.
    pub rdc_exists: bool,
    /// RNR retry count that the receiver's queue pair should use; `emit` keeps 3 bits.
    pub rnr_retry_count: u8,
    /// Number of retransmissions of a CM message before either side gives up; `emit` keeps 4 bits.
    pub max_cm_retries: u8,
    /// True if the sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// Extended transport service if `transport` is 3: 1 XRC; `emit` keeps 3 bits.
    pub extended_transport: u8,
    /// Primary path of the connection.
    pub primary: path::Repr,
    /// Alternate path for path migration; all zero if absent.
    pub alternate: path::Repr,
    /// Private data, passed from the sender's program to the receiver's.
    pub private_data: [u8; PRIVATE_LEN],
}

impl Repr {
    /// Returns the transport service of the connection, or `None` for a reserved value.
    pub const fn service(&self) -> Option<ConnectedService> {
        match (self.transport, self.extended_transport) {
            (0, _) => Some(ConnectedService::Rc),
            (1, _) => Some(ConnectedService::Uc),
            (2, _) => Some(ConnectedService::Rd),
            (3, 1) => Some(ConnectedService::Xrc),
            _ => None,
        }
    }

    /// Converts a checked body into a value.
    #[inline]
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            local_comm_id: view.local_comm_id(),
            service_id: view.service_id(),
            local_ca_guid: view.local_ca_guid(),
            local_qkey: view.local_qkey(),
            local_qpn: view.local_qpn(),
            responder_resources: view.responder_resources(),
            local_eecn: view.local_eecn(),
            initiator_depth: view.initiator_depth(),
            remote_eecn: view.remote_eecn(),
            remote_response_timeout: view.remote_response_timeout(),
            transport: view.transport(),
            flow_control: view.flow_control(),
            starting_psn: view.starting_psn(),
            local_response_timeout: view.local_response_timeout(),
            retry_count: view.retry_count(),
            pkey: view.pkey(),
            path_mtu: view.path_mtu(),
            rdc_exists: view.rdc_exists(),
            rnr_retry_count: view.rnr_retry_count(),
            max_cm_retries: view.max_cm_retries(),
            srq: view.srq(),
            extended_transport: view.extended_transport(),
            primary: path::Repr::parse(&view.primary()),
            alternate: path::Repr::parse(&view.alternate()),
            private_data: *view.private_data(),
        }
    }

    /// Writes [`LEN`] bytes at the start of `out`. Panics if `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let (place, _) = Raw::mut_from_prefix(out).expect("space for a REQ");
        *place = Raw {
            local_comm_id: U32::new(self.local_comm_id),
            reserved: U32::new(0),
            service_id: U64::new(self.service_id.0),
            local_ca_guid: U64::new(self.local_ca_guid),
            reserved2: U32::new(0),
            local_qkey: U32::new(self.local_qkey),
            qpn_resources: U32::new(self.local_qpn.get() << 8 | u32::from(self.responder_resources)),
            eecn_depth: U32::new(self.local_eecn << 8 | u32::from(self.initiator_depth)),
            remote_eecn_timeout: U32::new(
                self.remote_eecn << 8
                    | u32::from(self.remote_response_timeout & 0x1f) << 3
                    | u32::from(self.transport & 0x3) << 1
                    | u32::from(self.flow_control),
            ),
            psn_timeout: U32::new(
                self.starting_psn.get() << 8
                    | u32::from(self.local_response_timeout & 0x1f) << 3
                    | u32::from(self.retry_count & 0x7),
            ),
            pkey: U16::new(self.pkey),
            mtu_rnr: (self.path_mtu & 0xf) << 4
                | u8::from(self.rdc_exists) << 3
                | (self.rnr_retry_count & 0x7),
            retries_srq: (self.max_cm_retries & 0xf) << 4
                | u8::from(self.srq) << 3
                | (self.extended_transport & 0x7),
            primary: self.primary.raw(),
            alternate: self.alternate.raw(),
            private_data: self.private_data,
        };
    }
}

impl fmt::Display for Repr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr { local_comm_id, service_id, local_qpn, starting_psn, path_mtu, primary, .. } = self;
        write!(
            f,
            "local_comm_id={local_comm_id:#010x} service_id={service_id} local_qpn={local_qpn} \
             starting_psn={starting_psn} path_mtu={path_mtu} primary={primary}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mad::tests::{any_body, body};
    use crate::mad::{PortSpace, ip_cm};
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    /// Bytes of the first REQ in the Soft-RoCE capture.
    fn bytes() -> [u8; LEN] {
        body(
            "88a881c1 00000000 0000000001061c06 505400fffe4d0002 00000000 00000000 00003001 00000001 \
             000000a0 \
             cb9790a7 ffff37f0 ffffffff00000000000000000000ffff0a4d0002 00000000000000000000ffff0a4d0003 5f387000 \
             00400098 0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
             0040b45f 0000000000000000000000000a4d0002 0000000000000000000000000a4d0003",
        )
    }

    fn value() -> Repr {
        let mut private_data = [0; PRIVATE_LEN];
        private_data[..ip_cm::LEN].copy_from_slice(&bytes()[140..][..ip_cm::LEN]);
        Repr {
            local_comm_id: 0x88a8_81c1,
            service_id: ServiceId::rdma_ip(PortSpace::Tcp, 7174),
            local_ca_guid: 0x5054_00ff_fe4d_0002,
            local_qkey: 0,
            local_qpn: Qpn::new(0x30),
            responder_resources: 1,
            local_eecn: 0,
            initiator_depth: 1,
            remote_eecn: 0,
            remote_response_timeout: 20,
            transport: 0,
            flow_control: false,
            starting_psn: Psn::new(0xcb_9790),
            local_response_timeout: 20,
            retry_count: 7,
            pkey: 0xffff,
            path_mtu: 3,
            rdc_exists: false,
            rnr_retry_count: 7,
            max_cm_retries: 15,
            srq: false,
            extended_transport: 0,
            primary: path::Repr {
                local_lid: path::PERMISSIVE_LID,
                remote_lid: path::PERMISSIVE_LID,
                local_gid: Ipv4Addr::new(10, 77, 0, 2).into(),
                remote_gid: Ipv4Addr::new(10, 77, 0, 3).into(),
                flow_label: 0x5f387,
                hop_limit: 64,
                ack_timeout: 19,
                ..path::Repr::default()
            },
            alternate: path::Repr::default(),
            private_data,
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
            "local_comm_id=0x88a881c1 service_id=0x0000000001061c06 local_qpn=0x000030 \
             starting_psn=13342608 path_mtu=3 primary=10.77.0.2->10.77.0.3 flow_label=0x5f387 \
             traffic_class=0 ack_timeout=19"
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
        let large = Repr {
            local_eecn: u32::MAX,
            remote_response_timeout: 0xff,
            transport: 0xff,
            local_response_timeout: 0xff,
            retry_count: 0xff,
            path_mtu: 0xff,
            rnr_retry_count: 0xff,
            max_cm_retries: 0xff,
            extended_transport: 0xff,
            initiator_depth: 0,
            starting_psn: Psn::new(0),
            pkey: 0,
            ..value()
        };
        let mut out = [0; LEN];
        large.emit(&mut out);
        assert_eq!(out[36..52], [255, 255, 255, 0, 0, 0, 0, 0xfe, 0, 0, 0, 0xff, 0, 0, 0xf7, 0xf7]);
    }

    #[test]
    fn the_transport_service_is_one_of_four() {
        use ConnectedService::{Rc, Rd, Uc, Xrc};
        for service in [Rc, Uc, Rd, Xrc] {
            let [transport, extended_transport] = service.codes();
            assert_eq!(Repr { transport, extended_transport, ..value() }.service(), Some(service));
        }
        for extended_transport in [0, 2, 7] {
            assert_eq!(Repr { transport: 3, extended_transport, ..value() }.service(), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_round_trip_but_for_the_reserved_bits(mut bytes in any_body()) {
            let mut out = [0; LEN];
            Repr::parse(&View::new(&bytes).unwrap()).emit(&mut out);
            for (at, bits) in [
                (4, 0xff), (5, 0xff), (6, 0xff), (7, 0xff), (24, 0xff), (25, 0xff), (26, 0xff),
                (27, 0xff), (90, 0xf), (91, 0xc0), (94, 0x7), (95, 0x7), (134, 0xf), (135, 0xc0),
                (138, 0x7), (139, 0x7),
            ] {
                bytes[at] &= !bits;
            }
            prop_assert_eq!(out, bytes);
        }
    }
}
