//! Recordings: one file with everything that a NIC was given and what it made of it, which
//! [`replay`](crate::replay) executes on a NIC without a port (`docs/reference/recording.md`).
//!
//! | file | holds |
//! |---|---|
//! | `event.rs` | the events of a file |
//! | `abridged.rs` | frames and work requests without user data |
//! | `connections.rs` | which queue pair is connected to which |
//! | `log.rs` | the bounded file that is written |
//! | `reader.rs` | the file that is read |
//! | `queues.rs` | the queues of the NIC, which both sides follow |
//! | `recorder.rs` | the calls of a NIC that is recorded |
//! | `tap.rs` | the port of a NIC that is recorded |
//!
//! A recorded NIC does not use the queues of the program but copies. They change at recorded moments only, so
//! that a replayed NIC reads what the recorded one has read, whenever the program wrote it. An engine without
//! a recording is compiled without any of this.

mod abridged;
mod connections;
mod event;
mod log;
mod queues;
mod reader;
mod recorder;
mod tap;

pub use abridged::Abridged;
pub use abridged::ReceivedFrame;
pub(crate) use abridged::{below_bth, corrupt, destination};
pub(crate) use connections::Connections;
pub use event::{End, Event, Feature, Header, Limits, PeerFacts};
pub(crate) use log::Log;
pub use log::append;
pub(crate) use queues::{Fresh, Queues};
pub use reader::{Reader, ReplayError};
pub(crate) use recorder::Arrival;
pub use recorder::Recorder;
pub(crate) use tap::Tap;

/// First line of a recording: the name of the format, its version, and what the file does not hold.
pub const MAGIC: &str = "remora recording 1: without payloads, operands of atomics and keys of 1RMA\n";

/// Default limit of a recording's size in bytes.
pub const RECORD_LIMIT: u64 = 1 << 30;

/// Maximum length of an event in a file, in bytes: all slots of the longest queue, and more.
pub(crate) const MAX_EVENT: usize = 1 << 27;
