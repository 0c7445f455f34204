//! Tasks of single requests, each measured from the first request to the last byte.

use std::time::Duration;

use anyhow::{Result, ensure};
use remora_verbs::kernel::{Lookup, Object, Predicate, Shape, Slot, Status, Walk, crc64};
use remora_verbs::{AnswerBuffers, KernelAnswer, work};

use super::calls::{Call, Caller};
use super::case::{Task, Way};
use super::place::{
    COUNT_OF_OBJECTS, GET, HASHED, KEYS, LIST, LIST_VALUE, LIST_VALUES, LONGEST, NODE, NODES, OBJECTS, SLOTS,
    STRIDE, WALK, WASM, whole,
};
use crate::testbed::pair::{End, Peer};

/// Offset in local memory at which results arrive. The memory before it holds the data to write.
const RESULT: usize = 48 << 20;
/// Time after which an operation counts as hung.
const LONG: Duration = Duration::from_secs(30);

/// A client connected to its peer, whose kernels are deployed.
pub(crate) struct Client {
    pub end: End,
    pub answers: AnswerBuffers,
    caller: Caller,
    random: u64,
    value: [u8; LONGEST],
}

impl Client {
    /// Creates a client that is also connected over TCP.
    pub(crate) fn new(end: End, peer: &Peer) -> Result<Client> {
        let answers = end.domain.create_answers(8, LONGEST as u32)?;
        let caller = Caller::connect(peer.addresses.tcp)?;
        Ok(Client { end, answers, caller, random: 1, value: [0; LONGEST] })
    }

    /// Returns whether the data that a kernel checks for this task fits into one packet.
    pub(crate) fn fits(&self, task: Task) -> bool {
        !matches!(task, Task::Check(len, _) if len > self.end.packet())
    }

    /// Returns a pseudo-random number below `bound`; the sequence is the same in each run.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % bound
    }

    /// Returns the address of an offset in the peer's memory.
    pub(crate) fn there(&self, offset: u64) -> u64 {
        self.end.remote.at(offset).addr
    }

    /// Writes the data of the task into the peer's memory.
    pub(crate) fn lay_out(&mut self, task: Task) -> Result<()> {
        match task {
            Task::Walk(_) => self.lay_out_list(),
            Task::Get(len) => self.lay_out_table(len),
            Task::Check(len, _) => self.lay_out_objects(len),
            Task::Shuffle | Task::Count => Ok(()),
        }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.end.local.write(RESULT, bytes)?;
        let list = [self.end.local.sge(RESULT, bytes.len())];
        self.end.one(&work::write(0, &list, self.end.remote.at(offset)))
    }

    fn lay_out_list(&mut self) -> Result<()> {
        for number in 0..NODES {
            let next = if number + 1 == NODES { 0 } else { self.there(node(number + 1)) };
            let value = self.there(LIST_VALUES + number * LIST_VALUE as u64);
            self.put(node(number), &[number, next, value].map(u64::to_le_bytes).concat())?;
            self.put(LIST_VALUES + number * LIST_VALUE as u64, &[number as u8; LIST_VALUE])?;
        }
        Ok(())
    }

    fn lay_out_table(&mut self, len: usize) -> Result<()> {
        let mut slots = Vec::new();
        for key in 0..KEYS {
            let mut slot = Slot::default();
            let bucket = key as usize % 3;
            slot.keys[bucket] = key;
            (slot.values[bucket], slot.lens[bucket]) =
                (self.there(HASHED + key * LONGEST as u64), len as u32);
            slots.extend(slot.emit());
            self.put(HASHED + key * LONGEST as u64, &key.to_le_bytes())?;
        }
        self.put(SLOTS, &slots)
    }

    fn lay_out_objects(&mut self, len: usize) -> Result<()> {
        for number in 0..COUNT_OF_OBJECTS {
            let mut object: Vec<u8> = (0..len).map(|index| (index as u64 * 7 + number) as u8).collect();
            object.extend(crc64(&object).to_le_bytes());
            self.put(OBJECTS + number * STRIDE, &object)?;
        }
        Ok(())
    }

    /// Performs the task once, with random choices of its kind.
    #[inline]
    pub(crate) fn trip(&mut self, task: Task, way: Way) -> Result<()> {
        match task {
            Task::Walk(elements) => self.walk(elements, way),
            Task::Get(len) => self.get(len, way),
            Task::Check(len, failing) => self.check(len, failing, way),
            Task::Shuffle | Task::Count => Ok(()),
        }
    }

    /// Sends a request to a kernel. An answer with an error status is an error.
    pub(crate) fn ask(&mut self, opcode: u64, params: &[u8]) -> Result<KernelAnswer> {
        let tag = self.answers.ask(&mut self.end.qps[0], opcode, params)?;
        self.wait(tag)
    }

    /// Waits for an answer.
    pub(crate) fn wait(&mut self, tag: u32) -> Result<KernelAnswer> {
        let answer = self.answers.wait(&mut self.end.cq, tag, LONG)?;
        ensure!(answer.status == Status::DONE, "a kernel answered: {}", answer.status);
        Ok(answer)
    }

    /// Reads `len` bytes of the peer's memory at `offset`.
    #[inline]
    fn read(&mut self, offset: u64, len: usize) -> Result<()> {
        let list = [self.end.local.sge(RESULT, len)];
        self.end.one(&work::read(0, &list, self.end.remote.at(offset)))
    }

    fn walk(&mut self, elements: u64, way: Way) -> Result<()> {
        let first = NODES - elements;
        let key = NODES - 1 - self.below(elements);
        let walk = Walk {
            address: self.there(node(first)),
            value_size: LIST_VALUE as u32,
            key_mask: 1,
            predicate: Predicate::Equal,
            key,
            value_position: 4,
            relative: false,
            next: Some(2),
            element: NODE as u8,
            most: NODES as u32,
            shape: Shape::List,
        };
        let byte = match way {
            Way::Strom => {
                let answer = self.ask(WALK, &walk.emit())?;
                let mut value = [0; LIST_VALUE];
                self.answers.read(&answer, &mut value)?;
                value[0]
            }
            Way::Tcp => {
                self.caller.call(Call::Walk, &walk.emit(), &mut self.value)?;
                self.value[0]
            }
            _ => {
                let mut next = walk.address;
                loop {
                    ensure!(next != 0, "an existing key was not found");
                    self.read(next - self.end.remote.addr, NODE)?;
                    let [node_key, behind, value] = self.end.local.get::<[u64; 3]>(RESULT)?;
                    if node_key == key {
                        self.read(value - self.end.remote.addr, LIST_VALUE)?;
                        break self.end.local.get::<u8>(RESULT)?;
                    }
                    next = behind;
                }
            }
        };
        ensure!(u64::from(byte) == key, "the wrong value");
        Ok(())
    }

    fn get(&mut self, len: usize, way: Way) -> Result<()> {
        let key = self.below(KEYS);
        let place = SLOTS + key * Slot::LEN as u64;
        let lookup = Lookup { slot: self.there(place), key };
        let (stored_key, came) = match way {
            Way::Strom | Way::Wasm => {
                let opcode = if way == Way::Wasm { WASM } else { GET };
                let answer = self.ask(opcode, &lookup.emit())?;
                let mut value = [0; 8];
                self.answers.read(&answer, &mut value)?;
                (u64::from_le_bytes(value), answer.len as usize)
            }
            Way::Tcp => {
                let came = self.caller.call(Call::Get, &lookup.emit(), &mut self.value)?;
                (self.value.first_chunk().map_or(0, |first| u64::from_le_bytes(*first)), came)
            }
            _ => {
                self.read(place, Slot::LEN)?;
                let slot = Slot::parse(&self.end.local.get::<[u8; Slot::LEN]>(RESULT)?);
                let Some((value, len)) = slot.and_then(|slot| slot.find(key)) else {
                    anyhow::bail!("an existing key was not found")
                };
                self.read(value - self.end.remote.addr, len as usize)?;
                (self.end.local.get::<u64>(RESULT)?, len as usize)
            }
        };
        ensure!((stored_key, came) == (key, len), "the wrong value");
        Ok(())
    }

    fn check(&mut self, len: usize, failing: u32, way: Way) -> Result<()> {
        let place = OBJECTS + self.below(COUNT_OF_OBJECTS) * STRIDE;
        match way {
            Way::Strom => {
                let object = Object { address: self.there(place), len: len as u32, tries: 8 };
                let answer = self.ask(whole(failing), &object.emit())?;
                ensure!(answer.len as usize == len, "the kernel returned only a part of the object");
                Ok(())
            }
            Way::Read => self.read(place, len),
            Way::StromRead => {
                let list = [self.end.local.sge(RESULT, len)];
                self.end.one_by(1, &work::read(0, &list, self.end.remote.at(place)))
            }
            _ => {
                // Like the kernel, this way treats some first reads as torn, and never the repeated one.
                let torn = failing > 0 && self.below(1000) < u64::from(failing);
                for number in 0..=u32::from(torn) {
                    self.read(place, len + 8)?;
                    self.end.local.read(RESULT, &mut self.value[..len])?;
                    let sum = self.end.local.get::<u64>(RESULT + len)?;
                    ensure!(crc64(&self.value[..len]) == sum, "read {number} is torn");
                }
                Ok(())
            }
        }
    }
}

fn node(number: u64) -> u64 {
    LIST + number * 4096
}
