//! The program's side of a simulated node: fills work queues, rings doorbells and polls completions, like an
//! application that uses verbs.

use remora_memory::{Access, Bytes, Key};
use remora_nic::wqe::Bounds;
use remora_nic::{
    AddressVector, CompletionPoller, Fetching, Modify, ReceiveQueue, Ring, SendQueue, Service, stride,
};
use remora_transport::state::State;
use remora_wire::{Psn, Qpn};

/// The queues of a node's program.
#[derive(Default)]
pub(crate) struct Program {
    pub queue_pairs: Vec<Endpoint>,
    pub shared_queues: Vec<ReceiveQueue>,
    pub completion_queues: Vec<(u32, CompletionPoller)>,
    /// Address of the last region. Regions have fixed addresses, so that they are equal in every run.
    pub next_address: u64,
}

/// A queue pair, as its program sees it.
pub(crate) struct Endpoint {
    pub send: SendQueue,
    /// Receive queue; `None` if the queue pair uses a shared receive queue or receives nothing.
    pub receive: Option<ReceiveQueue>,
}

/// A free list of PRISM, as its server sees it.
pub struct FreeList {
    /// Node that owns the free list.
    pub node: usize,
    /// Number of the free list, which ALLOCATE names.
    pub number: u64,
    pub(crate) posts: ReceiveQueue,
}

/// A queue pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct QueuePair {
    /// Node that owns the queue pair.
    pub node: usize,
    pub(crate) index: usize,
    /// Queue pair number.
    pub number: Qpn,
    /// Transport service of the queue pair.
    pub service: Service,
}

/// A shared receive queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SharedQueue {
    /// Node that owns the queue.
    pub node: usize,
    pub(crate) index: usize,
    /// Number of the queue in the NIC.
    pub number: Qpn,
}

/// A completion queue.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CompletionQueue {
    /// Node that owns the queue.
    pub node: usize,
    pub(crate) index: usize,
    /// Number of the queue in the NIC.
    pub number: u32,
}

/// A registered memory region.
#[derive(Clone, Debug)]
pub struct Region {
    /// Node that owns the region.
    pub node: usize,
    /// Local and remote key of the region.
    pub key: Key,
    /// Address of the first byte.
    pub address: u64,
    /// Memory of the region.
    pub bytes: Bytes,
}

impl Region {
    /// Returns a copy of the bytes `offset..offset + len`.
    pub fn load(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.bytes.read(offset, &mut bytes).expect("within the region");
        bytes
    }

    /// Overwrites the bytes from `offset` on.
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        self.bytes.write(offset, bytes).expect("within the region");
    }

    /// Returns a scatter/gather element for `len` bytes from `offset` on.
    pub fn sge(&self, offset: usize, len: usize) -> remora_nic::Sge {
        remora_nic::Sge { addr: self.address + offset as u64, len: len as u32, lkey: self.key }
    }

    /// Returns remote address and key of the byte at `offset`.
    pub fn remote(&self, offset: usize) -> remora_nic::Remote {
        remora_nic::Remote { addr: self.address + offset as u64, rkey: self.key }
    }
}

/// The settings with which queue pairs are created and connected.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Slots of the send queue; a power of two.
    pub send_slots: u32,
    /// Receive work requests of the receive queue.
    pub receives: u32,
    /// Largest number of scatter/gather elements of a send work request.
    pub max_sge: u32,
    /// Largest number of scatter/gather elements of a receive work request.
    pub receive_max_sge: u32,
    /// Largest size of inline data, in bytes.
    pub max_inline: u32,
    /// If true, every send work request generates a completion.
    pub signal_all: bool,
    /// Extent to which the NIC fetches the send queue.
    pub fetching: Fetching,
    /// Access rights of the peer.
    pub access: Access,
    /// Path MTU, in bytes.
    pub mtu: u32,
    /// Initial PSN of the first and of the second side.
    pub psn: [u32; 2],
    /// Local ACK timeout, as the 5-bit code of the InfiniBand specification.
    pub timeout: u8,
    /// Number of retries after a timeout.
    pub retry_cnt: u8,
    /// Number of retries after an RNR NAK; 7 means unlimited.
    pub rnr_retry: u8,
    /// Largest number of outstanding READs and atomics as requester.
    pub max_rd_atomic: u8,
    /// Largest number of outstanding READs and atomics as responder.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer, as the 5-bit code of the InfiniBand specification.
    pub min_rnr_timer: u8,
    /// Q_Key of UD queue pairs.
    pub qkey: u32,
    /// With `Some`, both sides use IRN with this bitmap size: the number of packets that a receiver can
    /// record ahead of a gap. With `None` they use go-back-N.
    pub irn: Option<u32>,
    /// If true, both sides negotiate PRISM.
    pub prism: bool,
    /// If true, both sides negotiate StRoM.
    pub strom: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            send_slots: 128,
            receives: 32,
            max_sge: 16,
            receive_max_sge: 4,
            max_inline: 256,
            signal_all: false,
            fetching: Fetching::Posted,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            mtu: 1024,
            psn: [0, 0],
            timeout: 6,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 8,
            max_dest_rd_atomic: 8,
            min_rnr_timer: 1,
            qkey: 0x1111_1111,
            irn: None,
            prism: false,
            strom: false,
        }
    }
}

impl Settings {
    /// Returns the program's side of a new send queue.
    pub(crate) fn send_queue(&self) -> SendQueue {
        let bounds = Bounds { max_sge: self.max_sge, max_inline: self.max_inline };
        SendQueue::new(ring(self.send_slots), bounds)
    }

    /// Returns the program's side of a new receive queue.
    pub(crate) fn receive_queue(&self) -> ReceiveQueue {
        receive_queue(self.receives, self.receive_max_sge)
    }
}

/// All remote access rights.
pub const REMOTE: Access = Access::from_bits(0xe).expect("three rights");
/// All access rights.
pub const ALL: Access = Access::from_bits(0xf).expect("four rights");

/// Returns the three modifications that take a queue pair of this service from RESET to RTS. `psn` is the
/// initial PSN of this side, then of the peer.
pub fn changes(
    service: Service,
    address: AddressVector,
    peer: Qpn,
    psn: [u32; 2],
    settings: &Settings,
) -> [Modify; 3] {
    let datagrams = service == Service::Ud;
    let responds = matches!(service, Service::Rc | Service::XrcTarget);
    let requests = matches!(service, Service::Rc | Service::XrcInitiator);
    let nothing = Modify::default();
    let init = Modify { state: Some(State::Init), pkey_index: Some(0), port: Some(1), ..nothing };
    let rtr = Modify { state: Some(State::Rtr), ..nothing };
    let rts = Modify { state: Some(State::Rts), sq_psn: Some(Psn::new(psn[0])), ..nothing };
    if datagrams {
        return [Modify { qkey: Some(settings.qkey), ..init }, rtr, rts];
    }
    let rtr = Modify {
        address: Some(address),
        path_mtu: Some(settings.mtu),
        dest_qp: Some(peer),
        rq_psn: Some(Psn::new(psn[1])),
        max_dest_rd_atomic: responds.then_some(settings.max_dest_rd_atomic),
        min_rnr_timer: responds.then_some(settings.min_rnr_timer),
        irn: settings.irn,
        prism: Some(settings.prism),
        strom: Some(settings.strom),
        ..rtr
    };
    let rts = Modify {
        timeout: (requests || responds).then_some(settings.timeout),
        retry_cnt: requests.then_some(settings.retry_cnt),
        rnr_retry: requests.then_some(settings.rnr_retry),
        max_rd_atomic: requests.then_some(settings.max_rd_atomic),
        ..rts
    };
    [Modify { access: Some(settings.access), ..init }, rtr, rts]
}

/// Returns the memory of a queue of `slots` slots.
pub(crate) fn ring(slots: u32) -> Ring {
    Ring::heap(slots).expect("memory for a queue")
}

/// Returns a queue for `max_wr` receive work requests.
pub(crate) fn receive_queue(max_wr: u32, max_sge: u32) -> ReceiveQueue {
    ReceiveQueue::new(ring(max_wr * stride(max_sge) as u32), max_sge)
}
