//! A ConnectX-5 in RedN's testbed: what its primitives take, each read from the authors' measurements of
//! single verbs and of chains of NOPs, or from the hardware's data sheet. Sources are their Figures 7 and 8,
//! the native verbs of Table 3, and of Figure 10 the curve "Ideal", one READ by size. Nothing here was read
//! from a program: what programs take is a prediction (`timeline.rs`).

use super::{Constant, Rate};
use remora_nic::wqe::{Wqe, WqeOpcode, flag};

/// The primitives of the model. Other hardware is another value of this type.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ConnectX5 {
    /// Doorbell to the NIC plus completion to a polling program, half each.
    pub host: Constant,
    /// Fetch of work requests over PCIe: a batch of a send queue, or one of a receive queue.
    pub fetch: Constant,
    /// Access to host memory over PCIe: the data of a WRITE or SEND unless it is inline, the result of a
    /// READ, the word of an atomic.
    pub access: Constant,
    /// Issue of a work request after the previous one in its queue.
    pub issue: Constant,
    /// A WAIT whose condition is already true.
    pub wait: Constant,
    /// Cost of an ENABLE.
    pub enable: Constant,
    /// Additional time of a READ beyond the access.
    pub read: Constant,
    /// Additional time of a compare-and-swap beyond the access.
    pub compare_swap: Constant,
    /// Additional time of a fetch-and-add beyond the access.
    pub fetch_add: Constant,
    /// Additional time of a calculation beyond the access.
    pub calculate: Constant,
    /// Round trip to the peer.
    pub network: Constant,
    /// Additional time of a message of several packets, once per message.
    pub several: Constant,
    /// Additional time of each packet after the first.
    pub packet: Constant,
    /// Time for which a READ occupies a processing unit.
    pub unit_read: Constant,
    /// Time for which another verb occupies a processing unit.
    pub unit: Constant,
    /// Time for which a compare-and-swap or fetch-and-add occupies a port.
    pub atomic: Constant,
    /// Bandwidth of a port.
    pub line: Rate,
    /// Bandwidth of a host's PCIe in one direction.
    pub pcie: Rate,
}

/// Number of processing units of a port; each queue uses one of them (`RedN`, Table 1 and §4).
pub const UNITS: usize = 8;
/// Maximum payload of a packet in bytes, the largest of `InfiniBand`.
pub const MTU: u64 = 4096;
/// Size in bytes of a packet's headers and checksums: LRH 8, BTH 12, ICRC 4, VCRC 2.
pub const HEADERS: u64 = 26;
/// Payload in bytes of the measured verbs (§5.1.1).
pub const MEASURED_LEN: u64 = 64;

const fn constant(name: &'static str, ns: u64, source: &'static str) -> Constant {
    Constant { name, ns, source }
}

/// The ConnectX-5 as measured.
pub const CONNECTX5: ConnectX5 = ConnectX5 {
    host: constant("host", 550, "RedN Figure 7: a local NOP, 1.05 us, less fetch and issue"),
    fetch: constant(
        "fetch",
        330,
        "RedN §5.1.2: 0.54 us a NOP in doorbell order, less issue, WAIT and ENABLE",
    ),
    access: constant("access", 330, "RedN Figure 7: a WRITE, 1.60 us, less a remote NOP, 1.27 us"),
    issue: constant("issue", 170, "RedN §5.1.2: 0.17 us a NOP in WQ order"),
    wait: constant("wait", 20, "RedN §5.1.2: 0.19 us a NOP in completion order, less issue"),
    enable: constant("enable", 20, "as WAIT: Figure 8 has only its sum with a fetch"),
    read: constant("read", 210, "RedN Figure 7: 1.81 us less a WRITE"),
    compare_swap: constant("compare-swap", 120, "RedN Figure 7: 1.72 us less a WRITE"),
    fetch_add: constant("fetch-add", 30, "RedN Figure 7: 1.63 us less a WRITE"),
    calculate: constant("calculate", 30, "RedN Figure 7: MAX, 1.63 us, less a WRITE"),
    network: constant(
        "network",
        220,
        "RedN Figure 7: NOPs, remote less local; the text says roughly 0.25 us",
    ),
    several: constant(
        "several",
        1_160,
        "RedN Figure 10, Ideal: READs of 16 and 64 KB less one of 64 B, less PCIe and line; what both share",
    ),
    packet: constant(
        "packet",
        269,
        "RedN Figure 10, Ideal: the same, what 64 KB take beyond 16 KB, of twelve packets",
    ),
    unit_read: constant("unit-read", 123, "RedN Table 3: 65 M READs/s of eight units"),
    unit: constant("unit", 127, "RedN Table 3: 63 M WRITEs/s, and as many MAX, of eight units"),
    atomic: constant("atomic", 119, "RedN Table 3: 8.4 M atomics/s of a port"),
    line: Rate { name: "line", bytes_per_us: 12_500, source: "RedN §5: 100 Gb/s InfiniBand" },
    pcie: Rate {
        name: "pcie",
        bytes_per_us: 13_400,
        source: "PCIe 3.0 x16: twice 57.88 Gb/s (Neugebauer et al., SIGCOMM '18), less 20 bytes for each 256",
    },
};

impl ConnectX5 {
    /// Returns the time in nanoseconds of a verb beyond its issue, without the network.
    pub fn beyond(&self, wqe: &Wqe) -> u64 {
        let access = self.access.ns;
        match wqe.opcode() {
            WqeOpcode::READ => access + self.read.ns,
            WqeOpcode::COMPARE_SWAP => access + self.compare_swap.ns,
            WqeOpcode::FETCH_ADD => access + self.fetch_add.ns,
            opcode if opcode.is_calculation() => access + self.calculate.ns,
            opcode if !opcode.has_list() || wqe.flags() & flag::INLINE != 0 => 0,
            _ => access,
        }
    }

    /// Returns the additional time in nanoseconds of a message of `len` bytes beyond PCIe and line. Other
    /// messages proceed meanwhile.
    pub fn beyond_bytes(&self, len: u64) -> u64 {
        match len.div_ceil(MTU).saturating_sub(1) {
            0 => 0,
            further => self.several.ns + further * self.packet.ns,
        }
    }

    /// Returns the nanoseconds for which an operation blocks its queue.
    pub fn queue_ns(&self, opcode: WqeOpcode) -> u64 {
        match opcode {
            WqeOpcode::WAIT => self.wait.ns,
            WqeOpcode::ENABLE => self.enable.ns,
            _ => self.issue.ns,
        }
    }

    /// Returns the nanoseconds for which an operation occupies its processing unit.
    pub fn unit_ns(&self, opcode: WqeOpcode) -> u64 {
        match opcode {
            WqeOpcode::WAIT | WqeOpcode::ENABLE => self.queue_ns(opcode),
            WqeOpcode::READ => self.unit_read.ns,
            _ => self.unit.ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_7_is_the_sum_of_its_primitives() {
        let model = CONNECTX5;
        let nop = model.host.ns + model.fetch.ns + model.issue.ns;
        assert_eq!(nop, 1_050);
        let latency = |opcode: WqeOpcode| {
            let wqe = Wqe { header: u64::from(opcode.0), len: 64, ..Wqe::default() };
            nop + model.network.ns + model.beyond(&wqe)
        };
        let verbs =
            [WqeOpcode::NOP, WqeOpcode::READ, WqeOpcode::WRITE, WqeOpcode::COMPARE_SWAP, WqeOpcode::MAX];
        assert_eq!(verbs.map(latency), [1_270, 1_810, 1_600, 1_720, 1_630]);
        assert_eq!(model.issue.ns + model.wait.ns + model.enable.ns + model.fetch.ns, 540);
    }

    #[test]
    fn only_a_message_of_several_packets_takes_more_than_its_bytes() {
        let costs = [64, MTU, MTU + 1, 4 * MTU].map(|len| CONNECTX5.beyond_bytes(len));
        assert_eq!(costs, [0, 0, 1_160 + 269, 1_160 + 3 * 269]);
    }

    #[test]
    fn an_immediate_is_not_read_from_memory() {
        let header = u64::from(WqeOpcode::WRITE.0) | u64::from(flag::INLINE) << 8;
        assert_eq!(CONNECTX5.beyond(&Wqe { header, len: 8, ..Wqe::default() }), 0);
    }
}
