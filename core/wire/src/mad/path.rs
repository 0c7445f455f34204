//! The primary or alternate path in a REQ, from the sender's point of view (IBTA volume 1, chapter 12.6.5).
//! On RoCE the LIDs are ffff, and the SL is the sender's priority.

use super::fields::{Bits, Field, mad};
use crate::Address;

/// LID of ports that have none (permissive LID).
pub const PERMISSIVE_LID: u16 = 0xffff;

mad! {
    44,
    "{local_gid}->{remote_gid} flow_label={flow_label:#07x} traffic_class={traffic_class} \
     ack_timeout={ack_timeout}";

    /// LID of the sender's port; [`PERMISSIVE_LID`] on RoCE.
    local_lid: u16 = 0, 16;
    /// LID of the receiver's port; [`PERMISSIVE_LID`] on RoCE.
    remote_lid: u16 = 2, 16;
    /// GID of the sender's queue pair.
    local_gid: Address = 4, 128;
    /// GID of the receiver's queue pair.
    remote_gid: Address = 20, 128;
    /// Flow label of the connection's packets, 20 bits.
    flow_label: u32 = 36, 20;
    /// Code of the static rate of the path, 6 bits.
    rate: u8 = 39 [2], 6;
    /// Traffic class; for IPv4 the type of service.
    traffic_class: u8 = 40, 8;
    /// Maximum number of routers on the path.
    hop_limit: u8 = 41, 8;
    /// Service level, 4 bits.
    sl: u8 = 42, 4;
    /// True if both ends are in one subnet.
    subnet_local: bool = 42 [4], 1;
    /// Code of the local ACK timeout that the receiver's queue pair should use, 5 bits.
    ack_timeout: u8 = 43, 5;
}

impl Repr {
    /// Returns true if the REQ has this path. An absent path is all zero.
    pub fn is_present(&self) -> bool {
        self.local_lid != 0 || self.local_gid != Address::default()
    }
}

impl Field for Repr {
    fn load(bytes: &[u8], bits: Bits) -> Repr {
        Repr::parse(&View::new(&bytes[bits.byte..]).expect("a field of the length of a path"))
    }

    fn store(&self, bits: Bits, out: &mut [u8]) {
        self.emit(&mut out[bits.byte..]);
    }
}
