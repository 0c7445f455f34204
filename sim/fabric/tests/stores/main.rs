//! The stores between simulated NICs, over links that lose and reorder, with clients that die and servers
//! that crash.

mod block;
mod growth;
#[allow(dead_code, reason = "each store uses a part of it")]
mod harness;
mod heap;
mod kv;
mod kv_alone;
mod kv_growth;
mod mishaps;
#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../seeds/mod.rs"]
mod seeds;
mod txn;
