//! 1RMA: one-sided operations without connections (1RMA paper, SIGCOMM 2020).
//!
//! A [`Requester`] has the command slots of an engine, a [`Responder`] the operations that it serves. Both
//! ask the [`Solicitation`] before bytes may come: it has the window and the line for each class of service.
//! All three see authenticated messages only, as values; what a message's bytes are is the NIC's business.
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
