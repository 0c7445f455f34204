//! The reason why there is no broker.

use remora_host::packet::PeerCredentials;
use remora_port::udp::OpenError;
use std::io;
use std::net::SocketAddr;

use super::port_holder;
use crate::name;

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
    pub(super) fn of_port(error: OpenError) -> BrokerError {
        match error {
            OpenError::Taken(address) => BrokerError::Port(port_holder::who_has(address)),
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
