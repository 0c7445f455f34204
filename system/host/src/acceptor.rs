//! Admission to a daemon: accepting connections of admitted users, and receiving the first message of each.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::codec::{MAX_PACKET, refusal};
use crate::packet::{PacketListener, PacketSocket, PeerCredentials};
use crate::users::{Amounts, Claim, Resource, User};

/// Connections of one listener that are accepted before other descriptors have their turn.
const TURN: usize = 32;

/// A connection that has not sent a first message.
#[derive(Debug)]
struct Silent {
    socket: PacketSocket,
    peer: PeerCredentials,
    user: User,
    since: Instant,
    _greeting: Claim,
}

/// A connection with its first message.
#[derive(Debug)]
pub struct Arrival {
    /// The program's connection. It is blocking.
    pub socket: PacketSocket,
    /// The program's process.
    pub peer: PeerCredentials,
    /// The program's user.
    pub user: User,
    /// The first message. Empty if it was too long or came with descriptors.
    pub message: Vec<u8>,
}

/// The connections of a daemon that have not sent a first message. Its descriptor is readable while a first
/// message waits.
#[derive(Debug)]
pub struct Acceptor {
    patience: Duration,
    poll: OwnedFd,
    /// By number. Numbers rise, so the first connection is the oldest.
    silent: BTreeMap<u64, Silent>,
    next: u64,
    refused: u64,
    dropped: u64,
}

impl Acceptor {
    /// Creates an acceptor without connections. A connection that sends no first message within `patience` is
    /// closed.
    ///
    /// # Errors
    /// The error of the system if it cannot create a descriptor.
    pub fn new(patience: Duration) -> io::Result<Acceptor> {
        let poll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Acceptor { patience, poll, silent: BTreeMap::new(), next: 0, refused: 0, dropped: 0 })
    }

    /// Accepts connections that wait at a listener. `admit` returns the user of a process, or the text of a
    /// refusal, which is sent. At the limit of a user's greetings, the user's oldest one is closed.
    ///
    /// # Errors
    /// The errno of accept(2), most likely because no descriptors are left. The connection waits.
    pub fn accept(
        &mut self,
        listener: &PacketListener,
        admit: impl Fn(&PeerCredentials) -> Result<User, String>,
    ) -> io::Result<()> {
        for _ in 0..TURN {
            let Some(socket) = listener.accept()? else { return Ok(()) };
            let admitted = socket.peer().map_err(|error| error.to_string()).and_then(|peer| {
                let user = admit(&peer)?;
                let greeting = self.greeting(&user)?;
                Ok((peer, user, greeting))
            });
            match admitted {
                Ok((peer, user, greeting)) => self.add(socket, peer, user, greeting),
                Err(words) => {
                    self.refused += 1;
                    // A new connection has space for a packet, so this does not wait.
                    let _ = socket.send(&refusal(&words), &[]);
                }
            }
        }
        Ok(())
    }

    fn greeting(&mut self, user: &User) -> Result<Claim, String> {
        let one = || user.claim(Amounts::of(Resource::Greeting, 1));
        one().or_else(|words| {
            let oldest = self.silent.iter().find(|(_, silent)| silent.user.uid() == user.uid());
            let oldest = oldest.map(|(number, _)| *number).ok_or(words)?;
            self.silent.remove(&oldest);
            self.dropped += 1;
            one()
        })
    }

    fn add(&mut self, socket: PacketSocket, peer: PeerCredentials, user: User, greeting: Claim) {
        let number = self.next;
        self.next += 1;
        if epoll::add(&self.poll, &socket, EventData::new_u64(number), EventFlags::IN).is_ok() {
            let since = Instant::now();
            self.silent.insert(number, Silent { socket, peer, user, since, _greeting: greeting });
        }
    }

    /// Returns the next connection whose first message has arrived, and closes connections that have been
    /// silent for too long.
    pub fn next_arrival(&mut self) -> Option<Arrival> {
        self.expire();
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let mut events = Vec::with_capacity(1);
            epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), Some(&now)).ok()?;
            // Copied because the kernel's struct is packed.
            let data = events.first()?.data;
            let Silent { socket, peer, user, .. } = self.silent.remove(&data.u64())?;
            let _ = epoll::delete(&self.poll, &socket);
            let mut buffer = [0; MAX_PACKET];
            match socket.receive(&mut buffer) {
                Ok(packet) if packet.len > 0 => {
                    let is_whole = !packet.cut && packet.descriptors.is_empty();
                    let message = if is_whole { buffer[..packet.len].to_vec() } else { Vec::new() };
                    return Some(Arrival { socket, peer, user, message });
                }
                // The program has gone.
                _ => {}
            }
        }
    }

    fn expire(&mut self) {
        while let Some(oldest) = self.silent.first_entry()
            && oldest.get().since.elapsed() >= self.patience
        {
            oldest.remove();
            self.dropped += 1;
        }
    }

    /// The time until the next silent connection is closed. `None` if there is none.
    pub fn rest(&self) -> Option<Duration> {
        let (_, oldest) = self.silent.first_key_value()?;
        Some(self.patience.saturating_sub(oldest.since.elapsed()))
    }

    /// The number of connections that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The number of connections that were closed because they sent nothing.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl AsFd for Acceptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::{Bound, Users};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A listener of this test, with an acceptor that gives its user two greetings.
    struct Bed {
        listener: PacketListener,
        name: String,
        acceptor: Acceptor,
        users: Arc<Users>,
    }

    impl Bed {
        fn new(patience: Duration) -> Bed {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("remora-test/acceptor/{}/{number}", std::process::id());
            let two = Bound::new(Resource::Greeting, "greetings", "wait").of_a_user(2);
            Bed {
                listener: PacketListener::bind_abstract(&name).unwrap(),
                name,
                acceptor: Acceptor::new(patience).unwrap(),
                users: Users::new(remora_port::user::own_uid(), &[], vec![two]),
            }
        }

        fn connect(&mut self) -> PacketSocket {
            let socket = PacketSocket::connect_abstract(&self.name, Duration::from_secs(60)).unwrap();
            let users = Arc::clone(&self.users);
            let admit = |peer: &PeerCredentials| users.admit(peer).ok_or_else(|| "nobody".to_owned());
            self.acceptor.accept(&self.listener, admit).unwrap();
            socket
        }
    }

    #[test]
    fn a_first_message_arrives_with_its_user_and_the_oldest_silent_connection_gives_way() {
        let mut bed = Bed::new(Duration::from_secs(60));
        let [oldest, second, third] = [(); 3].map(|()| bed.connect());
        assert_eq!(oldest.receive(&mut [0; 8]).unwrap().len, 0, "closed");
        assert_eq!(bed.acceptor.dropped(), 1);
        assert!(bed.acceptor.next_arrival().is_none());
        third.send(b"third", &[]).unwrap();
        second.send(b"with a descriptor", &[bed.acceptor.as_fd()]).unwrap();
        let mut messages = [(); 2].map(|()| bed.acceptor.next_arrival().unwrap().message);
        messages.sort();
        assert_eq!(messages, [b"".to_vec(), b"third".to_vec()]);
        assert!(bed.acceptor.next_arrival().is_none() && bed.acceptor.rest().is_none());
        assert_eq!(bed.users.held(remora_port::user::own_uid()), Amounts::default());
    }

    #[test]
    fn a_connection_is_closed_when_its_time_is_over_and_when_its_program_goes() {
        let mut bed = Bed::new(Duration::ZERO);
        let late = bed.connect();
        assert!(bed.acceptor.next_arrival().is_none());
        assert_eq!((late.receive(&mut [0; 8]).unwrap().len, bed.acceptor.dropped()), (0, 1));
        let mut bed = Bed::new(Duration::from_secs(60));
        drop(bed.connect());
        assert!(bed.acceptor.next_arrival().is_none());
        assert_eq!((bed.acceptor.silent.len(), bed.acceptor.dropped()), (0, 0));
    }

    #[test]
    fn a_refusal_is_read_by_the_program() {
        let bed = Bed::new(Duration::from_secs(60));
        let Bed { listener, name, mut acceptor, .. } = bed;
        let socket = PacketSocket::connect_abstract(&name, Duration::from_secs(60)).unwrap();
        acceptor.accept(&listener, |_| Err("not today".to_owned())).unwrap();
        let mut buffer = [0; MAX_PACKET];
        let packet = socket.receive(&mut buffer).unwrap();
        assert_eq!(&buffer[..packet.len], refusal("not today"));
        assert_eq!(acceptor.refused(), 1);
    }
}
