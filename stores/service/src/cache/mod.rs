//! A cache behind memcached's text protocol. Its NIC answers the GETs of Remora clients by chains.
//!
//! ```
//! use std::os::unix::net::UnixStream;
//!
//! use remora_service::cache::{Chains, Client, Server, ServerConfig, chains};
//! use remora_verbs::Device;
//!
//! # fn main() -> remora_service::Result<()> {
//! let any = ([127, 0, 0, 1], 0).into();
//! let config = ServerConfig { listen: Some(any), ..ServerConfig::default() };
//! let nic = chains::own(Device::shm(), config.clients)?;
//! let chains = Chains::open(nic, any, config.memory, config.items, config.clients as usize)?;
//! let (address, (stopped, stop)) = (chains.address().to_string(), UnixStream::pair()?);
//! let mut server = Server::open(&config, stopped, Some(&chains))?;
//! let tcp = server.listeners().tcp().expect("a TCP address");
//! chains.serve(server.directory().expect("memory that chains read"), tcp)?;
//! std::thread::scope(|scope| {
//!     let client = scope.spawn(move || {
//!         // The server ends when `stop` is closed.
//!         let _stop = stop;
//!         let mut client = Client::connect(Device::shm().open()?, &address)?;
//!         client.set("colour", b"blue")?;
//!         client.ask(b"colour")
//!     });
//!     server.work()?;
//!     assert_eq!(client.join().expect("the client's thread")?.as_deref(), Some(&b"blue"[..]));
//!     Ok(())
//! })
//! # }
//! ```

pub mod chains;
mod client;
mod connection;
mod listen;
mod memcached;
mod server;
mod stream;
mod timers;

pub use chains::Chains;
pub use client::{ChainAnswer, Client};
pub use listen::Listeners;
pub use server::{Server, ServerConfig};
