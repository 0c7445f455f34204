//! Why there is no grant, or an operation by one did not succeed.

use remora_verbs::rma::RmaError;
use remora_verbs::{AccessError, Address, CreateError};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why there is no grant, or an operation by one did not succeed. The text says how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens.
    #[error("no server gives grants at {0}: start one with `remora rma serve --listen {0}`")]
    NoServer(SocketAddr),
    /// The NIC's address does not lead there.
    #[error(
        "the NIC's address {nic} does not reach {server}: choose another address of this machine (--address)"
    )]
    NoWay {
        /// The NIC's.
        nic: IpAddr,
        /// The server's.
        server: SocketAddr,
        /// The system's.
        #[source]
        cause: io::Error,
    },
    /// The other side does not speak TLS 1.3.
    #[error("what listens at {0} does not speak TLS 1.3: it gives no grants")]
    NotTls(SocketAddr),
    /// The server has another certificate.
    #[error(
        "the certificate of {0} has another fingerprint: take the one that the server printed; if it is right, \
         somebody answers in the server's place"
    )]
    Fingerprint(SocketAddr),
    /// Nothing came in time.
    #[error("{0} is silent: it took the connection, and answered nothing in time")]
    Silent(SocketAddr),
    /// The server ended the connection.
    #[error("{0} has hung up: the server has ended, or is too busy; try again")]
    HungUp(SocketAddr),
    /// The server has no place for a client that stays.
    #[error(
        "{0} has as many clients as it takes: try again when one has left, or start it with more --clients"
    )]
    Full(SocketAddr),
    /// The server does not know the credential.
    #[error("{server} does not admit this client: {}", mend(.certificate))]
    NotAdmitted {
        /// The server.
        server: SocketAddr,
        /// The certificate's fingerprint, if that was the credential.
        certificate: Option<String>,
    },
    /// The server sees the client at another address than its NIC has.
    #[error(
        "the server sees this client at {seen}, and its NIC has {nic}: an address translation (NAT) is in \
         between, over which keys are not valid; use an address that the server sees (--address)"
    )]
    Translated {
        /// The NIC's.
        nic: Address,
        /// As the server sees it.
        seen: Address,
    },
    /// The other side breaks the protocol.
    #[error("{0} breaks the protocol of grants: are both of the same version?")]
    Protocol(SocketAddr),
    /// Any other error of TLS.
    #[error("TLS with {0}")]
    Tls(SocketAddr, #[source] rustls::Error),
    /// Over shared memory.
    #[error("1RMA over shm needs a connected queue pair beside it: use port udp or xdp")]
    Shm,
    /// The server grants no such region.
    #[error("the server grants no region {wanted}; it grants {granted}")]
    NoRegion {
        /// What was asked for.
        wanted: String,
        /// The names, with commas.
        granted: String,
    },
    /// The grant lacks the right.
    #[error("the server does not grant {right} to region {region}")]
    NoRight {
        /// Read, write or rekey.
        right: &'static str,
        /// The region's name.
        region: String,
    },
    /// The bytes lie outside.
    #[error("region {region} has {len} bytes: {end} is beyond its end")]
    OutOfBounds {
        /// The region's name.
        region: String,
        /// Its length.
        len: u64,
        /// The end of what was asked for.
        end: u64,
    },
    /// Each new grant was outdated when it was used.
    #[error("the key of region {0} changes faster than this client can follow: rotate more slowly")]
    KeyChanges(String),
    /// The server's NIC does not answer.
    #[error("the server's NIC at {nic} does not answer: {}", why(.ended))]
    NoAnswer {
        /// Its address and UDP port.
        nic: SocketAddr,
        /// Has the server ended the channel, too?
        ended: bool,
    },
    /// Any other end of an operation.
    #[error(transparent)]
    Rma(RmaError),
    /// The NIC did not create a resource.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Memory could not be read or written.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No certificate was made, or a file holds none.
    #[error("{0}")]
    Certificate(String),
    /// A server cannot offer these regions.
    #[error("{0}")]
    Offers(String),
    /// A file with a secret.
    #[error("{0}")]
    File(String),
    /// An address cannot be listened at.
    #[error("listening at {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn mend(certificate: &Option<String>) -> String {
    match certificate {
        Some(fingerprint) => format!("start it with `remora rma serve --admit {fingerprint}`"),
        None => "take the token that it printed, or a certificate that it admits".to_owned(),
    }
}

fn why(ended: &bool) -> &'static str {
    if *ended { "the server has ended" } else { "is it overloaded, or does a firewall stop its UDP port?" }
}
