//! A program's neighbours: the broker introduces them, and the program's NIC gets links to them.

use remora_host::packet::PacketSocket;
use remora_port::shm::{self, DEFAULT_GEOMETRY};
use remora_verbs::raw::{ChannelAdapter, Link, Links, NoLink, Wanted};
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{ClientError, Range, ask_for_socket};
use crate::message::{MAX_PACKET, Reply, Request};

/// Time that a connection on its way to RTR waits for its link. Then it is refused.
const PATIENCE: Duration = Duration::from_secs(10);
/// Packets that are processed in one call of `look`.
const TURN: usize = 256;

/// The links of one NIC on a shared address.
#[derive(Debug)]
pub struct Neighbours {
    own: u8,
    adapter: Arc<ChannelAdapter>,
    wanted: Arc<Wanted>,
    /// Only the thread of the watch receives from the socket. Otherwise a waiting thread would miss what that
    /// thread takes.
    socket: PacketSocket,
    introductions: Mutex<Introductions>,
    /// Signaled after each call of `look`.
    taken_in: Condvar,
}

/// The messages received over the socket.
#[derive(Debug, Default)]
struct Introductions {
    /// The reason of the last refusal for each range.
    refusals: BTreeMap<u8, NoLink>,
    /// True if no further link can arrive.
    over: bool,
}

impl Neighbours {
    /// Begins to receive links for the NIC that was opened on this range with these `wanted` ranges.
    /// Connections use the links from now on; with `demanded`, they are refused without one.
    ///
    /// # Errors
    /// `Refused` by the broker; `Silent`, `Nonsense`, `System`.
    pub fn start(
        range: &Range,
        adapter: &Arc<ChannelAdapter>,
        wanted: Arc<Wanted>,
        demanded: bool,
    ) -> Result<Arc<Neighbours>, ClientError> {
        let socket = ask_for_socket(range, &Request::Neighbours, &Reply::Neighbours)?;
        socket.wait_for_nothing()?;
        let neighbours = Arc::new(Neighbours {
            own: range.number(),
            adapter: Arc::clone(adapter),
            wanted,
            socket,
            introductions: Mutex::default(),
            taken_in: Condvar::new(),
        });
        let asked = Arc::downgrade(&neighbours);
        let introduce = move |range| match asked.upgrade() {
            Some(neighbours) => neighbours.introduce(range),
            None => Err(NoLink::Failed("the broker of this address is gone".to_owned())),
        };
        adapter.use_links(Links { introduce: Arc::new(introduce), demanded });
        Ok(neighbours)
    }

    /// Requests a link to this range, and waits until the thread of the [`Watch`](super::Watch) has added it
    /// to the NIC.
    ///
    /// # Errors
    /// [`NoLink`]; `Failed` also when no answer comes in time, since the neighbour may have the link by then.
    fn introduce(&self, range: u8) -> Result<(), NoLink> {
        let mut introductions = self.introductions();
        introductions.refusals.remove(&range);
        self.ask_for(range)?;
        let until = Instant::now() + PATIENCE;
        loop {
            if self.adapter.has_neighbour(range) {
                return Ok(());
            }
            if let Some(reason) = introductions.refusals.get(&range) {
                return Err(reason.clone());
            }
            if introductions.over {
                let why = "the broker makes no more links for this program".to_owned();
                return Err(NoLink::Refused(why));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NoLink::Failed(format!(
                    "no answer to the request for a link to QPN range {range} in {} s: is the broker stopped?",
                    PATIENCE.as_secs()
                )));
            }
            let waited = self.taken_in.wait_timeout(introductions, left);
            (introductions, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn introductions(&self) -> MutexGuard<'_, Introductions> {
        self.introductions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a link. A link to the program itself is created without the broker.
    fn ask_for(&self, range: u8) -> Result<(), NoLink> {
        if range == self.own {
            let link = Link::loopback(DEFAULT_GEOMETRY).map_err(|errno| not_taken(range, &errno.into()))?;
            let added = self.adapter.add_neighbour(range, link);
            return added.map_err(|error| NoLink::Failed(error.to_string()));
        }
        if !(1..=127).contains(&range) {
            return Err(NoLink::Refused(format!("no program has QPN range {range}")));
        }
        let sent = self.socket.send(&Request::Link(range).emit(), &[]);
        sent.map_err(|error| NoLink::Failed(format!("the broker takes no request for a link: {error}")))
    }

    /// The descriptors that the thread of a [`Watch`](super::Watch) waits for.
    pub(super) fn waits_for(&self) -> [PollFd<'_>; 2] {
        [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&*self.wanted, PollFlags::IN)]
    }

    /// Adds received links to the NIC, and requests those that datagrams need. Returns false if there will be
    /// no more links.
    pub(super) fn look(&self) -> bool {
        let mut introductions = self.introductions();
        self.take_in(&mut introductions);
        self.taken_in.notify_all();
        for range in self.wanted.take() {
            if !self.adapter.has_neighbour(range) {
                // Without a link, the datagrams use UDP.
                let _ = self.ask_for(range);
            }
        }
        !introductions.over
    }

    /// Records that no more links will be received.
    pub(super) fn end(&self) {
        self.introductions().over = true;
        self.taken_in.notify_all();
    }

    /// Processes the packets in the socket.
    fn take_in(&self, introductions: &mut Introductions) {
        for _ in 0..TURN {
            let mut buffer = [0; MAX_PACKET];
            let packet = match self.socket.receive(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::TimedOut => return,
                Ok(packet) if packet.len > 0 => packet,
                _ => break,
            };
            // Descriptors are cut off where the process may open no more, and never the bytes.
            match Reply::parse(&buffer[..packet.len]) {
                Some(Reply::Linked { range, foreign }) => {
                    introductions.refusals.remove(&range);
                    if let Err(reason) = self.add(range, foreign, packet.descriptors) {
                        introductions.refusals.insert(range, reason);
                    }
                }
                Some(Reply::Unlinked { range, words }) => {
                    introductions.refusals.insert(range, NoLink::Refused(words));
                }
                _ => break,
            }
        }
        introductions.over = true;
        // From now on the broker refuses links to this program.
        self.socket.hang_up();
    }

    /// Takes in the link that came with these descriptors. On an error the neighbour's end of it ends.
    fn add(&self, range: u8, foreign: bool, descriptors: Vec<OwnedFd>) -> Result<(), NoLink> {
        let mut descriptors = descriptors.into_iter();
        let socket = descriptors.next();
        let socket = socket.ok_or_else(|| not_taken(range, &io::Error::from(rustix::io::Errno::MFILE)))?;
        let link = shm::take(socket, descriptors.next(), foreign);
        let link = link.map_err(|error| NoLink::Failed(error.to_string()))?;
        self.adapter.add_neighbour(range, link).map_err(|error| NoLink::Failed(error.to_string()))
    }
}

fn not_taken(range: u8, error: &io::Error) -> NoLink {
    NoLink::Failed(format!(
        "cannot take the link to QPN range {range}: {error}{}",
        remora_port::remedy(error)
    ))
}
