//! Links between neighbours: the broker connects two programs on one address by shared memory, which they
//! then use without the broker.

use remora_host::packet::PacketSocket;
use remora_host::users::Resource;
use remora_port::{shm, user};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::programs::Client;
use super::state::{Source, State, watch};
use crate::message::{MAX_PACKET, Reply, Request};

/// Links of one program with large rings (512 KiB). Further links have small rings.
const LARGE: usize = 16;
/// Requests of one program that are processed before the other programs have their turn.
const TURN: usize = 32;

impl State {
    /// Gives a program the socket for introductions. From now on other programs may be linked with it.
    pub(super) fn open_introductions(&mut self, number: u32) -> Result<(), String> {
        let claim = self.claim(number, Resource::Descriptor, 1)?;
        let refused = |error: io::Error| format!("the broker gives no socket for links: {error}");
        let client = self.clients.get(number).ok_or("the connection is gone")?;
        if client.range.is_none() || client.introductions.is_some() {
            return Err("links belong to a program with a QPN range, which asks once".to_owned());
        }
        let (ours, theirs) = PacketSocket::pair().map_err(refused)?;
        ours.wait_for_nothing().map_err(refused)?;
        watch(&self.poll, &ours, Source::Introductions(number)).map_err(|errno| refused(errno.into()))?;
        if let Some(client) = self.clients.get_mut(number) {
            client.introductions = Some(ours);
            client.claims.push(claim);
        }
        self.send(number, &Reply::Neighbours, &[theirs.as_fd()]);
        Ok(())
    }

    /// Processes a program's requests for links, and answers each.
    pub(super) fn introduce(&mut self, number: u32) {
        for _ in 0..TURN {
            let mut buffer = [0; MAX_PACKET];
            let Some(socket) = self.clients.get(number).and_then(|client| client.introductions.as_ref())
            else {
                return;
            };
            let range = match socket.receive(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return,
                Ok(packet) if packet.len > 0 && !packet.cut && packet.descriptors.is_empty() => {
                    match Request::parse(&buffer[..packet.len]) {
                        Some(Request::Link(range)) => range,
                        _ => return self.end_introductions(number),
                    }
                }
                _ => return self.end_introductions(number),
            };
            match self.link(number, range) {
                Ok(()) => self.tally.linked += 1,
                Err(words) => {
                    self.tally.unlinked += 1;
                    let client = self.clients.get(number);
                    let sent = client.is_some_and(|client| send(client, &Reply::Unlinked { range, words }));
                    if !sent {
                        return self.end_introductions(number);
                    }
                }
            }
        }
    }

    /// Creates a link between this program and the one with range `range`, and sends an end to each.
    fn link(&mut self, number: u32, range: u8) -> Result<(), String> {
        let none = || format!("no program with QPN range {range} takes links");
        let client = self.clients.get(number).ok_or("the connection is gone")?;
        let own = client.range.filter(|own| *own != range).ok_or_else(none)?;
        let (other_number, other) = self.clients.of_range(range).ok_or_else(none)?;
        if other.introductions.is_none() {
            return Err(none());
        }
        if client.links.contains(&range) {
            return Err(format!("a link to QPN range {range} was made already"));
        }
        if let Some(words) = client.unlinked.get(&range) {
            return Err(words.clone());
        }
        let linked = self.make_link(client, other, [own, range]);
        for (number, range) in [(number, range), (other_number, own)] {
            let Some(client) = self.clients.get_mut(number) else { continue };
            match &linked {
                Ok(()) => _ = client.links.insert(range),
                Err(words) => _ = client.unlinked.insert(range, words.clone()),
            }
        }
        linked
    }

    /// Makes a link between two programs with these ranges, and hands each its end.
    fn make_link(&self, client: &Client, other: &Client, [own, range]: [u8; 2]) -> Result<(), String> {
        let shared = |share: &super::programs::Share| other.share(share.address).is_some();
        if !client.shares.iter().any(shared) {
            return Err(format!("the program with QPN range {range} has none of this program's addresses"));
        }
        let most = client.links.len().max(other.links.len());
        if most >= self.options.neighbours {
            return Err(format!("{} neighbours have links already: this one is reached by UDP", most));
        }
        let geometry = if most < LARGE { shm::DEFAULT_GEOMETRY } else { shm::SMALL_GEOMETRY };
        let [ours, theirs] = shm::introduce(geometry).map_err(|error| error.to_string())?;
        // The other program gets its end first, because the requester sends as soon as it has its own.
        if !hand(other, own, client, theirs) || !hand(client, range, other, ours) {
            return Err(format!("QPN range {range} is not reading what it is told"));
        }
        Ok(())
    }

    /// Called when a program sends nonsense, reads nothing, or is gone. It keeps its range and gets no more
    /// links.
    fn end_introductions(&mut self, number: u32) {
        self.tally.dropped += 1;
        if let Some(client) = self.clients.get_mut(number) {
            client.introductions = None;
        }
    }
}

/// Sends a program its end of a link to `neighbour`, which has this range.
fn hand(client: &Client, range: u8, neighbour: &Client, end: OwnedFd) -> bool {
    let mut descriptors = vec![end.as_fd()];
    descriptors.extend(neighbour.process.as_ref().map(AsFd::as_fd));
    let foreign = !user::is_same(client.user.uid(), neighbour.user.uid());
    let reply = Reply::Linked { range, foreign };
    let socket = client.introductions.as_ref();
    socket.is_some_and(|socket| socket.send(&reply.emit(), &descriptors).is_ok())
}

fn send(client: &Client, reply: &Reply) -> bool {
    client.introductions.as_ref().is_some_and(|socket| socket.send(&reply.emit(), &[]).is_ok())
}
