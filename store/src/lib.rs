//! The `store` room: key-value stores as pure machines over the NIC's requests and completions, and the workloads
//! that measure them.
//!
//! - [`kv`]: the classical designs that the PRISM paper compares with (SOSP'21 §6): [`kv::pilaf`], [`kv::farm`] and
//!   [`kv::two_sided`]. A client machine turns an operation into work requests and completions into its result; a
//!   server machine owns the table and answers calls. Neither knows a port, a thread or a clock.
//! - [`ycsb`]: the workloads A to F of the Yahoo! Cloud Serving Benchmark, seeded.
//! - [`load`]: the parser of `key value` lines, so that real data goes in.
//!
//! `docs/KV.md` draws every layout byte by byte and says what detects a torn read.

pub mod kv;
pub mod load;
pub mod ycsb;
