//! The interface of a kernel: its streams, in a mailbox that it shares with the NIC.
//! `program/sandbox/src/mailbox.rs` of Remora draws the bytes. Copy this file as it is.
#![allow(dead_code, reason = "a kernel uses a part of it")]

/// Bytes that one command reads at most, and that one packet brings.
pub const DMA: usize = 4096;
/// Writes to memory that one step may make, and their bytes together.
const WRITES: usize = 64;
const WRITTEN: usize = 8192;

/// How a request ended. From 64 on the numbers are the kernel's own.
pub type Status = u32;
/// The request was executed.
pub const DONE: Status = 0;
/// There is no such thing.
pub const MISS: Status = 1;
/// The parameters make no sense.
pub const BAD_PARAMS: Status = 3;

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Progress {
    /// It waits for input and holds nothing: its lane may serve another queue pair.
    Rests = 0,
    /// It waits for input, or for the bytes of a command, and holds state of the queue pair that it serves.
    Waits = 1,
    /// It has more to do now.
    Again = 2,
}

/// A kernel serves one queue pair at a time, and its requests in order.
pub trait Kernel {
    /// One step: takes the input and the bytes that were read, and gives at most one command and one message.
    fn step(&mut self, streams: &mut Streams) -> Progress;

    /// Forgets all state.
    fn reset(&mut self);
}

/// The kind of a piece of input.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Parameters of an RPC.
    Params,
    /// Bytes of an RPC WRITE.
    Data,
    /// Bytes of a WRITE that is placed in memory as well, at this address.
    Passing(u64),
}

/// The payload of one packet.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub what: What,
    /// The op-code of the request.
    pub opcode: u64,
    /// The requester's name for it.
    pub tag: u32,
    /// The message starts here, and ends here.
    pub first: bool,
    pub last: bool,
    /// Bytes of the message from here on.
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

/// The mailbox, and the streams in it.
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

    /// The queue pair that it serves.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// The payload that waits. It stays until it is taken.
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

    /// The input has been used.
    pub fn take(&mut self) {
        self.taken = 1;
    }

    /// Bytes that the requester has space for; 0 if it has not given an address.
    pub fn space(&self) -> u32 {
        self.space
    }

    /// Bytes that one message holds at most.
    pub fn longest(&self) -> u32 {
        self.longest
    }

    /// Asks for bytes of memory, [`DMA`] at most: they are there at the next step.
    pub fn read(&mut self, va: u64, len: u32) {
        (self.command, self.command_va, self.command_len) = (1, va, len);
    }

    /// The bytes that were read.
    pub fn data(&self) -> Option<&[u8]> {
        self.read.get(..self.there as usize)
    }

    /// The next bytes of the message come straight from memory.
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

    /// Answers the request, with `len` bytes that follow. Returns false if so many do not fit, and the answer
    /// says so.
    pub fn answer(&mut self, status: Status, len: u32) -> bool {
        (self.begins, self.status, self.message) = (1, status, len);
        let fits = len == 0 || len <= self.space && len <= self.longest;
        self.missing = if fits { len } else { 0 };
        fits
    }

    /// As [`answer`](Streams::answer), for one whose length is not known yet: [`close`](Streams::close) ends
    /// it.
    pub fn open(&mut self, status: Status) {
        (self.begins, self.status) = (2, status);
        self.missing = self.space.min(self.longest);
    }

    /// Ends the message after the bytes that were given so far.
    pub fn close(&mut self) {
        (self.closed, self.missing) = (1, 0);
    }

    /// Bytes that are missing of the message.
    pub fn missing(&self) -> u32 {
        self.missing
    }

    /// The message that was begun is taken back.
    pub fn withdraw(&mut self) {
        (self.withdrawn, self.missing) = (1, 0);
    }

    /// A WRITE to the peer's memory beside answers: `len` bytes follow.
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

    /// The first `len` of the bytes that were read become the message's next. They go before those that this
    /// step puts.
    pub fn forward(&mut self, len: u32) {
        self.forwarded = len;
        self.missing = self.missing.saturating_sub(len);
    }
}

/// Makes a type with this first value the module's kernel.
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
