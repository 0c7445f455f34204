//! What a switch takes in and what it pauses: the memory management unit of each kind of switch.
//!
//! Bytes are accounted to the port and the class by which they came. A kind decides from these accounts
//! whether a packet fits, when the sender of a class is paused, and when it goes on.

mod conweave;

use super::port::CLASSES;

pub use conweave::ConweaveConfig;

use conweave::Shares;

/// Kind of a switch, with its limits in bytes.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum BufferConfig {
    /// A queue for each output port and class. All queues of a port together have a limit.
    Fifo {
        /// Bytes that wait for one output port, at most.
        limit: u32,
        /// When the sender of a class is paused.
        pause: Option<Thresholds>,
        /// The accounts of all classes of an input port are one, and a pause is for all classes.
        per_port: bool,
    },
    /// A buffer for each input port, and in it a queue for each output port (virtual output queues). Output
    /// ports take from the inputs in turn, packet by packet.
    Voq {
        /// Bytes of one input port, at most.
        limit: u32,
        /// When the sender of a class is paused.
        pause: Option<Thresholds>,
    },
    /// One buffer that all ports share by dynamic thresholds.
    Shared(SharedConfig),
    /// The same, as ConWeave's program has it.
    Conweave(ConweaveConfig),
}

/// When the sender of a class is paused and when it goes on, in bytes of its account.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// More than so many: it is paused.
    pub xoff: u32,
    /// So many or fewer: it goes on.
    pub xon: u32,
}

/// A buffer that all ports share.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SharedConfig {
    /// All bytes, headroom and reserves included.
    pub size: u64,
    /// Bytes of each input port and class that nobody else takes.
    pub reserve: u32,
    /// Bytes of each input port that only what comes behind a pause takes.
    pub headroom: u32,
    /// A class of an input port may have so much of what is free, in 1/256.
    pub ingress_alpha: u32,
    /// A paused sender goes on when its account is so many bytes below the threshold.
    pub hysteresis: u32,
    /// Classes that are paused rather than lost.
    pub lossless: u8,
}

/// The account of one input port.
#[derive(Copy, Clone, Debug, Default)]
pub struct Account {
    /// Bytes, by class.
    pub used: [u32; CLASSES],
    /// Bytes that came behind a pause and stand in the headroom, by class.
    pub headroom: [u32; CLASSES],
    /// Classes whose sender is paused, a bit each.
    pub pausing: u8,
}

impl Account {
    /// Bytes of all classes.
    fn total(&self) -> u32 {
        self.used.iter().sum()
    }
}

/// Whether a packet fits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It does.
    Taken,
    /// It does, in the headroom.
    Headroom,
    /// It does not.
    Dropped,
}

/// A switch's buffer: the totals of its accounts.
#[derive(Clone, Debug)]
pub struct Buffer {
    config: BufferConfig,
    ports: u32,
    /// Bytes in the buffer, those in the headroom not counted.
    used: u64,
    /// Of these, bytes that are within the reserves of their accounts.
    reserved: u64,
    /// Most bytes that were ever in it.
    most: u64,
    /// The totals of ConWeave's.
    shares: Shares,
}

impl Buffer {
    /// An empty one of a switch with so many ports.
    pub fn new(config: BufferConfig, ports: u32) -> Buffer {
        let shares = match &config {
            BufferConfig::Conweave(config) => Shares::new(config, ports),
            _ => Shares::default(),
        };
        Buffer { config, ports, used: 0, reserved: 0, most: 0, shares }
    }

    /// Bytes in it now, headroom not counted, and the most that there ever were.
    pub fn used(&self) -> (u64, u64) {
        (self.used, self.most)
    }

    /// Is there a queue for each input port?
    #[inline]
    pub fn is_voq(&self) -> bool {
        matches!(self.config, BufferConfig::Voq { .. })
    }

    /// A packet comes by the port of `account` and goes to a port at which `queue` bytes of its class wait,
    /// of `port` bytes in all.
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

    /// A packet that was taken leaves its output's queue, in which `queue` bytes of its class stay.
    #[inline]
    pub fn leave(&mut self, account: &mut Account, class: u8, len: u32, queue: u32) {
        if let BufferConfig::Conweave(config) = self.config {
            config.leave(&mut self.shares, account, class, len, queue);
            self.used = self.shares.used();
            return;
        }
        // What stands in the headroom moves into the space that becomes free.
        let headroom = &mut account.headroom[usize::from(class)];
        let moved = len.min(*headroom);
        *headroom -= moved;
        let before = self.within_reserve(account, class);
        account.used[usize::from(class)] -= len - moved;
        self.reserved -= u64::from(before - self.within_reserve(account, class));
        self.used -= u64::from(len - moved);
    }

    /// Must the sender of a class be paused now?
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

    /// May the sender of a class that is paused go on?
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
        // Behind a pause, all goes to the headroom until that is empty again.
        if used == 0 && fits && account.pausing & 1 << class == 0 {
            return Admission::Taken;
        }
        let headroom: u32 = account.headroom.iter().sum();
        if headroom + len <= config.headroom { Admission::Headroom } else { Admission::Dropped }
    }

    /// Bytes of the shared part that nobody has.
    fn shared_free(&self, config: &SharedConfig) -> u64 {
        let set_aside =
            u64::from(self.ports) * (u64::from(config.headroom) + u64::from(config.reserve) * CLASSES as u64);
        config.size.saturating_sub(set_aside).saturating_sub(self.used - self.reserved)
    }

    /// Bytes of the shared part that one account may have.
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
