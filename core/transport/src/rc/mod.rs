//! Reliable connection (RC): the requester and the responder of one queue pair (IBTA vol. 1 §9.7).
//!
//! Packet sequence numbers inside the machines have 64 bits and never wrap ([`Seq`]). Packets carry the low
//! 24 bits ([`Psn`]).

mod allowed;
mod ending;
mod go_back_n;
pub mod irn;
mod message;
mod messages;
pub mod prism;
mod replay;
mod requester;
mod responder;
pub mod strom;

pub use allowed::Allowed;
pub use message::{Kind, Message, Retired};
pub(crate) use requester::headers;
pub use requester::{Followers, Part, Plan, Reaction, Requester};
pub use responder::{Execute, OperationListOutcome, Reply, ReplyKind, Responder, count};

use remora_wire::Psn;

/// A packet sequence number that does not wrap.
pub type Seq = u64;

/// Progress of a requester, used to measure round-trip times.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// `snd_una`: every packet before this one is acknowledged.
    pub acknowledged: Seq,
    /// `snd_max`: every packet before this one was sent at least once.
    pub sent: Seq,
    /// True if no packet is being retransmitted.
    pub clean: bool,
}

/// Half of the 24-bit circle. A PSN further ahead than this counts as behind.
const HALF: u32 = 1 << 23;

/// Returns the sequence number closest to `base` whose low 24 bits are `psn`. The result is less than half
/// the circle ahead of `base`, or at most half the circle behind it.
#[inline]
pub fn extend(base: Seq, psn: Psn) -> Seq {
    let ahead = psn.get().wrapping_sub(base as u32) & 0x00ff_ffff;
    if ahead < HALF { base + u64::from(ahead) } else { base.wrapping_sub(u64::from((1 << 24) - ahead)) }
}

/// Returns the low 24 bits of `seq`, as a packet carries them.
#[inline]
pub fn psn(seq: Seq) -> Psn {
    Psn::new(seq as u32 & 0x00ff_ffff)
}

/// Returns the first sequence number of a connection. It is at least 2^24, so that numbers slightly before
/// the first are not negative.
pub fn start(psn: Psn) -> Seq {
    (1 << 24) + u64::from(psn.get())
}

/// Returns the number of packets for a payload of `len` bytes, at least 1.
#[inline]
fn packets(len: u32, mtu: u32) -> u32 {
    if len <= mtu {
        return 1;
    }
    let rounded = u64::from(len) + u64::from(mtu) - 1;
    // A power of two (256 to 4096) allows a shift instead of a division. Only simulations use other values.
    let count =
        if mtu.is_power_of_two() { rounded >> mtu.trailing_zeros() } else { rounded / u64::from(mtu) };
    count as u32
}

/// Parameters of a connected queue pair: MTU, timeout, retry counts and limits (attributes of
/// `ibv_modify_qp`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096; simulations may use any value from 256 to 4096.
    pub mtu: u32,
    /// Local ACK timeout in nanoseconds; `u64::MAX` disables it (`timeout` = 0).
    pub timeout_ns: u64,
    /// Go-back-N: enables exponential backoff of the timeout while no new packet is acknowledged (see
    /// [`timers::ack_timeout_backoff`]).
    ///
    /// [`timers::ack_timeout_backoff`]: crate::timers::ack_timeout_backoff
    pub backoff: bool,
    /// Number of retransmissions of a request before it fails: 0 to 7, or [`FOR_EVER`].
    pub retry_cnt: u8,
    /// Number of RNR NAKs that are tolerated for a request; 7 means no limit.
    pub rnr_retry: u8,
    /// Maximum number of outstanding READs and atomics as requester.
    pub max_rd_atomic: u8,
    /// Maximum number of outstanding READs and atomics as responder.
    pub max_dest_rd_atomic: u8,
    /// Code of the RNR NAK timer that this side sends to its peer (0..=31).
    pub min_rnr_timer: u8,
    /// Maximum number of packets in flight (requests and expected READ responses), limited by port and peer.
    pub window: u32,
    /// A READ of more packets than this is requested in several pieces, which bounds the burst of responses.
    pub read_piece: u32,
    /// Go-back-N: at least every `ack_every`th packet requests an ACK, and at least four per window. With
    /// IRN every packet requests one.
    pub ack_every: u32,
}

/// Value of `retry_cnt` for unlimited retries. The NIC's configuration uses it; no verbs attribute can
/// express it.
pub const FOR_EVER: u8 = u8::MAX;

impl Parameters {
    /// Returns the silence in nanoseconds after which IRN gives up: `timeout_ns` times (`retry_cnt` + 1).
    pub(crate) fn patience_ns(&self) -> u64 {
        match self.retry_cnt {
            FOR_EVER => u64::MAX,
            retry_cnt => self.timeout_ns.saturating_mul(u64::from(retry_cnt) + 1),
        }
    }

    /// Returns the number of packets after which go-back-N requests an ACK.
    fn ack_req_every(&self) -> u32 {
        self.ack_every.min(self.window / 4).max(1)
    }
}

impl Default for Parameters {
    /// The values that `ibv_rc_pingpong` sets.
    fn default() -> Self {
        Parameters {
            mtu: 1024,
            timeout_ns: 4096 << 14,
            backoff: true,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            window: 1024,
            read_piece: 256,
            ack_every: 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_finds_the_nearest_number_across_the_wrap() {
        let base = start(Psn::new(0x00ff_fffe));
        assert_eq!(extend(base, Psn::new(0x00ff_ffff)), base + 1);
        assert_eq!(extend(base, Psn::new(3)), base + 5);
        assert_eq!(extend(base, Psn::new(0x00ff_fffd)), base - 1);
        assert_eq!(extend(start(Psn::new(0)), Psn::new(0x00ff_ffff)), start(Psn::new(0)) - 1);
        assert_eq!(psn(extend(base, Psn::new(7))), Psn::new(7));
    }

    #[test]
    fn a_message_takes_at_least_one_packet() {
        let cases = [(0, 1), (1, 1), (1024, 1), (1025, 2), (u32::MAX, 4_194_304)];
        for (len, expected) in cases {
            assert_eq!(packets(len, 1024), expected, "{len} bytes");
        }
    }
}
