//! Counters for Prometheus: families of samples, their text form, and a small HTTP endpoint that serves them.
//!
//! ```
//! use remora_host::metrics::{Endpoint, Family};
//!
//! let sent = Family::counter("remora_sent_packets", "Packets transmitted.");
//! let snapshot = move || vec![sent.clone().sample(&[("engine", "0")], 7)];
//! let endpoint = Endpoint::start("127.0.0.1:0".parse()?, snapshot)?;
//! println!("http://{}/metrics", endpoint.address());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod endpoint;
mod text;

pub use endpoint::{DEADLINE, Endpoint, HEAD_BYTES_MAX, StartError, TOGETHER_MAX};
pub use text::{Family, Kind, Value, write};
