//! Models of `RedN`'s experiments, compared with the numbers in the paper. The NIC's code executes real
//! chains on a [`Machine`](remora_chain::Machine), and a model of a ConnectX-5 assigns times to their work
//! requests (`crate::timeline`).
//!
//! | file | holds |
//! |---|---|
//! | `experiment.rs` | a program, the sites of its queues, and its run |
//! | `orders.rs` | Figures 7 and 8, and the native verbs of Table 3: the source of most constants |
//! | `lookups.rs` | Figures 10, 11 and 14, Tables 4 and 5: hash GETs by chain, by two READs and by a call |
//! | `shipped.rs` | a GET by the offloads that ship |
//! | `lists.rs` | Figure 13: a list searched by chain, by READs and by a call |
//! | `constructs.rs` | the constructs of Table 3 |
//! | `paper.rs` | the paper's numbers |
//! | `missed.rs` | why a prediction is missed, where it is |
//!
//! A client is a part of the program, and its queues represent those of the client's NIC. Each queue is
//! marked if it crosses the network.

mod constructs;
mod experiment;
mod lists;
mod lookups;
mod missed;
mod orders;
mod paper;
mod shipped;

use crate::connectx5::ConnectX5;
use crate::number::Number;

pub use missed::reason;

/// Returns all numbers, by figure.
pub fn numbers(model: &ConnectX5) -> Vec<Number> {
    let parts =
        [orders::numbers(model), lookups::numbers(model), lists::numbers(model), constructs::numbers(model)];
    parts.into_iter().flatten().collect()
}
