//! StRoM's NIC, an FPGA at 10 and at 100 Gb/s: its clock, the width of its data path, and what an access to
//! its host takes.
//!
//! A packet is stored whole before it goes on, once on each side, because its ICRC is computed and checked
//! (§7.1); a kernel takes 64 bytes a cycle (§5.2; §3.4, initiation interval 1). Between two packets the state
//! of queue pairs is looked up and written back (§4.1). The Ethernet core has a data sheet. What has no
//! number in either is not charged: transceivers, the pipelines of headers, and how often a program can post.

use super::{Constant, Rate};

/// The primitives of one of the two.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StromFpga {
    /// Name in figures.
    pub name: &'static str,
    /// Cycles of its clock in a microsecond, thousandths.
    pub clock: u64,
    /// Source of the clock frequency.
    pub clock_source: &'static str,
    /// Bytes of a word of its data path.
    pub width: u64,
    /// Latency of a read of host memory.
    pub read: Constant,
    /// A command of the host on its way to the NIC, or bytes of the NIC's to the host's memory.
    pub post: Constant,
    /// Latency of the cable in a single direction.
    pub network: Constant,
    /// The Ethernet core on one way, sending and receiving together.
    pub mac: Constant,
    /// Cycles from one packet to the next at least.
    pub state: u64,
    /// Number of bytes that a kernel processes per cycle.
    pub kernel_width: u64,
    /// The Ethernet line.
    pub line: Rate,
    /// The host's PCIe, one direction.
    pub pcie: Rate,
}

/// Bytes on an Ethernet line around a frame from its IPv4 header on: preamble 8, Ethernet 14, FCS 4, gap 12.
pub const FRAME: u64 = 38;

const READ: Constant =
    Constant { name: "read", ns: 1_500, source: "StRoM §6.2: a read over PCIe, around 1.5 us" };
const POST: Constant = Constant { name: "post", ns: 750, source: "half a read: a posted write goes one way" };
const NETWORK: Constant = Constant {
    name: "network",
    ns: 10,
    source: "StRoM §6.1: two NICs directly connected; a cable of two metres",
};
/// Bandwidth of eight lanes of PCIe 3.0 with 256 bytes a packet.
const GEN3_X8: u64 = 6_700;
const PCIE: &str = "57.88 Gb/s for eight lanes (Neugebauer et al., SIGCOMM '18), less 20 bytes for each 256";

/// 10 Gb/s on a Virtex 7.
pub const STROM_10G: StromFpga = StromFpga {
    name: "StromFpga10G",
    clock: 156_250,
    clock_source: "StRoM §6.1: 156.25 MHz",
    width: 8,
    kernel_width: 64,
    read: READ,
    post: POST,
    network: NETWORK,
    mac: Constant {
        name: "mac",
        ns: 189,
        source: "the core that §4.1 names, 64 bits wide at 156.25 MHz: 67.2 ns out and 121.62 ns in (AMD PG210, Latency)",
    },
    state: 5,
    line: Rate { name: "line", bytes_per_us: 1_250, source: "StRoM §6.1: 10 G Ethernet" },
    pcie: Rate { name: "pcie", bytes_per_us: GEN3_X8, source: PCIE },
};

/// 100 Gb/s on an UltraScale+.
pub const STROM_100G: StromFpga = StromFpga {
    name: "StromFpga100G",
    clock: 322_000,
    clock_source: "StRoM §7: 322 MHz",
    width: 64,
    mac: Constant {
        name: "mac",
        ns: 0,
        source: "no latency was found for the 100 G core of §7: not charged",
    },
    line: Rate { name: "line", bytes_per_us: 12_500, source: "StRoM §7: 100 G Ethernet" },
    pcie: Rate { name: "pcie", bytes_per_us: 2 * GEN3_X8, source: PCIE },
    ..STROM_10G
};

/// The work of one step of a kernel.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Stepped {
    /// Number of bytes consumed from a packet.
    pub taken: u32,
    /// Number of bytes received from memory.
    pub given: u32,
    /// Number of bytes requested from memory.
    pub asked: u32,
    /// Number of writes to memory, and their total size in bytes.
    pub written: (u32, u32),
}

/// The stations that packets pass one after the other.
#[derive(Copy, Clone, Debug, Default)]
pub struct Stations {
    free: [u64; 5],
}

impl StromFpga {
    /// So many bytes through the data path.
    pub fn words(&self, bytes: u64) -> u64 {
        self.cycles(bytes.div_ceil(self.width))
    }

    fn cycles(&self, cycles: u64) -> u64 {
        (cycles * 1_000_000).div_ceil(self.clock)
    }

    fn kernel_words(&self, bytes: u32) -> u64 {
        self.cycles(u64::from(bytes).div_ceil(self.kernel_width).max(1))
    }

    /// Returns the time of a step: a cycle for each word of input, at least one.
    pub fn step(&self, step: &Stepped) -> u64 {
        self.kernel_words(step.taken.max(step.given))
    }

    /// Returns the time for which a step keeps its kernel from the next packet: its input or its writes.
    pub fn step_keeps(&self, step: &Stepped) -> u64 {
        // Each write is a command of its own, a packet over PCIe with its header.
        let written = u64::from(step.written.1) + 24 * u64::from(step.written.0);
        self.step(step).max(self.pcie.ns(written))
    }

    /// Returns the time at which the peer has checked a frame of `bytes` bytes from its IPv4 header on, sent
    /// at `starts`.
    pub fn frame(&self, stations: &mut Stations, starts: u64, bytes: u64) -> u64 {
        let store = self.words(bytes).max(self.cycles(self.state));
        let out = stations.pass(0, starts, store);
        let line = stations.pass(1, out, self.line.ns(bytes + FRAME)) + self.mac.ns + self.network.ns;
        stations.pass(2, line, store)
    }

    /// Bytes from the host's memory, to be sent: when they are there.
    pub fn gather(&self, stations: &mut Stations, starts: u64, bytes: u64) -> u64 {
        stations.pass(3, starts, self.pcie.ns(bytes)) + self.read.ns
    }

    /// Bytes to the host's memory: when its program sees them.
    pub fn place(&self, stations: &mut Stations, starts: u64, bytes: u64) -> u64 {
        stations.pass(4, starts, self.pcie.ns(bytes)) + self.post.ns
    }
}

impl Stations {
    /// Occupies a station for a time.
    fn pass(&mut self, station: usize, comes: u64, takes: u64) -> u64 {
        let free = &mut self.free[station];
        *free = comes.max(*free) + takes;
        *free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_cycles_are_those_of_the_paper() {
        // §7.1: a full MTU is 176 words at 10 G and 22 at 100 G.
        assert_eq!((STROM_10G.words(1408), STROM_100G.words(1408)), (176 * 64 / 10 + 1, 69));
        assert_eq!(STROM_10G.words(1), 7);
    }

    #[test]
    fn packets_follow_each_other_at_the_pace_of_the_slowest_station() {
        let mut stations = Stations::default();
        let first = STROM_10G.frame(&mut stations, 0, 1100);
        let second = STROM_10G.frame(&mut stations, 0, 1100);
        let line = STROM_10G.line.ns(1100 + FRAME);
        assert_eq!((first, second - first), (2 * STROM_10G.words(1100) + line + 199, line));
        // Two words at 100 G: the state of a queue pair takes longer.
        let mut stations = Stations::default();
        let first = STROM_100G.frame(&mut stations, 0, 100);
        assert_eq!(STROM_100G.frame(&mut stations, 0, 100) - first, 16);
    }

    #[test]
    fn a_step_takes_a_cycle_for_each_word_and_keeps_its_kernel_while_it_writes() {
        let takes = |taken, given| STROM_10G.step(&Stepped { taken, given, ..Stepped::default() });
        assert_eq!([takes(0, 0), takes(16, 0), takes(0, 64), takes(0, 4096)], [7, 7, 7, 410]);
        let writes = Stepped { taken: 1024, written: (8, 1024), ..Stepped::default() };
        assert_eq!(STROM_100G.step_keeps(&writes), STROM_100G.pcie.ns(1024 + 8 * 24));
    }
}
