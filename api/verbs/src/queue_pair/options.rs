//! The attributes of a queue pair, and the services that each applies to.

use remora_host::codec::Bounded;
use remora_host::connect::MAX_PRIVATE;
use remora_memory::Access;
use remora_nic::wqe::{self, Bounds};
use remora_nic::{Fetching, MAX_RING_SLOTS, ReceiveQueue, Ring, SendQueue, Service};
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::CreateError;

remora_host::sent_as! {
    access: Access as u32, |access| access.bits(), |bits| Access::from_bits(bits);
    fetching: Fetching as u8, |fetching| *fetching as u8, |number| {
        let all = [Fetching::Posted, Fetching::Enabled, Fetching::Recycled];
        all.into_iter().find(|fetching| *fetching as u8 == number)
    };
}

/// The attributes of a new queue pair, with the values of `ibv_qp_init_attr` and `ibv_qp_attr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QpOptions {
    /// The least number of outstanding send work requests with one list element and no inline data. Longer
    /// requests take more of the queue: one slot more for each two further elements, or for each 64 inline
    /// bytes. With 0 the queue pair only receives.
    pub max_send_wr: u32,
    /// The least number of outstanding receive work requests. With 0 the queue pair only sends. With a shared
    /// receive queue, or without receives (an XRC initiator), this field and `max_recv_sge` are ignored.
    pub max_recv_wr: u32,
    /// List elements of a send work request, 0 to 30.
    pub max_send_sge: u32,
    /// List elements of a receive work request, 0 to 30.
    pub max_recv_sge: u32,
    /// Inline bytes of a send work request, 0 to 960.
    pub max_inline: u32,
    /// True if every send work request is signaled.
    pub signal_all: bool,
    /// The rights of the peer. A region must grant them as well.
    #[serde(with = "access")]
    pub access: Access,
    /// The largest path MTU in bytes, 256 to 4096. The connection uses the smallest of this value, the
    /// peer's, and those of the ports.
    pub path_mtu: u32,
    /// Outstanding READs and atomics, 0 to 128. The connection uses no more than the peer can hold.
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer that are held for repeated answers, 0 to 128.
    pub max_dest_rd_atomic: u8,
    /// Local ACK timeout code: 4.096 µs × 2^`timeout`; 0 waits for ever.
    pub timeout: u8,
    /// Retries of a request after timeouts before it fails, 0 to 7.
    pub retry_cnt: u8,
    /// Retries after receiver-not-ready, 0 to 7; 7 retries for ever.
    pub rnr_retry: u8,
    /// RNR timer code, 0 to 31: the time that the peer waits when no receive work request is posted.
    pub min_rnr_timer: u8,
    /// Enables IRN if the peer wants it too. Lost packets are retransmitted one by one, and packets
    /// that arrive out of order are kept. The bytes of a message then arrive in any order: **do not poll the
    /// last byte of a WRITE**, but use WRITE with immediate data. Fence a WRITE that overlaps an earlier one.
    pub irn: bool,
    /// Enables PRISM if the peer wants it too: [`post_prism`](crate::QueuePair::post_prism). It works
    /// with IRN and with go-back-N.
    pub prism: bool,
    /// Enables StRoM if the peer wants it too: requests to the kernels of the peer's NIC
    /// ([`post_rpc`](crate::QueuePair::post_rpc)), and the peer's requests to ours
    /// ([`deploy_kernel`](crate::ProtectionDomain::deploy_kernel)). It works with IRN and with go-back-N.
    pub strom: bool,
    /// Up to 256 bytes that the peer's program receives when the queue pair connects.
    #[serde(with = "Bounded::<MAX_PRIVATE>")]
    pub private_data: Vec<u8>,
    /// Time limit for connecting.
    pub connect_timeout: Duration,
    /// True if the TCP connection of the set-up stays open as long as the queue pair, if the peer wants that
    /// too. It costs a descriptor on either side. When it hangs up, the peer's queue pair or process is gone
    /// ([`is_peer_gone`](crate::QueuePair::is_peer_gone)).
    pub lasting: bool,
    /// The Q_Key that messages to a datagram queue pair must have. Ignored by other services.
    pub qkey: u32,
    /// The limit up to which the NIC fetches the send queue: the posted slots, or, for a chain
    /// ([`Offload`](crate::Offload)), the enabled ones. A recycled queue has exactly `max_send_wr` slots,
    /// rounded up to a power of two.
    #[serde(with = "fetching")]
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

/// The least path MTU of a connection in bytes.
const LEAST_MTU: u32 = 256;

/// The work queues that belong to a queue pair itself. Options of the others are not checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    Both,
    Send,
    Neither,
}

impl Own {
    /// Returns the own queues of a queue pair of this service. `shared`: it uses a shared receive queue.
    pub(crate) fn of(service: Service, shared: bool) -> Own {
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
        let sges = wqe::MAX_SGE as u32;
        let ring = MAX_RING_SLOTS;
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
            Some((name, asked, most)) => Err(CreateError::TooMany(name, (*asked).into(), (*most).into())),
            None if self.path_mtu < LEAST_MTU => {
                Err(CreateError::TooFew("path_mtu", self.path_mtu.into(), LEAST_MTU.into()))
            }
            None => Ok(()),
        }
    }

    /// Returns the program's side of a receive queue with these attributes.
    pub(super) fn receive_side(&self, ring: Ring) -> ReceiveQueue {
        let side = ReceiveQueue::new(ring, self.max_recv_sge);
        if self.max_recv_wr == 0 { side.closed() } else { side }
    }

    /// Returns the program's side of a send queue with these attributes.
    pub(crate) fn send_side(&self, ring: Ring) -> SendQueue {
        let bounds = Bounds { max_sge: self.max_send_sge, max_inline: self.max_inline };
        let side = SendQueue::new(ring, bounds);
        if self.max_send_wr == 0 { side.closed() } else { side }
    }
}
