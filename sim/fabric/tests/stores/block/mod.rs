//! Replicated blocks: histories of clients, while replicas crash, restart with or without their memory, and
//! are disconnected.

mod design;
mod histories;
mod reads;
mod run;
