//! Connection set-up over TCP: two queue pairs exchange their numbers, and their ports become peers.
//!
//! ```text
//! client                                   server
//!   | -- REQUEST: who I am, my queue pair --> |
//!   | <-- ACCEPT: the same, and the link ---- |     shm: the link's name, or "the one we share already"
//!   |     (takes the link, RTR, RTS)          |     (gives the link, RTR, RTS)
//!   | -- READY -----------------------------> |
//!   | <-- GO -------------------------------- |
//! ```
//!
//! After GO both queue pairs are in RTS. Either side may answer REJECT with a text instead, and the server
//! may answer FULL. If both sides ask for it, the connection then stays open, so that its end shows that a
//! queue pair is gone (`lasting`). `message` defines the bytes. `client` is the client's side; `listener`,
//! `pending` and `request` are the server's side, which strangers can reach: lengths, times and numbers at
//! once are bounded.

mod agreement;
mod client;
mod deadline;
mod error;
mod exchange;
mod full;
mod lasting;
mod limits;
mod listener;
mod message;
mod pending;
mod request;
mod shared;
mod side;
mod source;
mod uplink;

pub use agreement::Agreement;
pub use client::{connect, connect_pair};
pub use deadline::ROUTE_PATIENCE;
pub use error::ConnectError;
pub use full::{Capacity, Full};
pub use lasting::{Departures, SetupConnection};
pub use limits::{MAX_PRIVATE, VERSION};
pub use listener::Listener;
pub use message::{Hello, IRN, LASTING, LinkOffer, Message, PRISM, SOURCE_PORT, STROM};
pub use pending::{PENDING, PENDING_OF_SOURCE};
pub(crate) use request::give_link;
pub use request::{Answered, Request};
pub use shared::REQUESTS;
pub use side::Side;
pub use uplink::{LinkOfferer, LinkPeer, Uplink};
