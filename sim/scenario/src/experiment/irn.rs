//! The evaluation of IRN (SIGCOMM'18, section 4): who runs on its fabric, and what is compared.
//!
//! The paper's own CDF of sizes, the class of its acknowledgements and the speed-up of its switches are not
//! known. What stands here is chosen, and nothing is tuned to the paper's numbers.

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

/// The paper's fabric and load (section 4.1), and what may differ from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Ports of a switch; the fat-tree has `k^3 / 4` hosts.
    pub k: u32,
    /// Rate of every link.
    pub rate: Rate,
    /// Share of each host's link that its flows fill.
    pub load: f64,
    /// Sizes of flows.
    pub sizes: Sizes,
    /// Bytes at each input of a switch.
    pub buffer: Size,
    /// For how long flows start.
    pub duration: Time,
    /// Decides everything random.
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
    /// IRN that goes back N.
    GoBackN,
    /// IRN without its cap on packets in flight.
    WithoutCap,
    /// IRN that retransmits without SACKs.
    WithoutSack,
    /// IRN with 16 bytes more in each packet, and 2 us before each retransmission (Figure 12).
    WorstCase,
    /// IRN whose packets are charged as RoCE's are.
    Ideal,
}

impl Contender {
    /// Every one.
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

    /// Its name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Contender::WorstCase => "irn-worst-case",
            Contender::Ideal => "irn-ideal",
            other => other.transport().name(),
        }
    }

    /// The transport that it is.
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

/// The packets in flight of IRN at 40 Gb/s (section 4.1); at other rates the product is computed.
const CAP: u32 = 110;

/// A contender on the fabric, without flows.
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

/// A contender under the load of the setting.
pub fn load(setting: &Setting, contender: Contender, control: ControlName) -> Scenario {
    let traffic =
        Traffic::Poisson { sizes: setting.sizes.clone(), load: setting.load, duration: setting.duration };
    Scenario { workloads: vec![Workload::of(traffic)], ..fabric(setting, contender, control) }
}

/// A contender at an incast (Figure 9): 150 MB from so many senders to one; beside it the load of the
/// setting, if `beside`. The incast's flows come first, and have the lowest ids.
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

/// Bytes of an incast.
const INCAST_BYTES: u64 = 150_000_000;

#[cfg(test)]
mod tests;
