//! Replicated blocks: histories of clients, while replicas crash, come back with or without their memory, and
//! are cut off.

mod design;
mod histories;
mod reads;
mod run;
