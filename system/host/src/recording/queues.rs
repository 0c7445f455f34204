//! The queues of a NIC, which its recorder and a replay follow in the same way.

use remora_nic::wqe::SLOT;
use remora_nic::{Command, PartNumber, Receives, Reply, Ring, Word};

/// The queue that a ring serves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// None yet: no command has taken the ring.
    Waiting,
    /// A completion queue, by its number.
    Completion(u32),
    /// The send queue of a queue pair, by its number.
    Send(u32),
    /// The receive queue of a queue pair, by its number.
    Receive(u32),
    /// A shared receive queue, by its number.
    Shared(u32),
}

/// A ring of the NIC.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The number of the ring in the order of hand-over.
    pub id: u32,
    pub role: Role,
    /// The ring that the NIC uses.
    pub ring: Ring,
    /// The ring that the program uses; `None` in a replay.
    pub program: Option<Ring>,
    number: PartNumber,
    /// Number of completions that were taken from a completion queue.
    taken: u64,
}

/// The rings of a NIC, in the order of hand-over.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    all: Vec<Queue>,
    next: u32,
}

/// Completions that the NIC has written since the last look.
#[derive(Debug)]
pub(crate) struct Fresh {
    /// Number of the completion queue.
    pub cq: u32,
    /// Index of the first completion.
    pub first: u64,
    /// Bytes of the completions.
    pub slots: Vec<u8>,
}

impl Queues {
    /// Adds a ring that was handed to the NIC as `number`.
    pub(crate) fn add(&mut self, number: PartNumber, ring: Ring, program: Option<Ring>) {
        let id = self.next;
        self.next += 1;
        self.all.push(Queue { id, role: Role::Waiting, ring, program, number, taken: 0 });
    }

    /// Returns the ring with this number.
    pub(crate) fn get(&self, id: u32) -> Option<&Queue> {
        let place = self.all.binary_search_by_key(&id, |queue| queue.id).ok()?;
        self.all.get(place)
    }

    /// Returns all rings.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.all.iter()
    }

    /// Returns the ring that waits under this number of a part.
    pub(crate) fn waiting(&self, number: PartNumber) -> Option<&Queue> {
        self.all.iter().find(|queue| queue.role == Role::Waiting && queue.number == number)
    }

    /// Follows a command that was executed: rings that it took get a role, rings of what it destroyed go.
    pub(crate) fn follow(&mut self, command: &Command, reply: Option<&Reply>) {
        let created = match reply {
            Some(Reply::Number(number)) => *number as u32,
            _ => 0,
        };
        match command {
            Command::CreateCq { ring, .. } => self.assign(*ring, reply, Role::Completion(created)),
            Command::ResizeCq { cq, ring } => self.replace(*ring, reply, Role::Completion(*cq)),
            Command::CreateQp(init) | Command::CreateGsiQp(init) => {
                self.assign(init.send_ring, reply, Role::Send(created));
                if let Receives::Own { ring, .. } = init.receives {
                    self.assign(ring, reply, Role::Receive(created));
                }
            }
            Command::CreateSrq(init) => self.assign(init.ring, reply, Role::Shared(created)),
            Command::ResizeSrq { srq, ring } => self.replace(*ring, reply, Role::Shared(srq.get())),
            Command::DestroyCq { cq } => self.remove(reply, &[Role::Completion(*cq)]),
            Command::DestroyQp(qp) => {
                self.remove(reply, &[Role::Send(qp.get()), Role::Receive(qp.get())]);
            }
            Command::DestroySrq(srq) => self.remove(reply, &[Role::Shared(srq.get())]),
            other => other.names(|name| {
                if let remora_nic::ObjectName::Part(number) = name {
                    self.assign(number, None, Role::Waiting);
                }
            }),
        }
    }

    /// Gives the role to the ring that waits under this number, or removes the ring after a refusal.
    fn assign(&mut self, number: PartNumber, reply: Option<&Reply>, role: Role) {
        let is_it = |queue: &Queue| queue.role == Role::Waiting && queue.number == number;
        match reply {
            Some(_) => {
                if let Some(queue) = self.all.iter_mut().find(|queue| is_it(queue)) {
                    queue.role = role;
                }
            }
            None => self.all.retain(|queue| !is_it(queue)),
        }
    }

    /// Gives the role of another ring to the ring that waits under this number.
    fn replace(&mut self, number: PartNumber, reply: Option<&Reply>, role: Role) {
        self.remove(reply, &[role]);
        self.assign(number, reply, role);
        if let Some(queue) = self.all.iter_mut().find(|queue| queue.role == role) {
            // The NIC has moved the completions that are not polled, which were taken before.
            queue.taken = queue.ring.word(Word::Consumed);
            while queue.ring.published(queue.taken) == queue.taken + 1 {
                queue.taken += 1;
            }
        }
    }

    fn remove(&mut self, reply: Option<&Reply>, roles: &[Role]) {
        if reply.is_some() {
            self.all.retain(|queue| !roles.contains(&queue.role));
        }
    }

    /// Returns the completions that the NIC has written since the last call, and passes each to `each` with
    /// its queue and index.
    pub(crate) fn fresh(&mut self, mut each: impl FnMut(&Queue, u64, &[u8; SLOT])) -> Vec<Fresh> {
        let mut all = Vec::new();
        for queue in &mut self.all {
            let Role::Completion(cq) = queue.role else { continue };
            // A queue that may overrun has lost completions if it was written more than once around.
            queue.taken = queue.taken.max(queue.ring.published(queue.taken).saturating_sub(1));
            let mut fresh = Fresh { cq, first: queue.taken, slots: Vec::new() };
            let most = queue.taken + queue.ring.slots();
            while queue.taken < most && queue.ring.published(queue.taken) == queue.taken + 1 {
                let mut slot = [0; SLOT];
                queue.ring.load(queue.taken, &mut slot);
                each(queue, queue.taken, &slot);
                fresh.slots.extend_from_slice(&slot);
                queue.taken += 1;
            }
            if !fresh.slots.is_empty() {
                all.push(fresh);
            }
        }
        all
    }
}
