//! A client's connection to one server: its grants, its calls, and the memory that reads go to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use remora_grants::{Announcement, Caller, Credential, Pin, RegionGrant, ServerMessage};
use remora_nic::{CompletionKind, Sge, WorkCompletion};
use remora_store::Registered;
use remora_store::kv::{Grant as TableGrant, Hello};
use remora_verbs::Status;
use remora_verbs::rma::{Client, Grant, RmaRegion};

use super::frame::{self, Frame, completion};
use super::server::{INDEX_NAME, VALUES_NAME};
use super::{INDEX, VALUES};
use crate::error::{bail, need};
use crate::{Error, Result};

/// Number of announcements kept per region: the current key, and the next one.
const ANNOUNCED: usize = 2;

/// A server and the state of the connection to it.
pub(crate) struct ServerLink {
    /// The connection; `None` while the server is not connected.
    pub caller: Option<Caller>,
    /// The memory of the client, registered with the NIC.
    pub arena: RmaRegion,
    /// The memory of the client, as the machine refers to it.
    pub block: Registered,
    /// The client's first message.
    pub hello: Hello,
    grants: [Option<Grant>; 2],
    /// Number of times that the grants changed.
    pub generation: u64,
    announced: [VecDeque<Grant>; 2],
    receives: VecDeque<(u64, Sge)>,
    /// Number of connections so far. Reads and calls of an earlier connection are ignored.
    pub epoch: u64,
    /// Number of reads that the NIC has not completed, of any epoch.
    pub reading: u32,
    /// Number of calls without an answer, and the time since which the server owes one.
    calling: u32,
    since: Instant,
    /// True if new grants were requested.
    pub asked: bool,
}

/// The messages that arrived from a server.
#[derive(Default)]
pub(crate) struct Arrived {
    /// Completions of requests.
    pub done: Vec<WorkCompletion>,
    /// True if the requested grants arrived.
    pub grants: bool,
}

impl ServerLink {
    /// Returns a link that is not connected.
    pub(crate) fn new(arena: RmaRegion, block: Registered, hello: Hello) -> ServerLink {
        ServerLink {
            caller: None,
            arena,
            block,
            hello,
            grants: [None; 2],
            generation: 0,
            announced: Default::default(),
            receives: VecDeque::new(),
            epoch: 0,
            reading: 0,
            calling: 0,
            since: Instant::now(),
            asked: false,
        }
    }

    /// Notes that the server is connected.
    ///
    /// # Errors
    /// `Peer`: the server does not grant the regions of a table.
    pub(crate) fn begin(&mut self, caller: Caller, grants: &[RegionGrant]) -> Result<()> {
        self.take_grants(grants)?;
        (self.caller, self.epoch, self.asked, self.calling) = (Some(caller), self.epoch + 1, false, 0);
        self.announced.iter_mut().for_each(VecDeque::clear);
        self.receives.clear();
        Ok(())
    }

    /// Notes that the connection has ended.
    pub(crate) fn end(&mut self) {
        (self.caller, self.epoch, self.calling) = (None, self.epoch + 1, 0);
    }

    fn take_grants(&mut self, grants: &[RegionGrant]) -> Result<()> {
        let grant = |name| grants.iter().find(|granted| granted.name == name).map(|granted| granted.grant);
        let grants = [grant(INDEX_NAME), grant(VALUES_NAME)];
        if grants.contains(&None) {
            bail!(Peer, "the server grants regions, but no key-value table: start it by `remora serve kv`");
        }
        self.grants = grants;
        self.generation += 1;
        Ok(())
    }

    /// Returns the grant of the region that the table refers to by this key.
    pub(crate) fn grant(&self, key: u32) -> Option<&Grant> {
        match key {
            INDEX => self.grants[0].as_ref(),
            VALUES => self.grants[1].as_ref(),
            _ => None,
        }
    }

    /// Uses the keys that were announced. Returns false if there are none.
    pub(crate) fn use_announced(&mut self) -> bool {
        let mut some = false;
        for (grant, announced) in self.grants.iter_mut().zip(&mut self.announced) {
            if let Some(next) = announced.pop_front() {
                (*grant, some) = (Some(next), true);
            }
        }
        self.generation += u64::from(some);
        some
    }

    /// Returns true if calls are under way.
    pub(crate) fn is_calling(&self) -> bool {
        self.calling > 0
    }

    /// Returns the time for which calls have been waiting without any answer.
    pub(crate) fn silent(&self) -> Duration {
        if self.calling > 0 { self.since.elapsed() } else { Duration::ZERO }
    }

    /// Adds a receive request.
    pub(crate) fn post_receive(&mut self, id: u64, sge: Sge) {
        self.receives.push_back((id, sge));
    }

    /// Sends a call. A failure of the connection is reported by [`come`](ServerLink::come).
    pub(crate) fn call(&mut self, message: &[u8]) {
        if self.calling == 0 {
            self.since = Instant::now();
        }
        self.calling += 1;
        let _ = self.caller.as_mut().map(|caller| caller.send(message));
    }

    /// Processes the messages of the server.
    ///
    /// # Errors
    /// The connection has failed, or must be closed.
    pub(crate) fn come(&mut self, came: &mut Arrived) -> Result<()> {
        loop {
            let Some(caller) = &mut self.caller else { return Ok(()) };
            match caller.try_recv()? {
                None => return Ok(()),
                Some(ServerMessage::Reply(message)) => {
                    let reply = self.place(&message);
                    came.done.push(need!(reply, Peer, "the server answers what no correct server does"));
                }
                Some(ServerMessage::Announced(Announcement { granted, .. })) => self.announce(&granted),
                Some(ServerMessage::Grants(grants)) => {
                    self.take_grants(&grants)?;
                    self.announced.iter_mut().for_each(VecDeque::clear);
                    (self.asked, came.grants) = (false, true);
                }
            }
        }
    }

    fn announce(&mut self, granted: &RegionGrant) {
        let region = [INDEX_NAME, VALUES_NAME].iter().position(|name| *name == granted.name);
        let Some(announced) = region.map(|region| &mut self.announced[region]) else { return };
        if announced.len() == ANNOUNCED {
            announced.pop_front();
        }
        announced.push_back(granted.grant);
    }

    /// Copies an answer to its destination. Returns `None` if the answer is malformed.
    fn place(&mut self, message: &[u8]) -> Option<WorkCompletion> {
        let frame = Frame::parse(message)?;
        let (id, sge) = self.receives.pop_front()?;
        self.calling = self.calling.checked_sub(1)?;
        self.since = Instant::now();
        let (offset, kind, imm, bytes) = match frame {
            Frame::Send(bytes) => {
                (bytes.len() <= sge.len as usize).then_some(())?;
                (sge.addr as usize, CompletionKind::Receive, None, bytes)
            }
            Frame::Write(slot, bytes) => {
                let Hello { replies, window, reply_stride, reply_len, .. } = self.hello;
                (bytes.len() <= reply_len as usize).then_some(())?;
                let offset = frame::piece(replies, slot, window, reply_stride, bytes)?;
                (offset, CompletionKind::ReceiveWriteImm, Some(slot), bytes)
            }
            Frame::Refusal(_) => return None,
        };
        self.block.bytes.write(offset, bytes).ok()?;
        let arrived = completion(id, Status::Success, kind, bytes.len());
        Some(WorkCompletion { imm, ..arrived })
    }
}

/// A new connection, established by a thread that may wait.
pub(crate) struct Connected {
    /// Connection to the server.
    pub caller: Caller,
    /// The grants of the server's regions.
    pub grants: Vec<RegionGrant>,
    /// The grant of the server's table.
    pub table: TableGrant,
}

/// Maximum time for connecting.
const CONNECTING: Duration = Duration::from_secs(5);

/// Connects to a server, and exchanges `Hello` and `Grant`.
///
/// # Errors
/// The errors of the grant server; `Refused`: the server accepts no client, or not this one; `Session`:
/// client and server cannot work together.
pub(crate) fn connect(
    pin: Pin,
    credential: &Credential,
    client: &Client,
    hello: &Hello,
) -> Result<Connected> {
    let longest = frame::HEADER + (hello.reply_len as usize).max(4096);
    let (mut caller, grants) = Caller::open(pin, credential, client, CONNECTING, longest)?;
    caller.send(&Frame::Send(&hello.encode()).emit())?;
    let until = Instant::now() + CONNECTING;
    let message = loop {
        match caller.try_recv()? {
            Some(ServerMessage::Reply(message)) => break message,
            // A key that was announced in the meantime can be ignored: a read that fails for it requests new
            // grants.
            Some(_) => {}
            None if Instant::now() >= until => return Err(remora_grants::Error::Silent(pin.address).into()),
            None => caller.wait(until)?,
        }
    };
    match Frame::parse(&message) {
        Some(Frame::Send(bytes)) => {
            let table = TableGrant::decode(bytes)?;
            Ok(Connected { caller, grants, table })
        }
        Some(Frame::Refusal(words)) => {
            bail!(Refused, "the server at {} takes no client: {words}", pin.address)
        }
        _ => Err(Error::Peer(format!("what answers at {} is no key-value server", pin.address))),
    }
}
