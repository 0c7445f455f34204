//! Captures: record all frames of a port in a pcapng file, which Wireshark opens.
//!
//! | file | holds |
//! |---|---|
//! | `pcapng.rs` | the blocks of the file format, as bytes |
//! | `ethernet.rs` | the missing parts of an Ethernet frame: headers, and an ICRC if the port has none |
//! | `recorder.rs` | bounded buffers and the thread that writes them: the data path never waits for a disk |
//! | `wrapper.rs` | [`Capture`]: a port that is recorded |
//! | `written.rs` | [`FrameFile`]: frames of simulated time, which their owner writes |
//!
//! A frame is recorded as it looks on a wire:
//!
//! * On a UDP port the kernel writes and strips the IP and UDP headers. For a sent frame, the capture shows
//!   the fields that the kernel was asked to write: addresses, traffic class, hop limit, UDP checksum, a
//!   flow label of 0, and the identification that the ICRC was computed with. For a received frame, it
//!   shows the traffic class and hop limit that the kernel reports, and no UDP checksum, because the kernel
//!   does not report it.
//! * On a shared-memory port the Ethernet header is added and the ICRC is computed.
//! * MAC addresses are derived from the IP addresses.
//! * A message of 1RMA has no ICRC; its tag is recorded unchanged.

mod ethernet;
mod pcapng;
mod recorder;
mod wrapper;
mod written;

pub use pcapng::PacketDirection;
pub use recorder::Recorded;
pub use wrapper::{CAPTURE_LIMIT, Capture};
pub use written::FrameFile;
