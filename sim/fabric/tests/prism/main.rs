//! PRISM between simulated NICs: single primitives, chains, refusals, and random operations over bad links
//! compared with a plain model.

mod accounts;
mod ahead;
mod bench;
mod bundles;
mod chains;
mod free_lists;
mod model;
mod operation_lists;
mod over_irn;
mod primitives;
mod random_body;
mod random_operations;
mod refusals;

use remora_fault::Random;
