//! Replicated blocks over a NIC.
//!
//! ```
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! use remora_service::block::{OpenReplica, PrismRs, ReplicaConfig, Servers, Session, Size};
//! use remora_service::server::{HeapServer, Pace};
//! use remora_store::block::Layout;
//! use remora_verbs::{Device, Listener};
//!
//! # fn main() -> remora_service::Result<()> {
//! // A store of one replica. One that outlives f failures has 2f + 1, each in a process of its own.
//! let address = Listener::bind("127.0.0.1:0")?.address();
//! let servers = || Servers::fixed(vec![address]);
//! let size = Size { layout: Layout { blocks: 16, block_len: 4096 }, clients: 4 };
//! let config = ReplicaConfig { replica: 0, size, new: true, listen: None };
//! let mut replica =
//!     OpenReplica::<HeapServer<PrismRs>>::open(&Device::shm().open()?, servers(), &config, &mut |_| ())?;
//! let stop = AtomicBool::new(false);
//! std::thread::scope(|scope| {
//!     let client = scope.spawn(|| {
//!         let mut session = Session::open(Device::shm().open()?, servers(), 1, true)?;
//!         session.write(7, &[1; 4096])?;
//!         let read = session.read(7);
//!         stop.store(true, Ordering::Relaxed);
//!         read
//!     });
//!     replica.service.work(Pace::default(), &replica.listener, &stop)?;
//!     assert_eq!(client.join().expect("the client's thread")?, [1; 4096]);
//!     replica.close()
//! })
//! # }
//! ```

mod bootstrap;
mod client;
mod connector;
mod peers;
mod repair;
mod replica;
mod serve;
mod servers;

pub use bootstrap::bootstrap;
pub use client::{Role, Session, client_config};
pub use peers::Peers;
pub use repair::repair;
pub use replica::{AbdLock, Blocks, PrismRs, Replica, Shared, Size};
pub use serve::{OpenReplica, Progress, ReplicaConfig};
pub use servers::Servers;

/// Maximum number of operations in flight per client. Replicas have buffers for this number.
pub const WINDOW: u16 = 16;
