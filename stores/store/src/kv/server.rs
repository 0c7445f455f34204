//! The server machine, which owns a table and answers the calls of its connections.

use super::cursor::Cursor;
use super::extents::LINE;
use super::listing::list;
use super::rpc::{HEADER, Refusal, Request, Response};
use super::session::{Grant, Hello, SessionError};
use super::table::{Hold, Stored, Table};
use super::{Broken, Operation, Post};
use crate::region::Registered;
use crate::send_queue::{Account, QueueNeeds, SendQueue};
use crate::work_id::{NUMBER, Work, WorkId};
use remora_nic::{CompletionKind, Flags, Payload, ReceiveRequest, Remote, WorkCompletion, WorkRequest};
use remora_transport::Status;
use std::collections::VecDeque;

/// A connection of a server: an index below [`ServerConfig::connections`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Connection(u32);

impl Connection {
    /// Returns the index of the connection.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The configuration of a server.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Maximum number of connections at the same time.
    pub connections: u32,
    /// Maximum number of operations in flight per connection: 1 to 65535.
    pub window: u32,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
    /// Bytes of a receive buffer. Longer requests are written to staging memory.
    pub eager: u32,
    /// Maximum length of a response that is posted inline; 0 for none.
    pub inline: u32,
    /// Staging pieces per connection: the maximum number of long requests in flight.
    pub staging: u32,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            connections: 16,
            window: 64,
            max_key: 1024,
            max_value: super::MAX_VALUE as u32,
            eager: 1024,
            inline: 0,
            staging: 2,
        }
    }
}

impl ServerConfig {
    /// Returns the sizes that each connection's queue pair needs.
    pub fn needs(&self) -> QueueNeeds {
        let send = SendQueue::depth_for(self.window);
        QueueNeeds { send, receive: self.window, sges: 2, completions: send + self.window }
    }

    /// Returns the bytes of local memory, for receive and response buffers. Only the server's own NIC
    /// accesses them.
    pub fn local_len(&self) -> usize {
        self.connections as usize * (self.window as usize * 2 * self.stride() + self.page_len())
    }

    /// Returns the bytes of staging memory. Clients write there, so its region allows remote writes and
    /// contains nothing else.
    pub fn staging_len(&self) -> usize {
        (self.connections as usize * self.staging as usize * self.piece_len()).max(LINE)
    }

    /// Returns the bytes of a connection's page of a listing. A page holds any key.
    fn page_len(&self) -> usize {
        PAGE.max(Cursor::LEN + 4 + self.max_key as usize).next_multiple_of(LINE)
    }

    fn stride(&self) -> usize {
        (self.eager as usize).next_multiple_of(LINE)
    }

    fn piece_len(&self) -> usize {
        (HEADER + self.max_key as usize + self.max_value as usize).next_multiple_of(LINE)
    }

    fn is_sound(&self) -> bool {
        (1..=0xffff).contains(&self.window)
            && self.connections > 0
            && self.eager as usize >= HEADER
            && self.max_key as usize <= super::MAX_KEY
            && self.max_value as usize <= super::MAX_VALUE
            && (self.staging > 0 || self.piece_len() <= self.eager as usize)
    }
}

/// Counters of a server.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Number of GETs answered.
    pub gets: u64,
    /// Number of PUTs answered.
    pub puts: u64,
    /// Number of DELETEs answered.
    pub deletes: u64,
    /// Number of pages of listings answered.
    pub lists: u64,
    /// Number of all these requests that were refused (absent keys not counted).
    pub refused: u64,
    /// Number of malformed messages.
    pub malformed: u64,
    /// Number of responses that waited for space in a send queue.
    pub delayed: u64,
}

/// A response that is not posted yet. Its header (and a short value) is in the reply buffer of the slot.
#[derive(Copy, Clone)]
struct Reply {
    slot: u16,
    /// Number of bytes in the reply buffer.
    len: u32,
    /// A long value, which is sent from where it is stored.
    value: Option<Stored>,
    /// Number of bytes of the connection's page, for a response to LIST; else 0.
    page: u32,
}

/// The state of one connection.
struct Peer {
    hello: Hello,
    queue: SendQueue,
    backlog: VecDeque<Reply>,
    /// For each slot, the value that is being sent to it, and the number of the request that sends it.
    held: Vec<Option<(Hold, u32)>>,
    listing: Listing,
}

/// The state of a connection's page.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Listing {
    /// The page may be written.
    Idle,
    /// The page is being sent: by a response that waits, or by the request with this number.
    Leaving(Option<u32>),
}

/// A server. It does no input or output itself: the owner of its queue pairs passes completions to it. No
/// memory is allocated after its connections were made.
pub struct Server<T> {
    table: T,
    config: ServerConfig,
    local: Registered,
    staging: Registered,
    peers: Vec<Option<Peer>>,
    scratch: Vec<u8>,
    page: Vec<u8>,
    counters: ServerCounters,
}

impl<T: Table> Server<T> {
    /// Returns a server of `table`, with blocks of [`ServerConfig::local_len`] and
    /// [`ServerConfig::staging_len`] bytes.
    ///
    /// # Errors
    /// A block is too small, or the configuration is invalid.
    pub fn new(
        table: T,
        config: ServerConfig,
        local: Registered,
        staging: Registered,
    ) -> Result<Server<T>, SessionError> {
        if !config.is_sound() {
            return Err(SessionError::Malformed);
        }
        for (block, needed) in [(&local, config.local_len()), (&staging, config.staging_len())] {
            if block.bytes.len() < needed {
                return Err(SessionError::ArenaTooSmall { needed });
            }
        }
        let peers = (0..config.connections).map(|_| None).collect();
        let scratch = vec![0; config.piece_len().max(config.eager as usize)];
        let page = Vec::with_capacity(config.page_len() + config.max_key as usize + 4);
        let counters = ServerCounters::default();
        Ok(Server { table, config, local, staging, peers, scratch, page, counters })
    }

    /// Returns the table, for instance for a loader that stores keys directly.
    pub fn table_mut(&mut self) -> &mut T {
        &mut self.table
    }

    /// Returns the table.
    pub fn table(&self) -> &T {
        &self.table
    }

    /// Returns the counters.
    pub fn counters(&self) -> ServerCounters {
        self.counters
    }

    /// Accepts a client: posts the receive requests on its queue pair and returns its grant.
    ///
    /// # Errors
    /// The client does not fit this server, or the server has its maximum of connections.
    pub fn accept(
        &mut self,
        hello: &Hello,
        nic: &mut impl Post,
    ) -> Result<(Connection, Grant), SessionError> {
        if hello.design != T::DESIGN {
            return Err(SessionError::OtherDesign(T::DESIGN));
        }
        if hello.window > self.config.window || hello.window == 0 {
            return Err(SessionError::WindowTooLarge { allowed: self.config.window });
        }
        if (hello.eager as usize) < HEADER || (hello.reply_len as usize) < HEADER {
            return Err(SessionError::BuffersTooShort { needed: HEADER as u32 });
        }
        let free = self.peers.iter().position(Option::is_none).ok_or(SessionError::TooManyConnections)?;
        let connection = Connection(free as u32);
        for buffer in 0..self.config.window as u16 {
            self.post_receive(connection, buffer, nic).map_err(|_| SessionError::Malformed)?;
        }
        self.peers[free] = Some(Peer {
            hello: *hello,
            queue: SendQueue::new(self.config.window),
            backlog: VecDeque::with_capacity(hello.window as usize),
            held: (0..hello.window).map(|_| None).collect(),
            listing: Listing::Idle,
        });
        Ok((connection, self.grant(connection)))
    }

    fn grant(&self, connection: Connection) -> Grant {
        let table = self.table.grant();
        let first_piece = connection.index() * self.config.staging as usize * self.config.piece_len();
        Grant {
            design: T::DESIGN,
            window: self.config.window,
            hash_seed: table.hash_seed,
            index: table.index,
            index_len: table.index_len,
            extents: table.extents,
            staging: Remote { addr: self.staging.addr + first_piece as u64, rkey: self.staging.key },
            staging_len: self.config.piece_len() as u64,
            staging_count: self.config.staging,
            eager: self.config.eager,
            max_key: self.config.max_key,
            max_value: self.config.max_value,
        }
    }

    /// Removes a client, for instance because its queue pair failed. The queue pair must be idle by then.
    pub fn disconnect(&mut self, connection: Connection) {
        let Some(peer) = self.peers.get_mut(connection.index()).and_then(Option::take) else { return };
        let waiting = peer.backlog.iter().filter_map(|reply| reply.value).map(|value| value.hold);
        for hold in waiting.chain(peer.held.into_iter().flatten().map(|(hold, _)| hold)) {
            self.table.release(hold);
        }
    }

    /// Processes a completion of a connection's queue pair. Completions of a disconnected client are
    /// ignored.
    ///
    /// # Errors
    /// The queue pair has failed or the client violates the protocol: close the queue pair and call
    /// [`disconnect`](Server::disconnect).
    pub fn handle(
        &mut self,
        connection: Connection,
        completion: &WorkCompletion,
        nic: &mut impl Post,
    ) -> Result<(), Broken> {
        let Some(Some(peer)) = self.peers.get_mut(connection.index()) else { return Ok(()) };
        if completion.status != Status::Success {
            return Err(Broken::Completion(completion.status));
        }
        let id = WorkId::decode(completion.id).ok_or(Broken::Protocol)?;
        if id.work != Work::Receive {
            peer.queue.retire(id.number);
            if peer.listing == Listing::Leaving(Some(id.number)) {
                peer.listing = Listing::Idle;
            }
            let held = peer.held.get_mut(usize::from(id.place));
            if let Some((hold, _)) =
                held.and_then(|held| held.take_if(|(_, number)| *number & NUMBER == id.number))
            {
                self.table.release(hold);
            }
            return self.flush(connection, nic);
        }
        let request = self.fetch(connection, completion, id.place);
        self.post_receive(connection, id.place, nic)?;
        let Some(request) = request else {
            self.counters.malformed += 1;
            return Err(Broken::Protocol);
        };
        let reply = self.execute(connection, &request);
        self.reply(connection, reply, nic)
    }

    /// Copies a request to `scratch`, where the client cannot change it. Returns `None` if the request is
    /// malformed.
    fn fetch(&mut self, connection: Connection, completion: &WorkCompletion, buffer: u16) -> Option<Request> {
        let len = completion.byte_len as usize;
        match (completion.kind, completion.imm) {
            (CompletionKind::Receive, None) if len <= self.config.eager as usize => {
                self.local.read(self.receive_at(connection, buffer), &mut self.scratch[..len]);
            }
            (CompletionKind::ReceiveWriteImm, Some(piece))
                if piece < self.config.staging && len <= self.config.piece_len() =>
            {
                let piece = connection.index() * self.config.staging as usize + piece as usize;
                self.staging.read(piece * self.config.piece_len(), &mut self.scratch[..len]);
            }
            _ => return None,
        }
        let request = Request::parse(&self.scratch[..len])?;
        let window = self.peers[connection.index()].as_ref()?.hello.window;
        (u32::from(request.slot) < window).then_some(request)
    }

    /// Executes the request in `scratch` and writes the response to the slot's reply buffer.
    fn execute(&mut self, connection: Connection, request: &Request) -> Reply {
        let key_len = request.key_len as usize;
        let value_len = request.value_len as usize;
        if request.operation == Operation::List {
            return self.list(connection, request);
        }
        let (key, value) = self.scratch[HEADER..HEADER + key_len + value_len].split_at(key_len);
        let fits = request.key_len <= self.config.max_key && request.value_len <= self.config.max_value;
        let mut stored = None;
        let mut result = match request.operation {
            _ if !fits => Err(Refusal::TooLong),
            Operation::Get => self.table.find(key).map(|item| stored = Some(item)),
            Operation::Put => self.table.put(key, value),
            Operation::Delete => self.table.delete(key),
            Operation::List => Err(Refusal::Unsupported),
        };
        let hello = self.peers[connection.index()].as_ref().map(|peer| peer.hello);
        let reply_len = hello.map_or(0, |hello| hello.reply_len) as usize;
        if stored.is_some_and(|stored| HEADER + stored.len > reply_len) {
            stored = None;
            result = Err(Refusal::TooLong);
        }
        self.count(request.operation, result);
        let value_len = stored.map_or(0, |stored| stored.len);
        let slot = request.slot;
        let sequence = request.sequence;
        let response = Response { result, slot, sequence, value_len: value_len as u32 };
        let reply = &mut self.scratch;
        if let Some(header) = reply.first_chunk_mut() {
            response.emit(header);
        }
        let eager = hello.map_or(0, |hello| hello.eager.min(self.config.eager)) as usize;
        let short = HEADER + value_len <= eager;
        let mut len = HEADER;
        if let Some(item) = stored.filter(|_| short) {
            len += item.len;
            self.table.values().read(item.offset, &mut reply[HEADER..len]);
        }
        self.local.write(reply_at(&self.config, connection, slot), &reply[..len]);
        Reply { slot, len: len as u32, value: stored.filter(|_| !short), page: 0 }
    }

    /// Writes the next page of a listing to the connection's page. The cursor is in `scratch`.
    fn list(&mut self, connection: Connection, request: &Request) -> Reply {
        let Request { slot, sequence, .. } = *request;
        let mut result = Err(Refusal::Busy);
        let mut page = 0;
        let cursor = self.scratch[HEADER..].first_chunk().map(Cursor::decode);
        if let (Some(Some(peer)), Some(cursor)) = (self.peers.get_mut(connection.index()), cursor)
            && peer.listing == Listing::Idle
            && peer.hello.reply_len as usize >= HEADER + Cursor::LEN + 4
        {
            peer.listing = Listing::Leaving(None);
            let most = self.config.page_len().min((peer.hello.reply_len as usize).saturating_sub(HEADER));
            list(&self.table, cursor, most, &mut self.page);
            self.local.write(page_at(&self.config, connection), &self.page);
            (result, page) = (Ok(()), self.page.len() as u32);
        }
        self.count(Operation::List, result);
        let mut header = [0; HEADER];
        Response { result, slot, sequence, value_len: page }.emit(&mut header);
        self.local.write(reply_at(&self.config, connection, slot), &header);
        Reply { slot, len: HEADER as u32, value: None, page }
    }

    fn count(&mut self, operation: Operation, result: Result<(), Refusal>) {
        match operation {
            Operation::Get => self.counters.gets += 1,
            Operation::Put => self.counters.puts += 1,
            Operation::Delete => self.counters.deletes += 1,
            Operation::List => self.counters.lists += 1,
        }
        self.counters.refused += u64::from(result.is_err_and(|refusal| refusal != Refusal::Absent));
    }

    /// Sends a response, or queues it behind those that wait.
    fn reply(&mut self, connection: Connection, reply: Reply, nic: &mut impl Post) -> Result<(), Broken> {
        let Some(peer) = &mut self.peers[connection.index()] else { return Ok(()) };
        // A slot sends its next request only after it has its response. So an earlier value has arrived,
        // even if the request that sent it has not completed.
        if let Some((hold, _)) = peer.held[usize::from(reply.slot)].take() {
            self.table.release(hold);
        }
        if let Some(value) = reply.value {
            self.table.hold(value.hold);
        }
        if peer.backlog.is_empty() && peer.queue.has_space(1) {
            return self.post_reply(connection, reply, nic);
        }
        if peer.backlog.len() == peer.held.len() {
            // The client has more requests in flight than its window allows. The receive requests sufficed
            // only because it does not post more at a time.
            self.counters.malformed += 1;
            if let Some(value) = reply.value {
                self.table.release(value.hold);
            }
            return Err(Broken::Protocol);
        }
        self.counters.delayed += 1;
        peer.backlog.push_back(reply);
        Ok(())
    }

    /// Sends waiting responses until the send queue is full.
    fn flush(&mut self, connection: Connection, nic: &mut impl Post) -> Result<(), Broken> {
        while let Some(peer) = &mut self.peers[connection.index()] {
            if !peer.queue.has_space(1) {
                break;
            }
            let Some(reply) = peer.backlog.pop_front() else { break };
            self.post_reply(connection, reply, nic)?;
        }
        Ok(())
    }

    fn post_reply(
        &mut self,
        connection: Connection,
        reply: Reply,
        nic: &mut impl Post,
    ) -> Result<(), Broken> {
        let Some(peer) = &mut self.peers[connection.index()] else { return Ok(()) };
        let offset = reply_at(&self.config, connection, reply.slot);
        let header = self.local.sge(offset, reply.len as usize);
        // A response with a long value needs a completion, because the value is held until then.
        let (number, signaled) = peer.queue.enter(reply.value.is_some() || reply.page > 0);
        let id = WorkId { work: Work::Message, place: reply.slot, number }.encode();
        let flags = Flags { signaled, ..Flags::default() };
        let request = |operation, payload| WorkRequest { id, operation, payload, flags };
        let addr = peer.hello.replies.addr.wrapping_add(u64::from(reply.slot) * peer.hello.reply_stride);
        let long = remora_nic::Operation::WriteImm(
            Remote { addr, rkey: peer.hello.replies.rkey },
            reply.slot.into(),
        );
        if reply.page > 0 {
            peer.listing = Listing::Leaving(Some(number & NUMBER));
            let page = self.local.sge(page_at(&self.config, connection), reply.page as usize);
            nic.post_send(&request(long, Payload::Sges(&[header, page])))?;
            return Ok(());
        }
        let Some(value) = reply.value else {
            let mut message = [0; INLINE_MOST];
            let inline = reply.len <= self.config.inline;
            if let Some(message) = message.get_mut(..reply.len as usize).filter(|_| inline) {
                self.local.read(offset, message);
                nic.post_send(&request(remora_nic::Operation::Send, Payload::Inline(message)))?;
                return Ok(());
            }
            nic.post_send(&request(remora_nic::Operation::Send, Payload::Sges(&[header])))?;
            return Ok(());
        };
        peer.held[usize::from(reply.slot)] = Some((value.hold, number));
        let value = self.table.values().sge(value.offset, value.len);
        nic.post_send(&request(long, Payload::Sges(&[header, value])))?;
        Ok(())
    }

    fn post_receive(&self, connection: Connection, buffer: u16, nic: &mut impl Post) -> Result<(), Broken> {
        let sges = [self.local.sge(self.receive_at(connection, buffer), self.config.eager as usize)];
        let id = WorkId { work: Work::Receive, place: buffer, number: 0 }.encode();
        Ok(nic.post_receive(&ReceiveRequest { id, sges: &sges })?)
    }

    fn receive_at(&self, connection: Connection, buffer: u16) -> usize {
        (connection.index() * 2 * self.config.window as usize + usize::from(buffer)) * self.config.stride()
    }
}

/// Maximum length of an inline response in any configuration.
const INLINE_MOST: usize = 256;

/// Bytes of a page, unless the maximum key is longer.
const PAGE: usize = 16 << 10;

/// Returns the offset of a connection's page, which follows the buffers of all connections.
fn page_at(config: &ServerConfig, connection: Connection) -> usize {
    let buffers = config.connections as usize * config.window as usize * 2 * config.stride();
    buffers + connection.index() * config.page_len()
}

/// Returns the offset of a slot's reply buffer, which follows the connection's receive buffers.
fn reply_at(config: &ServerConfig, connection: Connection, slot: u16) -> usize {
    let window = config.window as usize;
    ((connection.index() * 2 + 1) * window + usize::from(slot)) * config.stride()
}
