//! 1RMA: one-sided operations without connections (1RMA paper, SIGCOMM 2020).
//!
//! A [`Requester`] manages the command slots of an engine, a [`Responder`] the operations that the engine
//! serves. Both must be admitted by the [`Solicitation`] before data may arrive; it holds the window and one
//! queue per class of service. All three see only authenticated messages, as values. The NIC builds,
//! authenticates and parses the messages.
//!
//! ```text
//! issue -> line -> request ->                         read:  data -> end
//!                             -> line -> solicit -> data -> completion -> end (write, rekey)
//! ```

mod arrivals;
mod deadlines;
pub mod executor;
mod requester;
mod responder;
mod round_trips;
mod settings;
mod solicitation;
mod status;

pub use arrivals::Arrivals;
pub use requester::{Command, DataPiece, IssueError, OperationEnd, Requester};
pub use responder::{Accepted, Request, Responder, Response, Served};
pub use settings::{Settings, Timers, WriteDebit};
pub use solicitation::{Party, Solicitation, Waiting};
pub use status::Status;

#[cfg(test)]
mod tests;
