//! The ECMP keys of flows, for switches that hash like another simulator.

use remora_fabric::network::{FlowKey, KeyedHash, mix};

use crate::Flow;
use crate::format::hpcc::outputs::address;
use crate::scenario::{Balance, Hash, Scenario};

/// Number of paths among which htsim chooses. All flows of a run get one path number.
const PATHS: u32 = 256;

/// The hash function of a scenario whose switches hash like another simulator.
#[derive(Copy, Clone, Debug)]
pub(crate) enum HashOf {
    /// The hash of HPCC's and ConWeave's ns-3 programs.
    Ns3,
    /// htsim's hash. htsim takes the path number of all data packets from the clock; here it comes from the
    /// seed.
    Htsim {
        /// Path number of all data packets.
        path: u32,
    },
}

impl HashOf {
    /// Returns the hash of a scenario, or `None` if its switches use Remora's hash or none.
    pub(crate) fn scenario(scenario: &Scenario) -> Option<HashOf> {
        match scenario.switch.balance {
            Balance::Ecmp { hash: Hash::Ns3 } => Some(HashOf::Ns3),
            Balance::Ecmp { hash: Hash::Htsim } => {
                Some(HashOf::Htsim { path: mix(scenario.seed as u32) % PATHS })
            }
            _ => None,
        }
    }

    /// Returns the hash function in the fabric's type.
    pub(crate) fn keyed(self) -> KeyedHash {
        match self {
            HashOf::Ns3 => KeyedHash::Ns3,
            HashOf::Htsim { .. } => KeyedHash::Htsim,
        }
    }

    /// Returns the hash keys of a flow's data packets and of its acknowledgements, or `None` if the flow has
    /// no ports and the hash needs them.
    pub(crate) fn keys(self, flow: &Flow) -> Option<[FlowKey; 2]> {
        match self {
            HashOf::Ns3 => {
                let [src, dst] = [flow.src, flow.dst].map(address);
                let [sport, dport] = flow.ports.map(u32::from);
                let keys = [[src, dst, sport | dport << 16], [dst, src, dport | sport << 16]];
                (flow.ports != [0, 0]).then_some(keys)
            }
            // htsim sends acknowledgements on path 0.
            HashOf::Htsim { path } => Some([path, 0].map(|path| [flow.id as u32, path, 0])),
        }
    }
}
