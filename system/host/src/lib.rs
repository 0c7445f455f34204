//! A real NIC on a host: the clock, the threads, and the loop receive → process → transmit → wait.
//!
//! An [`Adapter`] holds [`Engine`]s. Callers that post and poll drive an engine (`pass.rs` is one step).
//! While they do not, the `attendant` does, or a dedicated thread (`dedicated.rs`). [`connect`] connects
//! two queue pairs over TCP; [`metrics`] exports the counters.

pub mod acceptor;
mod adapter;
mod attach;
mod attendant;
mod bells;
mod bytes;
mod clock;
pub mod codec;
pub mod connect;
mod dedicated;
mod doorbells;
mod engine;
mod event_queue;
mod families;
mod log_limit;
pub mod metrics;
pub mod packet;
mod pass;
mod peers;
mod port_kind;
pub mod recording;
mod replay;
mod rma;
mod rx_horizon;
mod signal;
pub mod users;
mod watch;

pub use adapter::{Adapter, Config, MAX_ENGINES, OpenError, PortConfig, path_mtu, random};
pub use attach::{Attach, AttachError};
pub use attendant::{LONGEST, SPIN};
pub use bytes::parse_bytes;
pub use clock::Clock;
pub use doorbells::{DoorbellMemory, Doorbells};
pub use engine::{AttachRefusal, DriverCounters, Engine, Inside, Mode, ModifyRefusal, PortFacts};
pub use event_queue::EventQueue;
pub use families::families;
pub use log_limit::LogLimit;
pub use pass::{CqHook, EngineEvent, EventHook};
pub use peers::{EngineId, Peers};
pub use port_kind::PortKind;
pub use remora_port::capture::{CAPTURE_LIMIT, FrameFile, PacketDirection};
pub use remora_port::fault::{Rules, RulesError};
pub use remora_transport::Instant;
pub use replay::{Difference, Report, Tally, replay};
pub use rma::{key_deriver, random_key, rma_cipher};
pub use signal::{Channel, Signal, wait_any, wait_either, wait_readable};
