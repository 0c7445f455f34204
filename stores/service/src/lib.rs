//! Servers and clients of the stores over real NICs.
//!
//! `remora-store` implements the stores as state machines without input and output. This crate connects them
//! to queue pairs, memory, threads and a clock:
//!
//! | module | a server | a client |
//! |---|---|---|
//! | [`kv`] | [`kv::open`] | [`kv::Session`] |
//! | [`kv::rma`] | [`kv::rma::RmaServer`] | [`kv::rma::RmaSession`] |
//! | [`block`] | [`block::Replica`] | [`block::Session`] |
//! | [`txn`] | [`txn::PrismTx`], [`txn::FarmShard`] | [`txn::Session`], [`txn::Client`] |
//! | [`cache`] | [`cache::Server`] | [`cache::Client`] |
//! | [`server`] | [`server::Service`]: the loop that serves the clients of any of them | |
//!
//! A program opens a NIC ([`remora_verbs::Device`]) and passes its context and the addresses of the servers.
//! This crate neither prints nor reads command-line arguments.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! use remora_service::kv::{self, FarmDesign, KvSession, Limits, Session, Size};
//! use remora_service::server::Pace;
//! use remora_verbs::{Device, Listener};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Listener::bind("127.0.0.1:0")?;
//! let (address, stop) = (listener.address().to_string(), AtomicBool::new(false));
//! std::thread::scope(|scope| {
//!     let server = scope.spawn(|| {
//!         let context = Device::shm().open()?;
//!         let mut service = kv::open::<FarmDesign>(context, &Limits::default(), Size::of_keys(1000))?;
//!         service.work(Pace::default(), &listener, &stop)
//!     });
//!     let nic = Device::shm().open()?;
//!     let mut session = Session::<FarmDesign>::connect(&nic, &address, Default::default())?;
//!     session.put(b"key", b"value")?;
//!     assert_eq!(session.get(b"key")?.as_deref(), Some(&b"value"[..]));
//!     stop.store(true, Ordering::Relaxed);
//!     server.join().expect("the server's thread")
//! })?;
//! # Ok(())
//! # }
//! ```

pub mod block;
pub mod cache;
pub mod connect;
pub mod error;
pub mod flush;
pub mod kv;
pub mod post;
pub mod seed;
pub mod server;
pub mod txn;

pub use error::{Error, Result};
