//! The broker of an address: starting and ending the thread that serves programs.

mod addresses;
mod bounds;
mod cm_agent;
mod cm_requests;
mod gid_table;
mod gsi;
mod introductions;
mod notices;
mod paths;
mod port_events;
mod port_table;
mod programs;
mod state;
mod strays;
mod users;
mod zoned_address;

use remora_host::Signal;
use remora_host::packet::{FoundBy, PacketListener, PeerCredentials};
use remora_host::users::{Bound, Users};
use remora_port::udp::{OpenError, Options as UdpOptions, Socket, SteeredBy};
use remora_verbs::nicd::Daemon;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::name;
use state::State;

/// Neighbours to which a program may have links at a time. Each link costs the program four descriptors and
/// memory.
const NEIGHBOURS: usize = 64;

/// Attributes of a new broker.
#[derive(Clone, Debug)]
pub struct Options {
    /// Users that may borrow ranges, in addition to the broker's own user and root.
    pub allow: Vec<u32>,
    /// True if the broker has all addresses of the network namespace from the start. Guests cannot add
    /// addresses.
    pub every_address: bool,
    /// True if a program started the broker because there was none. When such a broker lacks something that
    /// its process may not have, and no program uses it, it ends, so that the next program starts one.
    pub gives_way: bool,
    /// Time after the last program, or after the start, at which the broker ends. `None`: it never ends by
    /// itself.
    pub linger: Option<Duration>,
    /// Time limit for the first message on a new connection.
    pub patience: Duration,
    /// The distribution of frames to ranges. `Reader`: by the broker itself, as if the kernel could not
    /// steer.
    pub steered: SteeredBy,
    /// True if the broker serves this process alone, which reads the only socket.
    pub alone: bool,
    /// The way in which the end of a program is noticed.
    pub found: FoundBy,
    /// Neighbours to which a program may have links at a time, 0 to 126. Other neighbours are reached by UDP.
    pub neighbours: usize,
    /// Limits of users for what else the process lends.
    pub bounds: Vec<Bound>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            allow: Vec::new(),
            every_address: false,
            gives_way: false,
            linger: Some(Duration::from_secs(10)),
            patience: Duration::from_secs(3),
            steered: SteeredBy::Kernel,
            alone: false,
            found: FoundBy::Socket,
            neighbours: NEIGHBOURS,
            bounds: Vec::new(),
        }
    }
}

/// The reason why there is no broker. The text says in one line what is wrong and how to put it right.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Another process has the name of the address: its broker, or a process of another user.
    #[error("{}", name::running(*.0, .1.as_ref()))]
    Running(SocketAddr, Option<PeerCredentials>),
    /// The sockets cannot be bound; contains the reason.
    #[error("{0}")]
    Port(String),
    /// The broker's process has reached its limit of descriptors.
    #[error("{0}")]
    Limit(String),
    /// The broker has as many addresses as it may have.
    #[error("the broker has {0} addresses, and may have no more")]
    Full(usize),
    /// The system refused.
    #[error("the system gives the broker no {}: {}{}", .0, .1, remora_port::remedy(.1))]
    System(&'static str, #[source] io::Error),
}

impl BrokerError {
    /// Returns the error for sockets that cannot be bound, with the holder of the UDP port as far as it is
    /// known.
    fn of_port(error: OpenError) -> BrokerError {
        match error {
            OpenError::Taken(address) => BrokerError::Port(addresses::who_has(address)),
            OpenError::Os(_, errno @ (rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)) => {
                BrokerError::Limit(format!(
                    "an address takes {} descriptors, and process {} may have no more ({errno}): it needs `ulimit -n 1024`",
                    remora_port::udp::RANGES + 1,
                    std::process::id()
                ))
            }
            other => BrokerError::Port(other.to_string()),
        }
    }
}

/// The NIC that the process of a broker lends, and the socket for the programs that use it.
#[derive(Debug)]
pub(crate) struct LentNic {
    daemon: Arc<Daemon>,
    listener: PacketListener,
}

/// A running broker. Dropping it ends the broker, and so the devices of the programs that borrow from it.
#[derive(Debug)]
pub struct Broker {
    stop: Arc<Signal<()>>,
    ended: Arc<Signal<()>>,
    lent: Arc<Signal<LentNic>>,
    users: Arc<Users>,
    thread: Option<JoinHandle<()>>,
    fork: remora_memory::ForkMark,
}

impl Broker {
    /// Starts the broker of one address of this machine, whose UDP port is the one of RoCE. The sockets of an
    /// address are bound when the first program asks for it.
    ///
    /// # Errors
    /// `Running`, `System`; `Port` if the address does not belong to this machine.
    pub fn open(address: SocketAddr, options: &Options) -> Result<Broker, BrokerError> {
        let address = name::standard(address);
        let system = |resource| move |error: io::Error| BrokerError::System(resource, error);
        let stop = Arc::new(Signal::new(1).map_err(system("descriptor"))?);
        let ended = Arc::new(Signal::new(1).map_err(system("descriptor"))?);
        let lent = Arc::new(Signal::new(1).map_err(system("descriptor"))?);
        let mut state = State::new(address, options, Arc::clone(&stop), Arc::clone(&lent))?;
        let users = Arc::clone(&state.users);
        // Bound once for a test, so that the caller learns now whether the sockets can be bound later.
        Socket::open(address, &UdpOptions::default()).map_err(BrokerError::of_port)?;
        let over = Arc::clone(&ended);
        let body = move || {
            state.serve();
            drop(state);
            over.put(());
        };
        let thread = remora_port::spawn_settled("remora-broker".to_owned(), body);
        let thread = thread.map_err(system("thread"))?;
        Ok(Broker { stop, ended, lent, users, thread: Some(thread), fork: remora_memory::ForkMark::get() })
    }

    /// What each user holds.
    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.users
    }

    /// Lends a NIC from now on: to programs that connect to `listener`, and to those that ask for it at the
    /// broker's own name.
    pub(crate) fn lend(&self, daemon: Arc<Daemon>, listener: PacketListener) {
        self.lent.put(LentNic { daemon, listener });
    }

    /// A descriptor that becomes readable when the broker has ended by itself, after nothing was borrowed for
    /// the time of [`Options::linger`].
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.fork.is_child() {
            // The thread belongs to the parent.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop.put(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
