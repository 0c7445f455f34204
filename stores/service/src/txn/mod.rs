//! Transactions over a NIC: clients of all shards, and shards of both designs.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! use remora_service::server::Pace;
//! use remora_service::txn::{Client, Session, ShardConfig, Size, open_prism_tx};
//! use remora_verbs::{Device, Listener};
//!
//! # fn main() -> remora_service::Result<()> {
//! let listener = Listener::bind("127.0.0.1:0")?;
//! let mut shard = open_prism_tx(Device::shm().open()?, &ShardConfig::of_keys(1000))?;
//! let (address, stop) = (listener.address(), AtomicBool::new(false));
//! std::thread::scope(|scope| {
//!     let balance = scope.spawn(|| {
//!         let size = Size { window: 1, max_keys: 16 };
//!         let mut client = Client::new(Session::open(&Device::shm().open()?, &[address], size)?);
//!         client.transaction(|tx| tx.put(b"alice", b"70"))?;
//!         let balance = client.transaction(|tx| tx.get(b"alice"));
//!         stop.store(true, Ordering::Relaxed);
//!         balance
//!     });
//!     shard.work(Pace::default(), &listener, &stop)?;
//!     assert_eq!(balance.join().expect("the client's thread")?.as_deref(), Some(&b"70"[..]));
//!     Ok(())
//! })
//! # }
//! ```

mod client;
#[cfg(test)]
mod dying;
mod enrolment;
mod farm;
mod identity;
mod peers;
mod prism_tx;
mod recovery;
mod shard_config;
mod transaction;

pub use shard_config::{MOST_SHARDS, ShardConfig};

pub use client::{Session, ShardQueues, Size};
pub use farm::FarmShard;
pub use identity::ShardId;
pub use prism_tx::PrismTx;
pub use transaction::{Client, Step, Unfinished, explain};

use remora_verbs::Context;

use crate::Result;
use crate::server::{Extensions, HeapServer, Memory, Service};

/// Opens an empty shard of PRISM-TX.
///
/// # Errors
/// The NIC has not enough memory, or the size is invalid.
pub fn open_prism_tx(context: Context, size: &ShardConfig) -> Result<Service<HeapServer<PrismTx>>> {
    let mut memory = Memory::of(context.alloc_pd()?);
    let program = PrismTx::open(size, &mut memory)?;
    let extensions = Extensions { prism: true, ..Extensions::default() };
    Service::new(context, program, memory, size.connections(), extensions)
}

/// Opens an empty shard of FaRM.
///
/// # Errors
/// The NIC has not enough memory, or the size is invalid.
pub fn open_farm(context: Context, size: &ShardConfig) -> Result<Service<FarmShard>> {
    let mut memory = Memory::of(context.alloc_pd()?);
    let program = FarmShard::open(size, &context, &mut memory)?;
    Service::new(context, program, memory, size.connections(), Extensions::default())
}
