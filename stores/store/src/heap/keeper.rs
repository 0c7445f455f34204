//! The server's part of the heap: posts returned buffers, and finds buffers that dead clients leaked.

use remora_nic::{CompletionKind, Flags, Operation, Payload, ReceiveRequest, WorkCompletion, WorkRequest};
use remora_transport::Status;

use super::class::Classes;
use super::message::{GRACE, LONGEST, emit_grace, parse_returned};
use super::sweep::{Stage, Sweep};
use super::{Lists, Reachable};
use crate::{Broken, Post, QueueNeeds, Registered};

/// A client of a keeper: an index below [`KeeperConfig::peers`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Peer(u32);

impl Peer {
    /// Returns the client's index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The size of a keeper.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct KeeperConfig {
    /// Maximum number of clients at the same time.
    pub peers: u32,
}

/// Receive buffers per client. A client sends one message at a time; the second buffer receives a message
/// while the keeper reads the first.
const RECEIVES: u32 = 2;
/// Bytes of memory per client: the receive buffers, and one message to the client.
const STRIDE: usize = RECEIVES as usize * LONGEST + GRACE;
/// Work request id of a message to a client. Lower ids are receive buffers.
const NOTIFY: u64 = RECEIVES as u64;

impl KeeperConfig {
    /// Returns the bytes of memory that the keeper needs. Only the server's own NIC accesses them.
    pub fn local_len(&self) -> usize {
        self.peers as usize * STRIDE
    }

    /// Returns the sizes that each client's queue pair needs.
    pub fn needs(&self) -> QueueNeeds {
        QueueNeeds { send: 2, receive: RECEIVES, sges: 1, completions: RECEIVES + 2 }
    }
}

/// Counters of a keeper.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct KeeperCounters {
    /// Buffers that clients returned.
    pub returned: u64,
    /// Returned addresses that are no buffer of any class, or whose free list was full.
    pub strangers: u64,
    /// Sweeps that ended.
    pub sweeps: u64,
    /// Leaked buffers that sweeps found.
    pub swept: u64,
}

/// The grace numbers of a client. The client's own numbers count from `joined`.
#[derive(Copy, Clone, Debug)]
struct Client {
    /// The keeper's grace number when the client joined.
    joined: u64,
    /// The grace number that was sent to the client last, and the one that it answered last.
    announced: u64,
    answered: u64,
}

/// The keeper of a server's buffers. It does no input or output itself: the owner of the queue pairs passes
/// completions to it.
#[derive(Debug)]
pub struct Keeper {
    classes: Classes,
    local: Registered,
    clients: Vec<Option<Client>>,
    sweep: Sweep,
    /// The number of the latest period of grace.
    grace: u64,
    /// True if a client died since the sweep began, so that the sweep must start over.
    restart: bool,
    counters: KeeperCounters,
}

impl Keeper {
    /// Returns a keeper of these classes. Returns `None` if `local` has fewer than
    /// [`KeeperConfig::local_len`] bytes.
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

    /// Returns the size classes.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Returns the counters.
    pub fn counters(&self) -> KeeperCounters {
        self.counters
    }

    /// Posts all buffers to the free lists, except the addresses for which `keep` returns true. Call it at
    /// set-up, and after a restart that kept the memory.
    ///
    /// # Errors
    /// A free list is full.
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

    /// Accepts a client, and posts the receive requests on its queue pair. Returns `None` if the keeper
    /// already has its maximum of clients, or if the queue takes no request.
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

    /// Removes a client whose queue pair no longer exists, and starts a sweep for its buffers.
    ///
    /// A sweep that is under way starts over. The NIC has already freed the buffer that the dead queue pair
    /// was allocating, and another client may have taken that buffer since.
    pub fn disconnect(&mut self, peer: Peer) {
        if self.clients.get_mut(peer.index()).and_then(Option::take).is_some() {
            self.sweep.stage = Stage::Out { class: 0 };
        }
    }

    /// Starts a sweep for buffers that no client holds. Also useful when the free lists are empty.
    pub fn sweep(&mut self) {
        match self.sweep.stage {
            Stage::Idle => self.sweep.stage = Stage::Out { class: 0 },
            _ => self.restart = true,
        }
    }

    /// Returns the stage of the sweep.
    pub fn stage(&self) -> Stage {
        self.sweep.stage
    }

    /// Returns true if the sweep waits for clients and this client has not answered.
    pub fn is_late(&self, peer: Peer) -> bool {
        let waits = matches!(self.sweep.stage, Stage::Grace { .. });
        let client = self.clients.get(peer.index()).copied().flatten();
        waits && client.is_some_and(|client| client.answered != self.grace)
    }

    /// Returns the clients for whose answers the sweep waits.
    pub fn late(&self) -> impl Iterator<Item = Peer> + '_ {
        self.peers().filter(|peer| self.is_late(*peer))
    }

    /// Returns true if the keeper has its maximum of clients.
    pub fn is_full(&self) -> bool {
        self.clients.iter().all(Option::is_some)
    }

    /// Processes a completion of a client's queue pair. Completions of a disconnected client are ignored.
    ///
    /// # Errors
    /// The queue pair has failed or the client violates the protocol: close the queue pair, then call
    /// [`disconnect`](Keeper::disconnect).
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
        // A free list has space for all buffers of its class. If the list is full, this buffer is in it
        // already.
        if lists.post_buffer(&self.classes.all()[class], address).is_ok() {
            self.counters.returned += 1;
        } else {
            self.counters.strangers += 1;
        }
    }

    /// Performs a step of the sweep. Returns true if more work can be done at once. Call it whenever there
    /// is time.
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

    /// Sends a client the current grace number, unless the client knows the number or has not answered the
    /// previous one.
    ///
    /// # Errors
    /// The queue did not take the message.
    pub fn notify(&mut self, peer: Peer, nic: &mut impl Post) -> Result<(), Broken> {
        let Some(Some(client)) = self.clients.get_mut(peer.index()) else { return Ok(()) };
        if client.announced == self.grace || client.answered != client.announced {
            return Ok(());
        }
        let offset = peer.index() * STRIDE + RECEIVES as usize * LONGEST;
        self.local.write(offset, &emit_grace(self.grace - client.joined));
        nic.post_send(&WorkRequest {
            id: NOTIFY,
            operation: Operation::Send,
            payload: Payload::Sges(&[self.local.sge(offset, GRACE)]),
            flags: Flags { signaled: true, ..Flags::default() },
        })?;
        client.announced = self.grace;
        Ok(())
    }

    /// Returns the connected clients.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.clients
            .iter()
            .enumerate()
            .filter(|(_, client)| client.is_some())
            .map(|(index, _)| Peer(index as u32))
    }
}

/// Returns the offset of a receive buffer in the keeper's memory.
fn receive_at(peer: Peer, buffer: u32) -> usize {
    peer.index() * STRIDE + buffer as usize * LONGEST
}
