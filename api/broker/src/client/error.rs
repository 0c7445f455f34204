//! The reason why a program has no QPN range.

use remora_host::packet::PeerCredentials;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::name;

/// The reason why a program has no QPN range. The text says in one line what is wrong and how to put it
/// right.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address has no broker, and none was to be started.
    #[error("no broker has {}: start a program with `remora run`, or `remora broker --address {}`", .0.ip(), .0.ip())]
    None(SocketAddr),
    /// The broker could not be started; contains the broker's text.
    #[error("{0}")]
    Start(String),
    /// The broker refused; contains its text.
    #[error("{0}")]
    Refused(String),
    /// The broker's process has reached a limit, and ends; contains the broker's text.
    #[error("{0}")]
    Ends(String),
    /// A process of another user has the address.
    #[error("{}", name::taken(*.0, .1))]
    Stranger(SocketAddr, PeerCredentials),
    /// The broker does not answer.
    #[error("the broker has not answered for {} s: end it (`remora doctor` names its process)", .0.as_secs_f32())]
    Silent(Duration),
    /// The broker's answer makes no sense.
    #[error("what the broker answers makes no sense: update the older one of program and broker")]
    Nonsense,
    /// The system refused.
    #[error("cannot use the broker: {}{}", .0, remora_port::remedy(.0))]
    System(#[from] io::Error),
}
