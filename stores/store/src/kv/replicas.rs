//! One client of several servers that hold the same table: a GET goes to one of them, a PUT or DELETE to
//! all.
//!
//! Each server has a [`Client`] whose reads complete in any order, each with its own status (1RMA). A GET
//! that fails at a server starts over at another server at once. The failed server gets no further GETs
//! until the owner [resumes](Replicas::resume) it. A server whose connection is gone is
//! [detached](Replicas::detach). A server that missed a PUT of this client, or that returns with another
//! table, gets only PUTs and DELETEs.
//!
//! A request's id contains the server's number in its top byte.

use super::client_config::ClientConfig;
use super::cursor::Cursor;
use super::lookup::Lookup;
use super::session::Grant;
use super::{Broken, Client, Finished, Operation, Outcome, Refused, Slot};
use crate::PostPrism;
use crate::send_queue::CommandSlots;
use remora_nic::{PostError, ReceiveRequest, WorkCompletion, WorkRequest, prism};
use remora_transport::Status;
use std::collections::VecDeque;

/// Number of bits of an id below the server's number.
const SHIFT: u32 = 56;
/// The failure of an operation while no server is connected.
const GONE: Broken = Broken::Completion(Status::RetryExceeded);

/// A NIC that adds the server's number to the ids of the requests of one client.
struct Routed<'a, N> {
    nic: &'a mut N,
    server: usize,
}

impl<N> Routed<'_, N> {
    fn id(&self, id: u64) -> u64 {
        id | (self.server as u64) << SHIFT
    }
}

impl<N: PostPrism> crate::Post for Routed<'_, N> {
    #[inline]
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let id = self.id(request.id);
        self.nic.post_send(&WorkRequest { id, ..*request })
    }

    #[inline]
    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let id = self.id(request.id);
        self.nic.post_receive(&ReceiveRequest { id, ..*request })
    }
}

impl<N: PostPrism> PostPrism for Routed<'_, N> {
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.nic.post_prism(request)
    }
}

/// A server of the replicated table.
struct Replica<L: Lookup> {
    /// The client; `None` while the server is not connected.
    client: Option<Client<L, CommandSlots>>,
    /// The server's grant; `None` until it was connected once.
    table: Option<Grant>,
    /// The failure because of which the server gets no GETs.
    failed: Option<Status>,
    /// True if the server's table may lack what this client stored.
    stale: bool,
    /// True if the server's client has failed and must be detached.
    broken: bool,
    /// The operation that uses each slot of the server's client.
    slots: Vec<u16>,
}

impl<L: Lookup> Replica<L> {
    fn is_readable(&self) -> bool {
        self.client.is_some() && self.failed.is_none() && !self.stale && !self.broken
    }
}

/// An operation in flight.
#[derive(Copy, Clone, Debug)]
struct Pending {
    operation: Operation,
    key_len: u32,
    /// Bitmap of the servers that have not answered. 0 for a GET that waits for a server.
    parts: u64,
    /// The combined answers of the servers so far.
    outcome: Option<Outcome<'static>>,
    round_trips: u32,
    tries: u32,
}

const IDLE: Pending =
    Pending { operation: Operation::Get, key_len: 0, parts: 0, outcome: None, round_trips: 0, tries: 0 };

/// A client of servers that hold the same table. It does no input or output itself: its owner has the NIC
/// and the connections.
pub struct Replicas<L: Lookup> {
    config: ClientConfig,
    replicas: Vec<Replica<L>>,
    operations: Vec<Pending>,
    /// The keys of the operations in flight, `max_key` bytes per slot.
    keys: Vec<u8>,
    idle: Vec<u16>,
    /// GETs that wait for a readable server.
    waiting: VecDeque<u16>,
    /// Operations that ended because a connection was lost.
    ended: VecDeque<u16>,
}

impl<L: Lookup> Replicas<L> {
    /// Maximum number of servers.
    pub const MOST: usize = 16;

    /// Returns a client of `servers` servers (1 to [`MOST`](Replicas::MOST)), none of which is connected.
    pub fn new(config: ClientConfig, servers: usize) -> Replicas<L> {
        let window = config.window as usize;
        let replica = |_| Replica {
            client: None,
            table: None,
            failed: None,
            stale: false,
            broken: false,
            slots: vec![0; window],
        };
        Replicas {
            config,
            replicas: (0..servers.min(Self::MOST)).map(replica).collect(),
            operations: vec![IDLE; window],
            keys: vec![0; window * config.max_key as usize],
            idle: (0..config.window as u16).rev().collect(),
            waiting: VecDeque::with_capacity(window),
            ended: VecDeque::with_capacity(window),
        }
    }

    /// Adds a connection to a server that sent this grant. `client` is a client of that server with the same
    /// configuration.
    ///
    /// # Errors
    /// The queue takes no receive requests.
    pub fn attach(
        &mut self,
        server: usize,
        grant: &Grant,
        mut client: Client<L, CommandSlots>,
        nic: &mut impl PostPrism,
    ) -> Result<(), Broken> {
        client.start(&mut Routed { nic, server })?;
        let replica = &mut self.replicas[server];
        // Another table at the same address lacks what this client stored before.
        replica.stale |= replica.table.is_some_and(|known| known.hash_seed != grant.hash_seed);
        replica.table = Some(*grant);
        (replica.failed, replica.broken, replica.client) = (None, false, Some(client));
        Ok(())
    }

    /// Removes the connection to a server. Its GETs start over at another server; whether its PUTs and
    /// DELETEs have happened is unknown.
    pub fn detach(&mut self, server: usize) {
        let replica = &mut self.replicas[server];
        (replica.client, replica.broken) = (None, false);
        for (slot, pending) in self.operations.iter_mut().enumerate() {
            if pending.parts & 1 << server == 0 {
                continue;
            }
            pending.parts &= !(1 << server);
            if pending.operation == Operation::Get {
                self.waiting.push_back(slot as u16);
                continue;
            }
            replica.stale |= pending.operation != Operation::List;
            if pending.parts == 0 {
                pending.outcome.get_or_insert(Outcome::Failed(GONE));
                self.ended.push_back(slot as u16);
            }
        }
    }

    /// Allows GETs at a server after a failure.
    pub fn resume(&mut self, server: usize) {
        self.replicas[server].failed = None;
    }

    /// Returns true if the server is connected.
    pub fn is_connected(&self, server: usize) -> bool {
        self.replicas[server].client.is_some()
    }

    /// Returns the failure because of which a server gets no GETs.
    pub fn failed(&self, server: usize) -> Option<Status> {
        self.replicas[server].failed
    }

    /// Returns the servers that get GETs.
    pub fn readable(&self) -> impl Iterator<Item = usize> {
        (0..self.replicas.len()).filter(|server| self.replicas[*server].is_readable())
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.operations.len() - self.idle.len()
    }

    /// Does nothing: [`attach`](Replicas::attach) posts the receive requests of each server.
    ///
    /// # Errors
    /// Never.
    pub fn start(&mut self, _: &mut impl PostPrism) -> Result<(), Broken> {
        Ok(())
    }

    /// Starts reading the value of `key` at the first server that gets GETs. If there is none now, the GET
    /// waits.
    ///
    /// # Errors
    /// See [`Refused`]; nothing was started. `Broken`: no server is connected.
    #[inline]
    pub fn get(&mut self, key: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
        let slot = self.begin(Operation::Get, key)?;
        match self.look(slot, nic) {
            Ok(true) => {}
            Ok(false) => self.waiting.push_back(slot),
            Err(refused) => return self.not_started(slot, refused),
        }
        Ok(Slot(slot))
    }

    /// Starts storing `value` under `key` at all connected servers.
    ///
    /// # Errors
    /// The errors of [`get`](Replicas::get).
    pub fn put(&mut self, key: &[u8], value: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
        self.change(Operation::Put, key, value, nic)
    }

    /// Starts removing `key` at all connected servers.
    ///
    /// # Errors
    /// The errors of [`get`](Replicas::get).
    pub fn delete(&mut self, key: &[u8], nic: &mut impl PostPrism) -> Result<Slot, Refused> {
        self.change(Operation::Delete, key, &[], nic)
    }

    /// Starts listing the keys from `cursor` on at one server.
    ///
    /// # Errors
    /// The errors of [`get`](Replicas::get).
    pub fn list(&mut self, cursor: Cursor, nic: &mut impl PostPrism) -> Result<Slot, Refused> {
        let slot = self.begin(Operation::List, &cursor.encode())?;
        let mut all = self.replicas.iter_mut().enumerate().filter(|(_, it)| !it.stale && !it.broken);
        let client = all.find_map(|(server, replica)| Some((server, replica.client.as_mut()?)));
        let Some((server, client)) = client else { return self.not_started(slot, Refused::Broken(GONE)) };
        match client.list(cursor, &mut Routed { nic, server }) {
            Ok(inner) => self.began(slot, server, inner),
            Err(refused) => return self.not_started(slot, refused),
        }
        Ok(Slot(slot))
    }

    /// Processes a completion, and returns the operation that it ends. Completions of a lost connection are
    /// ignored. Call [`advance`](Replicas::advance) after the last completion.
    ///
    /// # Errors
    /// Never: a server that fails is [detached](Replicas::detach).
    #[inline]
    pub fn complete(
        &mut self,
        completion: &WorkCompletion,
        nic: &mut impl PostPrism,
    ) -> Result<Option<Finished<'_>>, Broken> {
        let server = (completion.id >> SHIFT) as usize;
        let completion = WorkCompletion { id: completion.id & !(u64::MAX << SHIFT), ..*completion };
        let Some(replica) = self.replicas.get_mut(server) else { return Ok(None) };
        let Replica { client: Some(client), slots, failed, broken, .. } = replica else { return Ok(None) };
        let finished = match client.complete(&completion, &mut Routed { nic, server }) {
            Ok(Some(finished)) => finished,
            Ok(None) => return Ok(None),
            Err(_) => {
                *broken = true;
                return Ok(None);
            }
        };
        let slot = slots[finished.slot.index()];
        let pending = &mut self.operations[usize::from(slot)];
        pending.parts &= !(1 << server);
        pending.round_trips += finished.round_trips;
        pending.tries += finished.tries;
        if let (Operation::Get, Outcome::Failed(Broken::Completion(status))) =
            (pending.operation, finished.outcome)
        {
            failed.get_or_insert(status);
            self.waiting.push_back(slot);
            return Ok(None);
        }
        let outcome = match pending.operation {
            Operation::Get | Operation::List => finished.outcome,
            Operation::Put | Operation::Delete => {
                let both = together(pending.outcome, finished.outcome);
                pending.outcome = Some(both);
                if pending.parts != 0 {
                    return Ok(None);
                }
                both
            }
        };
        self.idle.push(slot);
        Ok(Some(ended(slot, pending, outcome)))
    }

    /// Moves the GETs of failed servers to other servers.
    pub fn advance(&mut self, nic: &mut impl PostPrism) {
        for server in 0..self.replicas.len() {
            if self.replicas[server].broken {
                self.detach(server);
            }
        }
        for _ in 0..self.waiting.len() {
            let Some(slot) = self.waiting.pop_front() else { break };
            match self.look(slot, nic) {
                Ok(true) => {}
                Ok(false) => self.waiting.push_back(slot),
                Err(refused) => {
                    let broken = match refused {
                        Refused::Broken(broken) => broken,
                        _ => Broken::Protocol,
                    };
                    self.operations[usize::from(slot)].outcome = Some(Outcome::Failed(broken));
                    self.ended.push_back(slot);
                }
            }
        }
    }

    /// Returns the next operation that ended because a connection was lost, not by a completion.
    pub fn next_ended(&mut self) -> Option<Finished<'static>> {
        let slot = self.ended.pop_front()?;
        let pending = &self.operations[usize::from(slot)];
        self.idle.push(slot);
        Some(ended(slot, pending, pending.outcome.unwrap_or(Outcome::Failed(GONE))))
    }

    #[inline]
    fn begin(&mut self, operation: Operation, key: &[u8]) -> Result<u16, Refused> {
        if key.len() > self.config.max_key as usize {
            return Err(Refused::KeyTooLong);
        }
        let slot = self.idle.pop().ok_or(Refused::WindowFull)?;
        let key_at = usize::from(slot) * self.config.max_key as usize;
        self.keys[key_at..key_at + key.len()].copy_from_slice(key);
        self.operations[usize::from(slot)] = Pending { operation, key_len: key.len() as u32, ..IDLE };
        Ok(slot)
    }

    fn not_started(&mut self, slot: u16, refused: Refused) -> Result<Slot, Refused> {
        self.idle.push(slot);
        Err(refused)
    }

    #[inline]
    fn began(&mut self, slot: u16, server: usize, inner: Slot) {
        self.replicas[server].slots[inner.index()] = slot;
        self.operations[usize::from(slot)].parts |= 1 << server;
    }

    /// Starts a GET at a readable server. Returns false if none is readable but one is connected.
    #[inline]
    fn look(&mut self, slot: u16, nic: &mut impl PostPrism) -> Result<bool, Refused> {
        let key_at = usize::from(slot) * self.config.max_key as usize;
        let key = &self.keys[key_at..key_at + self.operations[usize::from(slot)].key_len as usize];
        let mut started = None;
        for (server, replica) in self.replicas.iter_mut().enumerate() {
            let readable = replica.is_readable();
            let Some(client) = replica.client.as_mut().filter(|_| readable) else { continue };
            match client.get(key, &mut Routed { nic, server }) {
                Ok(inner) => {
                    started = Some((server, inner));
                    break;
                }
                Err(Refused::Broken(_)) => replica.broken = true,
                Err(refused) => return Err(refused),
            }
        }
        if let Some((server, inner)) = started {
            self.began(slot, server, inner);
            return Ok(true);
        }
        let connected = self.replicas.iter().any(|replica| replica.client.is_some() && !replica.broken);
        if connected { Ok(false) } else { Err(Refused::Broken(GONE)) }
    }

    fn change(
        &mut self,
        operation: Operation,
        key: &[u8],
        value: &[u8],
        nic: &mut impl PostPrism,
    ) -> Result<Slot, Refused> {
        let slot = self.begin(operation, key)?;
        let mut why = Refused::Broken(GONE);
        for server in 0..self.replicas.len() {
            let replica = &mut self.replicas[server];
            let Some(client) = replica.client.as_mut().filter(|_| !replica.broken) else { continue };
            let nic = &mut Routed { nic: &mut *nic, server };
            let started = match operation {
                Operation::Delete => client.delete(key, nic),
                _ => client.put(key, value, nic),
            };
            match started {
                Ok(inner) => self.began(slot, server, inner),
                Err(refused) => {
                    replica.broken |= matches!(refused, Refused::Broken(_));
                    why = refused;
                }
            }
        }
        let parts = self.operations[usize::from(slot)].parts;
        if parts == 0 {
            return self.not_started(slot, why);
        }
        for (server, replica) in self.replicas.iter_mut().enumerate() {
            // This server does not get the PUT or DELETE.
            replica.stale |= parts & 1 << server == 0;
        }
        Ok(Slot(slot))
    }
}

/// Combines the answers of two servers to one PUT or DELETE.
fn together(one: Option<Outcome<'static>>, other: Outcome<'_>) -> Outcome<'static> {
    let other = match other {
        // No correct server answers a PUT or DELETE so.
        Outcome::Value(_) | Outcome::TooLong | Outcome::Contended => Outcome::Failed(Broken::Protocol),
        Outcome::Done => Outcome::Done,
        Outcome::Absent => Outcome::Absent,
        Outcome::Refused(refusal) => Outcome::Refused(refusal),
        Outcome::Failed(broken) => Outcome::Failed(broken),
    };
    match (one, other) {
        (Some(Outcome::Refused(refusal)), _) | (_, Outcome::Refused(refusal)) => Outcome::Refused(refusal),
        (Some(Outcome::Done), _) | (_, Outcome::Done) => Outcome::Done,
        (Some(Outcome::Absent), _) => Outcome::Absent,
        (_, other) => other,
    }
}

fn ended<'a>(slot: u16, pending: &Pending, outcome: Outcome<'a>) -> Finished<'a> {
    let Pending { operation, round_trips, tries, .. } = *pending;
    Finished { slot: Slot(slot), operation, outcome, round_trips, tries }
}
