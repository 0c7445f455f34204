//! The servers of a store: its shards, and the replicas of each, from a file or from etcd.
//!
//! The map is one TOML text, in both sources the same:
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
//! | file | holds |
//! |---|---|
//! | `map.rs` | [`Map`]: the text, its rules, which shard a hash belongs to |
//! | `source.rs` | [`Source`]: where it is kept, as people write it |
//! | `follower.rs` | [`Source::follow`]; [`Follower`]: the map as it is now, and whether it has changed |
//! | `file.rs`, `etcd.rs` | the two sources; `backend.rs` is what both do |
//!
//! All of it is one key, so a change is seen whole or not at all, and etcd's order of changes is the only
//! one. Nothing here elects, locks or counts votes. The operator of the servers changes the map, with
//! `etcdctl` or an editor.

mod backend;
mod etcd;
mod file;
mod follower;
mod map;
mod source;

pub use follower::Follower;
pub use map::{MAX_SERVERS, Map, MapError, Server};
pub use source::{Source, SourceError};
