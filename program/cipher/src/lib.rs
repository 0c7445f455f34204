//! AES-128-GCM and AES-CMAC for 1RMA. [`Aes`] implements the NIC's trait
//! [`Cipher`](remora_nic::rma::Cipher); [`recording`] wraps any cipher for tests.
//!
//! # Which libraries, and why
//! Four libraries were measured in one process on one core of an AMD EPYC with AES-NI, VAES and VPCLMULQDQ.
//! Each number is the median of 401 interleaved rounds, in nanoseconds; each message has 60 bytes of AAD.
//! `open` includes a copy of the text. `compile` is the CPU time of a clean build in the `dev` profile.
//!
//! | | ring 0.17.14 | aws-lc-rs 1.19 | aes-gcm 0.11 | graviola 0.4 |
//! |---|---|---|---|---|
//! | key set-up | 183 | 143 | 102 | 307 |
//! | seal and open 64 B | 96 + 128 | 107 + 107 | 150 + 156 | 136 + 146 |
//! | seal and open 256 B | 114 + 147 | 124 + 128 | 203 + 213 | 104 + 107 |
//! | seal and open 4096 B | 501 + 574 | 465 + 548 | 1470 + 1577 | 472 + 495 |
//! | a key schedule lies | in its value, 544 B | on the C heap | in its value, 496 B | in its value, 832 B |
//! | compile | 15 s | 57 s | 4 s | 8 s |
//!
//! GCM is from ring. Its key schedules are values, so an entry of a table of schedules is replaced in place.
//! Each key of aws-lc-rs is a `malloc` and a `free`, which a counter of Rust's allocations does not see. At
//! these sizes both are equally fast, ring compiles in a quarter of the time, and rustls can use it too.
//! aes-gcm takes three times as long at 4 KB. graviola requires a CPU with AVX2, and has the slowest key
//! set-up.
//!
//! CMAC is from `cmac` over `aes`, because ring has none. Deriving a key takes 141 ns, compared with 225 ns
//! for aws-lc-rs.
//!
//! # Wiping
//! ring does not wipe its keys. [`Aes`] overwrites an entry with the schedule of an all-zero key, followed
//! by a barrier of `zeroize`. Moved values leave copies on the stack, so the stack below is overwritten
//! after each key set-up and each derivation (`tests/wiped.rs` reads all memory of the process).

pub mod recording;

mod schedules;

pub use recording::{Calls, Record, Recording};
pub use schedules::Aes;
