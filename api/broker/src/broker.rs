//! The broker of an address: starting and ending the thread that serves programs.

mod addresses;
mod bounds;
mod cm_agent;
mod cm_requests;
mod error;
mod gid_table;
mod gsi;
mod introductions;
mod notices;
mod options;
mod paths;
mod port_events;
mod port_holder;
mod port_table;
mod programs;
mod state;
mod strays;
mod users;
mod zoned_address;

use remora_host::Signal;
use remora_host::packet::PacketListener;
use remora_host::users::Users;
use remora_port::udp::{Options as UdpOptions, Socket};
use remora_verbs::nicd::Daemon;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::name;
pub use error::BrokerError;
pub use options::Options;
use state::{LentNic, State};

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
