//! Growth of a PRISM-KV table: when a table fills, a new one is added, and every slot of the old table moves
//! there while clients work.
//!
//! The mover has a queue pair to the server itself, so a NIC executes its CASes as it does those of clients.
//! The mover stores nothing about a slot: the slots themselves determine its next step. So it can continue
//! where another mover was stopped, and work concurrently with clients that help.

use super::moves::SwapIds;
use super::slot::{FROZEN, MOVED, SLOT, TableSlot};
use super::table::PrismTable;
use super::tables::Front;
use crate::{Broken, PostPrism, QueueNeeds, Registered};
use remora_nic::WorkCompletion;
use remora_transport::Status;

/// Number of slots that are moved concurrently.
const WINDOW: usize = 32;
/// Number of slots that are examined or prepared in one step.
const STEP: u64 = 512;
/// Slots of the send queue that the move of a slot takes: two CASes of five.
const CHAIN: u32 = 10;
/// Id of requests that bring no completion unless they fail.
const QUIET: u64 = WINDOW as u64;

/// Counters of a mover.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MoverCounters {
    /// Number of tables that the mover added.
    pub tables: u32,
    /// Number of slots that the mover found moved, by itself or by clients that helped.
    pub slots: u64,
    /// Number of objects that the mover froze.
    pub objects: u64,
}

/// The way in which a mover moves an object.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MovePolicy {
    /// The object is frozen before it is moved.
    #[default]
    Proved,
    /// For tests: the object is moved as it was read, even if it has changed since.
    Unfrozen,
}

/// The activity of one place of the window.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Task {
    Idle,
    /// A CAS for this slot is under way.
    Busy(u64),
    /// No table has a free slot for the object of this slot.
    Stuck(u64),
}

/// The slot for a hash in the tables after the one that is moved: bound already, or free to be bound.
enum Target {
    Bound(u64),
    Free(u64),
    Nowhere,
}

/// The mover of a server's tables. It does no input or output itself: the owner of the queue pair passes
/// completions to it.
#[derive(Debug)]
pub struct Mover {
    table: PrismTable,
    arena: Registered,
    care: MovePolicy,
    tasks: Vec<Task>,
    /// Number of slots of the next table that are prepared; `None` if no table is being prepared.
    ready: Option<u64>,
    /// The next slot to move.
    next: u64,
    /// The slot of the newest table that is examined next.
    looked: u64,
    counters: MoverCounters,
}

impl Mover {
    /// Returns a mover of these tables, with a block of [`arena_len`](Mover::arena_len) bytes. Returns
    /// `None` if the block is smaller.
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

    /// Returns the bytes of memory that the mover needs. Only its own NIC accesses them.
    pub fn arena_len() -> usize {
        WINDOW * SLOT
    }

    /// Returns the sizes that the mover's queue pair needs.
    pub fn needs() -> QueueNeeds {
        QueueNeeds { send: WINDOW as u32 * CHAIN, receive: 1, sges: 1, completions: WINDOW as u32 + 1 }
    }

    /// Returns the counters.
    pub fn counters(&self) -> MoverCounters {
        self.counters
    }

    /// Returns the whole state that determines the mover's next step, apart from the slots.
    #[cfg(test)]
    pub(super) fn state(&self) -> String {
        format!("{:?} {:?} {} {}", self.tasks, self.ready, self.next, self.looked)
    }

    /// Returns true if a table is being prepared or moved.
    pub fn is_busy(&self) -> bool {
        let Front { count, base } = self.table.front();
        self.ready.is_some() || base + 1 < count
    }

    /// Performs a part of the work. Returns true if there is more, now or after a CAS has completed. Call it
    /// whenever there is time.
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

    /// Examines some slots of the newest table. When half of its slots are bound, another table is added.
    fn watch(&mut self) {
        let Front { count, .. } = self.table.front();
        if self.ready.is_some() || count == self.table.places().most() {
            return;
        }
        let first = self.table.places().before(count - 1);
        let slots = self.table.places().slots(count - 1);
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

    /// Prepares some slots of the next table, and adds the table when all its slots are ready.
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

    /// Moves slots of the oldest table in use. When all are moved, no client needs to look into that table
    /// any more.
    fn proceed(&mut self, base: u32, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let first = self.table.places().before(base);
        let slots = self.table.places().slots(base);
        for index in 0..WINDOW {
            if let Task::Stuck(entry) = self.tasks[index] {
                self.tasks[index] = Task::Idle;
                self.act(index, entry, nic)?;
            }
            while self.tasks[index] == Task::Idle && self.next < slots {
                self.next += 1;
                self.act(index, first + self.next - 1, nic)?;
            }
        }
        if self.next == slots && self.tasks.iter().all(|task| *task == Task::Idle) {
            let Front { count, .. } = self.table.front();
            self.table.set_front(Front { count, base: base + 1 });
            self.next = 0;
        }
        Ok(())
    }

    /// Processes the completion of a CAS, whatever its result. The slot itself determines the next step.
    ///
    /// # Errors
    /// The queue pair has failed.
    pub fn complete(&mut self, completion: &WorkCompletion, nic: &mut impl PostPrism) -> Result<(), Broken> {
        if completion.status != Status::Success {
            return Err(Broken::Completion(completion.status));
        }
        let index = usize::try_from(completion.id).map_err(|_| Broken::Protocol)?;
        let Some(Task::Busy(entry)) = self.tasks.get(index).copied() else { return Err(Broken::Protocol) };
        self.tasks[index] = Task::Idle;
        self.act(index, entry, nic)
    }

    /// Performs the next step for a slot. If the slot has changed since it was read, the CAS fails.
    fn act(&mut self, index: usize, entry: u64, nic: &mut impl PostPrism) -> Result<(), Broken> {
        let hand = SwapIds { id: index as u64, quiet: QUIET, old: self.arena.sge(index * SLOT, SLOT) };
        let words = self.look(entry);
        let moved = self.table.word(entry, 2) & MOVED != 0;
        let slot = self.table.remote(self.table.places().entry(entry));
        if moved {
            self.counters.slots += 1;
            return Ok(());
        }
        self.tasks[index] = Task::Busy(entry);
        if words.generation & 1 == 0 {
            return hand.give_up(slot, &words, nic);
        }
        let place = |target: u64| self.table.remote(self.table.places().entry(target));
        match self.find(words.hash) {
            Target::Free(target) => hand.reserve(place(target), words.hash, nic),
            Target::Bound(target) if words.generation & FROZEN != 0 || self.care == MovePolicy::Unfrozen => {
                hand.hand_over(slot, &words, place(target), nic)
            }
            Target::Bound(_) => {
                self.counters.objects += 1;
                hand.freeze(slot, words.generation, nic)
            }
            Target::Nowhere => {
                self.tasks[index] = Task::Stuck(entry);
                Ok(())
            }
        }
    }

    /// Returns the words of a slot; for a frozen slot, the words at the time it was frozen.
    ///
    /// A NIC stores the words of a slot from the first to the last, so the last must be loaded first. A
    /// reader that sees the hash also sees the generation that came with it, or a later one.
    fn look(&self, entry: u64) -> TableSlot {
        let word = |index| self.table.word(entry, index);
        match word(3) {
            0 => TableSlot::bare(self.table.places().entry(entry), 0, 0),
            hash => {
                let generation = word(2);
                TableSlot { generation, hash, pointer: word(0), bound: word(1) }
            }
        }
    }

    /// Returns the slot that is bound to a hash in the tables after the one that is moved, or one that can
    /// be bound to it. One of the two exists, unless all runs are full.
    fn find(&self, hash: u64) -> Target {
        let Front { count, base } = self.table.front();
        for table in base + 1..count {
            let places = self.table.places();
            let first = places.before(table);
            let slots = places.slots(table);
            let home = places.home(table, hash);
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
