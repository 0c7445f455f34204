//! Reliable connection: the requester and the responder of one queue pair (IBTA vol. 1 §9.7).
//!
//! Inside the machines packet sequence numbers are 64-bit and never wrap ([`Seq`]); only at the wire they
//! become the circular 24-bit [`Psn`].

mod allowed;
mod ending;
mod go_back_n;
pub mod irn;
mod message;
pub mod prism;
mod replay;
mod requester;
mod responder;
pub mod strom;

pub use allowed::Allowed;
pub use message::{Kind, Message, Retired};
pub(crate) use requester::headers;
pub use requester::{Chained, Part, Plan, Reaction, Requester};
pub use responder::{ChainOutcome, Reply, ReplyKind, Responder, count};

use remora_wire::Psn;

/// A packet sequence number that does not wrap.
pub type Seq = u64;

/// How far a requester is, for the measurement of round trips.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Every packet before this is acknowledged.
    pub acknowledged: Seq,
    /// Every packet before this has left.
    pub sent: Seq,
    /// Nothing is being sent again.
    pub clean: bool,
}

/// Half of the 24-bit circle: a PSN further ahead than this lies behind.
const HALF: u32 = 1 << 23;

/// The number near `base` whose low 24 bits are `psn`: ahead of `base` by less than half the circle, or
/// behind it.
#[inline]
pub fn extend(base: Seq, psn: Psn) -> Seq {
    let ahead = psn.get().wrapping_sub(base as u32) & 0x00ff_ffff;
    if ahead < HALF { base + u64::from(ahead) } else { base.wrapping_sub(u64::from((1 << 24) - ahead)) }
}

/// The 24 bits of `seq` that travel.
#[inline]
pub fn psn(seq: Seq) -> Psn {
    Psn::new(seq as u32 & 0x00ff_ffff)
}

/// Sequence numbers start one circle up, so that "a little behind the first" is a number too.
pub fn start(psn: Psn) -> Seq {
    (1 << 24) + u64::from(psn.get())
}

/// Packets that `len` bytes take: at least one.
#[inline]
fn packets(len: u32, mtu: u32) -> u32 {
    if len <= mtu {
        return 1;
    }
    let rounded = u64::from(len) + u64::from(mtu) - 1;
    // The MTU is a power of two (256 to 4096): a shift, not a division. Only simulations have others.
    let count =
        if mtu.is_power_of_two() { rounded >> mtu.trailing_zeros() } else { rounded / u64::from(mtu) };
    count as u32
}

/// What a queue pair agreed on with its peer, its timeout and its retries (the attributes of
/// `ibv_modify_qp`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096; in simulations any from 256 to 4096.
    pub mtu: u32,
    /// Local ACK timeout in nanoseconds; `u64::MAX` never expires (`timeout` = 0).
    pub timeout_ns: u64,
    /// Go-back-N: the timeout grows while the peer answers nothing new ([`timers::ack_timeout_backoff`]).
    ///
    /// [`timers::ack_timeout_backoff`]: crate::timers::ack_timeout_backoff
    pub backoff: bool,
    /// Times that a request is sent again before the queue pair gives up: 0 to 7, or [`FOR_EVER`].
    pub retry_cnt: u8,
    /// Times that a receiver-not-ready is waited for; 7 waits for ever.
    pub rnr_retry: u8,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics held as responder.
    pub max_dest_rd_atomic: u8,
    /// Code of the RNR NAK timer that this side asks its peer to wait (0..=31).
    pub min_rnr_timer: u8,
    /// Packets in flight at most (requests and expected READ responses): what the port and the peer can hold.
    pub window: u32,
    /// A READ longer than this many packets is requested in pieces, which bounds the burst of its responses.
    pub read_piece: u32,
    /// Go-back-N: an acknowledgement is asked for at least once in so many packets, and in a quarter of the
    /// window. IRN's packets ask always.
    pub ack_every: u32,
}

/// A `retry_cnt` that no loss and no silence uses up. No attribute has it; it is a setting of the NIC.
pub const FOR_EVER: u8 = u8::MAX;

impl Parameters {
    /// How long IRN bears silence, in nanoseconds.
    pub(crate) fn patience_ns(&self) -> u64 {
        match self.retry_cnt {
            FOR_EVER => u64::MAX,
            retry_cnt => self.timeout_ns.saturating_mul(u64::from(retry_cnt) + 1),
        }
    }

    /// Packets after which go-back-N asks for an acknowledgement.
    fn ack_req_every(&self) -> u32 {
        self.ack_every.min(self.window / 4).max(1)
    }
}

impl Default for Parameters {
    /// The defaults, as `ibv_rc_pingpong` sets them.
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
