//! A request to connect, and the server's answers to it.

use remora_port::shm::Link;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::agreement::meet;
use super::client::add_endpoint;
use super::deadline::Deadline;
use super::error::Stage;
use super::exchange::{read, write};
use super::full::Full;
use super::lasting::{SetupConnection, has_hung_up};
use super::message::{Hello, LinkOffer, Message};
use super::{Agreement, ConnectError, LinkPeer, Side, source};
use crate::port_kind::PortKind;

/// Time for sending a refusal, which fits into the send buffer of any connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// A peer's request to connect a queue pair. Dropping it hangs up.
#[derive(Debug)]
pub struct Request {
    stream: TcpStream,
    peer: SocketAddr,
    hello: Hello,
}

impl Request {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, hello: Hello) -> Request {
        Request { stream, peer, hello }
    }

    /// Checks that the address of the client's NIC is the address that the connection comes from.
    ///
    /// # Errors
    /// `OtherSource`.
    pub(super) fn check_source(&self) -> Result<(), ConnectError> {
        source::check(&self.hello, self.peer)
    }

    /// Returns the first message of the other side.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the TCP address of the peer.
    pub fn from(&self) -> SocketAddr {
        self.peer
    }

    /// Returns whether the other side has hung up, so that an answer would be useless.
    pub fn has_hung_up(&self) -> bool {
        has_hung_up(&self.stream)
    }

    /// Returns a descriptor of the connection, by which another thread may [end](SetupConnection::end) it.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn connection(&self) -> io::Result<SetupConnection> {
        Ok(SetupConnection::from(rustix::fd::OwnedFd::from(self.stream.try_clone()?)))
    }

    /// Refuses the request with a reason for the user.
    pub fn reject(mut self, words: &str) {
        let _ = write(&mut self.stream, &Message::Reject(words.to_owned()), Deadline::after(PATIENCE));
    }

    /// Refuses the request because the server has no capacity at the moment.
    pub fn reject_full(mut self, full: Full) {
        let _ = write(&mut self.stream, &Message::Full(full), Deadline::after(PATIENCE));
    }

    /// Accepts the request with the queue pair of `side`, which `bring_up` takes to RTS. Takes at most
    /// `timeout`, and ends when the other side hangs up.
    ///
    /// # Errors
    /// [`ConnectError`], which the other side is informed of. As with [`connect`](super::connect), the
    /// caller must destroy a queue pair that was brought up.
    pub fn accept(
        self,
        side: &Side<'_>,
        timeout: Duration,
        bring_up: impl FnMut(&Agreement) -> Result<(), ConnectError>,
    ) -> Result<(Agreement, Option<SetupConnection>), ConnectError> {
        let (agreement, answered) = self.answer(side, timeout, bring_up)?;
        Ok((agreement, answered.go()?))
    }

    /// Accepts like [`accept`](Request::accept), but without sending the last message. The other side waits
    /// for [`go`](Answered::go), so that it sends nothing before this side's program knows the queue pair.
    ///
    /// # Errors
    /// The errors of [`accept`](Request::accept).
    pub fn answer(
        mut self,
        side: &Side<'_>,
        timeout: Duration,
        mut bring_up: impl FnMut(&Agreement) -> Result<(), ConnectError>,
    ) -> Result<(Agreement, Answered), ConnectError> {
        let deadline = Deadline::after(timeout);
        match self.exchange(side, deadline, &mut bring_up) {
            Ok(agreement) => {
                let lasting = agreement.lasting;
                Ok((agreement, Answered { stream: self.stream, lasting }))
            }
            Err(error) => {
                let _ = write(&mut self.stream, &Message::Reject(error.to_string()), deadline);
                Err(error)
            }
        }
    }

    fn exchange(
        &mut self,
        side: &Side<'_>,
        deadline: Deadline,
        bring_up: &mut dyn FnMut(&Agreement) -> Result<(), ConnectError>,
    ) -> Result<Agreement, ConnectError> {
        let ours = side.uplink.facts().kind;
        self.check_source()?;
        meet(&side.hello(LinkOffer::None)?, &self.hello)?;
        let (peer, local) = match ours {
            PortKind::Udp | PortKind::Xdp => {
                let local = side.hello(LinkOffer::None)?;
                write(&mut self.stream, &Message::Accept(local.clone()), deadline)?;
                (add_endpoint(side.uplink, &self.hello, deadline)?, local)
            }
            PortKind::Shm => self.give_shm(side, deadline)?,
        };
        let agreement = Agreement::new(peer, &local, self.hello.clone());
        let done = bring_up(&agreement).inspect_err(|_| side.uplink.release_peer(peer));
        done?;
        match read(&mut self.stream, deadline, Stage::Ready)? {
            Message::Ready => Ok(agreement),
            Message::Reject(words) => Err(ConnectError::Rejected(words)),
            _ => Err(ConnectError::BadMessage),
        }
    }

    fn give_shm(
        &mut self,
        side: &Side<'_>,
        deadline: Deadline,
    ) -> Result<(remora_port::Peer, Hello), ConnectError> {
        let uplink = side.uplink;
        let theirs = self.hello.engine;
        if theirs == uplink.id() {
            let local = side.hello(LinkOffer::Existing)?;
            let peer = uplink.loop_back()?;
            return self.say(side, peer, local, deadline);
        }
        let known = match self.hello.link {
            LinkOffer::Wanted => None,
            _ => uplink.reuse_link(theirs),
        };
        if let Some(peer) = known {
            return self.say(side, peer, side.hello(LinkOffer::Existing)?, deadline);
        }
        let offered = uplink.offer_link()?;
        let local = side.hello(LinkOffer::New(offered.name().to_owned()))?;
        write(&mut self.stream, &Message::Accept(local.clone()), deadline)?;
        let left = deadline.left().ok_or(ConnectError::Timeout(Stage::Link))?;
        Ok((offered.give(&LinkPeer::of(&self.hello), Some(&mut self.stream), left)?, local))
    }

    fn say(
        &mut self,
        side: &Side<'_>,
        peer: remora_port::Peer,
        local: Hello,
        deadline: Deadline,
    ) -> Result<(remora_port::Peer, Hello), ConnectError> {
        match write(&mut self.stream, &Message::Accept(local.clone()), deadline) {
            Ok(()) => Ok((peer, local)),
            Err(error) => {
                side.uplink.release_peer(peer);
                Err(error)
            }
        }
    }
}

/// A request that was answered: both queue pairs are in RTS, and the other side waits for GO. Dropping it
/// hangs up.
#[derive(Debug)]
pub struct Answered {
    stream: TcpStream,
    lasting: bool,
}

impl Answered {
    /// Lets the other side send, without waiting for it. Returns the connection if both sides keep it.
    ///
    /// # Errors
    /// [`ConnectError::Closed`] if the other side has hung up.
    pub fn go(mut self) -> Result<Option<SetupConnection>, ConnectError> {
        if has_hung_up(&self.stream) {
            return Err(ConnectError::Closed(Stage::Go));
        }
        write(&mut self.stream, &Message::Go, Deadline::after(PATIENCE))?;
        Ok(self.lasting.then(|| SetupConnection::from(rustix::fd::OwnedFd::from(self.stream))))
    }
}

/// Waits for the peer to take its end of the link, as long as its TCP connection stays open.
pub(crate) fn give_link(
    listener: &remora_port::shm::Listener,
    mut stream: Option<&mut TcpStream>,
    patience: Duration,
) -> Result<Link, ConnectError> {
    let deadline = Deadline::after(patience);
    loop {
        if let Some(link) = listener.accept().map_err(ConnectError::Link)? {
            return Ok(link);
        }
        if !wait_for_link(listener, stream.as_deref(), deadline)? {
            continue;
        }
        // The peer may have taken the link and sent READY, and both arrived at once.
        if let Some(link) = listener.accept().map_err(ConnectError::Link)? {
            return Ok(link);
        }
        let Some(stream) = stream.as_deref_mut() else { continue };
        return Err(match read(stream, deadline, Stage::Link)? {
            Message::Reject(words) => ConnectError::Rejected(words),
            _ => ConnectError::BadMessage,
        });
    }
}

/// Sleeps until an event. Returns true if the peer has sent something, or hung up.
fn wait_for_link(
    listener: &remora_port::shm::Listener,
    stream: Option<&TcpStream>,
    deadline: Deadline,
) -> Result<bool, ConnectError> {
    let left = deadline.left().ok_or(ConnectError::Timeout(Stage::Link))?;
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let mut waited = vec![PollFd::new(listener, PollFlags::IN)];
    waited.extend(stream.map(|stream| PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP)));
    match rustix::event::poll(&mut waited, Some(&left)) {
        Ok(_) => Ok(waited.get(1).is_some_and(|stream| !stream.revents().is_empty())),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(ConnectError::Tcp(errno.into())),
    }
}
