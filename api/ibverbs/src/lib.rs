//! `libibverbs.so.1`: the verbs of C programs, with their ABI, on a NIC in the program's process.
//!
//! `remora_abi` has the structures that programs see, and `handles.rs` makes objects of them. `nic.rs` is
//! the NIC that all contexts of a process share. Each group of verbs has a file. A function checks its
//! arguments, calls the raw layer (`remora_verbs::raw`) and returns an errno, as rdma-core's providers do.
//! `docs/reference/compatibility.md` lists the state of each function; `scripts/dropin` links the library.
#![allow(unsafe_code, reason = "every argument is a foreign pointer")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the manual pages of libibverbs say what each function asks for"
)]

mod absent;
mod address;
mod ah;
mod async_event;
mod attributes;
mod bind_mw;
mod channel;
mod context;
mod cq;
mod cq_event;
mod device;
mod dm;
mod ece;
mod errno;
mod explain;
mod faults;
mod fork;
mod gid;
mod handles;
mod import;
mod kernel_abi;
mod lent_memory;
mod mappings;
mod mcast;
mod mr;
mod mw;
mod nic;
mod open;
mod open_qp;
mod parent_domain;
mod pd;
mod port;
mod port_view;
mod post;
mod private_abi;
mod qp;
mod query_device;
mod rate;
mod requests;
mod source;
mod srq;
mod strings;
mod sysfs;
mod td;
mod xrc;
