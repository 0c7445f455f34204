//! Grants of 1RMA over TLS 1.3: a server program gives its clients the keys of its memory regions.
//!
//! A [`GrantServer`] has its own certificate, and admits clients by a [`Token`] or by the [`Fingerprint`] of
//! their certificate. A client knows the address of the server and the fingerprint of its certificate
//! ([`Pin`]). The server checks that the client's TCP connection comes from the address of the client's NIC,
//! because the keys are derived from that address. The server keeps no table of the grants it has given. It
//! can [announce](GrantServer::announce) the next key of a region to the clients whose connections are open.
//!
//! A server program can also answer messages of its clients over the same connections: the server implements
//! a [`CallHandler`], and the client uses a [`Caller`].
//!
//! An [`RmaSession`] is a complete client: it fetches grants, reads and writes regions, and follows new
//! keys.
//!
//! ```
//! use remora_grants::{Certificate, Credential, Offer, Pin, GrantServer, GrantOptions, RmaSession, Token};
//! use remora_verbs::rma::{Rights, RmaOptions};
//! use remora_verbs::{Access, Device};
//!
//! let here = "127.0.0.1:0".parse::<std::net::SocketAddr>()?;
//! let context = Device::udp(here)?.open()?;
//! let memory = context.alloc_pd()?.allocate(1 << 16, Access::LOCAL_WRITE)?;
//! memory.write(100, b"over there")?;
//! let region = context.open_rma(&RmaOptions::default())?.expose(memory, Rights::READ, None)?;
//! let token = Token::random()?;
//! let options = GrantOptions { token: Some(token.clone()), ..GrantOptions::new(Certificate::new()?) };
//! let server = GrantServer::start(here, options, vec![Offer::new("memory", Rights::READ, region)])?;
//!
//! let pin = Pin { address: server.address(), fingerprint: server.fingerprint() };
//! let nic = Device::udp(here)?.open()?;
//! let mut session = RmaSession::open(&nic, pin, Credential::Token(token))?;
//! let mut bytes = [0; 10];
//! session.read("memory", 100, &mut bytes)?;
//! assert_eq!(&bytes, b"over there");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod caller;
mod certificate;
mod channel;
mod error;
mod hexadecimal;
mod message;
mod secret_file;
mod server;
mod session;
mod tls;

pub use caller::{Caller, ServerMessage};
pub use certificate::{Certificate, Fingerprint, ParseError, Token};
pub use channel::{Announcement, Channel, Credential, Pin};
pub use error::Error;
pub use message::RegionGrant;
pub use secret_file::{key_of_file, make_secret, read_secret};
pub use server::{CallHandler, GrantCounters, GrantOptions, GrantServer, Offer, Replies};
pub use session::RmaSession;

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
