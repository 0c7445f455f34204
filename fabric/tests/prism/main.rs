//! PRISM between simulated NICs: each primitive by itself, chains, what is refused, and random operations over bad links
//! beside a plain model.

mod bench;
mod chains;
mod free_lists;
mod model;
mod primitives;
mod random_operations;
mod refusals;
