//! The streams of a kernel (the paper's Listing 1), as one step sees them.
//!
//! | Listing 1 | here |
//! |---|---|
//! | `qpnIn` | [`Streams::qpn`] |
//! | `paramIn`, `roceDataIn` | [`Streams::input`], [`Streams::take`] |
//! | `dmaCmdOut` | [`Streams::read`], [`Streams::read_to_wire`], [`Streams::write`] |
//! | `dmaDataIn` | [`Streams::data`] |
//! | `dmaDataOut` | the bytes of [`Streams::write`] |
//! | `roceMetaOut` | [`Streams::answer`], [`Streams::send`] |
//! | `roceDataOut` | [`Streams::put`], [`Streams::forward`] |

use remora_memory::{Access, Lines, Mem};
use remora_transport::rc::strom::Part;
use remora_wire::Qpn;
use remora_wire::strom::{Ending, Status, split};

use super::Place;
use super::base::{Base, Piece};

/// Bytes that one command reads at most: two packets' worth, so that an object of one comes together with its
/// check value.
pub const DMA: usize = 8192;
/// Bytes that one packet brings at most.
pub const PACKET: usize = 4096;

/// What a piece of input is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Parameters of an RPC, without the place where answers go.
    Params,
    /// Bytes of an RPC WRITE.
    Data,
    /// Bytes of a WRITE that is placed in memory as well, at this address.
    Passing(u64),
}

/// The payload of one packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Input<'p> {
    /// What it is.
    pub what: What,
    /// The op-code of the request: not that of the kernel if it is a fallback.
    pub opcode: u64,
    /// The requester's name for the request.
    pub tag: u32,
    /// The message starts here.
    pub first: bool,
    /// It ends here.
    pub last: bool,
    /// Bytes of the message from here on.
    pub left: u32,
    /// The bytes.
    pub bytes: &'p [u8],
}

impl<'p> Input<'p> {
    /// What a kernel sees of a piece.
    #[inline]
    fn of(piece: &Piece, bytes: &'p [u8]) -> Input<'p> {
        let part = &piece.part;
        let (what, bytes) = match (part.params(), piece.passing) {
            (true, _) => (What::Params, split(bytes).map_or(&[][..], |(_, own)| own)),
            (false, Some(va)) => (What::Passing(va), bytes),
            (false, None) => (What::Data, bytes),
        };
        let Part { opcode, left, .. } = *part;
        Input { what, opcode, tag: part.tag(), first: part.first(), last: part.last(), left, bytes }
    }
}

/// A command to the DMA engine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Command {
    Nothing,
    Read { va: u64, len: u32 },
    ReadToWire { va: u64, len: u32 },
}

/// Bytes that were read.
#[derive(Copy, Clone, Debug)]
struct ReadBytes {
    len: usize,
    /// Their position in the lane's block, if they were read to the end of the message: then they become a
    /// part of it without a copy.
    at: Option<u32>,
}

/// A message being made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub to: Place,
    pub len: u32,
    pub filled: u32,
    /// The ending that an answer carries. None: a plain WRITE.
    pub ending: Option<Ending>,
}

/// What a lane keeps of its streams from step to step.
pub(super) struct Wires {
    command: Command,
    read: Box<[u8]>,
    /// The bytes that were read last.
    there: Option<ReadBytes>,
    pub message: Option<Message>,
    /// Where answers of this request go.
    pub reply: Option<Place>,
    pub tag: u32,
    pub answered: bool,
    pub fault: Option<Status>,
    /// Lines were written past the caches and may not be in memory yet.
    scattered: bool,
}

impl Wires {
    pub fn new() -> Wires {
        Wires {
            command: Command::Nothing,
            read: vec![0; DMA].into_boxed_slice(),
            there: None,
            message: None,
            reply: None,
            tag: 0,
            answered: true,
            fault: None,
            scattered: false,
        }
    }

    /// Forgets the command and the message, but not the request that they belong to.
    pub fn clear(&mut self) {
        self.command = Command::Nothing;
        (self.there, self.message, self.fault) = (None, None, None);
    }

    pub fn has_command(&self) -> bool {
        self.command != Command::Nothing
    }

    /// Is the answer of a request still missing? An answer that was begun may be withdrawn; the next one then
    /// belongs to the same request.
    pub fn is_engaged(&self) -> bool {
        !self.answered || self.message.is_some_and(|message| message.ending.is_some())
    }

    /// Is a message ready to leave?
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.complete().is_some()
    }

    /// The message that is ready to leave.
    #[inline]
    pub fn complete(&self) -> Option<&Message> {
        self.message.as_ref().filter(|message| message.filled == message.len)
    }

    /// Waits until all earlier writes are in memory. A message leaves only then.
    #[inline]
    pub fn settle(&mut self) {
        if std::mem::take(&mut self.scattered) {
            remora_memory::settle();
        }
    }

    /// Executes the command of the last step, as a DMA engine would.
    #[inline]
    pub fn execute(&mut self, base: &mut Base, mem: Mem<'_>, block: u32) {
        match std::mem::replace(&mut self.command, Command::Nothing) {
            Command::Nothing => {}
            Command::Read { va, len } => {
                let Some(span) = base.reach(mem).span(va, len as usize, Access::NONE) else {
                    self.fault = Some(Status::ACCESS);
                    return;
                };
                let unfinished = self.message.filter(|message| message.filled < message.len);
                let at = unfinished.map(|message| message.filled);
                let buffer = at.and_then(|at| part(base.block_mut(block), at, len));
                self.there = Some(ReadBytes { len: len as usize, at: at.filter(|_| buffer.is_some()) });
                if span.read(buffer.unwrap_or(&mut self.read[..len as usize])) < len as usize {
                    self.fault = Some(Status::ACCESS);
                }
            }
            Command::ReadToWire { va, len } => {
                self.keep(base, block);
                let span = base.reach(mem).span(va, len as usize, Access::NONE);
                let Some(message) = &mut self.message else { return };
                // A match: a closure with a guarded copy in it is not inlined.
                let read = match (span, part(base.block_mut(block), message.filled, len)) {
                    (Some(span), Some(buffer)) => span.read(buffer) == len as usize,
                    _ => false,
                };
                if read {
                    message.filled += len;
                } else {
                    self.fault = Some(Status::ACCESS);
                }
            }
        }
    }

    /// Copies the bytes that were read out of the block, which is about to be written or to belong to another
    /// lane.
    #[inline]
    pub fn keep(&mut self, base: &Base, block: u32) {
        let Some(ReadBytes { len, at: Some(at) }) = self.there else { return };
        self.read[..len].copy_from_slice(&base.block(block)[at as usize..][..len]);
        self.there = Some(ReadBytes { len, at: None });
    }

    /// Forgets the bytes that were read.
    #[inline]
    pub fn forget(&mut self) {
        self.there = None;
    }

    /// Appends these bytes to the message. False: there is no message, or it is too short.
    #[inline]
    fn fill(&mut self, base: &mut Base, block: u32, bytes: &[u8]) -> bool {
        self.keep(base, block);
        self.append(base, block, bytes)
    }

    #[inline]
    fn append(&mut self, base: &mut Base, block: u32, bytes: &[u8]) -> bool {
        let len = bytes.len() as u32;
        let message = self.message.as_mut().filter(|message| len <= message.len - message.filled);
        let Some(message) = message else { return false };
        let Some(buffer) = part(base.block_mut(block), message.filled, len) else { return false };
        buffer.copy_from_slice(bytes);
        message.filled += len;
        true
    }

    /// Appends the first `len` of the bytes that were read to the message. False: fewer were read, or the
    /// message is too short.
    #[inline]
    fn forward(&mut self, base: &mut Base, block: u32, len: usize) -> bool {
        let Some(there) = self.there.filter(|there| len <= there.len) else { return false };
        if let Some(message) = &mut self.message
            && there.at == Some(message.filled)
        {
            let fits = len <= (message.len - message.filled) as usize;
            message.filled += if fits { len as u32 } else { 0 };
            return fits;
        }
        self.keep(base, block);
        let read = std::mem::take(&mut self.read);
        let fits = self.append(base, block, &read[..len]);
        self.read = read;
        fits
    }
}

/// Bytes of a block, if it has them.
#[inline]
fn part(block: &mut [u8], at: u32, len: u32) -> Option<&mut [u8]> {
    block.get_mut(at as usize..at as usize + len as usize)
}

/// The streams, during a step.
pub struct Streams<'s, 'p> {
    pub(super) qpn: Qpn,
    /// What waits.
    pub(super) next: Option<(&'p Piece, &'p [u8])>,
    pub(super) taken: bool,
    /// WRITEs to memory in this step, and their bytes.
    pub(super) written: (u32, u32),
    pub(super) wires: &'s mut Wires,
    pub(super) mem: Mem<'s>,
    pub(super) base: &'s mut Base,
    /// The block of memory that its message stands in.
    pub(super) block: u32,
}

impl<'p> Streams<'_, 'p> {
    /// The queue pair that it serves.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The payload that waits, of one packet. It stays until it is taken.
    #[inline]
    pub fn input(&self) -> Option<Input<'p>> {
        self.next.map(|(piece, bytes)| Input::of(piece, bytes))
    }

    /// The input has been used.
    pub fn take(&mut self) {
        self.taken |= self.next.is_some();
    }

    /// It gives up: the request ends with this status, and the kernel is reset.
    pub fn fail(&mut self, status: Status) {
        self.wires.fault = Some(status);
    }

    /// Bytes that the requester's place for the answer holds; 0 if it has named none.
    pub fn answer_capacity(&self) -> u32 {
        self.wires.reply.map_or(0, |place| place.len)
    }

    /// Bytes that one message holds at most.
    pub fn longest(&self) -> u32 {
        self.base.longest
    }

    /// Reads `len` bytes of memory, [`DMA`] at most, until the next step. Reading without the right ends the
    /// request.
    pub fn read(&mut self, va: u64, len: u32) {
        self.wires.there = None;
        if len as usize > DMA {
            self.wires.fault = Some(Status::FAILED);
            return;
        }
        self.wires.command = Command::Read { va, len };
    }

    /// The bytes that were read.
    #[inline]
    pub fn data(&self) -> Option<&[u8]> {
        let ReadBytes { len, at } = self.wires.there?;
        let from = at.map_or(&self.wires.read[..], |at| &self.base.block(self.block)[at as usize..]);
        Some(&from[..len])
    }

    /// The next `len` bytes of the message come straight from memory.
    pub fn read_to_wire(&mut self, va: u64, len: u32) {
        let left = self.wires.message.map_or(0, |message| message.len - message.filled);
        if len > left {
            self.wires.fault = Some(Status::FAILED);
        } else if len > 0 {
            self.wires.command = Command::ReadToWire { va, len };
        }
    }

    /// Writes to memory. Writing without the right ends the request.
    pub fn write(&mut self, va: u64, bytes: &[u8]) {
        match self.base.reach(self.mem).span(va, bytes.len(), Access::LOCAL_WRITE) {
            Some(span) if span.write(bytes) == bytes.len() => {
                self.written = (self.written.0 + 1, self.written.1 + bytes.len() as u32);
            }
            _ => self.wires.fault = Some(Status::ACCESS),
        }
    }

    /// Bytes of memory that this step has asked for.
    pub(super) fn asked(&self) -> u32 {
        match self.wires.command {
            Command::Nothing => 0,
            Command::Read { len, .. } | Command::ReadToWire { len, .. } => len,
        }
    }

    /// Writes two cache lines to memory, past the caches if they are aligned: for kernels that write to many
    /// places in turn. They are in memory before the next message leaves.
    #[inline]
    pub fn scatter(&mut self, va: u64, lines: &Lines) {
        match self.base.reach(self.mem).span(va, lines.0.len(), Access::LOCAL_WRITE) {
            Some(span) if span.scatter(lines) == lines.0.len() => {
                self.wires.scattered = true;
                self.written = (self.written.0 + 1, self.written.1 + lines.0.len() as u32);
            }
            _ => self.wires.fault = Some(Status::ACCESS),
        }
    }

    /// Answers the request, with `len` bytes that follow by [`put`](Streams::put),
    /// [`forward`](Streams::forward) or [`read_to_wire`](Streams::read_to_wire). If the requester's place is
    /// too small, the answer is [`Status::NO_ROOM`] without bytes, and the result is false.
    pub fn answer(&mut self, status: Status, len: u32) -> bool {
        let tag = self.wires.tag;
        if self.wires.answered || self.wires.message.is_some() {
            self.wires.fault = Some(Status::FAILED);
            return false;
        }
        self.wires.answered = true;
        let place = self.wires.reply.filter(|place| len <= place.len && len <= self.base.longest);
        let (to, status, len) = match (len, place) {
            (0, _) => (NOWHERE, status, 0),
            (_, Some(place)) => (place, status, len),
            (_, None) => (NOWHERE, Status::NO_ROOM, 0),
        };
        let fits = status != Status::NO_ROOM;
        self.wires.message = Some(Message { to, len, filled: 0, ending: Some(Ending { status, tag }) });
        fits
    }

    /// As [`answer`](Streams::answer), for one whose length is not known yet: as many bytes as the place
    /// holds may follow, and [`close`](Streams::close) ends it.
    pub fn open(&mut self, status: Status) {
        let longest = self.answer_capacity().min(self.base.longest);
        if longest > 0 {
            self.answer(status, longest);
        } else {
            self.wires.fault = Some(Status::NO_ROOM);
        }
    }

    /// Ends the message with the bytes that were given.
    pub fn close(&mut self) {
        if let Some(message) = &mut self.wires.message {
            message.len = message.filled;
            if message.len == 0 {
                message.to = NOWHERE;
            }
        }
    }

    /// Bytes that are missing of the message.
    pub fn missing(&self) -> u32 {
        self.wires.message.map_or(0, |message| message.len - message.filled)
    }

    /// Takes back the message that was begun; none of it has left.
    pub fn withdraw(&mut self) {
        if let Some(message) = self.wires.message.take() {
            self.wires.answered &= message.ending.is_none();
        }
    }

    /// A WRITE to the peer's memory beside answers: `len` bytes follow, [`longest`](Streams::longest) at
    /// most.
    pub fn send(&mut self, addr: u64, rkey: u32, len: u32) {
        if len > self.base.longest || self.wires.message.is_some() {
            self.wires.fault = Some(Status::FAILED);
            return;
        }
        let to = Place { addr, rkey, len };
        self.wires.message = Some(Message { to, len, filled: 0, ending: None });
    }

    /// Bytes of the message that [`answer`](Streams::answer) or [`send`](Streams::send) began.
    pub fn put(&mut self, bytes: &[u8]) {
        if !self.wires.fill(self.base, self.block, bytes) {
            self.wires.fault = Some(Status::FAILED);
        }
    }

    /// The first `len` of the bytes that were read become the message's next.
    #[inline]
    pub fn forward(&mut self, len: usize) {
        if !self.wires.forward(self.base, self.block, len) {
            self.wires.fault = Some(Status::FAILED);
        }
    }
}

/// The place of an answer without bytes: its key is not checked.
const NOWHERE: Place = Place { addr: 0, rkey: 0, len: 0 };
