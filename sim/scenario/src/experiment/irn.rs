//! The evaluation of IRN (SIGCOMM'18, section 4): its fabric, its transports and the comparisons of its
//! figures.
//!
//! The paper does not state its flow size table, the traffic class of acknowledgements or the speed-up of its
//! switches. The values here were chosen, and nothing was tuned to match the paper's numbers.

mod comparison;
mod outcome;
mod signs;

use remora_fabric::engine::Picos;

use crate::scenario::{
    Charging, Control, ControlName, Network, Pfc, Scenario, Switch, Transport, TransportName,
};
use crate::units::{Rate, Size, Time};
use crate::workload::{Sizes, Traffic, Workload};

pub use comparison::{COMPARISONS, Comparison, Metric};
pub use outcome::{Metrics, Outcome, interval, measure};
pub use signs::{Sign, Signs};

/// The fabric and the load, with the paper's values as defaults (section 4.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Number of ports of a switch; the fat-tree has `k³/4` hosts.
    pub k: u32,
    /// Rate of every link.
    pub rate: Rate,
    /// Mean load of each host's link, as a share of its rate.
    pub load: f64,
    /// Distribution of the flow sizes.
    pub sizes: Sizes,
    /// Buffer of each input port of a switch.
    pub buffer: Size,
    /// Length of the interval in which flows start.
    pub duration: Time,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            k: 6,
            rate: Rate(40_000_000_000),
            load: 0.7,
            sizes: Sizes::Named(crate::workload::NamedSizes::Irn),
            buffer: Size(240_000),
            duration: Time(10_000 * Picos::MICROSECOND),
            seed: 1,
        }
    }
}

/// A transport of the evaluation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// IRN without PFC.
    Irn,
    /// IRN with PFC.
    IrnPfc,
    /// RoCE without PFC.
    Roce,
    /// RoCE with PFC.
    RocePfc,
    /// IRN with go-back-N instead of selective retransmission.
    GoBackN,
    /// IRN without BDP-FC, its cap on packets in flight.
    WithoutCap,
    /// IRN that retransmits without SACKs.
    WithoutSack,
    /// IRN with 16 more header bytes in each data packet and a delay of 2 µs before each retransmission
    /// (Figure 12).
    WorstCase,
    /// IRN whose packets are charged like RoCE's.
    Ideal,
}

impl Contender {
    /// List of all contenders.
    pub const ALL: [Contender; 9] = [
        Contender::Irn,
        Contender::IrnPfc,
        Contender::Roce,
        Contender::RocePfc,
        Contender::GoBackN,
        Contender::WithoutCap,
        Contender::WithoutSack,
        Contender::WorstCase,
        Contender::Ideal,
    ];

    /// Returns the name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Contender::WorstCase => "irn-worst-case",
            Contender::Ideal => "irn-ideal",
            other => other.transport().name(),
        }
    }

    /// Returns the transport of a scenario with this contender.
    fn transport(self) -> TransportName {
        match self {
            Contender::Irn | Contender::WorstCase | Contender::Ideal => TransportName::Irn,
            Contender::IrnPfc => TransportName::IrnPfc,
            Contender::Roce => TransportName::Roce,
            Contender::RocePfc => TransportName::RocePfc,
            Contender::GoBackN => TransportName::IrnGoBackN,
            Contender::WithoutCap => TransportName::IrnWithoutCap,
            Contender::WithoutSack => TransportName::IrnWithoutSack,
        }
    }
}

/// IRN's cap on packets in flight at 40 Gb/s (section 4.1). At other rates it is computed from the network.
const CAP: u32 = 110;

/// Returns a scenario of the contender on the fabric, without flows.
fn fabric(setting: &Setting, contender: Contender, control: ControlName) -> Scenario {
    let network = Network::FatTree {
        k: setting.k,
        oversubscription: 1,
        rate: setting.rate,
        delay: Time(2 * Picos::MICROSECOND),
    };
    let default = Setting::default();
    let is_default = setting.rate == default.rate && setting.k == default.k;
    let mut transport =
        Transport { name: contender.transport(), cap: is_default.then_some(CAP), ..Transport::default() };
    if contender == Contender::WorstCase {
        transport.extra_header = Size(16);
        transport.retransmission_delay = Time(2 * Picos::MICROSECOND);
    }
    let switch = Switch { buffer: setting.buffer, pfc: Some(Pfc::default()), ..Switch::default() };
    let is_ideal = matches!(contender, Contender::Ideal | Contender::WorstCase);
    Scenario {
        seed: setting.seed,
        charging: if is_ideal { Charging::Ideal } else { Charging::Ethernet },
        switch,
        transport,
        control: Control { name: control, ..Control::default() },
        ..Scenario::on(network)
    }
}

/// Returns a scenario of the contender under the load of the setting.
pub fn load(setting: &Setting, contender: Contender, control: ControlName) -> Scenario {
    let traffic =
        Traffic::Poisson { sizes: setting.sizes.clone(), load: setting.load, duration: setting.duration };
    Scenario { workloads: vec![Workload::of(traffic)], ..fabric(setting, contender, control) }
}

/// Returns a scenario of the contender at an incast (Figure 9): `senders` hosts send 150 MB in total to one
/// host. With `beside`, the load of the setting runs at the same time. The flows of the incast have the
/// lowest ids.
pub fn incast(
    setting: &Setting,
    contender: Contender,
    control: ControlName,
    senders: u32,
    beside: bool,
) -> Scenario {
    let size = Size(INCAST_BYTES / u64::from(senders));
    let mut workloads = vec![Workload::of(Traffic::Incast { senders, size, to: None, repeat: None })];
    if beside {
        workloads.extend(load(setting, contender, control).workloads);
    }
    Scenario { workloads, ..fabric(setting, contender, control) }
}

/// Total size of an incast, in bytes.
const INCAST_BYTES: u64 = 150_000_000;

#[cfg(test)]
mod tests;
