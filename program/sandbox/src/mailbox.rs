//! The mailbox: memory shared by a kernel and the NIC, which use it alternately. Numbers are little-endian
//! and have 4 bytes unless noted otherwise.
//!
//! ```text
//!     0 version: 1                4 0
//! before a step:
//!     8 RPC op-code (8)          16 address of what passes (8)
//!    24 input: 0 none, 1 parameters, 2 data, 3 passing
//!    28 tag                      32 bit 0: first, bit 1: last
//!    36 bytes of the message from here on
//!    40 bytes of the input       44 queue pair
//!    48 space at the requester   52 bytes of the longest message
//!    56 bytes that were read, ffffffff: none
//!    60 bytes missing of the message
//! after it:
//!    64 the input is used        68 the message is taken back
//!    72 a message begins: 0 none, 1 answer, 2 open, 3 send
//!    76 its status               80 its bytes
//!    84 key to send with         88 address to send to (8)
//!    96 bytes read that are forwarded
//!   100 bytes put               104 the message ends
//!   108 command: 0 none, 1 read, 2 read to the wire
//!   112 its address (8)         120 its bytes
//!   124 writes
//!   128 input (4096)           4224 what was read (4096)
//!  8320 what is put (4096)
//! 12416 64 writes: address (8), bytes, 0
//! 13440 their bytes, one behind the other (8192)
//! 21632
//! ```
//!
//! The NIC executes the requests of a step in the order of these words, with the writes after the input.
//! Forwarded bytes therefore precede bytes that are put.

use remora_nic::kernel::{Input, PACKET, Status, Streams, What};

/// Version of the layout.
pub(crate) const VERSION: u32 = 1;
/// Length of the mailbox in bytes.
pub(crate) const LEN: usize = 21632;

/// Offsets of the words that a step reads, and of those that it writes.
const SEEN: usize = 8;
const WANTED: usize = 64;
const INPUT: usize = 128;
const READ: usize = INPUT + PACKET;
const PUT: usize = READ + PACKET;
const WRITES: usize = PUT + PACKET;
/// Maximum number of writes of a step, and length of the record of one write in bytes.
const MOST: usize = 64;
const RECORD: usize = 16;
const WRITTEN: usize = WRITES + MOST * RECORD;
const NONE: u32 = u32::MAX;

const _: () = assert!(WRITTEN + 8192 == LEN, "as drawn");

/// State of the previous step, to avoid copying bytes that are already in the mailbox.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Shown {
    /// True if the current input is already in the mailbox.
    pub input: bool,
    /// True if the step requested a read.
    pub asked: bool,
}

/// Error: the mailbox content after a step is invalid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidMailbox;

struct Fields<'m>(&'m mut [u8]);

impl Fields<'_> {
    fn word(&self, offset: usize) -> u32 {
        self.0[offset..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    fn long(&self, offset: usize) -> u64 {
        self.0[offset..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// Returns the mailbox version for which the kernel was built.
pub(crate) fn version(mail: &mut [u8]) -> u32 {
    Fields(mail).word(0)
}

/// Writes the state of the streams into the mailbox before a step.
pub(crate) fn fill(mail: &mut [u8], streams: &Streams<'_, '_>, shown: Shown) {
    let input = streams.input();
    let (kind, va) = match input.map(|input| input.what) {
        None => (0, 0),
        Some(What::Params) => (1, 0),
        Some(What::Data) => (2, 0),
        Some(What::Passing(va)) => (3, va),
    };
    let facts = input.unwrap_or(Input {
        what: What::Data,
        opcode: 0,
        tag: 0,
        first: false,
        last: false,
        left: 0,
        bytes: &[],
    });
    let data = streams.data();
    let words = [
        kind,
        facts.tag,
        u32::from(facts.first) | u32::from(facts.last) << 1,
        facts.left,
        facts.bytes.len() as u32,
        streams.qpn().get(),
        streams.answer_capacity(),
        streams.longest(),
        data.map_or(NONE, |data| data.len() as u32),
        streams.missing(),
    ];
    mail[SEEN..SEEN + 8].copy_from_slice(&facts.opcode.to_le_bytes());
    mail[SEEN + 8..SEEN + 16].copy_from_slice(&va.to_le_bytes());
    for (place, word) in mail[SEEN + 16..WANTED].as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    mail[WANTED..INPUT].fill(0);
    if !shown.input {
        let len = facts.bytes.len().min(PACKET);
        mail[INPUT..INPUT + len].copy_from_slice(&facts.bytes[..len]);
    }
    if let Some(data) = data.filter(|_| shown.asked) {
        mail[READ..READ + data.len()].copy_from_slice(data);
    }
}

/// Executes the requests in the mailbox after a step.
pub(crate) fn empty(mail: &mut [u8], streams: &mut Streams<'_, '_>) -> Result<Shown, InvalidMailbox> {
    let words = Fields(mail);
    let status = Status(words.word(76) as u8);
    let len = words.word(80);
    let forward = words.word(96) as usize;
    let put = words.word(100) as usize;
    let taken = words.word(64) != 0;
    if taken {
        streams.take();
    }
    write(&words, streams)?;
    if words.word(68) != 0 {
        streams.withdraw();
    }
    match words.word(72) {
        0 => {}
        1 => drop(streams.answer(status, len)),
        2 => streams.open(status),
        3 => streams.send(words.long(88), words.word(84), len),
        _ => return Err(InvalidMailbox),
    }
    if forward > 0 {
        streams.forward(forward);
    }
    if put > 0 {
        streams.put(words.0[PUT..WRITES].get(..put).ok_or(InvalidMailbox)?);
    }
    if words.word(104) != 0 {
        streams.close();
    }
    let command = words.word(108);
    let asked = words.word(120);
    match command {
        0 => {}
        // A native kernel may read more, but the mailbox has no space for it.
        1 if asked as usize > PUT - READ => return Err(InvalidMailbox),
        1 => streams.read(words.long(112), asked),
        2 => streams.read_to_wire(words.long(112), asked),
        _ => return Err(InvalidMailbox),
    }
    Ok(Shown { input: streams.input().is_some() && !taken, asked: command == 1 })
}

fn write(words: &Fields<'_>, streams: &mut Streams<'_, '_>) -> Result<(), InvalidMailbox> {
    let count = words.word(124) as usize;
    let mut bytes = &words.0[WRITTEN..];
    if count > MOST {
        return Err(InvalidMailbox);
    }
    for record in 0..count {
        let start = WRITES + record * RECORD;
        let (own, rest) = bytes.split_at_checked(words.word(start + 8) as usize).ok_or(InvalidMailbox)?;
        streams.write(words.long(start), own);
        bytes = rest;
    }
    Ok(())
}
