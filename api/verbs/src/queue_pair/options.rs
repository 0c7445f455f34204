//! The attributes of a queue pair, and which services look at which.

use remora_memory::Access;
use remora_nic::wqe::{self, Bounds};
use remora_nic::{Fetching, MAX_RING_SLOTS, Ring, Service};
use std::time::Duration;

use super::{ReceiveSide, SendSide};
use crate::CreateError;

/// The attributes of a queue pair that is to be made. Values are those of `ibv_qp_init_attr` and
/// `ibv_qp_attr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpOptions {
    /// Send work requests outstanding, at least, if they have one element and no inline data. Others take
    /// more slots: one more for each two further elements, or for each 64 inline bytes. 0: the queue pair
    /// only receives.
    pub max_send_wr: u32,
    /// Receive work requests outstanding, at least. 0: the queue pair only sends. With a shared receive
    /// queue, or without receives (an XRC initiator), this and `max_recv_sge` mean nothing.
    pub max_recv_wr: u32,
    /// Elements of a send work request's list, 0 to 30.
    pub max_send_sge: u32,
    /// Elements of a receive work request's list, 0 to 30.
    pub max_recv_sge: u32,
    /// Inline bytes of a send work request, 0 to 960.
    pub max_inline: u32,
    /// Every send work request is signaled.
    pub signal_all: bool,
    /// The peer's rights, where the regions allow them as well.
    pub access: Access,
    /// Path MTU in bytes at most: the smallest of this, the peer's and the ports' is taken. 256 to 4096.
    pub path_mtu: u32,
    /// READs and atomics outstanding, up to the number that the peer can hold; 0 to 128.
    pub max_rd_atomic: u8,
    /// READs and atomics held for the peer, 0 to 128.
    pub max_dest_rd_atomic: u8,
    /// Local ACK timeout: 4.096 µs × 2^this; 0 waits for ever.
    pub timeout: u8,
    /// Retries of a request before it fails, 0 to 7.
    pub retry_cnt: u8,
    /// Retries after receiver-not-ready, 0 to 7; 7 is for ever.
    pub rnr_retry: u8,
    /// RNR timer code: the time that the peer waits when no receive is posted, 0 to 31.
    pub min_rnr_timer: u8,
    /// IRN, if the peer wants it too: lost packets are sent again one by one, and packets out of order are
    /// kept. Then the bytes of a message arrive in any order: **do not poll the last byte of a WRITE**,
    /// complete by WRITE with immediate data. Fence a WRITE that overlaps one before it.
    pub irn: bool,
    /// PRISM, if the peer wants it too: [`post_prism`](crate::QueuePair::post_prism). It works with IRN and
    /// with go-back-N.
    pub prism: bool,
    /// StRoM, if the peer wants it too: requests to the kernels of its NIC
    /// ([`post_rpc`](crate::QueuePair::post_rpc)), and its requests to ours
    /// ([`deploy_kernel`](crate::ProtectionDomain::deploy_kernel)). It works with IRN and with go-back-N.
    pub strom: bool,
    /// Up to 256 bytes that are sent to the program at the other side when the queue pair connects.
    pub private_data: Vec<u8>,
    /// Time that connecting may take.
    pub connect_timeout: Duration,
    /// The TCP connection of the set-up stays open as long as the queue pair, if the peer wants that too. It
    /// costs a descriptor on either side. Its hang-up shows at once that the queue pair, or its process, is
    /// gone ([`is_peer_gone`](crate::QueuePair::is_peer_gone)).
    pub lasting: bool,
    /// The Q_Key that messages to it must bear (datagram queue pairs only).
    pub qkey: u32,
    /// How far the send queue is fetched: up to the posted slots, or, for a chain
    /// ([`Offload`](crate::Offload)), up to the enabled ones. A recycled one has exactly `max_send_wr` slots,
    /// rounded up to a power of two.
    pub fetching: Fetching,
}

impl Default for QpOptions {
    fn default() -> Self {
        QpOptions {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 16,
            max_recv_sge: 1,
            max_inline: 256,
            signal_all: false,
            access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            path_mtu: 4096,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            irn: false,
            prism: false,
            strom: false,
            private_data: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            lasting: true,
            qkey: 0x1111_1111,
            fetching: Fetching::Posted,
        }
    }
}

/// The least path MTU of a connection, bytes.
const LEAST_MTU: u32 = 256;

/// The work queues that are a queue pair's own. The options of the others are not looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Both,
    Send,
    Neither,
}

impl Own {
    /// The own queues of a queue pair of this service, with a shared receive queue or without.
    pub fn of(service: Service, shared: bool) -> Own {
        match service {
            Service::XrcTarget => Own::Neither,
            Service::XrcInitiator => Own::Send,
            _ if shared => Own::Send,
            _ => Own::Both,
        }
    }
}

impl QpOptions {
    pub(crate) fn check(&self, own: Own) -> Result<(), CreateError> {
        let (sges, ring) = (wqe::MAX_SGE as u32, MAX_RING_SLOTS);
        let send = [
            ("max_send_wr", self.max_send_wr, ring),
            ("max_send_sge", self.max_send_sge, sges),
            ("max_inline", self.max_inline, wqe::MAX_INLINE as u32),
        ];
        let receive = [
            ("max_recv_wr", self.max_recv_wr, ring / remora_nic::stride(self.max_recv_sge.min(sges)) as u32),
            ("max_recv_sge", self.max_recv_sge, sges),
        ];
        let send = send.iter().filter(|_| own != Own::Neither);
        let receive = receive.iter().filter(|_| own == Own::Both);
        let mtu = [("path_mtu", self.path_mtu, 4096)];
        let mut bounds = send.chain(receive).chain(&mtu);
        match bounds.find(|(_, asked, most)| asked > most) {
            Some((what, asked, most)) => Err(CreateError::TooMany(what, (*asked).into(), (*most).into())),
            None if self.path_mtu < LEAST_MTU => {
                Err(CreateError::TooFew("path_mtu", self.path_mtu.into(), LEAST_MTU.into()))
            }
            None => Ok(()),
        }
    }

    /// The program's side of a receive queue with these attributes.
    pub(super) fn receive_side(&self, ring: Ring) -> ReceiveSide {
        let side = ReceiveSide::new(ring, remora_nic::stride(self.max_recv_sge), self.max_recv_sge);
        if self.max_recv_wr == 0 { side.closed() } else { side }
    }

    /// The program's side of a send queue with these attributes.
    pub(crate) fn send_side(&self, ring: Ring) -> SendSide {
        let bounds = Bounds { max_sge: self.max_send_sge, max_inline: self.max_inline };
        let side = SendSide::new(ring, bounds);
        if self.max_send_wr == 0 { side.closed() } else { side }
    }
}
