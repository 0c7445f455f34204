//! The program's end of an attachment. It sends requests to the daemon and receives the replies.

use remora_host::connect::{Agreement, ConnectError, SetupConnection};
use remora_host::packet::PacketSocket;
use remora_host::{Doorbells, PortFacts};
use remora_memory::{Bytes, ForkMark};
use remora_nic::rma::RegionKey;
use remora_nic::{Command, FromReply, PartNumber, Ring};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::loan::Loan;
use super::message::{
    Allocate, CreateCode, CreateCq, CreatePortal, CreateQp, MAX_PACKET, PairFacts, PortalFacts, QueueFacts,
    RegionFacts, Reply, Request, wipe,
};
use crate::CreateError;

/// Time that a daemon may take in addition to the time allowed for a connection.
const SLACK: Duration = Duration::from_secs(5);
/// Time limit for attaching. The daemon itself may wait two seconds for another program of the same name to
/// end.
pub(super) const ATTACHING: Duration = Duration::from_secs(10);
/// Time limit for the reply to a request, which may have to allocate gigabytes of memory.
const ANSWERING: Duration = Duration::from_secs(20);

/// An attachment to a daemon.
#[derive(Debug)]
pub(crate) struct DaemonClient {
    socket: Mutex<PacketSocket>,
    facts: PortFacts,
    doorbells: Doorbells<Bytes>,
    /// Eventfd that wakes the daemon's engine.
    wake: std::fs::File,
    ending: Arc<Ending>,
    fork: ForkMark,
    /// True if dropped objects stay with the daemon instead of being given back.
    left: AtomicBool,
}

/// The end of an attachment. A thread sleeps until the socket hangs up, and then sets `gone`.
#[derive(Debug)]
struct Ending {
    socket: PacketSocket,
    gone: AtomicBool,
}

impl Drop for DaemonClient {
    fn drop(&mut self) {
        if !self.fork.is_child() {
            self.ending.socket.hang_up();
        }
    }
}

fn refused(words: impl ToString) -> CreateError {
    CreateError::Daemon(words.to_string())
}

/// The error text for a daemon that runs and has not replied for `patience`.
pub(super) fn silent(patience: Duration) -> String {
    format!(
        "the NIC daemon has not answered for {} seconds: if it is stopped, continue it by `kill -CONT`; if it hangs, restart `remora nicd`",
        patience.as_secs()
    )
}

fn lost(error: &std::io::Error) -> CreateError {
    refused(format!("the NIC daemon does not answer ({error}): is it running? start it by `remora nicd`"))
}

const NONSENSE: &str =
    "the NIC daemon's answer makes no sense: is it of another version? restart it by `remora nicd`";

impl DaemonClient {
    /// Sends `hello`, the first message of an attachment, and receives the daemon's reply.
    pub(crate) fn attach(socket: PacketSocket, hello: &Request) -> Result<DaemonClient, CreateError> {
        let (reply, descriptors) = exchange(&socket, hello, &[], ATTACHING)?;
        socket.set_patience(Some(ANSWERING), Some(ANSWERING)).map_err(|error| lost(&error))?;
        let Reply::Attached { port, places } = reply else { return Err(refused(NONSENSE)) };
        let [bells, wake] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| refused(NONSENSE))?;
        let doorbells = Doorbells::over(Bytes::from_memfd(bells)?, places as usize);
        let own = socket.try_clone().map_err(|error| lost(&error))?;
        let ending = Arc::new(Ending { socket: own, gone: AtomicBool::new(false) });
        let watched = Arc::clone(&ending);
        let watch = move || {
            watched.socket.wait_for_end();
            watched.gone.store(true, Ordering::Release);
        };
        remora_port::spawn_settled("remora-daemon".to_owned(), watch)
            .map_err(CreateError::system("thread that watches the NIC daemon"))?;
        Ok(DaemonClient {
            socket: Mutex::new(socket),
            facts: port,
            doorbells,
            wake: wake.into(),
            ending,
            fork: ForkMark::get(),
            left: AtomicBool::new(false),
        })
    }

    /// The kind, address and path MTU of the daemon's port.
    pub(crate) fn facts(&self) -> PortFacts {
        self.facts
    }

    /// Returns whether the daemon is gone.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.ending.gone.load(Ordering::Relaxed)
    }

    /// Sets whether dropped objects stay with the daemon (true) or are given back (false).
    pub(crate) fn leave(&self, leaves: bool) {
        self.left.store(leaves, Ordering::Release);
    }

    /// Rings a doorbell after work was posted.
    #[inline]
    pub(crate) fn ring(&self, bell: u32) {
        self.doorbells.ring(bell);
        if self.doorbells.is_asleep() {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        // A full eventfd is readable, so the engine wakes even if the write fails.
        let _ = (&self.wake).write(&1u64.to_ne_bytes());
    }

    /// Sends a request with descriptors and waits for the reply.
    pub(crate) fn ask(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), CreateError> {
        if self.fork.is_child() {
            return Err(CreateError::Forked);
        }
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_gone() {
            return Err(lost(&ErrorKind::ConnectionReset.into()));
        }
        let answer = exchange(&socket, request, descriptors, ANSWERING);
        if matches!(&answer, Err(Failed::Silent(_))) {
            // A late reply would be taken for the reply to the next request.
            socket.hang_up();
            self.ending.gone.store(true, Ordering::Release);
        }
        Ok(answer?)
    }

    /// Sends a request whose reply is `Done`.
    pub(crate) fn done(&self, request: &Request) -> Result<(), CreateError> {
        match self.ask(request, &[])?.0 {
            Reply::Done => Ok(()),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// Gives an object back to the daemon. A refusal is ignored, since the caller is dropping the object.
    pub(crate) fn release(&self, request: &Request) {
        if self.fork.is_child() || self.left.load(Ordering::Acquire) || self.is_gone() {
            return;
        }
        let _ = self.done(request);
    }

    /// Sends a request whose reply is a number.
    pub(crate) fn number(&self, request: &Request) -> Result<u32, CreateError> {
        match self.ask(request, &[])?.0 {
            Reply::Number(number) => Ok(number),
            _ => Err(refused(NONSENSE)),
        }
    }

    pub(crate) fn allocate(&self, asked: Allocate) -> Result<(RegionFacts, Bytes), CreateError> {
        self.region(&Request::Allocate(asked))
    }

    pub(crate) fn create_code(&self, asked: CreateCode) -> Result<(RegionFacts, Bytes), CreateError> {
        self.region(&Request::CreateCode(asked))
    }

    /// Sends a request whose reply is a region.
    fn region(&self, request: &Request) -> Result<(RegionFacts, Bytes), CreateError> {
        match self.ask(request, &[])? {
            (Reply::Region(facts), memory) => Ok((facts, one(memory)?)),
            _ => Err(refused(NONSENSE)),
        }
    }

    pub(crate) fn create_channel(&self) -> Result<(u32, OwnedFd), CreateError> {
        match self.ask(&Request::CreateChannel, &[])? {
            (Reply::Number(number), mut socket) if socket.len() == 1 => Ok((number, socket.remove(0))),
            _ => Err(refused(NONSENSE)),
        }
    }

    pub(crate) fn create_cq(&self, asked: CreateCq) -> Result<(QueueFacts, Ring), CreateError> {
        match self.ask(&Request::CreateCq(asked), &[])? {
            (Reply::Queue(facts), memory) => Ok((facts, ring(one(memory)?)?)),
            _ => Err(refused(NONSENSE)),
        }
    }

    pub(crate) fn create_qp(&self, asked: CreateQp) -> Result<(PairFacts, Loan), CreateError> {
        self.pair(&Request::CreateQp(asked))
    }

    pub(crate) fn create_loopback(&self, asked: CreateQp) -> Result<(PairFacts, Loan), CreateError> {
        self.pair(&Request::CreateLoopback(asked))
    }

    /// Sends a request whose reply is a queue pair.
    fn pair(&self, request: &Request) -> Result<(PairFacts, Loan), CreateError> {
        match self.ask(request, &[])? {
            (Reply::Pair(facts), lent) => Ok((*facts, loan(lent)?)),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// The process id and incarnation that the daemon's NIC writes into this program's 1RMA requests.
    pub(crate) fn identify(&self) -> Result<(u32, u32), CreateError> {
        match self.ask(&Request::Identify, &[])?.0 {
            Reply::Identity { pid, incarnation } => Ok((pid, incarnation)),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// The present key of a 1RMA region.
    pub(crate) fn rma_key(&self, region: u32) -> Result<RegionKey, CreateError> {
        match self.ask(&Request::RmaKey(region), &[])?.0 {
            Reply::RmaKey(key) => Ok(key),
            _ => Err(refused(NONSENSE)),
        }
    }

    pub(crate) fn create_portal(&self, asked: CreatePortal) -> Result<(PortalFacts, Ring), CreateError> {
        match self.ask(&Request::CreatePortal(asked), &[])? {
            (Reply::Portal(facts), memory) => Ok((facts, ring(one(memory)?)?)),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// Obtains memory for a queue of at least `slots` slots, which the next command names by this number.
    pub(crate) fn hand(&self, slots: u32) -> Result<(Ring, PartNumber), CreateError> {
        match self.ask(&Request::Hand(slots), &[])? {
            (Reply::Number(number), memory) => Ok((ring(one(memory)?)?, PartNumber(number))),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// Executes a command on the daemon's NIC and returns the value that its reply carries.
    pub(crate) fn execute<T: FromReply>(&self, command: Command) -> Result<T, CreateError> {
        match self.ask(&Request::Execute(command), &[])?.0 {
            Reply::Executed(reply) => T::from_reply(reply).ok_or_else(|| refused(NONSENSE)),
            Reply::RefusedByNic(error) => Err(error.into()),
            _ => Err(refused(NONSENSE)),
        }
    }

    pub(crate) fn agreement(&self, number: u32) -> Result<Agreement, CreateError> {
        match self.ask(&Request::Agreement(number), &[])?.0 {
            Reply::Agreed(agreement) => Ok(*agreement),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// Sends a request that sets up a connection. The reply comes over a socket of its own, so that other
    /// requests can proceed meanwhile. Returns the agreement and, if the set-up connection is kept, that
    /// connection.
    pub(crate) fn negotiate(
        &self,
        request: &Request,
        stream: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<(Agreement, Option<SetupConnection>), ConnectError> {
        if self.fork.is_child() {
            return Err(ConnectError::Forked);
        }
        let failed = |error: CreateError| ConnectError::Daemon(error.to_string());
        let (here, there) = PacketSocket::pair().map_err(ConnectError::Tcp)?;
        let patience = timeout + SLACK;
        here.set_patience(None, Some(patience)).map_err(ConnectError::Tcp)?;
        let there = OwnedFd::from(there);
        let mut descriptors = vec![there.as_fd()];
        descriptors.extend(stream);
        match self.ask(request, &descriptors).map_err(failed)?.0 {
            Reply::Done => {}
            _ => return Err(ConnectError::Daemon(NONSENSE.to_owned())),
        }
        drop(there);
        match receive(&here, patience).map_err(|error| failed(error.into()))? {
            (Reply::Agreed(agreement), connection) => {
                Ok((*agreement, connection.into_iter().next().map(SetupConnection::from)))
            }
            (Reply::Full(full), _) => Err(ConnectError::Full(full)),
            _ => Err(ConnectError::Daemon(NONSENSE.to_owned())),
        }
    }
}

/// The reason why there is no reply.
pub(super) enum Failed {
    /// The daemon refuses the request, or is gone.
    Refused(CreateError),
    /// The daemon has not replied for this long.
    Silent(Duration),
}

impl From<Failed> for CreateError {
    fn from(failed: Failed) -> CreateError {
        match failed {
            Failed::Refused(error) => error,
            Failed::Silent(patience) => refused(silent(patience)),
        }
    }
}

fn exchange(
    socket: &PacketSocket,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
    patience: Duration,
) -> Result<(Reply, Vec<OwnedFd>), Failed> {
    send_with(socket, request, descriptors, patience)?;
    receive(socket, patience)
}

fn send_with(
    socket: &PacketSocket,
    request: &Request,
    descriptors: &[BorrowedFd<'_>],
    patience: Duration,
) -> Result<(), Failed> {
    let mut packet = request.emit();
    let sent = socket.send(&packet, descriptors);
    wipe(&mut packet);
    match sent {
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(Failed::Silent(patience)),
        // After a hang-up the last reply may still be readable.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Sends a request without descriptors.
pub(super) fn send(socket: &PacketSocket, request: &Request, patience: Duration) -> Result<(), Failed> {
    send_with(socket, request, &[], patience)
}

/// Receives the daemon's next reply. A refusal is an error.
pub(super) fn receive(socket: &PacketSocket, patience: Duration) -> Result<(Reply, Vec<OwnedFd>), Failed> {
    let mut buffer = [0; MAX_PACKET];
    // A daemon that refuses stops reading, and the system reports the hang-up before the refusal.
    let packet = match socket.receive(&mut buffer) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => socket.receive(&mut buffer),
        done => done,
    };
    let packet = packet.map_err(|error| match error.kind() {
        ErrorKind::TimedOut => Failed::Silent(patience),
        _ => Failed::Refused(lost(&error)),
    })?;
    if packet.len == 0 {
        return Err(Failed::Refused(lost(&ErrorKind::ConnectionReset.into())));
    }
    let reply = Reply::parse(&buffer[..packet.len]);
    wipe(&mut buffer[..packet.len]);
    match reply {
        Some(Reply::Refused(words)) => Err(Failed::Refused(refused(words))),
        Some(reply) => Ok((reply, packet.descriptors)),
        None => Err(Failed::Refused(refused(NONSENSE))),
    }
}

/// Maps the memory of a reply that must have exactly one descriptor.
pub(super) fn one(descriptors: Vec<OwnedFd>) -> Result<Bytes, CreateError> {
    let [memory] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| refused(NONSENSE))?;
    Ok(Bytes::from_memfd(memory)?)
}

/// Maps the memory of a queue pair, and takes the connection of its set-up, if there is one.
pub(super) fn loan(descriptors: Vec<OwnedFd>) -> Result<Loan, CreateError> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| refused(NONSENSE));
    let rings = [ring(Bytes::from_memfd(next()?)?)?, ring(Bytes::from_memfd(next()?)?)?];
    Ok(Loan { rings, connection: descriptors.next().map(SetupConnection::from) })
}

pub(super) fn ring(bytes: Bytes) -> Result<Ring, CreateError> {
    Ring::new(bytes).ok_or_else(|| refused(NONSENSE))
}
