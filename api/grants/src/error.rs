//! The error type of this crate.

use remora_verbs::rma::RmaError;
use remora_verbs::{AccessError, Address, CreateError};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The reason why a client got no grant, or why an operation with a grant failed. The text tells the user
/// how to correct the problem.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No server listens at the address.
    #[error("no server gives grants at {0}: start one with `remora rma serve --listen {0}`")]
    NoServer(SocketAddr),
    /// The NIC's address has no route to the server.
    #[error(
        "the NIC's address {nic} does not reach {server}: choose another address of this machine (--address)"
    )]
    NoWay {
        /// The address of the NIC.
        nic: IpAddr,
        /// The address of the server.
        server: SocketAddr,
        /// The error of the operating system.
        #[source]
        cause: io::Error,
    },
    /// The program at the address does not speak TLS 1.3.
    #[error("what listens at {0} does not speak TLS 1.3: it gives no grants")]
    NotTls(SocketAddr),
    /// The fingerprint of the server's certificate is not the expected one.
    #[error(
        "the certificate of {0} has another fingerprint: take the one that the server printed; if it is right, \
         somebody answers in the server's place"
    )]
    Fingerprint(SocketAddr),
    /// The server sent no answer before the timeout.
    #[error("{0} is silent: it took the connection, and answered nothing in time")]
    Silent(SocketAddr),
    /// The server closed the connection.
    #[error("{0} has hung up: the server has ended, or is too busy; try again")]
    HungUp(SocketAddr),
    /// The server has reached its limit of clients that stay connected.
    #[error(
        "{0} has as many clients as it takes: try again when one has left, or start it with more --clients"
    )]
    Full(SocketAddr),
    /// The server does not know the token or the certificate.
    #[error("{server} does not admit this client: {}", mend(.certificate))]
    NotAdmitted {
        /// The address of the server.
        server: SocketAddr,
        /// The fingerprint of the client's certificate. `None` if the client presented a token.
        certificate: Option<String>,
    },
    /// The source address of the client's connection, as the server sees it, is not the address of the
    /// client's NIC.
    #[error(
        "the server sees this client at {seen}, and its NIC has {nic}: an address translation (NAT) is in \
         between, over which keys are not valid; use an address that the server sees (--address)"
    )]
    Translated {
        /// The address of the NIC.
        nic: Address,
        /// The source address that the server sees.
        seen: Address,
    },
    /// The other side sent a malformed or unexpected message.
    #[error("{0} breaks the protocol of grants: are both of the same version?")]
    Protocol(SocketAddr),
    /// Any other TLS error.
    #[error("TLS with {0}")]
    Tls(SocketAddr, #[source] rustls::Error),
    /// The NIC uses shared memory, over which sessions do not work.
    #[error("1RMA over shm needs a connected queue pair beside it: use port udp or xdp")]
    Shm,
    /// The server grants no region of that name.
    #[error("the server grants no region {wanted}; it grants {granted}")]
    NoRegion {
        /// The name of the requested region.
        wanted: String,
        /// The names of the granted regions, separated by commas.
        granted: String,
    },
    /// The grant does not include the right that the operation needs.
    #[error("the server does not grant {right} to region {region}")]
    NoRight {
        /// The missing right: `read`, `write` or `rekey`.
        right: &'static str,
        /// The name of the region.
        region: String,
    },
    /// The range of the operation extends beyond the end of the region.
    #[error("region {region} has {len} bytes: {end} is beyond its end")]
    OutOfBounds {
        /// The name of the region.
        region: String,
        /// The length of the region in bytes.
        len: u64,
        /// The end of the requested range: offset plus length, in bytes.
        end: u64,
    },
    /// Every grant that the client fetched for one operation was outdated when the client used it.
    #[error("the key of region {0} changes faster than this client can follow: rotate more slowly")]
    KeyChanges(String),
    /// The server's NIC answered no request before the timeout.
    #[error("the server's NIC at {nic} does not answer: {}", why(.ended))]
    NoAnswer {
        /// The IP address and UDP port of the server's NIC.
        nic: SocketAddr,
        /// True if the server has closed the grant connection, too.
        ended: bool,
    },
    /// Any other failure of a 1RMA operation.
    #[error(transparent)]
    Rma(RmaError),
    /// The NIC could not create a resource.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Local memory could not be read or written.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A certificate or token could not be generated, or TLS does not take the certificate.
    #[error("{0}")]
    Certificate(String),
    /// The list of regions is not valid, because of a name or their number.
    #[error("{0}")]
    Offers(String),
    /// A file with a secret cannot be read or created, or its contents are not usable.
    #[error("{0}")]
    File(String),
    /// The server cannot listen at the address.
    #[error("listening at {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// An operating-system call failed.
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
