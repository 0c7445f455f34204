//! Growth: a new table is added beside one that fills, and every slot of the old one moves there, while
//! clients work.
//!
//! The mover has a queue pair of the server to itself. So its swaps are executed by a NIC, as the clients'
//! are. It stores nothing about a slot: the slots themselves determine its next step. So it can continue
//! where another mover was stopped, and beside clients that help.

use super::moves::SwapIds;
use super::slot::{FROZEN, MOVED, SLOT, TableSlot};
use super::table::PrismTable;
use super::tables::Front;
use crate::{Broken, PostPrism, QueueNeeds, Registered};
use remora_nic::WorkCompletion;
use remora_transport::Status;

/// Slots that are moved at a time.
const WINDOW: usize = 32;
/// Slots that are looked at, or made ready, in one step.
const STEP: u64 = 512;
/// Slots of the send queue that a slot on its way takes: two swaps of five.
const CHAIN: u32 = 10;
/// What brings no completion unless it fails.
const QUIET: u64 = WINDOW as u64;

/// What a mover has done.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MoverCounters {
    /// Tables that it has added.
    pub tables: u32,
    /// Slots that it found given up, by itself or by clients that helped.
    pub slots: u64,
    /// Objects that it has frozen.
    pub objects: u64,
}

/// How a mover treats an object.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MovePolicy {
    /// It is frozen before it is moved.
    #[default]
    Proved,
    /// For tests: it is moved as it was seen, even if it changed since.
    Unfrozen,
}

/// What one place of the window does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Task {
    Idle,
    /// A swap for this slot is under way.
    Busy(u64),
    /// There is no slot for its object in any table.
    Stuck(u64),
}

/// The slot of a hash, or the one that it may get, in the tables behind the one that is moved.
enum Target {
    Bound(u64),
    Free(u64),
    Nowhere,
}

/// Makes the tables grow. It is pure: the owner of the queue pair drives it.
#[derive(Debug)]
pub struct Mover {
    table: PrismTable,
    arena: Registered,
    care: MovePolicy,
    tasks: Vec<Task>,
    /// Slots of the table to come that are ready.
    ready: Option<u64>,
    /// The next slot of the table that is moved.
    next: u64,
    /// Where the newest table is looked at next.
    looked: u64,
    counters: MoverCounters,
}

impl Mover {
    /// Of these tables, with a block of [`arena_len`](Mover::arena_len) bytes; None if it is smaller.
    pub fn new(table: PrismTable, arena: Registered, care: MovePolicy) -> Option<Mover> {
        (arena.bytes.len() >= Mover::arena_len()).then(|| Mover {
            table,
            arena,
            care,
            tasks: vec![Task::Idle; WINDOW],
            ready: None,
            next: 0,
            looked: 0,
            counters: MoverCounters::default(),
        })
    }

    /// Bytes of memory that it needs; only its own NIC touches it.
    pub fn arena_len() -> usize {
        WINDOW * SLOT
    }

    /// What its queue pair must hold.
    pub fn needs() -> QueueNeeds {
        QueueNeeds { send: WINDOW as u32 * CHAIN, receive: 1, sges: 1, completions: WINDOW as u32 + 1 }
    }

    /// Counts of the mover's work so far.
    pub fn counters(&self) -> MoverCounters {
        self.counters
    }

    /// All state that determines its next step, apart from the slots.
    #[cfg(test)]
    pub(super) fn state(&self) -> String {
        format!("{:?} {:?} {} {}", self.tasks, self.ready, self.next, self.looked)
    }

    /// Is a table being made or moved?
    pub fn is_busy(&self) -> bool {
        let Front { count, base } = self.table.front();
        self.ready.is_some() || base + 1 < count
    }

    /// Does a part of the work. Returns true if there is more, now or when a swap has ended. Call it whenever
    /// there is time.
    ///
    /// # Errors
    /// The queue pair has failed.
    pub fn work(&mut self, nic: &mut impl PostPrism) -> Result<bool, Broken> {
        self.watch();
        self.make_ready();
        let Front { count, base } = self.table.front();
        if base + 1 < count {
            self.proceed(base, nic)?;
        }
        Ok(self.is_busy() && !self.is_stuck())
    }

    fn is_stuck(&self) -> bool {
        self.ready.is_none()
            && self.tasks.iter().all(|task| !matches!(task, Task::Busy(_)))
            && self.tasks.iter().any(|task| matches!(task, Task::Stuck(_)))
    }

    /// Looks at some slots of the newest table. When half of them are bound, another table is added.
    fn watch(&mut self) {
        let Front { count, .. } = self.table.front();
        if self.ready.is_some() || count == self.table.places().most() {
            return;
        }
        let (first, slots) = (self.table.places().before(count - 1), self.table.places().slots(count - 1));
        let looks = STEP.min(slots);
        let bound = (self.looked..self.looked + looks).filter(|slot| {
            let hash = self.table.word(first + slot % slots, 3);
            hash != 0
        });
        if 2 * bound.count() as u64 >= looks {
            self.ready = Some(0);
        }
        self.looked = (self.looked + looks) % slots;
    }

    /// Prepares some slots of the next table, and adds the table when all are ready.
    fn make_ready(&mut self) {
        let Some(ready) = self.ready else { return };
        let Front { count, base } = self.table.front();
        let slots = self.table.places().slots(count);
        let end = (ready + STEP).min(slots);
        self.table.clear(count, ready..end);
        self.ready = Some(end).filter(|end| *end < slots);
        if end == slots {
            self.looked = 0;
            self.counters.tables += 1;
            self.table.set_front(Front { count: count + 1, base });
        }
    }

    /// Moves slots of the table that is given up. When all are moved, no client needs to look into it any
    /// more.
    fn proceed(&mut self, base: u32, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let (first, slots) = (self.table.places().before(base), self.table.places().slots(base));
        for at in 0..WINDOW {
            if let Task::Stuck(entry) = self.tasks[at] {
                self.tasks[at] = Task::Idle;
                self.act(at, entry, nic)?;
            }
            while self.tasks[at] == Task::Idle && self.next < slots {
                self.next += 1;
                self.act(at, first + self.next - 1, nic)?;
            }
        }
        if self.next == slots && self.tasks.iter().all(|task| *task == Task::Idle) {
            let Front { count, .. } = self.table.front();
            self.table.set_front(Front { count, base: base + 1 });
            self.next = 0;
        }
        Ok(())
    }

    /// A swap has ended, with any result. The slot itself determines the next step.
    ///
    /// # Errors
    /// The queue pair has failed.
    pub fn complete(&mut self, completion: &WorkCompletion, nic: &mut impl PostPrism) -> Result<(), Broken> {
        if completion.status != Status::Success {
            return Err(Broken::Completion(completion.status));
        }
        let at = usize::try_from(completion.id).map_err(|_| Broken::Protocol)?;
        let Some(Task::Busy(entry)) = self.tasks.get(at).copied() else { return Err(Broken::Protocol) };
        self.tasks[at] = Task::Idle;
        self.act(at, entry, nic)
    }

    /// Does the next step for a slot. It may have changed since the look: then the swap fails.
    fn act(&mut self, at: usize, entry: u64, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let hand = SwapIds { id: at as u64, quiet: QUIET, old: self.arena.sge(at * SLOT, SLOT) };
        let words = self.look(entry);
        let moved = self.table.word(entry, 2) & MOVED != 0;
        let slot = self.table.remote(self.table.places().entry(entry));
        if moved {
            self.counters.slots += 1;
            return Ok(());
        }
        self.tasks[at] = Task::Busy(entry);
        if words.generation & 1 == 0 {
            return hand.give_up(slot, &words, nic);
        }
        let place = |to: u64| self.table.remote(self.table.places().entry(to));
        match self.find(words.hash) {
            Target::Free(to) => hand.reserve(place(to), words.hash, nic),
            Target::Bound(to) if words.generation & FROZEN != 0 || self.care == MovePolicy::Unfrozen => {
                hand.hand_over(slot, &words, place(to), nic)
            }
            Target::Bound(_) => {
                self.counters.objects += 1;
                hand.freeze(slot, words.generation, nic)
            }
            Target::Nowhere => {
                self.tasks[at] = Task::Stuck(entry);
                Ok(())
            }
        }
    }

    /// The words of a slot; for a frozen slot, the words at the time it was frozen.
    ///
    /// A NIC stores the words of a slot from the first to the last, so the last must be loaded first. A
    /// reader that sees the hash also sees the generation that came with it, or a later one.
    fn look(&self, entry: u64) -> TableSlot {
        let word = |which| self.table.word(entry, which);
        match word(3) {
            0 => TableSlot::bare(self.table.places().entry(entry), 0, 0),
            hash => {
                let generation = word(2);
                TableSlot { generation, hash, pointer: word(0), bound: word(1) }
            }
        }
    }

    /// The slot that is bound to a hash in the tables behind the one that is moved, or one that can be bound
    /// to it. One of the two exists, unless all runs are full.
    fn find(&self, hash: u64) -> Target {
        let Front { count, base } = self.table.front();
        for table in base + 1..count {
            let places = self.table.places();
            let (first, slots, home) = (places.before(table), places.slots(table), places.home(table, hash));
            let most = u64::from(super::client::MOST_PASSED).min(slots);
            for entry in (home..home + most).map(|slot| first + slot % slots) {
                match self.table.word(entry, 3) {
                    0 => return Target::Free(entry),
                    bound if bound == hash => return Target::Bound(entry),
                    _ => {}
                }
            }
        }
        Target::Nowhere
    }
}
