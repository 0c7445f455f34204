//! Settings of 1RMA for one engine.

/// The windows that a write debits. The paper's text names only the server's; its Figure 11a shows writes
/// that hold a window longer than reads (`docs/reference/rma.md`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum WriteDebit {
    /// The server's window only.
    ServerOnly,
    /// The server's window, and the initiator's from the request to the completion.
    #[default]
    Both,
}

/// The source of the timeouts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Timers {
    /// The settings, for a fabric whose times are known.
    #[default]
    Fixed,
    /// Measured round trips of each peer. The settings apply until the first measurement.
    Measured,
}

/// Sizes and times of one engine. Times are in nanoseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of command slots: concurrent operations of this engine's programs.
    pub slots: u16,
    /// Number of operations that the engine serves concurrently.
    pub served: u16,
    /// The solicitation window: bytes that may be in flight to this engine.
    pub window: u32,
    /// Part of the window that the bulk class may use, which bounds the queue in front of the latency class.
    /// At least one bulk operation is always admitted.
    pub bulk_window: u32,
    /// Time after the admission of a latency operation during which the bulk class has at most one operation
    /// in service. This keeps the data in flight short for the next latency operation.
    pub bulk_holdoff: u64,
    /// The windows that a write debits.
    pub write_debit: WriteDebit,
    /// Round-trip time of the idle fabric.
    pub rtt: u64,
    /// Source of the timeouts: `dispatch_timeout` and `timeout`, or measured round trips.
    pub timers: Timers,
    /// Maximum time that an operation waits for the window.
    pub dispatch_timeout: u64,
    /// Maximum time of an operation after it entered service.
    pub timeout: u64,
    /// Lower bound of a measured `timeout`; half of it is the lower bound of `dispatch_timeout`.
    pub least_timeout: u64,
    /// Upper bound of the timeout that a server may announce to an initiator.
    pub max_server_timeout: u64,
    /// Time that an initiator waits longer than its server. An engine may be suspended for this long within
    /// one copy and still change nothing after the initiator's timeout.
    pub guard: u64,
    /// Transmission rate of the engine in bytes per second, used for the NACK threshold.
    pub bandwidth: u64,
    /// Maximum number of authentication failures sent per second; further ones are dropped.
    pub failures_per_second: u32,
}

impl Settings {
    /// The paper's simulation (§6.1, §7.5): 100 Gb/s, a round trip of 5 µs, timeouts of 2 and 4 round trips,
    /// and a window of 64 KB. Threads are never suspended there, so the guard is 0.
    pub const fn paper() -> Settings {
        Settings {
            slots: 256,
            served: 256,
            window: 64 << 10,
            bulk_window: 64 << 10,
            bulk_holdoff: 0,
            write_debit: WriteDebit::Both,
            rtt: 5_000,
            timers: Timers::Fixed,
            dispatch_timeout: 10_000,
            timeout: 20_000,
            least_timeout: 20_000,
            max_server_timeout: 20_000,
            guard: 0,
            bandwidth: 12_500_000_000,
            failures_per_second: 1_000_000,
        }
    }

    /// A software engine, whose peers may be suspended for milliseconds.
    pub const fn software() -> Settings {
        Settings {
            slots: 256,
            served: 256,
            window: 128 << 10,
            // One pass of an engine processes everything that has arrived, so data in flight delays a
            // latency operation up to three times.
            bulk_window: 32 << 10,
            bulk_holdoff: 1_000_000,
            rtt: 50_000,
            timers: Timers::Measured,
            dispatch_timeout: 100_000_000,
            timeout: 250_000_000,
            // An engine whose wakeup was lost responds after at most 50 ms.
            least_timeout: 100_000_000,
            max_server_timeout: 1_000_000_000,
            guard: 5_000_000,
            bandwidth: 2_000_000_000,
            failures_per_second: 10_000,
            ..Settings::paper()
        }
    }

    /// Returns the number of pending bytes above which a request is refused. Data that is sent too late to
    /// arrive in time is useless (1RMA paper, §6.1: `TIMEOUT - RTT - DISPATCH_TIMEOUT` at line rate). At
    /// least one operation is always accepted.
    pub fn nack_threshold(&self) -> u64 {
        let spare = self.timeout.saturating_sub(self.rtt).saturating_sub(self.dispatch_timeout);
        (u128::from(spare) * u128::from(self.bandwidth) / 1_000_000_000).min(u128::from(u64::MAX)) as u64
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::software()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_threshold_is_five_microseconds_of_line_rate() {
        assert_eq!(Settings::paper().nack_threshold(), 62_500);
        let short = Settings { timeout: 1, ..Settings::paper() };
        assert_eq!(short.nack_threshold(), 0);
    }
}
