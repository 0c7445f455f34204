//! What switches hash of flows, as other programs do.

use remora_fabric::network::{FlowKey, KeyedHash, mix};

use crate::Flow;
use crate::format::hpcc::outputs::address;
use crate::scenario::{Balance, Hash, Scenario};

/// Numbers of paths that htsim chooses from: one for all flows of a run.
const PATHS: u32 = 256;

/// The hash of a scenario's switches, if it is another program's.
#[derive(Copy, Clone, Debug)]
pub enum HashOf {
    /// HPCC's and ConWeave's.
    Ns3,
    /// htsim's, with the number of the path that all data takes. There the clock chooses it; here, the seed.
    Htsim {
        /// The number.
        path: u32,
    },
}

impl HashOf {
    /// That of a scenario; `None`: its switches hash as Remora does, or do not hash.
    pub fn scenario(scenario: &Scenario) -> Option<HashOf> {
        match scenario.switch.balance {
            Balance::Ecmp { hash: Hash::Ns3 } => Some(HashOf::Ns3),
            Balance::Ecmp { hash: Hash::Htsim } => {
                Some(HashOf::Htsim { path: mix(scenario.seed as u32) % PATHS })
            }
            _ => None,
        }
    }

    /// The hash as the fabric has it.
    pub fn keyed(self) -> KeyedHash {
        match self {
            HashOf::Ns3 => KeyedHash::Ns3,
            HashOf::Htsim { .. } => KeyedHash::Htsim,
        }
    }

    /// What is hashed of a flow's data, and of its acknowledgements. `None`: the flow lacks it, as one
    /// without ports does.
    pub fn keys(self, flow: &Flow) -> Option<[FlowKey; 2]> {
        match self {
            HashOf::Ns3 => {
                let ([src, dst], [sport, dport]) =
                    ([flow.src, flow.dst].map(address), flow.ports.map(u32::from));
                let keys = [[src, dst, sport | dport << 16], [dst, src, dport | sport << 16]];
                (flow.ports != [0, 0]).then_some(keys)
            }
            // Acknowledgements have path 0.
            HashOf::Htsim { path } => Some([path, 0].map(|path| [flow.id as u32, path, 0])),
        }
    }
}
