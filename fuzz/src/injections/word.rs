//! The words of a client's messages.

use arbitrary::Arbitrary;
use remora_chain::offload::{BUCKET, wanted};
use remora_nic::wqe::{SLOT, Wqe, WqeOpcode, flag};

use super::layout::{Layout, PLANTED, RECORDS};
use crate::node_memory::harmless;

/// A word of a message, often an address.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub enum Word {
    /// The address of a bucket or list node in the table.
    Node(u8),
    /// The address of a record of another client.
    Planted(u8),
    /// An address near the start or the end of a region.
    Edge { region: u8, end: bool, by: i8 },
    /// The address of a word in the offload's own queues.
    Code { queue: u8, word: u8 },
    /// A header of a work request: opcode, flags and identifier.
    Header(u8, u8, u8),
    /// A local and a remote key.
    Keys(u8, u8),
    /// A small number, often a length.
    Small(u8),
    /// An arbitrary word of 64 bits.
    Any(u64),
}

impl Word {
    /// Returns the value of the word.
    pub fn value(self, layout: &Layout) -> u64 {
        match self {
            Word::Node(at) => layout.table.address + u64::from(at % 10) * BUCKET,
            Word::Planted(at) => layout.table.address + PLANTED as u64 + u64::from(at % RECORDS) * BUCKET,
            Word::Edge { region, end, by } => {
                let region = layout.any(region);
                let edge = region.address + if end { region.len as u64 } else { 0 };
                edge.wrapping_add_signed(by.into())
            }
            Word::Code { queue, word } => layout.code(queue) + u64::from(word) * 8,
            Word::Header(opcode, flags, id) => {
                u64::from(opcode % OPCODES) | u64::from(flags % 16) << 8 | u64::from(id % 10) << 16
            }
            Word::Keys(local, remote) => layout.key(local) | layout.key(remote) << 32,
            Word::Small(small) => small.into(),
            Word::Any(any) => any,
        }
    }
}

/// The number of known opcodes, plus one.
const OPCODES: u8 = WqeOpcode::LOGICAL_XOR.0 + 2;

/// Returns the bytes of the words.
pub fn bytes(words: &[Word], layout: &Layout) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.value(layout).to_le_bytes()).collect();
    harmless(&mut bytes);
    bytes
}

/// A request to an offload, with about two addresses and a key.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Ask {
    at: [u8; 2],
    /// The replacement of the first address, if any.
    odd: Option<Word>,
    key: u8,
    /// The replacement of the valid header, if any.
    header: Option<Word>,
    /// The difference between the length of the message and the valid length.
    more: i8,
}

impl Ask {
    /// Returns the message in the form that the offload expects.
    pub fn message(&self, name: &str, layout: &Layout) -> Vec<u8> {
        let header = self.header.map_or(wanted(1 + u64::from(self.key % 8)), |word| word.value(layout));
        let place = |at: u8| if at % 2 == 0 { Word::Node(at / 2) } else { Word::Planted(at / 2) };
        let [first, second] = self.at.map(|at| place(at).value(layout));
        let first = self.odd.map_or(first, |word| word.value(layout));
        let words = match name {
            "get" | "list-break" => vec![first, header],
            "list" => [&[first][..], &[header; 8]].concat(),
            "cache" => vec![first, header, second, header],
            _ => {
                let telling = header >> 16 << 16 | u64::from(WqeOpcode::WRITE_IMM.0);
                vec![first, header, telling, second, header]
            }
        };
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // A difference of one byte is the interesting case; other actions change the length further.
        if !(-64..=64).contains(&self.more) {
            bytes.resize(bytes.len().saturating_add_signed(isize::from(self.more) % 16), 0x5a);
        }
        harmless(&mut bytes);
        bytes
    }
}

/// An address with its key, mostly valid.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct KeyedAddress {
    region: u8,
    by: u8,
    odd: u8,
}

impl KeyedAddress {
    fn of(self, layout: &Layout, access: u64) -> (u64, u64) {
        let (address, len, key) = match self.region % 8 {
            0..3 => (layout.code(self.region / 8), 0, layout.key(4)),
            3..6 => (layout.table.address, layout.table.len as u64, layout.key(0)),
            _ => (layout.secret.address, layout.secret.len as u64, layout.key(1)),
        };
        let by = u64::from(self.by);
        match self.odd {
            // The access ends where the region ends, or one byte before or after.
            0..0x20 => ((address + len).wrapping_sub(access).wrapping_add(by % 3).wrapping_sub(1), key),
            0x20..0x40 => (address + by * 8, layout.key(self.odd)),
            0x40..0x50 => (address + by, key),
            _ => (address + by * 8, key),
        }
    }
}

/// A record of another client in the form of a bucket, with any header.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Record {
    opcode: u8,
    flags: u8,
    at: KeyedAddress,
    len: u8,
    next: Word,
}

impl Record {
    /// Returns the bytes of the record.
    pub fn bytes(&self, layout: &Layout) -> Vec<u8> {
        let header = Word::Header(self.opcode, self.flags, self.len).value(layout);
        let words = [header, self.at.of(layout, self.len.into()).0, self.len.into(), self.next.value(layout)];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        harmless(&mut bytes);
        bytes
    }
}

/// A nearly valid work request, for the offload that takes whole ones.
#[derive(Arbitrary, Copy, Clone, Debug)]
pub struct Work {
    opcode: u8,
    flags: u8,
    local: KeyedAddress,
    len: u8,
    remote: KeyedAddress,
    compare: Word,
    add: Word,
    /// The second element of the list.
    second: Option<(KeyedAddress, u8)>,
    queue: u8,
}

impl Work {
    /// Returns the bytes of the work request and of its list.
    pub fn message(&self, layout: &Layout) -> Vec<u8> {
        let opcode = WqeOpcode(self.opcode % OPCODES);
        let len = self.len.into();
        let (local, lkey) = self.local.of(layout, len);
        let (remote, rkey) = self.remote.of(layout, len);
        let mut wqe = Wqe {
            header: u64::from(opcode.0) | u64::from(self.flags % 16 | flag::SIGNALED) << 8,
            local,
            len: u64::from(self.len),
            keys: lkey | rkey << 32,
            remote,
            compare: self.compare.value(layout),
            swap_add: self.add.value(layout),
            imm: layout.key(self.queue),
        };
        match opcode {
            WqeOpcode::WAIT => wqe.remote = layout.completion_queue(self.queue),
            WqeOpcode::ENABLE => wqe.remote = layout.queue(self.queue),
            _ if opcode.has_list() => wqe.compare = 1 + u64::from(self.second.is_some()),
            _ if self.len & 1 == 0 => wqe.len = 8,
            _ => {}
        }
        let mut bytes = wqe.emit().to_vec();
        if let Some((spot, len)) = self.second {
            let (at, key) = spot.of(layout, len.into());
            bytes.extend([at, len.into(), key].into_iter().flat_map(u64::to_le_bytes));
        }
        bytes.resize(2 * SLOT, 0);
        harmless(&mut bytes);
        bytes
    }
}
