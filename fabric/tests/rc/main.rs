//! Reliable connections between two simulated NICs, one behaviour at a time.

mod bench;
mod queues;
mod recovery;
mod states;
mod verbs;
