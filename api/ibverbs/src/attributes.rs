//! The limits of the device, as its NIC is opened with and as programs read them.

use remora_verbs::raw::{MAX_INLINE, MAX_SGE};

/// Name of the device.
pub const NAME: &str = "remora0";
/// Entries of the GID table.
pub const GIDS: u32 = remora_broker::GIDS as u32;
/// Queue pairs.
pub const MAX_QP: u32 = 1 << 14;
/// Work requests of a queue pair's queue.
pub const MAX_QP_WR: u32 = 1 << 14;
/// Elements of a list.
pub const SGES: u32 = MAX_SGE as u32;
/// Inline bytes.
pub const INLINE: u32 = MAX_INLINE as u32;
/// Completion queues.
pub const MAX_CQ: u32 = 1 << 12;
/// Completions of a queue.
pub const MAX_CQE: u32 = 1 << 20;
/// Shared receive queues.
pub const MAX_SRQ: u32 = 1 << 10;
/// Work requests of a shared receive queue.
pub const MAX_SRQ_WR: u32 = 1 << 14;
/// Address handles.
pub const MAX_AH: u32 = 1 << 14;
/// READs and atomics outstanding.
pub const RD_ATOM: u32 = 128;
/// Bytes of memory on the device.
pub const DM_BYTES: usize = 1 << 20;
/// Bytes of a message.
pub const MAX_MESSAGE: u32 = 1 << 31;
/// XRC domains.
pub const MAX_XRCD: u32 = 1 << 8;

/// The limits of the engine.
pub fn limits() -> remora_nic::Config {
    remora_nic::Config {
        max_qps: MAX_QP,
        max_cqs: MAX_CQ,
        max_srqs: MAX_SRQ,
        max_xrc_domains: MAX_XRCD,
        max_address_handles: MAX_AH,
        ..remora_nic::Config::default()
    }
}
