//! The broker shares one address, and RoCE's own UDP port there, between the programs of a network namespace.
//! A peer names a queue pair by GID and QP number alone, so both must lead to one program.
//!
//! | file | holds |
//! |---|---|
//! | `name.rs` | the abstract socket at which the broker of an address is found |
//! | `message.rs`, `message/` | what programs and broker say to each other |
//! | `broker.rs` | [`Broker`]: its thread, and how it ends |
//! | `broker/` | its state: addresses, ranges, programs, and the frames that strayed |
//! | `broker/bounds.rs`, `broker/users.rs` | places of each user, and their end by the owner |
//! | `broker/gid_table.rs` | which addresses the broker has, and when their sockets are bound |
//! | `broker/gsi.rs` | queue pair 1 of the addresses |
//! | `broker/cm_agent.rs`, `broker/cm_requests.rs` | the CM: owners of ids, requests of programs |
//! | `broker/port_events.rs`, `broker/notices.rs` | changes of the port, and who is told of them |
//! | `interface.rs` | the interfaces of the network namespace, and their addresses |
//! | `broker/port_table.rs` | which id is bound to which port |
//! | `client.rs` | [`client::open`]: a QPN range for this program, and a broker where there is none |
//! | `environment.rs` | the variables that the libraries obey |
//! | `client/cm.rs` | [`client::CmClient`]: ids that connect, and the channels of their events |
//! | `paths.rs`, `paths/`, `broker/paths.rs` | paths of `/sys` and `/dev`, and counters as files |
//! | `client/paths.rs` | [`client::Paths`]: keeps them while a program reads them |
//! | `tally.rs` | [`Tally`]: what the broker counts |
//!
//! Each program has a *QPN range*: all QP numbers with the same upper seven bits. The broker binds a
//! socket for each range, and the kernel steers by those bits. The broker lends a range with its
//! socket to programs of its own user, and is not on their data path. A *guest* is a program of
//! another user: it gets no socket, and the broker relays its frames, so that it receives nothing
//! once its connection has ended. Where the kernel cannot steer, the broker reads the only socket and
//! hands the frames over. Its process may end before the programs': they have lost their address
//! then, and their devices fail.
//!
//! Range 0 is the broker's own. There it speaks the communication manager of InfiniBand (`remora_cm`) for all
//! programs, as a kernel does: the ports of `rdma_cm` are the namespace's, and a program that dies is
//! disconnected for it.
#![allow(unsafe_code, reason = "a program that starts a broker forks twice")]

mod broker;
pub mod client;
pub mod environment;
mod interface;
mod message;
mod name;
pub mod paths;
mod tally;

pub use broker::{Broker, BrokerError, Options};
pub use message::{
    BrokerFacts, Connect, GidEntry, IdEvent, IdEventKind, PortState, Posted, ProgramFacts, UserFacts,
};
pub use remora_cm::{ConnParam, QpAttributes};
pub use remora_host::packet::FoundBy;
pub use remora_port::udp::SteeredBy;
pub use remora_wire::mad::PortSpace;
pub use remora_wire::mad::req::ConnectedService;
pub use tally::Tally;

/// Entries of the GID table at most: addresses of a device.
pub const GIDS: usize = 32;

/// QPN ranges that programs can have at once; range 0 is the broker's own, for the management queue pairs.
pub const PROGRAMS: usize = remora_port::udp::RANGES - 1;
