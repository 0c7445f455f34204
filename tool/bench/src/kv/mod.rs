//! The key-value designs beside each other, beside memcached and redis, and while their server fails.

pub mod bench;
mod case;
mod contest;
pub(crate) mod curves;
pub mod failure;
mod flight;
pub mod measure;
pub mod parts;
pub mod rival;
mod rows;
pub mod transports;
mod work;
pub mod workload;
