//! `librdmacm.so.1`: connections of C programs, by their own ABI, over the broker's communication manager.
//!
//! Heads up: `remora_abi` has the shapes of what programs see, `id.rs` and `channel.rs` make objects of them,
//! and `cm_device.rs` is what all ids of a process share: the open device and the connection to the broker.
//! The device is `libibverbs.so.1`'s, and this library knows it by its public symbols alone (`ibverbs.rs`).
//! Then there is a file for each group of calls. `docs/COMPATIBILITY.md` has each function's state;
//! `scripts/dropin` links the library.
#![allow(unsafe_code, reason = "every argument is a foreign pointer")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the manual pages of librdmacm say what each function asks for"
)]

mod accept;
mod address;
mod addrinfo;
mod background;
mod bind;
mod channel;
mod cm_device;
mod connect;
mod create;
mod destroy;
mod device;
mod disconnect;
mod ece;
mod endpoint;
mod errno;
mod event;
mod event_name;
mod get_event;
mod ibverbs;
mod id;
mod id_options;
mod live;
mod membership;
mod migrate;
mod multicast;
mod option;
mod outstanding;
mod post;
mod qp;
mod qp_state;
mod received;
mod registry;
mod resolve;
mod resolved;
mod rsocket;
mod srq;
mod sync;
mod unread;
mod user_event;
