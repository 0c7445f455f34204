//! The communication manager of InfiniBand: it brings queue pairs together and apart by datagrams on QP 1
//! (IBTA volume 1, chapter 12; annex A11 for IP addresses). It is pure: driven by MADs, calls and time given
//! as values.
//!
//! A [`Cm`] is the manager of one channel adapter and all its addresses. Programs are somewhere else: whoever
//! drives the `Cm` gives each id a *handle* of its own choice, and finds it in the [`CmEvent`]s.
//!
//! [`Cm::receive`] takes a MAD, and [`Cm::transmit`] returns the next one that leaves.
//! [`Cm::next_deadline`] and [`Cm::expire`] are the timers. [`Cm::next_event`] is what programs get to
//! know.
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
//! All tables have their size from the start, and nothing allocates later. A full queue of MADs or events
//! makes [`Cm::receive`] drop what comes, as a network would: peers repeat it. Calls answer
//! [`CmError::Busy`] then.

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
