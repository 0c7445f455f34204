//! Chains (RedN, §3): WAIT, ENABLE, queues that are enabled and recycled, loopback queue pairs, and their
//! constructs.

mod barriers;
mod bench;
mod constructs;
mod control;
mod loopback;
