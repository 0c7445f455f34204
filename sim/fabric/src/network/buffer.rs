//! Packet buffers of switches (MMU): which packets are admitted, and when PFC pauses a sender.
//!
//! Bytes are accounted to the input port and the traffic class by which they arrived. Each kind of buffer
//! decides from these accounts whether a packet fits, and when the sender of a class is paused and resumed.

mod account;
mod conweave;

use super::port::CLASSES;

pub use conweave::ConweaveConfig;

pub use account::{Account, Admission};
use conweave::Shares;

/// The kind of a switch's packet buffer, with its limits in bytes.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum BufferConfig {
    /// A queue for each output port and class. The queues of an output port share a limit.
    Fifo {
        /// Largest number of bytes queued at an output port.
        limit: u32,
        /// PFC thresholds, or `None` without PFC.
        pause: Option<Thresholds>,
        /// If true, all classes of an input port are counted together, and a pause applies to all of them.
        per_port: bool,
    },
    /// Virtual output queues: a buffer for each input port, with a queue for each output port. Output ports
    /// serve the inputs in turn, packet by packet.
    Voq {
        /// Largest number of bytes in the buffer of an input port.
        limit: u32,
        /// PFC thresholds, or `None` without PFC.
        pause: Option<Thresholds>,
    },
    /// A buffer that all ports share by dynamic thresholds.
    Shared(SharedConfig),
    /// The shared buffer of ConWeave's ns-3 program.
    Conweave(ConweaveConfig),
}

/// PFC thresholds, in bytes of an input account.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The sender is paused above this value.
    pub xoff: u32,
    /// The sender is resumed at or below this value.
    pub xon: u32,
}

/// The limits of a shared buffer.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SharedConfig {
    /// Size of the buffer in bytes, including headroom and reserves.
    pub size: u64,
    /// Bytes that are reserved for each input port and class.
    pub reserve: u32,
    /// Bytes that are reserved at each input port for packets that arrive after a pause was sent.
    pub headroom: u32,
    /// Dynamic threshold: share of the free memory that a class of an input port may hold, in units of 1/256.
    pub ingress_alpha: u32,
    /// A paused sender is resumed when its account is this many bytes below the threshold.
    pub hysteresis: u32,
    /// Mask of the classes with PFC; other classes are dropped instead.
    pub lossless: u8,
}

/// The buffer of a switch, with the totals of its accounts.
#[derive(Clone, Debug)]
pub struct Buffer {
    config: BufferConfig,
    ports: u32,
    /// Bytes in the buffer, without headroom.
    used: u64,
    /// Bytes of `used` that are within the reserves of their accounts.
    reserved: u64,
    /// Maximum of `used` so far.
    most: u64,
    /// Totals of a buffer of ConWeave's kind.
    shares: Shares,
}

impl Buffer {
    /// Returns an empty buffer of a switch with `ports` ports.
    pub fn new(config: BufferConfig, ports: u32) -> Buffer {
        let shares = match &config {
            BufferConfig::Conweave(config) => Shares::new(config, ports),
            _ => Shares::default(),
        };
        Buffer { config, ports, used: 0, reserved: 0, most: 0, shares }
    }

    /// Returns the bytes in the buffer without headroom, and their maximum so far.
    pub fn used(&self) -> (u64, u64) {
        (self.used, self.most)
    }

    /// Returns true if the buffer has a queue for each input port (virtual output queues).
    #[inline]
    pub fn is_voq(&self) -> bool {
        matches!(self.config, BufferConfig::Voq { .. })
    }

    /// Decides about a packet of `len` bytes that arrived by the port of `account`, and accounts for it if it
    /// is admitted. At its output port, `queue` bytes of its class and `port` bytes of all classes wait.
    #[inline]
    pub fn admit(&mut self, account: &mut Account, class: u8, len: u32, queue: u32, port: u32) -> Admission {
        let admission = match self.config {
            BufferConfig::Fifo { limit, .. } => {
                if port + len > limit {
                    Admission::Dropped
                } else {
                    Admission::Taken
                }
            }
            BufferConfig::Voq { limit, .. } => {
                if account.total() + len > limit {
                    Admission::Dropped
                } else {
                    Admission::Taken
                }
            }
            BufferConfig::Shared(config) => self.admit_shared(&config, account, class, len),
            BufferConfig::Conweave(config) => {
                let admission = config.admit(&mut self.shares, account, class, len, queue);
                self.used = self.shares.used();
                self.most = self.most.max(self.used);
                return admission;
            }
        };
        match admission {
            Admission::Dropped => {}
            Admission::Headroom => account.headroom[usize::from(class)] += len,
            Admission::Taken => {
                let before = self.within_reserve(account, class);
                account.used[usize::from(class)] += len;
                self.reserved += u64::from(self.within_reserve(account, class) - before);
                self.used += u64::from(len);
                self.most = self.most.max(self.used);
            }
        }
        admission
    }

    /// Accounts for a packet that leaves the queue of its output port, where `queue` bytes of its class
    /// remain.
    #[inline]
    pub fn leave(&mut self, account: &mut Account, class: u8, len: u32, queue: u32) {
        if let BufferConfig::Conweave(config) = self.config {
            config.leave(&mut self.shares, account, class, len, queue);
            self.used = self.shares.used();
            return;
        }
        // Bytes in the headroom move into the space that becomes free.
        let headroom = &mut account.headroom[usize::from(class)];
        let moved = len.min(*headroom);
        *headroom -= moved;
        let before = self.within_reserve(account, class);
        account.used[usize::from(class)] -= len - moved;
        self.reserved -= u64::from(before - self.within_reserve(account, class));
        self.used -= u64::from(len - moved);
    }

    /// Returns true if the sender of a class must be paused.
    #[inline]
    pub fn must_pause(&self, account: &Account, class: u8) -> bool {
        match self.config {
            BufferConfig::Fifo { pause, per_port, .. } => {
                let held = if per_port { account.total() } else { account.used[usize::from(class)] };
                pause.is_some_and(|pause| held > pause.xoff)
            }
            BufferConfig::Voq { pause, .. } => {
                pause.is_some_and(|pause| account.used[usize::from(class)] > pause.xoff)
            }
            BufferConfig::Shared(config) => {
                config.lossless & 1 << class != 0
                    && (account.headroom[usize::from(class)] > 0
                        || self.beyond_reserve(&config, account, class) > self.threshold(&config))
            }
            BufferConfig::Conweave(config) => config.must_pause(&self.shares, account, class),
        }
    }

    /// Returns true if the paused sender of a class may be resumed.
    #[inline]
    pub fn may_resume(&self, account: &Account, class: u8) -> bool {
        match self.config {
            BufferConfig::Fifo { pause, per_port, .. } => {
                let held = if per_port { account.total() } else { account.used[usize::from(class)] };
                pause.is_none_or(|pause| held <= pause.xon)
            }
            BufferConfig::Voq { pause, .. } => {
                pause.is_none_or(|pause| account.used[usize::from(class)] <= pause.xon)
            }
            BufferConfig::Shared(config) => {
                let beyond = self.beyond_reserve(&config, account, class);
                let below = beyond + u64::from(config.hysteresis) <= self.threshold(&config);
                account.headroom[usize::from(class)] == 0 && (beyond == 0 || below)
            }
            BufferConfig::Conweave(config) => config.may_resume(&self.shares, account, class),
        }
    }

    fn admit_shared(&self, config: &SharedConfig, account: &Account, class: u8, len: u32) -> Admission {
        let free = self.shared_free(config);
        let lossless = config.lossless & 1 << class != 0;
        let beyond = u64::from((account.used[usize::from(class)] + len).saturating_sub(config.reserve));
        let more = beyond - self.beyond_reserve(config, account, class);
        let fits = beyond == 0 || beyond <= self.threshold(config) && more <= free;
        if !lossless {
            return if fits { Admission::Taken } else { Admission::Dropped };
        }
        let used = account.headroom[usize::from(class)];
        // After a pause was sent, all packets of the class use the headroom until the headroom is empty.
        if used == 0 && fits && account.pausing & 1 << class == 0 {
            return Admission::Taken;
        }
        let headroom: u32 = account.headroom.iter().sum();
        if headroom + len <= config.headroom { Admission::Headroom } else { Admission::Dropped }
    }

    /// Returns the free bytes of the shared part.
    fn shared_free(&self, config: &SharedConfig) -> u64 {
        let set_aside =
            u64::from(self.ports) * (u64::from(config.headroom) + u64::from(config.reserve) * CLASSES as u64);
        config.size.saturating_sub(set_aside).saturating_sub(self.used - self.reserved)
    }

    /// Returns the number of bytes of the shared part that one account may hold.
    fn threshold(&self, config: &SharedConfig) -> u64 {
        self.shared_free(config) * u64::from(config.ingress_alpha) / 256
    }

    fn beyond_reserve(&self, config: &SharedConfig, account: &Account, class: u8) -> u64 {
        u64::from(account.used[usize::from(class)].saturating_sub(config.reserve))
    }

    #[inline]
    fn within_reserve(&self, account: &Account, class: u8) -> u32 {
        match self.config {
            BufferConfig::Shared(config) => account.used[usize::from(class)].min(config.reserve),
            _ => 0,
        }
    }
}
