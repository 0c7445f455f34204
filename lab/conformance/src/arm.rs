//! The NICs under test, and the parameters of a run.

use remora_fabric::program::Settings;
use remora_memory::{Access, Key};
use remora_nic::{PostError, ReceiveRequest, WorkCompletion, WorkRequest};

/// A registered memory region at one side.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Number of the region, assigned by the arm.
    pub handle: usize,
    /// Side that owns the region, 0 or 1.
    pub side: usize,
    /// Local and remote key of the region.
    pub key: Key,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Two connected NICs. The sides are 0 and 1. Queue pairs are numbered in the order of their connection;
/// `pair` denotes both ends.
pub trait Arm {
    /// Creates and connects a queue pair at each side, each with a completion queue. Returns the number of
    /// the pair.
    fn connect(&mut self, settings: &Settings) -> usize;

    /// Moves both ends to RESET and back to RTS.
    fn reconnect(&mut self, pair: usize, settings: &Settings);

    /// Moves one end to ERR.
    fn fail(&mut self, side: usize, pair: usize);

    /// Registers memory at a side.
    fn register(&mut self, side: usize, len: usize, access: Access) -> Buffer;

    /// Deregisters a region.
    fn deregister(&mut self, buffer: &Buffer);

    /// Writes memory like the program that owns it.
    fn store(&mut self, buffer: &Buffer, offset: usize, bytes: &[u8]);

    /// Reads memory like the program that owns it.
    fn load(&mut self, buffer: &Buffer, offset: usize, out: &mut [u8]);

    /// Posts a send work request.
    ///
    /// # Errors
    /// The errors of `ibv_post_send`.
    fn post(&mut self, side: usize, pair: usize, request: &WorkRequest<'_>) -> Result<(), PostError>;

    /// Posts a receive work request.
    ///
    /// # Errors
    /// The errors of `ibv_post_recv`.
    fn post_receive(
        &mut self,
        side: usize,
        pair: usize,
        request: &ReceiveRequest<'_>,
    ) -> Result<(), PostError>;

    /// Returns the next completion of one end.
    fn poll(&mut self, side: usize, pair: usize) -> Option<WorkCompletion>;

    /// Lets a short time pass.
    fn pass(&mut self);

    /// Starts or stops losing all frames between the sides. Returns false if this arm cannot do that.
    fn cut(&mut self, cut: bool) -> bool;

    /// Waits until no frame is in flight between the sides, on arms where repeated calls of `pass` do not
    /// ensure this.
    fn settle(&mut self) {}

    /// Returns the largest path MTU that the ports of both sides support.
    fn path_mtu(&self) -> u32 {
        4096
    }

    /// Returns true if receives come from a shared receive queue. They are then not flushed with a queue
    /// pair, and a new connection has a new queue.
    fn shares_receives(&self) -> bool {
        false
    }

    /// Moves one end from SQE back to RTS (unreliable services).
    fn resume(&mut self, _side: usize, _pair: usize) {}

    /// Returns the number of bytes before a message in its receive buffer.
    fn prefix(&self) -> usize {
        0
    }

    /// Returns the maximum message length, if the service limits it.
    fn longest(&self) -> Option<usize> {
        None
    }
}

/// The parameters of a run.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Options {
    /// Total number of verbs to execute.
    pub verbs: u64,
    /// Number of queue pairs.
    pub pairs: usize,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Share of the epochs with a planned error, 0 to 1.
    pub trouble: f64,
    /// Maximum length of WRITEs and READs in bytes.
    pub longest: usize,
    /// True for connections over IRN, where overlapping work is fenced because WRITEs may be executed in any
    /// order.
    pub irn: bool,
    /// Number of turns without progress after which the test fails.
    pub patience: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            verbs: 20_000,
            pairs: 3,
            timeout: 9,
            trouble: 0.3,
            longest: 1 << 20,
            irn: false,
            patience: 2_000_000,
        }
    }
}
