//! A model of two queue pairs and the memory behind them, sufficient to drive a client and a server.
//! Requests of a queue are executed in order, one whenever the test requests it. A READ copies word by word
//! and lets the test act between any two words.

use crate::kv::{Post, PostError};
use crate::region::Registered;
use crate::send_queue::QueueNeeds;
use remora_memory::{Bytes, Key};
use remora_nic::{
    CompletionKind, Operation, Payload, ReceiveRequest, Remote, Sge, WorkCompletion, WorkRequest, prism,
};
use remora_transport::Status;
use std::collections::VecDeque;

/// Maximum inline payload of these queue pairs.
pub(crate) const INLINE: usize = 256;

#[derive(Copy, Clone)]
struct Posted {
    id: u64,
    operation: Operation,
    sges: [Sge; 2],
    sge_count: usize,
    inline: ([u8; INLINE], usize),
    signaled: bool,
}

/// A queue pair between client and server.
pub(crate) struct QueuePair {
    needs: QueueNeeds,
    sends: VecDeque<Posted>,
    /// Executed requests that still occupy the queue, until a signaled request after them completes.
    unretired: u32,
    retire_at: VecDeque<u32>,
    receives: VecDeque<(u64, Sge)>,
    pub completions: VecDeque<WorkCompletion>,
    /// The error with which posting fails, if it is set.
    pub failing: Option<PostError>,
}

impl QueuePair {
    fn new(needs: QueueNeeds) -> QueuePair {
        QueuePair {
            needs,
            sends: VecDeque::with_capacity(needs.send as usize),
            unretired: 0,
            retire_at: VecDeque::with_capacity(needs.send as usize),
            receives: VecDeque::with_capacity(needs.receive as usize),
            completions: VecDeque::with_capacity(needs.completions as usize),
            failing: None,
        }
    }

    /// Returns the next completion, and frees the slots of the requests before it.
    pub(crate) fn poll(&mut self) -> Option<WorkCompletion> {
        let completion = self.completions.pop_front()?;
        if !matches!(completion.kind, CompletionKind::Receive | CompletionKind::ReceiveWriteImm) {
            self.unretired -= self.retire_at.pop_front().expect("a send completion retires something");
        }
        Some(completion)
    }

    /// Empties both queues, as if all posted requests had been executed.
    pub(crate) fn drain(&mut self) {
        self.sends.clear();
        self.receives.clear();
        self.completions.clear();
        self.retire_at.clear();
        self.unretired = 0;
    }

    fn complete(&mut self, completion: WorkCompletion) {
        assert!(self.completions.len() < self.needs.completions as usize, "the completion queue overran");
        self.completions.push_back(completion);
    }
}

impl Post for QueuePair {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        if let Some(error) = self.failing {
            return Err(error);
        }
        assert!(self.unretired < self.needs.send, "the machine posts more than it asked space for");
        self.unretired += 1;
        let none = Sge { addr: 0, len: 0, lkey: Key::new(0) };
        let mut posted = Posted {
            id: request.id,
            operation: request.operation,
            sges: [none; 2],
            sge_count: 0,
            inline: ([0; INLINE], 0),
            signaled: request.flags.signaled,
        };
        match request.payload {
            Payload::Sges(sges) => {
                assert!(sges.len() <= self.needs.sges as usize && sges.iter().all(|sge| sge.len > 0));
                posted.sges[..sges.len()].copy_from_slice(sges);
                posted.sge_count = sges.len();
            }
            Payload::Inline(bytes) => {
                posted.inline.0[..bytes.len()].copy_from_slice(bytes);
                posted.inline.1 = bytes.len();
            }
        }
        self.sends.push_back(posted);
        Ok(())
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        if let Some(error) = self.failing {
            return Err(error);
        }
        assert!(self.receives.len() < self.needs.receive as usize, "the receive queue overran");
        let [sge] = request.sges else { panic!("one element expected") };
        self.receives.push_back((request.id, *sge));
        Ok(())
    }
}

/// The order in which a READ copies the words of its range.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum CopyOrder {
    /// Lines in any order, with the words of each upwards or downwards, as FaRM's readers assume.
    LinesShuffled,
    /// Words in any order.
    WordsShuffled,
}

/// An end of the connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client = 0,
    Server = 1,
}

impl Side {
    fn other(self) -> Side {
        if self == Side::Client { Side::Server } else { Side::Client }
    }
}

/// Both queue pairs and every registered block.
pub(crate) struct Wire {
    pub ends: [QueuePair; 2],
    blocks: Vec<(Side, Registered)>,
    order: CopyOrder,
    random: u64,
    buffer: Vec<u8>,
    words: Vec<usize>,
}

impl Wire {
    pub(crate) fn new(client: QueueNeeds, server: QueueNeeds, order: CopyOrder, seed: u64) -> Wire {
        Wire {
            ends: [QueuePair::new(client), QueuePair::new(server)],
            blocks: Vec::new(),
            order,
            random: seed,
            buffer: Vec::with_capacity(4 << 20),
            words: Vec::with_capacity(1 << 19),
        }
    }

    /// Registers a new block, with its own address and key.
    pub(crate) fn register(&mut self, side: Side, len: usize) -> Registered {
        let block = block(self.blocks.len() as u32 + 1, len);
        self.blocks.push((side, block.clone()));
        block
    }

    pub(crate) fn add(&mut self, side: Side, block: Registered) {
        self.blocks.push((side, block));
    }

    pub(crate) fn blocks_of(&self, side: Side) -> Vec<Registered> {
        self.blocks.iter().filter(|(owner, _)| *owner == side).map(|(_, block)| block.clone()).collect()
    }

    pub(crate) fn end(&mut self, side: Side) -> &mut QueuePair {
        &mut self.ends[side as usize]
    }

    fn at(&self, side: Side, key: Key, addr: u64, len: usize) -> (Bytes, usize) {
        let entry = self.blocks.iter().find(|(owner, block)| *owner == side && block.key == key);
        let (_, block) = entry.expect("the key names a block of this side");
        let offset = addr.checked_sub(block.addr).expect("inside the block") as usize;
        assert!(offset + len <= block.bytes.len(), "the access leaves the block");
        (block.bytes.clone(), offset)
    }

    /// Executes the oldest request of a side's send queue, if there is one. `between` is called between any
    /// two words of a READ.
    pub(crate) fn run(&mut self, side: Side, mut between: impl FnMut()) -> bool {
        let Some(posted) = self.end(side).sends.pop_front() else { return false };
        let (kind, len) = match posted.operation {
            Operation::Read(remote) => (CompletionKind::Read, self.read(side, &posted, remote, &mut between)),
            Operation::Send => {
                let message = self.gather(side, &posted);
                self.receive(side.other(), message, None);
                (CompletionKind::Send, 0)
            }
            Operation::WriteImm(remote, imm) => {
                let message = self.gather(side, &posted);
                let (bytes, offset) = self.at(side.other(), remote.rkey, remote.addr, message.len());
                bytes.write(offset, &message).unwrap();
                self.receive(side.other(), message, Some(imm));
                (CompletionKind::Write, 0)
            }
            other => panic!("no store posts {other:?}"),
        };
        let end = self.end(side);
        if posted.signaled {
            end.complete(completion(posted.id, kind, len, None));
            let done = end.unretired - end.sends.len() as u32 - end.retire_at.iter().sum::<u32>();
            end.retire_at.push_back(done);
        }
        true
    }

    fn gather(&mut self, side: Side, posted: &Posted) -> Vec<u8> {
        let mut message = core::mem::take(&mut self.buffer);
        message.clear();
        message.extend_from_slice(&posted.inline.0[..posted.inline.1]);
        for sge in &posted.sges[..posted.sge_count] {
            let (bytes, offset) = self.at(side, sge.lkey, sge.addr, sge.len as usize);
            let start = message.len();
            message.resize(start + sge.len as usize, 0);
            bytes.read(offset, &mut message[start..]).unwrap();
        }
        message
    }

    fn receive(&mut self, side: Side, message: Vec<u8>, imm: Option<u32>) {
        let (id, sge) = self.end(side).receives.pop_front().expect("a receive request is waiting");
        let kind = if imm.is_some() {
            CompletionKind::ReceiveWriteImm
        } else {
            assert!(message.len() <= sge.len as usize, "the message is longer than its buffer");
            let (bytes, offset) = self.at(side, sge.lkey, sge.addr, message.len());
            bytes.write(offset, &message).unwrap();
            CompletionKind::Receive
        };
        let len = message.len() as u32;
        self.buffer = message;
        self.end(side).complete(completion(id, kind, len, imm));
    }

    fn read(&mut self, side: Side, posted: &Posted, remote: Remote, between: &mut impl FnMut()) -> u32 {
        let len = posted.sges[0].len as usize;
        let (source, source_offset) = self.at(side.other(), remote.rkey, remote.addr, len);
        let (target, target_offset) = self.at(side, posted.sges[0].lkey, posted.sges[0].addr, len);
        assert_eq!(source_offset % 64, 0, "everything that is read begins on a line");
        self.plan(len);
        for index in 0..self.words.len() {
            let offset = self.words[index];
            let mut word = [0; 8];
            let word = &mut word[..(len - offset).min(8)];
            source.read(source_offset + offset, word).unwrap();
            target.write(target_offset + offset, word).unwrap();
            between();
        }
        len as u32
    }

    /// Orders the offsets of a READ's words as they are copied.
    fn plan(&mut self, len: usize) {
        let mut words = core::mem::take(&mut self.words);
        words.clear();
        words.extend((0..len).step_by(8));
        match self.order {
            CopyOrder::WordsShuffled => self.shuffle(&mut words),
            CopyOrder::LinesShuffled => {
                for line in words.chunks_mut(8) {
                    if self.below(2) == 0 {
                        line.reverse();
                    }
                }
                let lines = words.len() / 8;
                for line in (1..lines).rev() {
                    let other = self.below(line + 1);
                    (0..8).for_each(|word| words.swap(line * 8 + word, other * 8 + word));
                }
            }
        }
        self.words = words;
    }

    fn shuffle(&mut self, items: &mut [usize]) {
        for index in (1..items.len()).rev() {
            let other = self.below(index + 1);
            items.swap(index, other);
        }
    }

    /// Returns a random number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        below(&mut self.random, n)
    }
}

/// Returns a random number below `n` (SplitMix64).
pub(crate) fn below(state: &mut u64, n: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((u128::from(mixed ^ mixed >> 31) * n as u128) >> 64) as usize
}

/// Returns block `number`, whose address and key follow from the number.
pub(crate) fn block(number: u32, len: usize) -> Registered {
    let addr = u64::from(number) << 40;
    Registered { bytes: Bytes::heap(len).unwrap(), addr, key: Key::new(0x5000 + number) }
}

fn completion(id: u64, kind: CompletionKind, byte_len: u32, imm: Option<u32>) -> WorkCompletion {
    WorkCompletion {
        id,
        status: Status::Success,
        kind,
        byte_len,
        imm,
        invalidated: None,
        qp_num: 7,
        src_qp: 0,
        grh: None,
        outcome: prism::Verdict::Done,
    }
}
