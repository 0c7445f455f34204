//! The broker of an address: the thread that serves programs, and how it ends.

mod addresses;
mod bounds;
mod cm_agent;
mod cm_requests;
mod gid_table;
mod gsi;
mod introductions;
mod notices;
mod paths;
mod places;
mod port_events;
mod port_table;
mod programs;
mod state;
mod strays;
mod users;
mod zoned_address;

use remora_host::Signal;
use remora_host::packet::{FoundBy, PeerCredentials};
use remora_port::udp::{OpenError, Options as UdpOptions, Socket, SteeredBy};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::name;
use state::State;

/// Neighbours to which a program may have links at once. Each takes four descriptors of it, and memory.
const NEIGHBOURS: usize = 64;

/// Attributes of a broker that is to be started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Users that may borrow beside the broker's own and root.
    pub allow: Vec<u32>,
    /// It has all addresses of the network namespace from the start. Guests add none.
    pub every_address: bool,
    /// It was started by a program for want of another. One that lacks what its process may have gives way to
    /// one that the next program starts, while no program uses it.
    pub gives_way: bool,
    /// Time after the last program, or after the start, in which the broker ends; `None`: never.
    pub linger: Option<Duration>,
    /// Time in which a new connection must say something.
    pub patience: Duration,
    /// Who brings frames to the range that they are for. `Reader`: the broker, as where the kernel cannot.
    pub steered: SteeredBy,
    /// It serves this process alone, which reads the only socket.
    pub alone: bool,
    /// How the end of a program is noticed.
    pub found: FoundBy,
    /// Neighbours to which a program may have links at once, 0 to 126. It reaches the others by UDP.
    pub neighbours: usize,
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
        }
    }
}

/// Why there is no broker: one line with the fault and its mend.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Another process has the name of the address: its broker, or a process of another user.
    #[error("{}", name::running(*.0, .1.as_ref()))]
    Running(SocketAddr, Option<PeerCredentials>),
    /// The sockets cannot be bound.
    #[error("{0}")]
    Port(String),
    /// Its process may have no more descriptors.
    #[error("{0}")]
    Limit(String),
    /// It has as many addresses as it may have.
    #[error("the broker has {0} addresses, and may have no more")]
    Full(usize),
    /// The system refused.
    #[error("the system gives the broker no {0}: {1} (descriptors are limited by `ulimit -n`)")]
    System(&'static str, #[source] io::Error),
}

impl BrokerError {
    /// For sockets that cannot be bound: whoever has the UDP port is named, as far as the system tells.
    fn of_port(error: OpenError) -> BrokerError {
        match error {
            OpenError::Taken(at) => BrokerError::Port(addresses::who_has(at)),
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

/// A running broker. Dropping it ends it, and with it the devices of the programs that borrow from it.
#[derive(Debug)]
pub struct Broker {
    stop: Arc<Signal<()>>,
    ended: Arc<Signal<()>>,
    thread: Option<JoinHandle<()>>,
    fork: remora_memory::ForkMark,
}

impl Broker {
    /// Starts the broker of one address of this machine; its UDP port is RoCE's own. The sockets are bound
    /// when the first program asks, and so are those of further addresses.
    ///
    /// # Errors
    /// `Running`, `System`; `Port` if the address is none of this machine.
    pub fn open(address: SocketAddr, options: &Options) -> Result<Broker, BrokerError> {
        let address = name::standard(address);
        let system = |what| move |error: io::Error| BrokerError::System(what, error);
        let stop = Arc::new(Signal::new(1).map_err(system("descriptor"))?);
        let ended = Arc::new(Signal::new(1).map_err(system("descriptor"))?);
        let mut state = State::new(address, options, Arc::clone(&stop))?;
        // Whoever starts it learns now whether the sockets can be bound later.
        Socket::open(address, &UdpOptions::default()).map_err(BrokerError::of_port)?;
        let over = Arc::clone(&ended);
        let body = move || {
            state.serve();
            drop(state);
            over.put(());
        };
        let thread = remora_port::spawn_settled("remora-broker".to_owned(), body);
        let thread = thread.map_err(system("thread"))?;
        Ok(Broker { stop, ended, thread: Some(thread), fork: remora_memory::ForkMark::get() })
    }

    /// Becomes readable when it has ended by itself: nobody has borrowed anything for the time that
    /// [`Options::linger`] has.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.fork.is_child() {
            // The thread is the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        self.stop.put(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
