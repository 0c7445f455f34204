//! Replicated blocks: histories of clients, while replicas crash, come back with their memory or with nothing, and are cut off.

mod design;
mod histories;
mod reads;
mod run;
