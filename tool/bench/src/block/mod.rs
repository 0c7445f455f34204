//! Replicated blocks: PRISM-RS against ABDLOCK, and etcd beside them.

pub mod bench;
mod etcd;
mod generator;
mod rows;
mod system;
pub mod together;
