//! The NIC daemon: a process that owns a NIC and its memory and lends both to programs. It outlives the
//! programs.
//!
//! A program attaches over a Unix socket ([`Device::nicd`](crate::Device::nicd)). It then uses protection
//! domains, regions, completion queues and connected queue pairs as if the NIC were its own. Queues, regions
//! and doorbells lie in memory that program and daemon both map: posting and polling take no system call and
//! do not involve the daemon's control threads.
//!
//! ```
//! use remora_verbs::{Access, Device, EMPTY, QpOptions, QueuePair, nicd, work};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("nic.sock");
//! let _daemon = nicd::Daemon::open(&Device::shm(), &path, &nicd::Options::default())?;
//!
//! // Another program, as a rule.
//! let context = Device::nicd(&path).open()?;
//! let domain = context.alloc_pd()?;
//! let mut cq = context.create_cq(64)?;
//! let pair = || domain.create_qp(&cq, &cq, &QpOptions::default());
//! let (mut one, _other) = QueuePair::connect_pair(pair()?, pair()?)?;
//! let memory = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! one.post_send(&work::write_inline(1, b"lent", memory.remote(100)))?;
//! cq.wait(&mut [EMPTY; 1], std::time::Duration::from_secs(5))?;
//! assert_eq!(memory.get::<[u8; 4]>(100)?, *b"lent");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The daemon checks every request of a program (`docs/operating/daemon.md`): the program can name only its
//! own objects,
//! and their number is limited.

mod attach;
mod daemon;
mod daemon_client;
mod kept;
mod limits;
mod manage;
pub(crate) mod message;
mod options;
mod rma;
mod tenant;
#[cfg(test)]
mod tests;
mod users;

pub use attach::Attachment;
pub use daemon::{Daemon, listen};
pub(crate) use daemon_client::DaemonClient;
pub use kept::Kept;
pub use limits::Limits;
pub use manage::{end, tenants};
pub use message::TenantFacts;
pub use options::Options;
pub use users::bounds;
