//! The benchmark of the key-value designs: comparisons with each other, with memcached and redis, and after
//! failures.

pub mod bench;
mod case;
mod contest;
pub(crate) mod curves;
pub mod failure;
mod flight;
pub mod rival;
mod rows;
pub mod transports;
mod work;
