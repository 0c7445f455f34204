//! What an engine's 1RMA is set to.

/// Which windows a write debits. The paper's text says the server's alone; its Figure 11a shows writes that
/// hold a window for longer than reads (`docs/RMA.md`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum WriteDebit {
    /// The server's.
    ServerOnly,
    /// The initiator's, too, from the request to the completion.
    #[default]
    Both,
}

/// Where the times of an engine's timers come from.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Timers {
    /// The settings, as in a fabric whose times are known.
    #[default]
    Fixed,
    /// The round trips that are measured, of each peer. The settings count until there is one.
    Measured,
}

/// Sizes and times of one engine. Times are nanoseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Command slots: operations of this engine's programs at once.
    pub slots: u16,
    /// Operations that it serves at once.
    pub served: u16,
    /// The solicitation window: bytes that may be on their way to this engine.
    pub window: u32,
    /// What operations of the bulk class may have of it: those of the latency class wait behind no more. At
    /// least one bulk operation enters service.
    pub bulk_window: u32,
    /// For how long after an operation of the latency class has entered service the bulk class has one
    /// operation in service and no more: what is on its way is what the next short operation waits behind.
    pub bulk_holdoff: u64,
    /// What a write debits.
    pub write_debit: WriteDebit,
    /// Round trip of the idle fabric.
    pub rtt: u64,
    /// Whether the next two times are what counts.
    pub timers: Timers,
    /// How long an operation may wait for the window.
    pub dispatch_timeout: u64,
    /// How long an operation may take once it has entered service.
    pub timeout: u64,
    /// The least of a measured `timeout`; that of `dispatch_timeout` is half of it.
    pub least_timeout: u64,
    /// The timeout that a server may ask an initiator to wait, at most.
    pub max_server_timeout: u64,
    /// How much longer than its server an initiator waits: for as long, an engine may be stopped within one
    /// copy and change nothing after the initiator's timeout.
    pub guard: u64,
    /// Bytes a second that the engine sends, for the NACK threshold.
    pub bandwidth: u64,
    /// Authentication failures that it answers in a second; further ones are dropped.
    pub failures_per_second: u32,
}

impl Settings {
    /// The paper's simulation (§6.1, §7.5): 100 Gb/s, a round trip of 5 us, timeouts of 2 and 4 round trips,
    /// a window of 64 KB. Nobody is descheduled there, so there is no guard.
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

    /// An engine in software, whose peers may sleep: threads are descheduled for milliseconds.
    pub const fn software() -> Settings {
        Settings {
            slots: 256,
            served: 256,
            window: 128 << 10,
            // A pass of an engine takes all that has arrived: what is on its way is waited for three times.
            bulk_window: 32 << 10,
            bulk_holdoff: 1_000_000,
            rtt: 50_000,
            timers: Timers::Measured,
            dispatch_timeout: 100_000_000,
            timeout: 250_000_000,
            // An engine whose wake was missed answers after 50 ms at most.
            least_timeout: 100_000_000,
            max_server_timeout: 1_000_000_000,
            guard: 5_000_000,
            bandwidth: 2_000_000_000,
            failures_per_second: 10_000,
            ..Settings::paper()
        }
    }

    /// The same between engines that poll all the time, each on a core of its own.
    pub const fn busy_polling() -> Settings {
        Settings { least_timeout: 200_000, ..Settings::software() }
    }

    /// Bytes of data owed above which a request is refused: what leaves too late to arrive in time is not
    /// worth sending (1RMA paper, §6.1: `TIMEOUT - RTT - DISPATCH_TIMEOUT` at line rate). At least one
    /// operation is taken.
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
