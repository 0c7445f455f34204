//! A FaRM shard, which locks and updates keys at its clients' request. The shards jointly end the
//! transactions of clients that have died (`recovery.rs`).

use std::sync::mpsc::Sender;

use remora_store::txn::farm::{Caller, Shard, ShardConfig};
use remora_store::txn::{Granted, Incarnations, Limits};
use remora_store::{Broken, Post, QueueNeeds, Registered};
use remora_verbs::{
    Access, Context, Flags, Full, Operation, Payload, ReceiveRequest, Sge, Status, WorkCompletion,
    WorkRequest,
};

use super::ShardConfig as Config;
use super::identity::ShardIdentity;
use super::peers::{Answer, LONGEST, Question, RecoveryHello};
use super::prism_tx::REACH;
use super::recovery::{self, Shared};
use crate::error::{Result, ensure, need};
use crate::post::{Batched, Later};
use crate::server::{Memory, Program, shared};

/// A connected peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client, by its index among the connected clients.
    Client(usize),
    /// Another shard, by its index among the message buffers.
    Shard(usize),
}

/// The program of a FaRM shard.
pub struct FarmShard {
    shard: Shared,
    identity: ShardIdentity,
    /// Names of the connected clients; one place per possible client.
    clients: Vec<Option<(u64, Caller)>>,
    needs: QueueNeeds,
    /// Names of clients whose connections another shard wants closed.
    condemned: Vec<u64>,
    /// Two message buffers (in, out) for each shard that may ask, and which of them are in use.
    messages: Registered,
    asking: Vec<bool>,
    /// The recovery thread's queue of clients that are gone.
    gone: Sender<u64>,
}

/// Ids of a received question and of a sent answer.
const ASKED: u64 = 1;
const ANSWERED: u64 = 2;

impl FarmShard {
    /// Creates the program and allocates all its memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn open(size: &Config, context: &Context, memory: &mut Memory) -> Result<FarmShard> {
        let Config { keys, slots, clients, limits, .. } = *size;
        let Limits { max_key, max_value, max_keys, window } = limits;
        let config = ShardConfig {
            keys,
            homes: slots,
            reach: u64::from(REACH).min(slots) as u32,
            max_pair: max_key + max_value,
            clients,
            window,
            max_keys,
        };
        // The sizes for a client's calls and the probe. An answer to another shard needs no more.
        let needs = config.needs();
        let needs = QueueNeeds { send: needs.send + 1, completions: needs.completions + 1, ..needs };
        ensure!(
            (needs.completions + 1) * size.connections() <= remora_nic::MAX_RING_SLOTS,
            Config,
            "{clients} clients, each with {window} transactions of {max_keys} keys, make more calls than a queue has completions for: \
             ask for fewer --clients, or a smaller --window or --max-keys"
        );
        let incarnations_at = config.table_len().next_multiple_of(64);
        let block = memory.region(
            "keys and values",
            incarnations_at + Incarnations::len(size.id.shards),
            shared(),
        )?;
        let asking = vec![false; size.asking() as usize];
        let messages = memory.region("messages", asking.len() * 2 * LONGEST, Access::LOCAL_WRITE)?;
        let identity = ShardIdentity::open(size.id, limits, block.clone(), incarnations_at)?;
        let shard = Shard::open(config, &block);
        let shard = need!(shard, Config, "--window and --max-keys multiply to 4096 at most");
        let shard = Shared::new(shard);
        let gone =
            recovery::start(context.clone(), shard.clone(), identity.incarnations.clone(), identity.id())?;
        Ok(FarmShard {
            shard,
            identity,
            clients: (0..clients).map(|_| None).collect(),
            needs,
            condemned: Vec::new(),
            messages,
            asking,
            gone,
        })
    }

    fn listen(&self, peer: usize, nic: &mut impl Post) -> Result<(), Broken> {
        let sges = [self.message(peer, 0, LONGEST)];
        Ok(nic.post_receive(&ReceiveRequest { id: ASKED, sges: &sges })?)
    }

    /// Returns the buffer for a message in (0) or out (1).
    fn message(&self, peer: usize, direction: usize, len: usize) -> Sge {
        let offset = ((peer * 2 + direction) * LONGEST) as u64;
        Sge { addr: self.messages.addr + offset, len: len as u32, lkey: self.messages.key }
    }

    /// Accepts another shard.
    fn admit(&mut self, hello: RecoveryHello, nic: &mut Later) -> Result<(Peer, Vec<u8>)> {
        ensure!(hello.run == self.identity.run(), Peer, "this shard has begun anew since");
        let free = self.asking.iter().position(|taken| !taken);
        let peer = need!(free, Refused, "as many shards ask already as there are");
        self.listen(peer, nic)?;
        self.asking[peer] = true;
        Ok((Peer::Shard(peer), Vec::new()))
    }

    /// Answers another shard's question about a client. A connected client is not settled: it connected
    /// after the question, or its connection is being closed.
    fn answer(&mut self, question: &Question) -> Answer {
        let connected = |name: &u64| self.clients.iter().flatten().any(|(client, _)| client == name);
        match question {
            Question::Decided(name) if connected(name) => {
                self.condemned.push(*name);
                return Answer::Wait;
            }
            Question::Decided(name) => return Answer::Done(self.shard.lock().decided(*name)),
            Question::Settle(name, decided) if !connected(name) => self.shard.lock().settle(*name, decided),
            Question::Release(name) if !connected(name) => self.shard.lock().release(*name),
            Question::Settle(..) | Question::Release(_) => {}
        }
        Answer::Done(Vec::new())
    }

    fn asked(&mut self, peer: usize, len: u32, nic: &mut Batched<'_, '_>) -> Result<(), Broken> {
        let offset = peer * 2 * LONGEST;
        let mut bytes = vec![0; (len as usize).min(LONGEST)];
        self.messages.bytes.read(offset, &mut bytes).map_err(|_| Broken::Protocol)?;
        let question = Question::decode(&bytes).ok_or(Broken::Protocol)?;
        let answer = self.answer(&question).encode();
        self.messages.bytes.write(offset + LONGEST, &answer).map_err(|_| Broken::Protocol)?;
        self.listen(peer, nic)?;
        let payload = [self.message(peer, 1, answer.len())];
        Ok(nic.post_send(&WorkRequest {
            id: ANSWERED,
            operation: Operation::Send,
            payload: Payload::Sges(&payload),
            flags: Flags { signaled: true, ..Flags::default() },
        })?)
    }
}

impl Program for FarmShard {
    type Connection = Peer;

    fn needs(&self) -> QueueNeeds {
        self.needs
    }

    fn accept(&mut self, hello: &[u8], nic: &mut Later) -> Result<(Peer, Vec<u8>)> {
        if let Some(hello) = RecoveryHello::decode(hello) {
            return self.admit(hello, nic);
        }
        let hello = self.identity.read(hello)?;
        let full = || Full::clients(self.clients.len() as u32);
        let place = self.clients.iter().position(Option::is_none).ok_or_else(full)?;
        let mut shard = self.shard.lock();
        let grant = shard.accept(hello.name).ok_or_else(full)?;
        let caller = need!(shard.listen(hello.name, nic)?, Config, "a client that was accepted");
        self.clients[place] = Some((hello.name, caller));
        Ok((Peer::Client(place), self.identity.welcome(Granted::Farm(grant))))
    }

    fn handle(
        &mut self,
        peer: Peer,
        completion: &WorkCompletion,
        nic: &mut Batched<'_, '_>,
    ) -> Result<(), Broken> {
        let peer = match peer {
            Peer::Shard(peer) => peer,
            Peer::Client(place) => {
                let (_, caller) = self.clients[place].as_mut().ok_or(Broken::Protocol)?;
                return self.shard.lock().handle(caller, completion, nic);
            }
        };
        match (completion.status, completion.id) {
            (Status::Success, ASKED) => self.asked(peer, completion.byte_len, nic),
            (Status::Success, ANSWERED) => Ok(()),
            (Status::Success, _) => Err(Broken::Protocol),
            (status, _) => Err(Broken::Completion(status)),
        }
    }

    fn disconnect(&mut self, peer: Peer) {
        match peer {
            Peer::Shard(peer) => self.asking[peer] = false,
            Peer::Client(place) => {
                let Some((name, _)) = self.clients[place].take() else { return };
                self.condemned.retain(|client| *client != name);
                // The recovery thread lives as long as this program.
                let _ = self.gone.send(name);
            }
        }
    }

    fn is_over(&self, peer: Peer) -> bool {
        let Peer::Client(place) = peer else { return false };
        self.clients[place].as_ref().is_some_and(|(name, _)| self.condemned.contains(name))
    }
}
