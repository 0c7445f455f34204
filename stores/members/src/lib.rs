//! The servers of a store: its shards, and the replicas of each shard, read from a file or from etcd.
//!
//! The map is a TOML text, the same in both sources:
//!
//! ```
//! let map = remora_members::Map::parse("
//!     [[server]]
//!     name = 'a'
//!     address = '10.0.0.1:7481'
//!
//!     [[server]]
//!     name = 'b'
//!     address = '10.0.0.2:7481'
//!     shard = 1
//! ")?;
//! assert_eq!(map.shards(), 2);
//! assert_eq!(map.replicas(1).next().unwrap().name, "b");
//! # Ok::<(), remora_members::MapError>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `map.rs` | [`Map`]: the parsed text, its rules, the shard of a hash |
//! | `source.rs` | [`Source`]: the name of a file or an etcd key, as users write it |
//! | `follower.rs` | [`Source::follow`]; [`Follower`]: the current map and its changes |
//! | `file.rs`, `etcd.rs` | the two sources; `backend.rs` is their common interface |
//!
//! The whole map is one file or one etcd key, so a change becomes visible as a whole, and etcd alone orders
//! the changes. This crate does not elect, lock or count votes. The operator of the servers changes the map,
//! with `etcdctl` or an editor.

mod backend;
mod etcd;
mod file;
mod follower;
mod map;
mod source;

pub use follower::Follower;
pub use map::{MAX_SERVERS, Map, MapError, Server};
pub use source::{Source, SourceError};
