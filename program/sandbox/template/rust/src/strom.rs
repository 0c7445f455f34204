//! The interface of a kernel: its streams, in a mailbox that it shares with the NIC.
//! `program/sandbox/src/mailbox.rs` of Remora defines the layout. Copy this file without changes.
#![allow(dead_code, reason = "a kernel uses a part of it")]

/// Maximum number of bytes that one command reads, and maximum payload of a packet.
pub const DMA: usize = 4096;
/// Maximum number of memory writes of one step, and their maximum total length in bytes.
const WRITES: usize = 64;
const WRITTEN: usize = 8192;

/// Result of a request. Values from 64 on are defined by the kernel.
pub type Status = u32;
/// The request was executed.
pub const DONE: Status = 0;
/// The requested object does not exist.
pub const MISS: Status = 1;
/// The parameters are invalid.
pub const BAD_PARAMS: Status = 3;

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Progress {
    /// The kernel waits for input and holds no state, so its lane may serve another queue pair.
    Rests = 0,
    /// The kernel waits for input or for the data of a command, and holds state of its queue pair.
    Waits = 1,
    /// The kernel has more work and must be called at once.
    Again = 2,
}

/// A kernel, which serves one queue pair at a time and its requests in order.
pub trait Kernel {
    /// Executes one step: processes the input and the data that was read, and issues at most one command and
    /// one message.
    fn step(&mut self, streams: &mut Streams) -> Progress;

    /// Resets all state.
    fn reset(&mut self);
}

/// The kind of a piece of input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Parameters of an RPC.
    Params,
    /// Data of an RPC WRITE.
    Data,
    /// Data of a WRITE that is also written to memory at this address.
    Passing(u64),
}

/// The payload of one packet.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub what: What,
    /// The op-code of the request.
    pub opcode: u64,
    /// Number that the requester chose for the request.
    pub tag: u32,
    /// True for the first (`first`) and last (`last`) packet of a message.
    pub first: bool,
    pub last: bool,
    /// Number of bytes of the message from this packet on.
    pub left: u32,
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Write {
    va: u64,
    len: u32,
    zero: u32,
}

/// The mailbox with the kernel's streams.
#[repr(C)]
pub struct Streams {
    version: u32,
    zero: u32,
    opcode: u64,
    va: u64,
    what: u32,
    tag: u32,
    ends: u32,
    left: u32,
    len: u32,
    qpn: u32,
    space: u32,
    longest: u32,
    there: u32,
    missing: u32,
    taken: u32,
    withdrawn: u32,
    begins: u32,
    status: u32,
    message: u32,
    rkey: u32,
    to: u64,
    forwarded: u32,
    put: u32,
    closed: u32,
    command: u32,
    command_va: u64,
    command_len: u32,
    writes: u32,
    input: [u8; DMA],
    read: [u8; DMA],
    putting: [u8; DMA],
    records: [Write; WRITES],
    writing: [u8; WRITTEN],
}

const _: () = assert!(core::mem::size_of::<Streams>() == 21632);

impl Streams {
    pub const fn new() -> Streams {
        Streams {
            version: 1,
            zero: 0,
            opcode: 0,
            va: 0,
            what: 0,
            tag: 0,
            ends: 0,
            left: 0,
            len: 0,
            qpn: 0,
            space: 0,
            longest: 0,
            there: 0,
            missing: 0,
            taken: 0,
            withdrawn: 0,
            begins: 0,
            status: 0,
            message: 0,
            rkey: 0,
            to: 0,
            forwarded: 0,
            put: 0,
            closed: 0,
            command: 0,
            command_va: 0,
            command_len: 0,
            writes: 0,
            input: [0; DMA],
            read: [0; DMA],
            putting: [0; DMA],
            records: [Write { va: 0, len: 0, zero: 0 }; WRITES],
            writing: [0; WRITTEN],
        }
    }

    /// Returns the number of the queue pair that is served.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Returns the payload that waits. It remains until `take` is called.
    pub fn input(&self) -> Option<Input<'_>> {
        let what = match self.what {
            1 => What::Params,
            2 => What::Data,
            3 => What::Passing(self.va),
            _ => return None,
        };
        Some(Input {
            what,
            opcode: self.opcode,
            tag: self.tag,
            first: self.ends & 1 != 0,
            last: self.ends & 2 != 0,
            left: self.left,
            bytes: &self.input[..(self.len as usize).min(DMA)],
        })
    }

    /// Marks the input as processed.
    pub fn take(&mut self) {
        self.taken = 1;
    }

    /// Returns the size of the requester's answer buffer in bytes, or 0 if the requester gave no address.
    pub fn space(&self) -> u32 {
        self.space
    }

    /// Returns the maximum length of a message in bytes.
    pub fn longest(&self) -> u32 {
        self.longest
    }

    /// Requests a read of at most [`DMA`] bytes of memory. The next step has the data.
    pub fn read(&mut self, va: u64, len: u32) {
        (self.command, self.command_va, self.command_len) = (1, va, len);
    }

    /// Returns the data that was read, if any.
    pub fn data(&self) -> Option<&[u8]> {
        self.read.get(..self.there as usize)
    }

    /// Appends `len` bytes of memory to the message without passing them through the kernel.
    pub fn read_to_wire(&mut self, va: u64, len: u32) {
        (self.command, self.command_va, self.command_len) = (2, va, len);
    }

    /// Writes to memory. Returns false if this step cannot write more.
    pub fn write(&mut self, va: u64, bytes: &[u8]) -> bool {
        let count = self.writes as usize;
        let begin: usize = self.records[..count].iter().map(|record| record.len as usize).sum();
        let place = self.writing.get_mut(begin..begin + bytes.len());
        let (Some(place), Some(record)) = (place, self.records.get_mut(count)) else { return false };
        place.copy_from_slice(bytes);
        *record = Write { va, len: bytes.len() as u32, zero: 0 };
        self.writes += 1;
        true
    }

    /// Starts an answer of `len` bytes, which must follow. Returns false if they do not fit; the answer then
    /// reports this error.
    pub fn answer(&mut self, status: Status, len: u32) -> bool {
        (self.begins, self.status, self.message) = (1, status, len);
        let fits = len == 0 || len <= self.space && len <= self.longest;
        self.missing = if fits { len } else { 0 };
        fits
    }

    /// Starts an answer of unknown length, which [`close`](Streams::close) ends.
    pub fn open(&mut self, status: Status) {
        (self.begins, self.status) = (2, status);
        self.missing = self.space.min(self.longest);
    }

    /// Ends the message after the bytes given so far.
    pub fn close(&mut self) {
        (self.closed, self.missing) = (1, 0);
    }

    /// Returns the number of bytes still missing from the message.
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// Withdraws the message that was started.
    pub fn withdraw(&mut self) {
        (self.withdrawn, self.missing) = (1, 0);
    }

    /// Starts a WRITE of `len` bytes to the peer's memory that is not an answer. The bytes must follow.
    pub fn send(&mut self, addr: u64, rkey: u32, len: u32) {
        (self.begins, self.to, self.rkey, self.message) = (3, addr, rkey, len);
        self.missing = len;
    }

    /// Adds bytes to the message. Returns false if this step cannot add more.
    pub fn put(&mut self, bytes: &[u8]) -> bool {
        let begin = self.put as usize;
        let Some(place) = self.putting.get_mut(begin..begin + bytes.len()) else { return false };
        place.copy_from_slice(bytes);
        self.put += bytes.len() as u32;
        self.missing = self.missing.saturating_sub(bytes.len() as u32);
        true
    }

    /// Appends the first `len` bytes of the data that was read to the message, before the bytes that this
    /// step puts.
    pub fn forward(&mut self, len: u32) {
        self.forwarded = len;
        self.missing = self.missing.saturating_sub(len);
    }
}

/// Defines the module's kernel by its type and initial value.
#[macro_export]
macro_rules! kernel {
    ($type:ty, $first:expr) => {
        static LANE: std::sync::Mutex<($crate::strom::Streams, $type)> =
            std::sync::Mutex::new(($crate::strom::Streams::new(), $first));

        #[no_mangle]
        pub extern "C" fn mailbox() -> usize {
            LANE.lock().map_or(0, |lane| &raw const lane.0 as usize)
        }

        #[no_mangle]
        pub extern "C" fn step() -> i32 {
            let Ok(mut lane) = LANE.lock() else { return -1 };
            let (streams, kernel) = &mut *lane;
            $crate::strom::Kernel::step(kernel, streams) as i32
        }

        #[no_mangle]
        pub extern "C" fn reset() {
            if let Ok(mut lane) = LANE.lock() {
                $crate::strom::Kernel::reset(&mut lane.1);
            }
        }
    };
}
