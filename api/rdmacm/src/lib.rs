//! `librdmacm.so.1`: connections of C programs, with their ABI, over the broker's communication manager.
//!
//! `remora_abi` has the structures that programs see, `id.rs` and `channel.rs` make objects of them, and
//! `cm_device.rs` is the state that all ids of a process share: the open device and the connection to the
//! broker. The device belongs to `libibverbs.so.1`, of which this library uses only public symbols
//! (`ibverbs.rs`). Each group of calls has a file. `docs/reference/compatibility.md` lists the state of each
//! function;
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
