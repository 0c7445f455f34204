//! The body of 1RMA: random reads, writes and rekeys against a plain model, over any network.
//!
//! A server has a few regions, a client one portal. Each slot of the client has a stripe of the server's
//! memory and one of its own for itself, so its model is exact. A write that did not succeed may have placed
//! some of its units: what it did is read when it ends, and must never change later.

mod body;

pub use body::run_rma;

use remora_nic::rma::Facts;
use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_wire::rma::{Class, Kind};

/// Operations at once.
pub const SLOTS: usize = 24;
/// Bytes of a slot's stripe at the server, and of its buffer at the client.
pub const STRIPE: usize = 8 << 10;
/// The regions of the server; slots are spread over them.
pub const REGIONS: usize = 3;
/// Bytes of each region.
pub const REGION_LEN: usize = STRIPE * SLOTS.div_ceil(REGIONS);
/// Bytes of the client's memory.
pub const LOCAL_LEN: usize = STRIPE * SLOTS;

/// The server's side, and the client's.
pub const SERVER: usize = 0;
/// The client's side.
pub const CLIENT: usize = 1;

/// An operation of a slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its slot, from 0 on.
    pub slot: usize,
    /// Read, write or rekey.
    pub kind: Kind,
    /// Class of service.
    pub class: Class,
    /// The server's region, from 0 on.
    pub region: usize,
    /// First byte in the region.
    pub remote: u64,
    /// First byte in the client's memory.
    pub local: u64,
    /// Bytes: 1 to 4096.
    pub len: u32,
}

/// How an operation ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OperationEnd {
    /// Its slot.
    pub slot: usize,
    /// Its kind, if the arm knows it.
    pub kind: Option<Kind>,
    /// How.
    pub status: Status,
}

/// A server and a client.
pub trait RmaArm {
    /// The client begins an operation, under the keys that it has.
    fn issue(&mut self, operation: &Operation);

    /// The next operation that has ended.
    fn poll(&mut self) -> Option<OperationEnd>;

    /// Something happens.
    fn pass(&mut self);

    /// Waits until no message is on its way and no operation is served.
    fn quiesce(&mut self);

    /// Reads the server's memory.
    fn load_served(&mut self, region: usize, at: usize, out: &mut [u8]);

    /// Reads the client's memory.
    fn load_local(&mut self, at: usize, out: &mut [u8]);

    /// Writes the client's memory.
    fn store_local(&mut self, at: usize, bytes: &[u8]);

    /// The client's keys of a region follow the region's present key.
    fn renew(&mut self, region: usize);

    /// A side starts anew, with the same memory and keys; its operations have no ends. False: it cannot.
    fn restart(&mut self, _side: usize) -> bool {
        false
    }

    /// The time.
    fn now(&self) -> Instant {
        Instant(0)
    }

    /// Nanoseconds that an operation may take.
    fn limit(&self, _kind: Kind) -> u64 {
        u64::MAX
    }

    /// What the engines of the server and the client hold.
    fn facts(&mut self) -> [Facts; 2];
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RmaReport {
    /// Operations by status.
    pub ended: [u64; Status::ALL.len()],
    /// The longest read, and the longest other operation, in nanoseconds.
    pub slowest: [u64; 2],
    /// Restarts of either side.
    pub restarts: u64,
}

impl RmaReport {
    /// Operations that ended so.
    pub fn count(&self, status: Status) -> u64 {
        self.ended[status as usize]
    }

    /// Operations.
    pub fn operations(&self) -> u64 {
        self.ended.iter().sum()
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &RmaReport) {
        self.ended.iter_mut().zip(other.ended).for_each(|(sum, count)| *sum += count);
        self.slowest.iter_mut().zip(other.slowest).for_each(|(most, took)| *most = took.max(*most));
        self.restarts += other.restarts;
    }
}
