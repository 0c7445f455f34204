//! The Rust API between the engines of one process, between processes and between network namespaces. The
//! tests are one binary because each binary contains the whole NIC. Tests that fork or count allocations
//! have binaries of their own.

mod arm;
mod attendant;
mod checked_reads;
mod conformance;
mod congestion;
mod dissector;
mod every_verb;
mod gsi;
mod handshakes;
mod lent_conformance;
mod limits;
mod multicast;
mod namespaces;
mod offloads;
mod own;
mod peers;
mod prism;
mod prism_conformance;
mod processes;
mod queue_sizes;
mod raw;
mod recordings;
mod refused_trains;
mod regions;
mod rma_captures;
mod services;
mod services_conformance;
mod services_tshark;
mod strangers;
mod strom;
mod timestamps;
#[path = "../veth/mod.rs"]
mod veth;
