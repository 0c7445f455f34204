//! The calls of clients over 1RMA. They reach the same server machine that receives SENDs in other
//! transports.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remora_grants::{CallHandler, Replies};
use remora_nic::{CompletionKind, ReceiveRequest, Sge, WorkCompletion, WorkRequest};
use remora_store::Registered;
use remora_store::kv::farm::FarmTable;
use remora_store::kv::{Connection, Grant, Hello, MESSAGE_HEADER, Post, PostError, Server, Table};
use remora_verbs::Status;

use super::STAGING;
use super::frame::{self, Frame, completion};
use crate::kv::Limits;

/// A client that has sent its `Hello`.
struct Peer {
    connection: Connection,
    grant: Grant,
    /// Posted receive requests, for the next messages.
    receives: VecDeque<(u64, Sge)>,
}

/// The server machine and its clients.
pub(crate) struct Calls {
    server: Server<FarmTable>,
    /// The memory blocks to which the machine's requests refer.
    blocks: Vec<Registered>,
    peers: HashMap<usize, Peer>,
    longest: usize,
    keys: Arc<AtomicU64>,
}

/// The queue pair of one client, as the machine sees it.
struct Posted<'a> {
    blocks: &'a [Registered],
    receives: &'a mut VecDeque<(u64, Sge)>,
    replies: &'a mut Replies,
    /// Ids of signaled requests that have completed.
    done: VecDeque<u64>,
}

impl Post for Posted<'_> {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.replies.push(Frame::of(request, self.blocks)?);
        if request.flags.signaled {
            self.done.push_back(request.id);
        }
        Ok(())
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let [sge] = *request.sges else { return Err(PostError::BadPayload) };
        self.receives.push_back((request.id, sge));
        Ok(())
    }
}

impl Calls {
    /// Creates the calls of a server whose requests refer to these blocks.
    pub(crate) fn new(
        server: Server<FarmTable>,
        blocks: Vec<Registered>,
        limits: &Limits,
        keys: Arc<AtomicU64>,
    ) -> Calls {
        let longest = frame::HEADER + MESSAGE_HEADER + limits.max_key as usize + limits.max_value as usize;
        Calls { server, blocks, peers: HashMap::new(), longest: longest.max(4096), keys }
    }

    fn accept(&mut self, number: usize, message: &[u8], replies: &mut Replies) -> Option<()> {
        let Frame::Send(hello) = Frame::parse(message)? else { return None };
        let mut receives = VecDeque::new();
        let nic =
            &mut Posted { blocks: &self.blocks, receives: &mut receives, replies, done: VecDeque::new() };
        let accepted = Hello::decode(hello).and_then(|hello| self.server.accept(&hello, nic));
        let (connection, grant) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The client reads the reason, and then its connection is closed.
                replies.push(Frame::Refusal(&error.to_string()).emit());
                return None;
            }
        };
        replies.push(Frame::Send(&grant.encode()).emit());
        self.peers.insert(number, Peer { connection, grant, receives });
        Some(())
    }

    fn handle(&mut self, number: usize, message: &[u8], replies: &mut Replies) -> Option<()> {
        let peer = self.peers.get_mut(&number)?;
        let arrived = place(peer, &self.blocks, message)?;
        let Peer { connection, receives, .. } = peer;
        let mut nic = Posted { blocks: &self.blocks, receives, replies, done: VecDeque::new() };
        self.server.handle(*connection, &arrived, &mut nic).ok()?;
        // A posted message is copied at once, and so has completed.
        while let Some(id) = nic.done.pop_front() {
            let sent = completion(id, Status::Success, CompletionKind::Send, 0);
            self.server.handle(*connection, &sent, &mut nic).ok()?;
        }
        self.keys.store(self.server.table().len(), Ordering::Relaxed);
        Some(())
    }
}

/// Copies a message to its destination. Returns `None` if the message is malformed.
fn place(peer: &mut Peer, blocks: &[Registered], message: &[u8]) -> Option<WorkCompletion> {
    let block = |key| blocks.iter().find(|block| block.key.get() == key);
    let frame = Frame::parse(message)?;
    // A client that keeps to its window leaves a receive request for each message.
    let (id, sge) = peer.receives.pop_front()?;
    match frame {
        Frame::Send(bytes) => {
            (bytes.len() <= sge.len as usize).then_some(())?;
            block(sge.lkey.get())?.bytes.write(sge.addr as usize, bytes).ok()?;
            Some(completion(id, Status::Success, CompletionKind::Receive, bytes.len()))
        }
        Frame::Write(imm, bytes) => {
            let Grant { staging, staging_count, staging_len, .. } = peer.grant;
            let offset = frame::piece(staging, imm, staging_count, staging_len, bytes)?;
            block(STAGING)?.bytes.write(offset, bytes).ok()?;
            let arrived = completion(id, Status::Success, CompletionKind::ReceiveWriteImm, bytes.len());
            Some(WorkCompletion { imm: Some(imm), ..arrived })
        }
        Frame::Refusal(_) => None,
    }
}

impl CallHandler for Calls {
    fn longest(&self) -> usize {
        self.longest
    }

    fn message(&mut self, connection: usize, message: &[u8], replies: &mut Replies) -> bool {
        let handled = match self.peers.contains_key(&connection) {
            true => self.handle(connection, message, replies),
            false => self.accept(connection, message, replies),
        };
        handled.is_some()
    }

    fn ended(&mut self, connection: usize) {
        if let Some(peer) = self.peers.remove(&connection) {
            self.server.disconnect(peer.connection);
        }
    }
}
