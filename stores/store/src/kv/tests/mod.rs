//! Tests over an in-memory pair of queue pairs.

mod bounds;
mod hostile;
pub(crate) mod journal;
mod listing;
mod model;
mod replicas;
mod steady;
mod torn;
mod torture;
mod wire;
mod world;
