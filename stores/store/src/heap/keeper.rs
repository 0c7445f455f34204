//! The server's part: posts returned buffers, and finds those that dead clients have left.

use remora_nic::{CompletionKind, Flags, Operation, Payload, ReceiveRequest, WorkCompletion, WorkRequest};
use remora_transport::Status;

use super::class::Classes;
use super::message::{GRACE, LONGEST, emit_grace, parse_returned};
use super::sweep::{Stage, Sweep};
use super::{Lists, Reachable};
use crate::{Broken, Post, QueueNeeds, Registered};

/// A client of a keeper: an index below the number that it was made for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Peer(u32);

impl Peer {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How large a keeper is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct KeeperConfig {
    /// Clients at a time.
    pub peers: u32,
}

/// Receive buffers of a client. It has one message under way at a time; the second covers the time in which
/// the first is read.
const RECEIVES: u32 = 2;
/// Bytes of a client's buffers: those, and a message to it.
const STRIDE: usize = RECEIVES as usize * LONGEST + GRACE;
/// Id of a message to a client. Lower ones are receive buffers.
const NOTIFY: u64 = RECEIVES as u64;

impl KeeperConfig {
    /// Bytes of memory that it needs; only the server's own NIC touches it.
    pub fn local_len(&self) -> usize {
        self.peers as usize * STRIDE
    }

    /// What each client's queue pair must hold.
    pub fn needs(&self) -> QueueNeeds {
        QueueNeeds { send: 2, receive: RECEIVES, sges: 1, completions: RECEIVES + 2 }
    }
}

/// What a keeper has done.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct KeeperCounters {
    /// Buffers that clients returned.
    pub returned: u64,
    /// Addresses that are no buffers.
    pub strangers: u64,
    /// Sweeps that have come to their end.
    pub sweeps: u64,
    /// Buffers that they found.
    pub swept: u64,
}

/// The state of a client.
#[derive(Copy, Clone, Debug)]
struct Client {
    /// The grace number when it joined; its own numbers count from there.
    joined: u64,
    /// The grace number that was sent to it, and the one that it has reached.
    announced: u64,
    answered: u64,
}

/// Posts buffers that come back. It is pure: the owner of the queue pairs drives it.
#[derive(Debug)]
pub struct Keeper {
    classes: Classes,
    local: Registered,
    clients: Vec<Option<Client>>,
    sweep: Sweep,
    /// The number of the latest period of grace.
    grace: u64,
    /// A client has died since the sweep began.
    restart: bool,
    counters: KeeperCounters,
}

impl Keeper {
    /// A keeper of these classes, with a block of [`KeeperConfig::local_len`] bytes; None if it is smaller.
    pub fn new(config: KeeperConfig, classes: Classes, local: Registered) -> Option<Keeper> {
        (local.bytes.len() >= config.local_len()).then(|| Keeper {
            sweep: Sweep::new(&classes),
            classes,
            local,
            clients: vec![None; config.peers as usize],
            grace: 0,
            restart: false,
            counters: KeeperCounters::default(),
        })
    }

    /// The size classes.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Counts of the keeper's work so far.
    pub fn counters(&self) -> KeeperCounters {
        self.counters
    }

    /// Posts all buffers, except those that `keep` says are in use. At set-up, and after a restart with
    /// memory.
    ///
    /// # Errors
    /// A list takes no more.
    pub fn post_all(
        &self,
        lists: &mut impl Lists,
        mut keep: impl FnMut(u64) -> bool,
    ) -> Result<(), remora_nic::PostError> {
        for class in self.classes.all() {
            for address in (0..class.count).map(|index| class.address(index)) {
                if !keep(address) {
                    lists.post_buffer(class, address)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a client on, and posts the receive requests on its queue pair. Returns None if it serves its
    /// maximum of clients, or if the queue takes no request.
    pub fn accept(&mut self, nic: &mut impl Post) -> Option<Peer> {
        let peer = Peer(self.clients.iter().position(Option::is_none)? as u32);
        (0..RECEIVES).try_for_each(|buffer| self.listen(peer, buffer, nic)).ok()?;
        self.clients[peer.index()] =
            Some(Client { joined: self.grace, announced: self.grace, answered: self.grace });
        Some(peer)
    }

    fn listen(&self, peer: Peer, buffer: u32, nic: &mut impl Post) -> Result<(), Broken> {
        let sge = self.local.sge(receive_at(peer, buffer), LONGEST);
        Ok(nic.post_receive(&ReceiveRequest { id: buffer.into(), sges: &[sge] })?)
    }

    /// A client and its queue pair no longer exist: a sweep looks for its buffers.
    ///
    /// A sweep that is under way starts over. The NIC has given back what the queue pair was taking, and
    /// another client may have that by now.
    pub fn disconnect(&mut self, peer: Peer) {
        if self.clients.get_mut(peer.index()).and_then(Option::take).is_some() {
            self.sweep.stage = Stage::Out { class: 0 };
        }
    }

    /// Starts a sweep for buffers that no client holds. Also useful when all are out.
    pub fn sweep(&mut self) {
        match self.sweep.stage {
            Stage::Idle => self.sweep.stage = Stage::Out { class: 0 },
            _ => self.restart = true,
        }
    }

    /// The stage of the sweep.
    pub fn stage(&self) -> Stage {
        self.sweep.stage
    }

    /// Has this client not answered, while all wait for it?
    pub fn is_late(&self, peer: Peer) -> bool {
        let waits = matches!(self.sweep.stage, Stage::Grace { .. });
        let client = self.clients.get(peer.index()).copied().flatten();
        waits && client.is_some_and(|client| client.answered != self.grace)
    }

    /// The clients that have not answered, while all wait for them.
    pub fn late(&self) -> impl Iterator<Item = Peer> + '_ {
        self.peers().filter(|peer| self.is_late(*peer))
    }

    /// Are there as many clients as it was made for?
    pub fn is_full(&self) -> bool {
        self.clients.iter().all(Option::is_some)
    }

    /// Takes a completion of a client's queue pair. Those of a disconnected client are ignored.
    ///
    /// # Errors
    /// The queue pair has failed or the client misbehaves: end it, then [`disconnect`](Keeper::disconnect).
    pub fn handle(
        &mut self,
        peer: Peer,
        completion: &WorkCompletion,
        nic: &mut impl Post,
        lists: &mut impl Lists,
    ) -> Result<(), Broken> {
        let Some(Some(client)) = self.clients.get(peer.index()) else { return Ok(()) };
        let Client { joined, announced, answered: before } = *client;
        if completion.status != Status::Success {
            return Err(Broken::Completion(completion.status));
        }
        if completion.id == NOTIFY {
            return Ok(());
        }
        let len = completion.byte_len as usize;
        if completion.kind != CompletionKind::Receive || completion.id > NOTIFY || len > LONGEST {
            return Err(Broken::Protocol);
        }
        let buffer = completion.id as u32;
        let mut bytes = [0; LONGEST];
        self.local.read(receive_at(peer, buffer), &mut bytes[..len]);
        self.listen(peer, buffer, nic)?;
        let (answered, addresses) = parse_returned(&bytes[..len]).ok_or(Broken::Protocol)?;
        let answered = answered.saturating_add(joined);
        addresses.for_each(|address| self.came_back(address, lists));
        if answered != before && answered != announced {
            return Err(Broken::Protocol);
        }
        if let Some(Some(client)) = self.clients.get_mut(peer.index()) {
            client.answered = answered;
        }
        Ok(())
    }

    fn came_back(&mut self, address: u64, lists: &mut impl Lists) {
        let Some((class, index)) = self.classes.find(address) else {
            self.counters.strangers += 1;
            return;
        };
        self.sweep.came_back(class, index);
        // A list has space for a post of each buffer: if it is full, these are posted already.
        if lists.post_buffer(&self.classes.all()[class], address).is_ok() {
            self.counters.returned += 1;
        } else {
            self.counters.strangers += 1;
        }
    }

    /// Does a step of the sweep, if there is one. Returns true if it can do more at once. Call it whenever
    /// there is time.
    pub fn work(&mut self, table: &impl Reachable, lists: &mut impl Lists) -> bool {
        if matches!(self.sweep.stage, Stage::Grace { .. }) {
            if self.clients.iter().flatten().any(|client| client.answered != self.grace) {
                return false;
            }
            self.sweep.answered();
        }
        let before = self.sweep.stage;
        if self.sweep.step(&self.classes, table, lists) {
            self.grace += 1;
        }
        if before != Stage::Idle && self.sweep.stage == Stage::Idle {
            self.counters.sweeps += 1;
            self.counters.swept = self.sweep.posted;
            if std::mem::take(&mut self.restart) {
                self.sweep();
            }
        }
        self.sweep.stage != Stage::Idle
    }

    /// Sends a client the number of the grace period, unless it knows it or has not answered to the one
    /// before.
    ///
    /// # Errors
    /// The queue did not take the message.
    pub fn notify(&mut self, peer: Peer, nic: &mut impl Post) -> Result<(), Broken> {
        let Some(Some(client)) = self.clients.get_mut(peer.index()) else { return Ok(()) };
        if client.announced == self.grace || client.answered != client.announced {
            return Ok(());
        }
        let at = peer.index() * STRIDE + RECEIVES as usize * LONGEST;
        self.local.write(at, &emit_grace(self.grace - client.joined));
        nic.post_send(&WorkRequest {
            id: NOTIFY,
            operation: Operation::Send,
            payload: Payload::Sges(&[self.local.sge(at, GRACE)]),
            flags: Flags { signaled: true, ..Flags::default() },
        })?;
        client.announced = self.grace;
        Ok(())
    }

    /// Clients at the moment.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.clients.iter().enumerate().filter(|(_, client)| client.is_some()).map(|(at, _)| Peer(at as u32))
    }
}

/// Where a receive buffer lies.
fn receive_at(peer: Peer, buffer: u32) -> usize {
    peer.index() * STRIDE + buffer as usize * LONGEST
}
