//! Reliable connections between two simulated NICs, one behaviour at a time.

mod bench;
mod congestion;
mod fairness;
mod hostile;
mod queues;
mod recovery;
mod refusals;
mod removal;
mod script;
mod silence;
mod states;
mod verbs;
