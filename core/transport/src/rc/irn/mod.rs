//! IRN, the second loss-recovery machine of a reliable connection ("Revisiting Network Support for RDMA",
//! SIGCOMM 2018).
//!
//! Packets that arrive out of order are placed, not dropped. For each of them the receiver reports its number
//! and the number that it expects; the sender sends missing packets again. A cap bounds the packets in flight
//! (BDP-FC). Peers agree on IRN when they connect; the bytes that it adds to packets are in
//! `remora_wire::irn`.
//!
//! Heads up: [`Sender`] and [`Receiver`] are the paper's machines, over sequence numbers only; `remora bench
//! irn-sender` and `irn-receiver` replay traces through them.
//!
//! What it means for programs: the bytes of a message may arrive in any order, so **polling the last byte of
//! a WRITE is unsafe**; complete by WRITE with immediate data, or a SEND behind the WRITE. For the same
//! reason two WRITEs to one place may end in either order unless the second is fenced: over IRN a fence waits
//! for everything before it.

mod bitmap;
mod delay;
mod judge;
mod owed;
mod reads;
mod receiver;
mod requester;
mod responder;
mod rto;
mod sender;

pub use bitmap::Bitmap;
pub use judge::Write;
pub use owed::OwedAck;
pub use receiver::{Answer, Ends, Place, Receiver, Tracker};
pub use requester::{Numbers, Plan, Requester};
pub use responder::{Reply, Responder, Step};
pub use rto::Rto;
pub use sender::{Sender, Timeout};

/// How a sender finds what is to be sent again. The others than the first are the ablations of the paper's
/// figure 7.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// By the bitmap of selective acknowledgements.
    #[default]
    Selective,
    /// Only the oldest packet, since no selective acknowledgement is remembered: one lost packet a round
    /// trip.
    HeadOnly,
    /// Everything from the oldest packet on; the receiver drops what arrives out of order.
    GoBackN,
}

/// Where the times of a sender's timers come from.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Timers {
    /// The settings, in a simulated fabric, whose times are known; round trips, over a real port.
    #[default]
    ByPort,
    /// The settings.
    Fixed,
    /// The round trips that are measured; the settings are their least.
    Measured,
}

/// How IRN works, for all queue pairs of an engine; both ends of a connection should have the same
/// `recovery`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// BDP-FC: packets in flight at most, the bandwidth-delay product of the longest path over the MTU.
    pub cap: u32,
    /// Packets ahead of the order that a receiver remembers, rounded up to a power of two; no peer may have
    /// more in flight.
    pub bitmap: u32,
    /// False: no BDP-FC, only the peer's bitmap bounds what is in flight (ablation).
    pub bdp_fc: bool,
    /// Packets selectively acknowledged do not count as in flight.
    pub sacked_leave: bool,
    /// Within a recovery each step of the cumulative acknowledgement sends the next packet again, though
    /// nothing behind it has arrived, as the authors' own code does. One NACK lost is enough to make such a
    /// recovery go on for ever: each needless packet moves its end, and every second packet is needless then.
    pub eager: bool,
    /// Loss recovery.
    pub recovery: Recovery,
    /// RTO_low, nanoseconds: the timer when few packets are in flight. [`NEVER_NS`](crate::timers::NEVER_NS)
    /// here and below: no timer, as in a network that loses nothing.
    pub rto_low_ns: u64,
    /// RTO_high, nanoseconds: the timer otherwise.
    pub rto_high_ns: u64,
    /// N: as many packets in flight are few.
    pub few: u32,
    /// Whether these two times are what counts.
    pub timers: Timers,
    /// Nanoseconds that a request packet waits, and its queue pair's requests with it, before it is sent
    /// again: 0, or 2000 for the paper's figure 12, where the NIC fetches it over PCIe. READ responses do not
    /// wait.
    pub retransmit_delay_ns: u64,
}

impl Default for Settings {
    /// The paper's 40 Gb/s fabric: 6 hops of 2 µs, 120 KB in 1 KB packets, and a bitmap of 128 packets.
    fn default() -> Settings {
        Settings {
            cap: 110,
            bitmap: 128,
            bdp_fc: true,
            sacked_leave: false,
            eager: false,
            recovery: Recovery::Selective,
            rto_low_ns: 100_000,
            rto_high_ns: 320_000,
            few: 3,
            timers: Timers::ByPort,
            retransmit_delay_ns: 0,
        }
    }
}

impl Settings {
    /// Packets ahead of the order that a receiver with these settings can record: the peer learns this number
    /// at set-up.
    pub fn reach(&self) -> u32 {
        self.bitmap.clamp(Bitmap::BOUNDS.0, Bitmap::BOUNDS.1).next_power_of_two()
    }

    /// Packets in flight at most towards a peer that can record `peer` packets ahead.
    pub fn in_flight(&self, peer: u32) -> u32 {
        let own = if self.bdp_fc { self.cap } else { self.reach() };
        own.min(peer).min(Bitmap::BOUNDS.1).max(1)
    }
}
