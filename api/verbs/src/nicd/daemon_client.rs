//! The program's end of an attachment. It sends requests to the daemon and receives the replies.

use remora_host::codec::{decode, encode};
use remora_host::connect::SetupConnection;
use remora_host::packet::PacketSocket;
use remora_host::{Channel, Doorbells, EngineId, PortFacts};
use remora_memory::{
    Access, Bytes, ForkMark, Key, MemoryCommand, MemoryReply, Pd, Range, Reentered, WindowType,
};
use remora_nic as nic;
use remora_nic::kernel::Shipped;
use remora_nic::rma::RegionKey;
use remora_nic::{
    AsyncEvent, BellOwner, Command, Device, DeviceError, Doorbell, HandedPart, ObjectName, PartNumber, Ring,
};
use remora_wire::Qpn;
use remora_wire::frame::Endpoint;
use serde::Serialize;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::message::{MAX_PACKET, MAX_RANGES, Reply, Request, SentRange, TableCommand, wipe};
use crate::{CreateError, KernelModule};

mod uplink;

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
    /// Asynchronous events of this program's objects.
    events: Channel,
    engine: EngineId,
    irn_reach: u32,
    /// True if the daemon keeps this program's objects when it ends.
    keeps: bool,
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
        "the NIC daemon has not answered for {} seconds: if it is stopped, continue it by `kill -CONT`; if it hangs, restart `remora serve nic`",
        patience.as_secs()
    )
}

fn lost(error: &std::io::Error) -> CreateError {
    refused(format!(
        "the NIC daemon does not answer ({error}): is it running? start it by `remora serve nic`"
    ))
}

const NONSENSE: &str =
    "the NIC daemon's answer makes no sense: is it of another version? restart it by `remora serve nic`";

impl DaemonClient {
    /// Sends `hello`, the first message of an attachment, and receives the daemon's reply.
    pub(crate) fn attach(socket: PacketSocket, hello: &Request) -> Result<DaemonClient, CreateError> {
        let (reply, descriptors) = exchange(&socket, hello, &[], ATTACHING)?;
        socket.set_patience(Some(ANSWERING), Some(ANSWERING)).map_err(|error| lost(&error))?;
        let Reply::Attached { port, engine, irn_reach, places } = reply else {
            return Err(refused(NONSENSE));
        };
        let [bells, wake, events] = <[OwnedFd; 3]>::try_from(descriptors).map_err(|_| refused(NONSENSE))?;
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
            events: Channel::There(Arc::new(events)),
            engine,
            irn_reach,
            keeps: matches!(hello, Request::Attach { kept: true, .. }),
            ending,
            fork: ForkMark::get(),
            left: AtomicBool::new(false),
        })
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

    /// Returns whether dropped objects stay with the daemon.
    pub(crate) fn leaves(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Returns whether the daemon keeps this program's objects when it ends.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Returns whether an earlier program has left objects with the daemon.
    pub(crate) fn has_kept(&self) -> bool {
        matches!(self.ask(&Request::Kept(0), &[]), Ok((Reply::Kept(_), _)))
    }

    /// The descriptor that is readable while an asynchronous event waits.
    pub(crate) fn events(&self) -> &Channel {
        &self.events
    }

    /// Rings a doorbell after work was posted.
    #[inline]
    pub(crate) fn ring_bell(&self, bell: u32) {
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
    pub(crate) fn release(&self, command: Command) {
        if self.is_used() {
            let _ = self.execute(command);
        }
    }

    /// Gives something back to the daemon by a request whose reply is `Done`.
    pub(crate) fn release_by(&self, request: &Request) {
        if self.is_used() {
            let _ = self.done(request);
        }
    }

    /// Returns whether this process still gives objects back.
    fn is_used(&self) -> bool {
        !self.fork.is_child() && !self.leaves() && !self.is_gone()
    }

    /// Sends a request whose reply is a number.
    pub(crate) fn number(&self, request: &Request) -> Result<u32, CreateError> {
        match self.ask(request, &[])?.0 {
            Reply::Number(number) => Ok(number),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// Creates a completion channel. Returns its number and the program's end of it.
    pub(crate) fn create_channel(&self) -> Result<(u32, OwnedFd), CreateError> {
        match self.ask(&Request::CreateChannel, &[])? {
            (Reply::Number(number), mut socket) if socket.len() == 1 => Ok((number, socket.remove(0))),
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

    /// Registers memory of this process, which keeps its bytes whatever becomes of the attachment.
    pub(crate) fn register_own(&self, pd: Pd, ranges: &[Range], access: Access) -> Result<Key, CreateError> {
        let (ranges, memory) = sent_ranges(ranges)?;
        let command = TableCommand::Register { pd, access, ranges, own: true };
        match self.ask(&Request::Table(command), &memory)?.0 {
            Reply::Key(key) => Ok(key),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// Ends a region whose memory keeps its bytes until [`free_memory`](DaemonClient::free_memory). Returns
    /// the number of the memory.
    pub(crate) fn retire(&self, region: Key) -> Result<u32, CreateError> {
        self.number(&Request::Table(TableCommand::Retire(region)))
    }

    /// Gives back the memory of a region that has ended.
    pub(crate) fn free_memory(&self, number: u32) {
        self.release_by(&Request::Table(TableCommand::FreeMemory(number)));
    }

    /// Hands the code of a shipped kernel to the NIC, once for each of `lanes` lanes.
    pub(crate) fn hand_shipped(&self, kernel: Shipped, lanes: u32) -> Result<PartNumber, CreateError> {
        self.number(&Request::HandKernel { kernel: kernel.number(), lanes }).map(PartNumber)
    }

    /// Hands the bytes of a kernel's module to the daemon, which loads it.
    pub(crate) fn hand_module(&self, module: &KernelModule<'_>) -> Result<PartNumber, CreateError> {
        let bytes = Bytes::memfd("remora-module", module.bytes.len())?;
        bytes.write(0, module.bytes).map_err(refused)?;
        let memory = module.memory as u64;
        let descriptor = bytes.fd().ok_or(CreateError::NotByDaemon)?;
        match self.ask(&Request::HandModule { lanes: module.lanes, memory }, &[descriptor])?.0 {
            Reply::Number(number) => Ok(PartNumber(number)),
            _ => Err(refused(NONSENSE)),
        }
    }

    /// Attaches a queue pair to a multicast group.
    pub(crate) fn join(&self, qp: Qpn, group: Endpoint) -> Result<(), CreateError> {
        self.done(&Request::JoinGroup { qp, group })
    }

    /// Detaches a queue pair from a multicast group.
    pub(crate) fn leave_group(&self, qp: Qpn, group: Endpoint) {
        self.release_by(&Request::LeaveGroup { qp, group });
    }

    /// Stores facts with an object, and the connection of a queue pair's set-up, so that the object is kept.
    pub(crate) fn note(
        &self,
        object: ObjectName,
        note: &impl Serialize,
        connection: Option<&SetupConnection>,
    ) -> Result<(), CreateError> {
        let descriptors: Vec<_> = connection.into_iter().map(AsFd::as_fd).collect();
        let request = Request::Note { object, note: encode(note) };
        match self.ask(&request, &descriptors)?.0 {
            Reply::Done => Ok(()),
            _ => Err(refused(NONSENSE)),
        }
    }
}

/// Returns the answer of a device to which the daemon does not reply.
fn unanswered(error: CreateError) -> DeviceError {
    match error {
        CreateError::NotByDaemon => DeviceError::Unsupported,
        CreateError::Limit(words) => DeviceError::Limit(words),
        CreateError::Memory(error) => DeviceError::Memory(error),
        error => DeviceError::Host(error.to_string()),
    }
}

/// Returns the ranges of a region as they are sent, and the descriptors of their memory.
fn sent_ranges(ranges: &[Range]) -> Result<(Vec<SentRange>, Vec<BorrowedFd<'_>>), DeviceError> {
    if ranges.len() > MAX_RANGES {
        let words =
            format!("{} ranges of one region are over the {MAX_RANGES} of a NIC daemon", ranges.len());
        return Err(DeviceError::Host(words));
    }
    let mut sent = Vec::with_capacity(ranges.len());
    let mut descriptors = Vec::with_capacity(ranges.len());
    for range in ranges {
        let descriptor = descriptors.len() as u8;
        // The daemon can map only memory that has a descriptor.
        descriptors.push(range.bytes.fd().ok_or(DeviceError::Unsupported)?);
        let [offset, len] = [range.offset, range.len].map(|bytes| bytes as u64);
        sent.push(SentRange { descriptor, offset, len, iova: range.iova });
    }
    Ok((sent, descriptors))
}

impl Device for DaemonClient {
    fn execute(&self, command: Command) -> Result<nic::Reply, DeviceError> {
        match self.ask(&Request::Execute(command), &[]).map_err(unanswered)?.0 {
            Reply::Executed(reply) => Ok(reply),
            Reply::RefusedByNic(error) => Err(error.into()),
            _ => Err(DeviceError::Host(NONSENSE.to_owned())),
        }
    }

    fn hand(&self, part: HandedPart) -> Result<PartNumber, DeviceError> {
        let HandedPart::Ring(ring) = part else { return Err(DeviceError::Unsupported) };
        let memory = ring.bytes().fd().ok_or(DeviceError::Unsupported)?;
        match self.ask(&Request::HandRing, &[memory]).map_err(unanswered)?.0 {
            Reply::Number(number) => Ok(PartNumber(number)),
            _ => Err(DeviceError::Host(NONSENSE.to_owned())),
        }
    }

    fn allocate(&self, len: usize) -> Result<Bytes, DeviceError> {
        Ok(Bytes::memfd("remora-region", len)?)
    }

    fn queue(&self, slots: u32) -> Result<(Ring, PartNumber), DeviceError> {
        let ring = Ring::new(Bytes::memfd("remora-queue", Ring::size(slots))?);
        let ring = ring.ok_or(remora_memory::Error::Invalid)?;
        let part = self.hand(ring.clone().into())?;
        Ok((ring, part))
    }

    fn memory(&self, command: MemoryCommand<'_>) -> Result<MemoryReply, DeviceError> {
        let mut memory = Vec::new();
        let command = match command {
            MemoryCommand::AllocDomain => TableCommand::AllocDomain,
            MemoryCommand::FreeDomain(pd) => TableCommand::FreeDomain(pd),
            MemoryCommand::Register { pd, ranges, access } => {
                let (sent, descriptors) = sent_ranges(ranges)?;
                memory = descriptors;
                TableCommand::Register { pd, access, ranges: sent, own: false }
            }
            MemoryCommand::RegisterNull(pd) => TableCommand::RegisterNull(pd),
            MemoryCommand::Deregister(key) => TableCommand::Deregister(key),
            MemoryCommand::Revoke(key) => TableCommand::Revoke(key),
            MemoryCommand::AllocWindow { pd, kind } => {
                TableCommand::AllocWindow { pd, second: kind == WindowType::Type2B }
            }
            MemoryCommand::QueryWindow(key) => TableCommand::QueryWindow(key),
            MemoryCommand::FreeWindow(key) => TableCommand::FreeWindow(key),
        };
        match self.ask(&Request::Table(command), &memory).map_err(unanswered)?.0 {
            Reply::Done => Ok(MemoryReply::Done),
            Reply::Domain(pd) => Ok(MemoryReply::Domain(pd)),
            Reply::Key(key) => Ok(MemoryReply::Key(key)),
            _ => Err(DeviceError::Host(NONSENSE.to_owned())),
        }
    }

    fn assign_bell(&self, owner: BellOwner) -> Result<Doorbell, DeviceError> {
        let index = self.number(&Request::AssignBell(owner)).map_err(unanswered)?;
        Ok(Doorbell { owner, index })
    }

    fn ring(&self, bell: Doorbell) -> Result<(), Reentered> {
        self.ring_bell(bell.index);
        Ok(())
    }

    fn take_event(&self) -> Option<AsyncEvent> {
        event_of(self.events.take()?)
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
        Some(Reply::AtLimit(words)) => Err(Failed::Refused(CreateError::Limit(words))),
        Some(Reply::RefusedByTable(error)) => Err(Failed::Refused(error.into())),
        Some(reply) => Ok((reply, packet.descriptors)),
        None => Err(Failed::Refused(refused(NONSENSE))),
    }
}

/// Returns an asynchronous event as a word, for a completion channel's socket.
pub(super) fn event_word(event: AsyncEvent) -> u64 {
    let bytes = encode(&event);
    let mut word = [0; 8];
    word[0] = bytes.len() as u8;
    word[1..=bytes.len()].copy_from_slice(&bytes);
    u64::from_le_bytes(word)
}

/// Returns the event of a word; `None` if it has none.
pub(super) fn event_of(word: u64) -> Option<AsyncEvent> {
    let word = word.to_le_bytes();
    decode(word[1..].get(..usize::from(word[0]))?)
}
