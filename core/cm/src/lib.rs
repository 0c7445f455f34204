//! The InfiniBand communication manager (CM): connects and disconnects queue pairs by datagrams on QP 1
//! (IBTA volume 1, chapter 12; annex A11 for IP addresses). It does no I/O: it is driven by MADs, calls,
//! and time passed as values.
//!
//! A [`Cm`] manages one channel adapter with all its addresses. The driver of the `Cm` assigns each id a
//! *handle* of its own choice, and finds the handle in the [`CmEvent`]s.
//!
//! [`Cm::receive`] processes a MAD, and [`Cm::transmit`] returns the next one to send.
//! [`Cm::next_deadline`] and [`Cm::expire`] are the timers. [`Cm::next_event`] returns the events for
//! programs.
//!
//! # One connection
//!
//! | active side | | passive side |
//! | ----------- | - | ------------ |
//! | [`Cm::connect`] | REQ → | [`EventKind::ConnectRequest`] |
//! | [`EventKind::ConnectResponse`] | ← REP | [`Cm::accept`] |
//! | [`Cm::ready_to_use`] | RTU → | [`EventKind::Established`] |
//! | [`Cm::disconnect`] | DREQ → | [`EventKind::Disconnected`] |
//! | [`EventKind::Disconnected`] | ← DREP | [`Cm::disconnect`] |
//! | [`EventKind::TimewaitExit`] | | [`EventKind::TimewaitExit`] |
//!
//! # Bounds
//!
//! All tables have their final size from the start, and nothing allocates later. While a queue of MADs or
//! events is full, [`Cm::receive`] drops what arrives, as a network would: peers repeat it. Calls then fail
//! with [`CmError::Busy`].

#![forbid(unsafe_code)]

mod cm;
mod cm_id;
mod config;
mod counters;
mod error;
mod event;
mod id_table;
mod index;
mod instant;
mod listeners;
mod parameters;
mod private_data;
mod received_mad;
mod state;

pub use cm::Cm;
pub use config::CmConfig;
pub use counters::CmCounters;
pub use error::CmError;
pub use event::{Cause, CmEvent, ConnParam, ConnectRequest, EventKind, Rejection};
pub use instant::Instant;
pub use parameters::{
    AcceptParam, ConnectParam, GidPair, Listen, MadPath, QpAttributes, RejectParam, SidrReplyParam,
    SidrRequestParam,
};
pub use private_data::PrivateData;
pub use state::CmState;
