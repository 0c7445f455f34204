//! Completion queue entries: 64 bytes each, as they stand in a completion queue's memory
//! (`docs/reference/wire/queues.md`
//! draws them).
//!
//! | byte | word | contents |
//! | ---- | ---- | -------- |
//! | 0 | header | kind 8, status 8, lower 48 bits of the id |
//! | 8 | length | bytes received or read (low half); bits 48 to 63: upper 16 bits of the id |
//! | 16 | immediate | data or key (low half); bit 32: immediate data, bit 33: a key was invalidated |
//! | 24 | queue pair | number 24; bit 32: solicited |
//! | 32 | work queue index | slots of its work queue that were consumed when it was written |
//! | 40 | outcome | end of a PRISM operation (`prism::Verdict`), else 0 (8 bits); timestamp (56 bits) |
//! | 48 | sender | queue pair of a datagram 24; bit 32: a GRH precedes the payload, bit 33: of IPv4 |
//! | 56 | sequence | 1 for the first completion of the queue, and so on: valid when it is the next expected |

use crate::request::{CompletionKind, NetworkType, Status, WorkCompletion};
use crate::wqe::high_bits;
use remora_memory::Key;
use remora_transport::Instant;
use remora_wire::prism::Verdict;

/// Completion kind of an entry whose queue pair was destroyed. Pollers skip such entries.
pub(crate) const REMOVED: u8 = 255;

/// Size of an entry in bytes.
pub const CQE: usize = 64;

const HAS_IMM: u64 = 1 << 32;
const HAS_KEY: u64 = 1 << 33;
const SOLICITED: u64 = 1 << 32;
const HAS_GRH: u64 = 1 << 32;
const GRH_IS_IPV4: u64 = 1 << 33;

/// Width of a completion's timestamp in bits. The timestamp is in nanoseconds and wraps after 834 days.
pub const TIMESTAMP_BITS: u32 = 56;

/// Returns a timestamp, shifted to its position in the entry's sixth word.
#[inline]
pub(crate) fn stamp(now: Instant) -> u64 {
    now.0 << (64 - TIMESTAMP_BITS)
}

/// Returns true if the queue pair of an entry with these words was destroyed.
#[inline]
pub(crate) fn is_removed(words: &[u64; 8]) -> bool {
    words[0] as u8 == REMOVED
}

/// Returns the queue pair number from an entry's fourth word.
pub(crate) fn queue_pair(word: u64) -> u32 {
    word as u32
}

/// A completion queue entry, without its sequence word.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// The work completion that the program receives.
    pub completion: WorkCompletion,
    /// True if the sender requested a solicited event.
    pub solicited: bool,
    /// Number of slots of the work queue that were consumed when the entry was written.
    pub wqe_index: u64,
    /// Time at which the entry was written, in nanoseconds of the NIC's clock ([`TIMESTAMP_BITS`] bits); 0 in
    /// a completion queue without timestamps.
    pub timestamp: u64,
}

impl Cqe {
    /// Returns the entry's eight words; `sequence` becomes the last one.
    #[inline]
    pub fn words(&self, sequence: u64) -> [u64; 8] {
        let wc = &self.completion;
        let imm = match (wc.imm, wc.invalidated) {
            (Some(imm), _) => HAS_IMM | u64::from(imm),
            (None, Some(key)) => HAS_KEY | u64::from(key.get()),
            (None, None) => 0,
        };
        [
            u64::from(wc.kind as u8) | u64::from(wc.status as u8) << 8 | wc.id << 16,
            u64::from(wc.byte_len) | high_bits(wc.id),
            imm,
            u64::from(wc.qp_num) | if self.solicited { SOLICITED } else { 0 },
            self.wqe_index,
            wc.outcome as u64 | stamp(Instant(self.timestamp)),
            u64::from(wc.src_qp) | grh_bits(wc.grh),
            sequence,
        ]
    }

    /// Parses the eight words of an entry.
    #[inline]
    pub fn parse(words: &[u64; 8]) -> Cqe {
        let [header, len, imm, qp, wqe_index, outcome, sender, _] = *words;
        let completion = WorkCompletion {
            id: header >> 16 | high_bits(len),
            status: Status::from_number((header >> 8) as u8),
            kind: kind(header as u8),
            byte_len: len as u32,
            imm: (imm & HAS_IMM != 0).then_some(imm as u32),
            invalidated: (imm & HAS_KEY != 0).then(|| Key::new(imm as u32)),
            qp_num: qp as u32,
            src_qp: sender as u32,
            grh: network_type(sender),
            // Only a NIC writes entries, so an unknown number does not occur.
            outcome: Verdict::from_number((outcome as u8).into()).unwrap_or(Verdict::Skipped),
        };
        let timestamp = outcome >> (64 - TIMESTAMP_BITS);
        Cqe { completion, solicited: qp & SOLICITED != 0, wqe_index, timestamp }
    }
}

#[inline]
fn grh_bits(grh: Option<NetworkType>) -> u64 {
    match grh {
        None => 0,
        Some(NetworkType::Ipv6) => HAS_GRH,
        Some(NetworkType::Ipv4) => HAS_GRH | GRH_IS_IPV4,
    }
}

#[inline]
fn network_type(sender: u64) -> Option<NetworkType> {
    let network = if sender & GRH_IS_IPV4 != 0 { NetworkType::Ipv4 } else { NetworkType::Ipv6 };
    (sender & HAS_GRH != 0).then_some(network)
}

#[inline]
fn kind(number: u8) -> CompletionKind {
    match number {
        0 => CompletionKind::Send,
        1 => CompletionKind::Write,
        2 => CompletionKind::Read,
        3 => CompletionKind::CompareSwap,
        4 => CompletionKind::FetchAdd,
        5 => CompletionKind::BindWindow,
        6 => CompletionKind::LocalInv,
        101 => CompletionKind::Wait,
        102 => CompletionKind::Enable,
        103 => CompletionKind::Calculate,
        110 => CompletionKind::Rpc,
        111 => CompletionKind::RpcWrite,
        120 => CompletionKind::RmaRead,
        121 => CompletionKind::RmaWrite,
        122 => CompletionKind::RmaRekey,
        128 => CompletionKind::Receive,
        129 => CompletionKind::ReceiveWriteImm,
        _ => CompletionKind::Nop,
    }
}
