//! The conformance test of 1RMA: random reads, writes and rekeys over any network, compared with a model.
//!
//! A server has several regions, a client one portal. Each slot of the client exclusively uses a stripe of
//! the server's memory and one of its own, so the model is exact. A failed write may have changed some of
//! its units; the result is read when the write ends, and must not change later.

mod body;

pub use body::run_rma;

use remora_nic::rma::Facts;
use remora_transport::Instant;
use remora_transport::rma::Status;
use remora_wire::rma::{Class, Kind};

/// Number of concurrent operations.
pub const SLOTS: usize = 24;
/// Length of a slot's stripe at the server and of its buffer at the client, in bytes.
pub const STRIPE: usize = 8 << 10;
/// Number of regions of the server, over which the slots are distributed.
pub const REGIONS: usize = 3;
/// Length of each region in bytes.
pub const REGION_LEN: usize = STRIPE * SLOTS.div_ceil(REGIONS);
/// Length of the client's memory in bytes.
pub const LOCAL_LEN: usize = STRIPE * SLOTS;

/// Number of the server's side.
pub const SERVER: usize = 0;
/// Number of the client's side.
pub const CLIENT: usize = 1;

/// An operation of a slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Command slot, starting at 0.
    pub slot: usize,
    /// Read, write or rekey.
    pub kind: Kind,
    /// Class of service.
    pub class: Class,
    /// Region of the server, starting at 0.
    pub region: usize,
    /// Offset in the region, in bytes.
    pub remote: u64,
    /// Offset in the client's memory, in bytes.
    pub local: u64,
    /// Length in bytes, 1 to 4096.
    pub len: u32,
}

/// The end of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct OperationEnd {
    /// Command slot of the operation.
    pub slot: usize,
    /// Kind of the operation, if the arm knows it.
    pub kind: Option<Kind>,
    /// Status of the completion.
    pub status: Status,
}

/// A server and a client.
pub trait RmaArm {
    /// Issues an operation of the client with its current keys.
    fn issue(&mut self, operation: &Operation);

    /// Returns the next operation that has ended.
    fn poll(&mut self) -> Option<OperationEnd>;

    /// Lets some progress happen.
    fn pass(&mut self);

    /// Waits until no message is in flight and no operation is being served.
    fn quiesce(&mut self);

    /// Reads the server's memory.
    fn load_served(&mut self, region: usize, offset: usize, out: &mut [u8]);

    /// Reads the client's memory.
    fn load_local(&mut self, offset: usize, out: &mut [u8]);

    /// Writes the client's memory.
    fn store_local(&mut self, offset: usize, bytes: &[u8]);

    /// Renews the client's keys of a region after its key changed.
    fn renew(&mut self, region: usize);

    /// Restarts a side with the same memory and keys; its pending operations never end. Returns false if the
    /// arm cannot do that.
    fn restart(&mut self, _side: usize) -> bool {
        false
    }

    /// Returns the current time.
    fn now(&self) -> Instant {
        Instant(0)
    }

    /// Returns the maximum duration of an operation in nanoseconds.
    fn limit(&self, _kind: Kind) -> u64 {
        u64::MAX
    }

    /// Returns the state of the server's and the client's engine.
    fn facts(&mut self) -> [Facts; 2];
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RmaReport {
    /// Number of operations by status.
    pub ended: [u64; Status::ALL.len()],
    /// Longest duration of a read and of other operations, in nanoseconds.
    pub slowest: [u64; 2],
    /// Number of restarts of either side.
    pub restarts: u64,
}

impl RmaReport {
    /// Returns the number of operations with this status.
    pub fn count(&self, status: Status) -> u64 {
        self.ended[status as usize]
    }

    /// Returns the total number of operations.
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
