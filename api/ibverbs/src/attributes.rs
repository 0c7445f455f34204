//! The limits of the device, which its NIC is opened with and programs query.

use remora_verbs::raw::{MAX_INLINE, MAX_SGE};

/// The name of the device.
pub(crate) const NAME: &str = "remora0";
/// Number of entries of the GID table.
pub(crate) const GIDS: u32 = remora_broker::GIDS as u32;
/// Maximum number of queue pairs.
pub(crate) const MAX_QP: u32 = 1 << 14;
/// Maximum number of work requests in a queue of a queue pair.
pub(crate) const MAX_QP_WR: u32 = 1 << 14;
/// Maximum number of elements of a scatter/gather list.
pub(crate) const SGES: u32 = MAX_SGE as u32;
/// Maximum number of inline bytes.
pub(crate) const INLINE: u32 = MAX_INLINE as u32;
/// Maximum number of completion queues.
pub(crate) const MAX_CQ: u32 = 1 << 12;
/// Maximum number of completions in a completion queue.
pub(crate) const MAX_CQE: u32 = 1 << 20;
/// Maximum number of shared receive queues.
pub(crate) const MAX_SRQ: u32 = 1 << 10;
/// Maximum number of work requests in a shared receive queue.
pub(crate) const MAX_SRQ_WR: u32 = 1 << 14;
/// Maximum number of address handles.
pub(crate) const MAX_AH: u32 = 1 << 14;
/// Maximum number of outstanding READs and atomics.
pub(crate) const RD_ATOM: u32 = 128;
/// Size of the device's memory in bytes.
pub(crate) const DM_BYTES: usize = 1 << 20;
/// Maximum length of a message in bytes.
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;
/// Maximum number of XRC domains.
pub(crate) const MAX_XRCD: u32 = 1 << 8;

/// Returns the engine's limits.
pub(crate) fn limits() -> remora_nic::Config {
    remora_nic::Config {
        max_qps: MAX_QP,
        max_cqs: MAX_CQ,
        max_srqs: MAX_SRQ,
        max_xrc_domains: MAX_XRCD,
        max_address_handles: MAX_AH,
        ..remora_nic::Config::default()
    }
}
