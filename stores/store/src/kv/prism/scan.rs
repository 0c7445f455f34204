//! A listing of all keys of a PRISM-KV table, by READs of a client.
//!
//! The listing READs the slots of all tables in their order, a batch at a time. Through each slot that has
//! an object it READs the object's header and key. Objects move only into later tables, so a key that is in
//! the table throughout is listed at least once. The READ of a batch is not atomic. A slot that changes in
//! the meantime is read once more through its own pointer, and that result counts.

use remora_nic::prism::{Address, Operation};
use remora_nic::{Flags, Payload, Remote, WorkCompletion, WorkRequest};
use remora_transport::Status;

use super::chain::{Part, SIGNALED, request};
use super::grant::Grant;
use super::object::HEADER;
use super::slot::{BARE, SLOT, TableSlot};
use super::tables::{Front, Tables};
use crate::kv::SessionError;
use crate::words::{u32_at, u64_at};
use crate::{Broken, PostPrism, Registered};

/// Number of slots per batch.
const BATCH: u64 = 128;
/// Bytes of the word in front of the tables.
const FRONT_WORD: usize = 8;
/// Maximum number of READs through slots at the same time.
const WINDOW: usize = Scan::WINDOW as usize;

/// The requests under way.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was requested yet.
    Begin,
    /// The READ of the word in front of the tables.
    Front,
    /// The READ of the slots of a batch.
    Slots,
    /// This many READs through slots.
    Objects(usize),
    /// All keys were listed.
    End,
}

/// A listing on the queue pair of a [`Client`](super::Client). That client must have no operation in flight
/// during the listing, and a window of at least [`Scan::WINDOW`].
#[derive(Debug)]
pub struct Scan {
    table: Remote,
    tables: Tables,
    arena: Registered,
    max_key: u32,
    /// Number of slots in all tables, according to the word in front that was read last.
    entries: u64,
    /// The first slot of the next batch.
    next: u64,
    state: State,
    /// Slots of the batch that have objects and are not read yet, the next ones at the end.
    taken: Vec<u64>,
    landed: Vec<u8>,
}

impl Scan {
    /// Maximum number of READs under way.
    pub const WINDOW: u32 = 8;

    /// Returns the bytes of registered memory that a listing needs for keys of this length. Only the
    /// client's own NIC accesses them.
    pub fn arena_len(max_key: u32) -> usize {
        (BATCH as usize * SLOT).max(WINDOW * stride(max_key))
    }

    /// Returns a listing of the granted table.
    ///
    /// # Errors
    /// The grant is inconsistent, or the arena is too small for the longest key.
    pub fn new(grant: &Grant, arena: Registered) -> Result<Scan, SessionError> {
        let tables = grant.places().ok_or(SessionError::Malformed)?;
        let needed = Scan::arena_len(grant.max_key);
        if arena.bytes.len() < needed {
            return Err(SessionError::ArenaTooSmall { needed });
        }
        Ok(Scan {
            table: grant.table,
            tables,
            arena,
            max_key: grant.max_key,
            entries: 0,
            next: 0,
            state: State::Begin,
            taken: Vec::with_capacity(BATCH as usize),
            landed: vec![0; (BATCH as usize * SLOT).max(stride(grant.max_key))],
        })
    }

    /// Starts the listing. Call it once.
    ///
    /// # Errors
    /// The queue did not take the READ.
    pub fn start(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
        self.ask_front(nic)
    }

    /// Returns true if the completion belongs to a request of a listing. All others belong to the client.
    pub fn takes(completion: &WorkCompletion) -> bool {
        matches!(Part::of(completion.id), Some((Part::Look | Part::Front, _)))
    }

    /// Returns true if all keys were listed.
    pub fn is_done(&self) -> bool {
        self.state == State::End
    }

    /// Processes a completion, and calls `report` with a key that it brings.
    ///
    /// # Errors
    /// The queue pair has failed, or the server's memory contains no table.
    pub fn complete(
        &mut self,
        completion: &WorkCompletion,
        report: &mut dyn FnMut(&[u8]),
        nic: &mut impl PostPrism,
    ) -> Result<(), Broken> {
        if completion.status != Status::Success {
            return Err(Broken::Completion(completion.status));
        }
        let (_, place) = Part::of(completion.id).ok_or(Broken::Protocol)?;
        match self.state {
            State::Begin | State::End => Err(Broken::Protocol),
            State::Front => self.fronted(nic),
            State::Slots => self.slots(nic),
            State::Objects(left) => {
                self.object(place, completion.byte_len as usize, report)?;
                match left {
                    1 => self.objects(nic),
                    _ => {
                        self.state = State::Objects(left - 1);
                        Ok(())
                    }
                }
            }
        }
    }

    fn remote(&self, addr: u64) -> Remote {
        Remote { addr, rkey: self.table.rkey }
    }

    fn ask_front(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
        self.state = State::Front;
        self.read(self.tables.front(), FRONT_WORD, nic)
    }

    /// Processes the word in front of the tables. A new table may hold the objects of the last one.
    fn fronted(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let mut word = [0; FRONT_WORD];
        self.arena.read(0, &mut word);
        let front = Front::parse(u64::from_le_bytes(word), self.tables.most()).ok_or(Broken::Protocol)?;
        let entries = self.tables.before(front.count);
        if entries <= self.entries {
            self.state = State::End;
            return Ok(());
        }
        // No object is left in the tables before the first one in use.
        self.next = self.next.max(self.tables.before(front.base));
        self.entries = entries;
        self.batch(nic)
    }

    fn batch(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
        if self.next >= self.entries {
            return self.ask_front(nic);
        }
        self.state = State::Slots;
        self.read(self.tables.entry(self.next), self.batch_len() as usize * SLOT, nic)
    }

    fn batch_len(&self) -> u64 {
        BATCH.min(self.entries - self.next)
    }

    /// Processes the slots of a batch.
    fn slots(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let count = self.batch_len();
        let landed = &mut self.landed[..count as usize * SLOT];
        self.arena.read(0, landed);
        let (slots, _) = landed.as_chunks::<SLOT>();
        let next = self.next;
        let holds = |slot: &[u8; SLOT]| TableSlot::parse(slot).generation & 1 == 1;
        self.taken.extend((next..).zip(slots).filter(|(_, slot)| holds(slot)).map(|(entry, _)| entry));
        self.next += count;
        self.objects(nic)
    }

    /// READs through the next slots of the batch, or starts the next batch.
    fn objects(&mut self, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let count = self.taken.len().min(WINDOW);
        if count == 0 {
            return self.batch(nic);
        }
        self.state = State::Objects(count);
        let len = HEADER + self.max_key as usize;
        for place in 0..count {
            let Some(entry) = self.taken.pop() else { break };
            let into = [self.arena.sge(place * stride(self.max_key), len)];
            let slot = self.remote(self.tables.entry(entry));
            let read = Operation::Read { from: Address::bounded(slot), len: len as u32, into: &into };
            nic.post_prism(&remora_nic::prism::WorkRequest {
                flags: SIGNALED,
                ..request(Part::Look.id(place as u16), read)
            })?;
        }
        Ok(())
    }

    /// Processes a READ through a slot, which returned an object's header and key, or nothing if the object
    /// was deleted in the meantime.
    fn object(&mut self, place: u16, len: usize, report: &mut dyn FnMut(&[u8])) -> Result<(), Broken> {
        let place = usize::from(place);
        if place >= WINDOW || len > HEADER + self.max_key as usize {
            return Err(Broken::Protocol);
        }
        let landed = &mut self.landed[..len];
        self.arena.read(place * stride(self.max_key), landed);
        if len <= BARE {
            return Ok(());
        }
        let (Some(head), true) = (landed.get(..HEADER), u64_at(landed, 0) & 1 == 1) else {
            return Err(Broken::Protocol);
        };
        let key_len = u32_at(head, 16) as usize;
        report(landed.get(HEADER..HEADER + key_len).ok_or(Broken::Protocol)?);
        Ok(())
    }

    fn read(&self, address: u64, len: usize, nic: &mut impl PostPrism) -> Result<(), Broken> {
        Ok(nic.post_send(&WorkRequest {
            id: Part::Front.id(0),
            operation: remora_nic::Operation::Read(self.remote(address)),
            payload: Payload::Sges(&[self.arena.sge(0, len)]),
            flags: Flags { signaled: true, ..Flags::default() },
        })?)
    }
}

/// Returns the bytes from one place of the window to the next.
fn stride(max_key: u32) -> usize {
    (HEADER + max_key as usize).next_multiple_of(64)
}
