//! The benchmark of replicated blocks: PRISM-RS, ABDLOCK and etcd.

pub mod bench;
mod etcd;
mod generator;
mod rows;
mod system;
pub mod together;
