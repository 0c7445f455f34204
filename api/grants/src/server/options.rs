//! The options of a grant server.

use std::collections::HashSet;
use std::time::Duration;

use crate::certificate::{Certificate, Fingerprint, Token};

/// The admitted clients and the limits of a server.
#[derive(Clone, Debug)]
pub struct GrantOptions {
    /// The certificate that the server presents.
    pub certificate: Certificate,
    /// The token that admits a client. `None`: no token admits one.
    pub token: Option<Token>,
    /// The fingerprints of the client certificates that admit a client.
    pub clients: HashSet<Fingerprint>,
    /// The maximum time from a client's connection to its grants.
    pub deadline: Duration,
    /// The maximum number of TLS handshakes in progress. When another client connects at this limit, the
    /// server ends the oldest handshake, unless that began less than 200 ms ago.
    pub handshakes: usize,
    /// The maximum number of clients that stay connected for announcements. A client beyond it has to ask for
    /// new grants when a key is outdated.
    pub followers: usize,
}

impl GrantOptions {
    /// Creates options with the default limits that admit no client yet.
    pub fn new(certificate: Certificate) -> GrantOptions {
        GrantOptions {
            certificate,
            token: None,
            clients: HashSet::new(),
            deadline: Duration::from_secs(5),
            handshakes: 32,
            followers: 256,
        }
    }
}
