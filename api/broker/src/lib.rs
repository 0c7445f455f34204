//! The broker shares one address, with RoCE's UDP port, between the programs of a network namespace. A peer
//! identifies a queue pair by GID and QP number alone, so both together must lead to one program.
//!
//! | file | contents |
//! |---|---|
//! | `name.rs` | the abstract socket name of an address's broker |
//! | `message.rs`, `message/` | the messages between programs and broker |
//! | `broker.rs` | [`Broker`]: starting and ending its thread |
//! | `broker/` | its state: addresses, ranges, programs, and frames for other programs |
//! | `broker/bounds.rs`, `broker/users.rs` | limits of each user, and ending a user's programs |
//! | `broker/gid_table.rs` | the addresses of the broker, and binding their sockets |
//! | `broker/gsi.rs` | queue pair 1 of the addresses |
//! | `broker/cm_agent.rs`, `broker/cm_requests.rs` | the CM: owners of ids, requests of programs |
//! | `broker/port_events.rs`, `broker/notices.rs` | changes of the port, and reporting them |
//! | `nic_server.rs` | [`NicServer`]: a broker whose process lends a NIC at its address |
//! | `interface.rs` | the interfaces of the network namespace, and their addresses |
//! | `broker/port_table.rs` | the ids that are bound to each port |
//! | `client.rs` | [`client::open`]: borrows a QPN range, and starts a broker if there is none |
//! | `environment.rs` | the environment variables that the libraries obey |
//! | `client/cm.rs` | [`client::CmClient`]: ids that connect, and the channels of their events |
//! | `paths.rs`, `paths/`, `broker/paths.rs` | paths of `/sys` and `/dev`, and counters as files |
//! | `client/paths.rs` | [`client::Paths`]: keeps the paths while a program reads them |
//! | `tally.rs` | [`Tally`]: the broker's counters |
//!
//! Each program has a *QPN range*: all QP numbers with the same upper seven bits. The broker binds a socket
//! for each range, and the kernel steers frames to the sockets by those bits. A program of the broker's own
//! user borrows a range with its socket, so that the broker is not on its data path. A *guest* is a program
//! of another user: it gets no socket, and the broker relays its frames, so that it receives nothing once
//! its connection has ended. If the kernel cannot steer, the broker reads one socket for all and hands the
//! frames over. If the broker's process ends before its programs, they lose their address and their devices
//! fail.
//!
//! Range 0 belongs to the broker. On it the broker runs the communication manager of InfiniBand
//! (`remora_cm`) for all programs, as a kernel does: the ports of `rdma_cm` are shared by the namespace, and
//! a program that dies is disconnected from its peers.
#![allow(unsafe_code, reason = "a program that starts a broker forks twice")]

mod broker;
pub mod client;
pub mod environment;
mod interface;
mod message;
mod name;
mod nic_server;
pub mod paths;
mod tally;

pub use broker::{Broker, BrokerError, Options};
pub use message::{
    BrokerFacts, Connect, GidEntry, IdEvent, IdEventKind, PortState, Posted, ProgramFacts, UserFacts,
};
pub use nic_server::{NicServer, NicServerError};
pub use remora_cm::{ConnParam, QpAttributes};
pub use remora_host::packet::FoundBy;
pub use remora_port::udp::SteeredBy;
pub use remora_wire::mad::PortSpace;
pub use remora_wire::mad::req::ConnectedService;
pub use tally::Tally;

/// Maximum number of entries of the GID table, which are the addresses of a device.
pub const GIDS: usize = 32;

/// QPN ranges that programs can have at a time. Range 0 belongs to the broker, for the management queue
/// pairs.
pub const PROGRAMS: usize = remora_port::udp::RANGES - 1;
