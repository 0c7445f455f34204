//! The streams of a kernel (the paper's Listing 1), as available in one step.
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

/// Maximum number of bytes that one command reads: two packets, so that a packet-sized object can be read
/// together with its CRC.
pub const DMA: usize = 8192;
/// Maximum payload of one packet in bytes.
pub const PACKET: usize = 4096;

/// The kind of a piece of input.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Parameters of an RPC, without the destination of answers.
    Params,
    /// Data of an RPC WRITE.
    Data,
    /// Data of a WRITE that is also placed in memory, at this address.
    Passing(u64),
}

/// The payload of one packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Input<'p> {
    /// Kind of the input.
    pub what: What,
    /// Opcode of the request. A fallback kernel receives other opcodes than its own.
    pub opcode: u64,
    /// Tag of the request, chosen by the requester.
    pub tag: u32,
    /// True for the first packet of a message.
    pub first: bool,
    /// True for the last packet of a message.
    pub last: bool,
    /// Number of bytes of the message from this packet on.
    pub left: u32,
    /// Data of the packet.
    pub bytes: &'p [u8],
}

impl<'p> Input<'p> {
    /// Returns the input for a packet.
    #[inline]
    fn of(piece: &Piece, bytes: &'p [u8]) -> Input<'p> {
        let part = &piece.part;
        let (kind, bytes) = match (part.params(), piece.passing) {
            (true, _) => (What::Params, split(bytes).map_or(&[][..], |(_, own)| own)),
            (false, Some(va)) => (What::Passing(va), bytes),
            (false, None) => (What::Data, bytes),
        };
        let Part { opcode, left, .. } = *part;
        Input { what: kind, opcode, tag: part.tag(), first: part.first(), last: part.last(), left, bytes }
    }
}

/// A command to the DMA engine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Command {
    Nothing,
    Read { va: u64, len: u32 },
    ReadToWire { va: u64, len: u32 },
}

/// Data that was read.
#[derive(Copy, Clone, Debug)]
struct ReadBytes {
    len: usize,
    /// Position in the lane's block if the data was read to the end of the message, and so becomes a part of
    /// it without a copy.
    offset: Option<u32>,
}

/// A message under construction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub target: Place,
    pub len: u32,
    pub filled: u32,
    /// Status and tag of an answer; `None` for a plain WRITE.
    pub ending: Option<Ending>,
}

/// State of the streams between steps.
pub(super) struct Wires {
    command: Command,
    read: Box<[u8]>,
    /// The data that was read last.
    there: Option<ReadBytes>,
    pub message: Option<Message>,
    /// Destination of answers to the current request.
    pub reply: Option<Place>,
    pub tag: u32,
    pub answered: bool,
    pub fault: Option<Status>,
    /// Cache lines were written with non-temporal stores and may not be in memory yet.
    scattered: bool,
}

impl Wires {
    pub(crate) fn new() -> Wires {
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

    /// Discards the command and the message, but not the request.
    pub(crate) fn clear(&mut self) {
        self.command = Command::Nothing;
        (self.there, self.message, self.fault) = (None, None, None);
    }

    pub(crate) fn has_command(&self) -> bool {
        self.command != Command::Nothing
    }

    /// Returns true if the request has no complete answer. An answer that was begun may be withdrawn and
    /// replaced.
    pub(crate) fn is_engaged(&self) -> bool {
        !self.answered || self.message.is_some_and(|message| message.ending.is_some())
    }

    /// Returns true if a message is ready to be sent.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.complete().is_some()
    }

    /// Returns the message that is ready to be sent.
    #[inline]
    pub(crate) fn complete(&self) -> Option<&Message> {
        self.message.as_ref().filter(|message| message.filled == message.len)
    }

    /// Waits until all earlier writes are in memory, which must precede a message.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.scattered) {
            remora_memory::settle();
        }
    }

    /// Executes the command of the last step, as a DMA engine would.
    #[inline]
    pub(crate) fn execute(&mut self, base: &mut Base, mem: Mem<'_>, block: u32) {
        match std::mem::replace(&mut self.command, Command::Nothing) {
            Command::Nothing => {}
            Command::Read { va, len } => {
                let Some(span) = base.reach(mem).span(va, len as usize, Access::NONE) else {
                    self.fault = Some(Status::ACCESS);
                    return;
                };
                let unfinished = self.message.filter(|message| message.filled < message.len);
                let offset = unfinished.map(|message| message.filled);
                let buffer = offset.and_then(|offset| part(base.block_mut(block), offset, len));
                self.there =
                    Some(ReadBytes { len: len as usize, offset: offset.filter(|_| buffer.is_some()) });
                if span.read(buffer.unwrap_or(&mut self.read[..len as usize])) < len as usize {
                    self.fault = Some(Status::ACCESS);
                }
            }
            Command::ReadToWire { va, len } => {
                self.keep(base, block);
                let span = base.reach(mem).span(va, len as usize, Access::NONE);
                let Some(message) = &mut self.message else { return };
                // A `match` is used because a closure with a guarded copy is not inlined.
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

    /// Copies the read data out of the block, because the block is about to be overwritten or given to
    /// another lane.
    #[inline]
    pub(crate) fn keep(&mut self, base: &Base, block: u32) {
        let Some(ReadBytes { len, offset: Some(offset) }) = self.there else { return };
        self.read[..len].copy_from_slice(&base.block(block)[offset as usize..][..len]);
        self.there = Some(ReadBytes { len, offset: None });
    }

    /// Discards the read data.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.there = None;
    }

    /// Appends data to the message. Returns false if there is no message or it is too short.
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

    /// Appends the first `len` bytes of the read data to the message. Returns false if less data was read, or
    /// if the message is too short.
    #[inline]
    fn forward(&mut self, base: &mut Base, block: u32, len: usize) -> bool {
        let Some(there) = self.there.filter(|there| len <= there.len) else { return false };
        if let Some(message) = &mut self.message
            && there.offset == Some(message.filled)
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

/// Returns a range of a block; `None` if the range is outside.
#[inline]
fn part(block: &mut [u8], offset: u32, len: u32) -> Option<&mut [u8]> {
    block.get_mut(offset as usize..offset as usize + len as usize)
}

/// The streams of a kernel during one step.
pub struct Streams<'s, 'p> {
    pub(super) qpn: Qpn,
    /// The packet that waits.
    pub(super) next: Option<(&'p Piece, &'p [u8])>,
    pub(super) taken: bool,
    /// Number of writes to memory in this step, and their total length in bytes.
    pub(super) written: (u32, u32),
    pub(super) wires: &'s mut Wires,
    pub(super) mem: Mem<'s>,
    pub(super) base: &'s mut Base,
    /// The block that holds the message.
    pub(super) block: u32,
}

impl<'p> Streams<'_, 'p> {
    /// Returns the number of the queue pair that is served.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Returns the payload of the waiting packet; `None` if there is none. The packet remains until
    /// [`take`](Streams::take).
    #[inline]
    pub fn input(&self) -> Option<Input<'p>> {
        self.next.map(|(piece, bytes)| Input::of(piece, bytes))
    }

    /// Consumes the input.
    pub fn take(&mut self) {
        self.taken |= self.next.is_some();
    }

    /// Returns true if this step has consumed its input.
    pub fn is_taken(&self) -> bool {
        self.taken
    }

    /// Returns the number of writes to memory in this step, and their total length in bytes.
    pub fn written(&self) -> (u32, u32) {
        self.written
    }

    /// Ends the request with this status, and resets the kernel.
    pub fn fail(&mut self, status: Status) {
        self.wires.fault = Some(status);
    }

    /// Returns the size in bytes of the requester's buffer for the answer; 0 if there is none.
    pub fn answer_capacity(&self) -> u32 {
        self.wires.reply.map_or(0, |place| place.len)
    }

    /// Returns the maximum size of a message in bytes.
    pub fn longest(&self) -> u32 {
        self.base.longest
    }

    /// Reads `len` bytes of memory, [`DMA`] at most; the data is available in the next step. A read without
    /// permission ends the request.
    pub fn read(&mut self, va: u64, len: u32) {
        self.wires.there = None;
        if len as usize > DMA {
            self.wires.fault = Some(Status::FAILED);
            return;
        }
        self.wires.command = Command::Read { va, len };
    }

    /// Returns the data that was read; `None` if there is none.
    #[inline]
    pub fn data(&self) -> Option<&[u8]> {
        let ReadBytes { len, offset } = self.wires.there?;
        let source =
            offset.map_or(&self.wires.read[..], |offset| &self.base.block(self.block)[offset as usize..]);
        Some(&source[..len])
    }

    /// Appends `len` bytes to the message directly from memory.
    pub fn read_to_wire(&mut self, va: u64, len: u32) {
        let left = self.wires.message.map_or(0, |message| message.len - message.filled);
        if len > left {
            self.wires.fault = Some(Status::FAILED);
        } else if len > 0 {
            self.wires.command = Command::ReadToWire { va, len };
        }
    }

    /// Writes to memory. A write without permission ends the request.
    pub fn write(&mut self, va: u64, bytes: &[u8]) {
        match self.base.reach(self.mem).span(va, bytes.len(), Access::LOCAL_WRITE) {
            Some(span) if span.write(bytes) == bytes.len() => {
                self.written = (self.written.0 + 1, self.written.1 + bytes.len() as u32);
            }
            _ => self.wires.fault = Some(Status::ACCESS),
        }
    }

    /// Returns the number of bytes that this step has requested to read.
    pub fn asked(&self) -> u32 {
        match self.wires.command {
            Command::Nothing => 0,
            Command::Read { len, .. } | Command::ReadToWire { len, .. } => len,
        }
    }

    /// Writes two cache lines to memory, with non-temporal stores if they are aligned, for kernels that write
    /// to many locations in turn. The data is in memory before the next message is sent.
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

    /// Begins the answer to the request, with `len` bytes that follow by [`put`](Streams::put),
    /// [`forward`](Streams::forward) or [`read_to_wire`](Streams::read_to_wire). If the requester's buffer is
    /// too small, the answer is [`Status::NO_ROOM`] without data, and the result is false.
    pub fn answer(&mut self, status: Status, len: u32) -> bool {
        let tag = self.wires.tag;
        if self.wires.answered || self.wires.message.is_some() {
            self.wires.fault = Some(Status::FAILED);
            return false;
        }
        self.wires.answered = true;
        let place = self.wires.reply.filter(|place| len <= place.len && len <= self.base.longest);
        let (target, status, len) = match (len, place) {
            (0, _) => (NOWHERE, status, 0),
            (_, Some(place)) => (place, status, len),
            (_, None) => (NOWHERE, Status::NO_ROOM, 0),
        };
        let fits = status != Status::NO_ROOM;
        self.wires.message = Some(Message { target, len, filled: 0, ending: Some(Ending { status, tag }) });
        fits
    }

    /// Begins an answer of unknown length. At most as many bytes as the requester's buffer holds may follow;
    /// [`close`](Streams::close) ends the answer.
    pub fn open(&mut self, status: Status) {
        let longest = self.answer_capacity().min(self.base.longest);
        if longest > 0 {
            self.answer(status, longest);
        } else {
            self.wires.fault = Some(Status::NO_ROOM);
        }
    }

    /// Ends the message with the data appended so far.
    pub fn close(&mut self) {
        if let Some(message) = &mut self.wires.message {
            message.len = message.filled;
            if message.len == 0 {
                message.target = NOWHERE;
            }
        }
    }

    /// Returns the number of bytes that the message still lacks.
    pub fn missing(&self) -> u32 {
        self.wires.message.map_or(0, |message| message.len - message.filled)
    }

    /// Discards the unsent message.
    pub fn withdraw(&mut self) {
        if let Some(message) = self.wires.message.take() {
            self.wires.answered &= message.ending.is_none();
        }
    }

    /// Begins a WRITE to the peer's memory besides answers. `len` bytes follow, [`longest`](Streams::longest)
    /// at most.
    pub fn send(&mut self, addr: u64, rkey: u32, len: u32) {
        if len > self.base.longest || self.wires.message.is_some() {
            self.wires.fault = Some(Status::FAILED);
            return;
        }
        let target = Place { addr, rkey, len };
        self.wires.message = Some(Message { target, len, filled: 0, ending: None });
    }

    /// Appends data to the message that [`answer`](Streams::answer) or [`send`](Streams::send) began.
    pub fn put(&mut self, bytes: &[u8]) {
        if !self.wires.fill(self.base, self.block, bytes) {
            self.wires.fault = Some(Status::FAILED);
        }
    }

    /// Appends the first `len` bytes of the read data to the message.
    #[inline]
    pub fn forward(&mut self, len: usize) {
        if !self.wires.forward(self.base, self.block, len) {
            self.wires.fault = Some(Status::FAILED);
        }
    }
}

/// The destination of an answer without data, whose key is not checked.
const NOWHERE: Place = Place { addr: 0, rkey: 0, len: 0 };
