//! IRN, the second loss recovery of a reliable connection (Mittal et al., "Revisiting Network Support for
//! RDMA", SIGCOMM 2018).
//!
//! A receiver keeps packets that arrive after a gap. For each of them it sends a NACK with its PSN and the
//! next PSN in order, and the sender retransmits only the missing packets. A limit on the packets in flight
//! replaces flow control by the network (BDP-FC). Both peers must agree on IRN at connection setup. The
//! additional packet headers are in `remora_wire::irn`.
//!
//! [`Sender`] and [`Receiver`] implement the paper's algorithms on sequence numbers alone; `remora bench
//! irn-sender` and `irn-receiver` replay traces through them. Sequence numbers have TCP's names, as for
//! go-back-N.
//!
//! Consequences for programs: the bytes of a message may be written in any order, so **polling the last byte
//! of a WRITE is unsafe**. A program must complete a WRITE with immediate data or with a later SEND. For the
//! same reason, two WRITEs to one address may take effect in either order unless the second is fenced. A
//! fence over IRN waits for all earlier messages.

mod bitmap;
mod delay;
mod judge;
mod pending_acks;
mod reads;
mod receiver;
mod requester;
mod responder;
mod rto;
mod sender;

pub use bitmap::Bitmap;
pub use judge::Write;
pub use pending_acks::PendingAck;
pub use receiver::{Answer, Arrival, Ends, Receiver, Tracker};
pub use requester::{Numbers, Plan, Requester};
pub use responder::{Reply, Responder, Step};
pub use rto::Rto;
pub use sender::{Sender, Timeout};

/// The rule by which a sender selects packets for retransmission. All variants but the first are ablations
/// of the paper's figure 7.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Retransmits the packets that the bitmap of selective acknowledgements shows as missing.
    #[default]
    Selective,
    /// Retransmits only the oldest packet, because selective acknowledgements are not recorded. Recovers one
    /// lost packet per round trip.
    HeadOnly,
    /// Retransmits everything from the oldest packet on; the receiver drops packets after a gap.
    GoBackN,
}

/// The source of the retransmission timeouts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Timers {
    /// `Fixed` in a simulated fabric, whose round-trip times are known; `Measured` over a real port.
    #[default]
    ByPort,
    /// The values of the settings.
    Fixed,
    /// Measured round-trip times, with the values of the settings as lower bounds.
    Measured,
}

/// Settings of IRN for all queue pairs of an engine. Both ends of a connection should use the same recovery.
#[derive(Copy, Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Settings {
    /// BDP-FC: maximum number of packets in flight, the bandwidth-delay product of the longest path divided
    /// by the MTU.
    pub cap: u32,
    /// Number of packets after a gap that a receiver can record, rounded up to a power of two. Peers may not
    /// have more packets in flight.
    pub bitmap: u32,
    /// False disables BDP-FC, so that only the peer's bitmap limits the packets in flight (ablation).
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub bdp_fc: bool,
    /// Excludes selectively acknowledged packets from the packets in flight.
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub sacked_leave: bool,
    /// Retransmits the next packet on each partial acknowledgement during a recovery, even if nothing after
    /// it has arrived, as the authors' code does. After one lost NACK such a recovery may never end: each
    /// needless retransmission moves its end, and every second packet is then retransmitted needlessly.
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub eager: bool,
    /// The loss recovery.
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub recovery: Recovery,
    /// RTO_low in nanoseconds, the timeout while few packets are in flight.
    /// [`NEVER_NS`](crate::timers::NEVER_NS) here or in `rto_high_ns` disables the timeout, as for a
    /// lossless network.
    pub rto_low_ns: u64,
    /// RTO_high in nanoseconds, the timeout otherwise.
    pub rto_high_ns: u64,
    /// N: the largest number of packets in flight for which RTO_low applies.
    pub few: u32,
    /// Source of the timeouts: these two values, or measured round trips.
    pub timers: Timers,
    /// Delay before each retransmission in nanoseconds, during which the queue pair sends no other request.
    /// 0, or 2000 for the paper's figure 12, in which the NIC fetches the packet over PCIe. READ responses
    /// are not delayed.
    #[cfg(feature = "experiments")]
    #[serde(skip)]
    pub retransmit_delay_ns: u64,
}

impl Default for Settings {
    /// The paper's 40 Gb/s fabric: 6 hops of 2 µs, 120 KB in flight as packets of 1 KB, and a bitmap of 128
    /// packets.
    fn default() -> Settings {
        Settings {
            cap: 110,
            bitmap: 128,
            #[cfg(feature = "experiments")]
            bdp_fc: true,
            #[cfg(feature = "experiments")]
            sacked_leave: false,
            #[cfg(feature = "experiments")]
            eager: false,
            #[cfg(feature = "experiments")]
            recovery: Recovery::Selective,
            rto_low_ns: 100_000,
            rto_high_ns: 320_000,
            few: 3,
            timers: Timers::ByPort,
            #[cfg(feature = "experiments")]
            retransmit_delay_ns: 0,
        }
    }
}

/// The settings of experiments.
struct Ablations {
    bdp_fc: bool,
    sacked_leave: bool,
    eager: bool,
    recovery: Recovery,
    retransmit_delay_ns: u64,
}

impl Settings {
    /// Returns the settings of experiments, with the values of the paper's IRN where the feature is off.
    fn ablations(&self) -> Ablations {
        #[cfg(feature = "experiments")]
        {
            let Settings { bdp_fc, sacked_leave, eager, recovery, retransmit_delay_ns, .. } = *self;
            Ablations { bdp_fc, sacked_leave, eager, recovery, retransmit_delay_ns }
        }
        #[cfg(not(feature = "experiments"))]
        Ablations {
            bdp_fc: true,
            sacked_leave: false,
            eager: false,
            recovery: Recovery::Selective,
            retransmit_delay_ns: 0,
        }
    }

    /// Returns the number of packets after a gap that a receiver with these settings can record. The peer
    /// learns this number at connection setup.
    pub fn reach(&self) -> u32 {
        self.bitmap.clamp(Bitmap::BOUNDS.0, Bitmap::BOUNDS.1).next_power_of_two()
    }

    /// Returns the maximum number of packets in flight to a peer that can record `peer` packets.
    pub fn in_flight(&self, peer: u32) -> u32 {
        let own = if self.ablations().bdp_fc { self.cap } else { self.reach() };
        own.min(peer).min(Bitmap::BOUNDS.1).max(1)
    }
}
