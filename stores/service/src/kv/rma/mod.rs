//! The key-value store over 1RMA: encrypted, and without queue pairs.
//!
//! The table is that of design farm. A GET is two reads, of a neighbourhood and of an object, whose versions
//! the client checks. PUT, DELETE and listings are calls over the TLS connection that gave the client its
//! grants; the server's thread answers them by the machine that answers SENDs elsewhere. A client may have
//! several servers of the same pairs. A GET that fails at one goes to another at once.
//!
//! ```
//! use remora_grants::{Certificate, Credential, GrantOptions, Pin, Token};
//! use remora_service::kv::rma::{RmaServer, RmaServerAddress, RmaSession};
//! use remora_service::kv::{KvSession, Limits, Size};
//! use remora_verbs::{Device, Mode};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let here = "127.0.0.1:0".parse::<std::net::SocketAddr>()?;
//! let token = Token::random()?;
//! let options = GrantOptions { token: Some(token.clone()), ..GrantOptions::new(Certificate::new()?) };
//! let nic = Device::udp(here)?.mode(Mode::Dedicated).open()?;
//! let server = RmaServer::open(&nic, here, options, &Limits::default(), &Size::of_keys(1000))?;
//!
//! let pin = Pin { address: server.address(), fingerprint: server.fingerprint() };
//! let servers = [RmaServerAddress { pin, credential: Credential::Token(token) }];
//! let mut session = RmaSession::connect(&Device::udp(here)?.open()?, &servers, Default::default())?;
//! session.put(b"key", b"value")?;
//! assert_eq!(session.get(b"key")?.as_deref(), Some(&b"value"[..]));
//! # Ok(())
//! # }
//! ```

mod calls;
mod frame;
mod link;
mod network;
mod server;
mod session;

pub use server::RmaServer;
pub use session::{RmaServerAddress, RmaSession};

/// Keys by which grants and machines refer to regions and blocks.
const INDEX: u32 = 1;
const VALUES: u32 = 2;
const LOCAL: u32 = 3;
const STAGING: u32 = 4;
/// Key of a client's memory.
const ARENA: u32 = 5;
