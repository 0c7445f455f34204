//! The switch settings of a configuration.

use std::collections::BTreeSet;

use remora_fabric::topology::Topology;

use super::super::Dialect;
use super::super::config::{Config, ONE};
use super::time::MICROSECOND;
use remora_scenario::error::{ScenarioError, Source, Warnings};
use remora_scenario::scenario::{Balance, Buffering, Ecn, Hash, Mark, Mmu, Pfc, Red, Switch, TransportName};
use remora_scenario::units::{Rate, Size, Time};

/// Buffer of a switch without `BUFFER_SIZE`, in MiB.
const DEFAULT_MIB: u64 = 16;
/// Buffer of a switch in ConWeave's papers and in its `run.py`, in MiB, for a file with `BUFFER_SIZE 0`.
const CONWEAVE_MIB: u64 = 9;

/// Returns the switch of a configuration: one shared buffer that is divided by the rules of the dialect, with
/// ECN marks set on departure.
pub(crate) fn switch(
    source: Source<'_>,
    config: &Config,
    dialect: Dialect,
    transport: TransportName,
    topology: &Topology,
    warnings: &mut Warnings<'_>,
) -> Result<Switch, ScenarioError> {
    let conweave = dialect == Dialect::Conweave;
    let mut mib = config.integer("BUFFER_SIZE", if conweave { 0 } else { DEFAULT_MIB });
    if mib == 0 {
        mib = CONWEAVE_MIB;
        warnings.add(0, format!("BUFFER_SIZE is 0 or missing; {mib} MiB are taken"));
    }
    if config.integer("USE_DYNAMIC_PFC_THRESHOLD", 1) == 0 {
        warnings.add(0, "USE_DYNAMIC_PFC_THRESHOLD 0 is not modelled; thresholds are dynamic");
    }
    // A pause of HPCC's program lasts until the resume frame; a pause of ConWeave's expires.
    let pause = config.decimal("PAUSE_TIME", 5 * ONE).saturating_mul(MICROSECOND) / ONE;
    let expiry = conweave.then_some(Time(pause));
    Ok(Switch {
        kind: Buffering::Shared,
        mmu: if conweave { Mmu::Conweave } else { Mmu::Hpcc },
        buffer: Size(mib.saturating_mul(1 << 20)),
        alpha: conweave.then_some(1.0),
        pfc: transport.has_pfc().then(|| Pfc { expiry, ..Pfc::default() }),
        ecn: ecn(source, config, topology, warnings)?,
        balance: Balance::Ecmp { hash: Hash::Ns3 },
        ..Switch::default()
    })
}

/// Returns the ECN thresholds by link rate. All three maps must have an entry for each link rate of the
/// topology. Returns `None` if `ENABLE_QCN` is 0 or all maps are empty.
fn ecn(
    source: Source<'_>,
    config: &Config,
    topology: &Topology,
    warnings: &mut Warnings<'_>,
) -> Result<Option<Ecn>, ScenarioError> {
    const MAPS: [&str; 3] = ["KMIN_MAP", "KMAX_MAP", "PMAX_MAP"];
    let maps = MAPS.map(|key| config.map(key));
    if config.integer("ENABLE_QCN", 1) == 0 || maps.iter().all(|map| map.is_empty()) {
        return Ok(None);
    }
    let rates: BTreeSet<u64> = topology.links.iter().map(|link| link.rate).collect();
    for (key, map) in MAPS.iter().zip(&maps) {
        if let Some(rate) = rates.iter().find(|rate| !map.contains_key(rate)) {
            let says = format!("{key} lacks {rate}, a rate of the topology: add the pair `{rate} VALUE`");
            return Err(source.error(0, says));
        }
    }
    let [kmin, kmax, pmax] = maps;
    let mut red = Vec::new();
    for (rate, kmin) in kmin {
        let (Some(kmax), Some(pmax)) = (kmax.get(&rate), pmax.get(&rate)) else { continue };
        if *pmax == 0 && rates.contains(&rate) {
            warnings.add(0, format!("PMAX_MAP has 0 for {}: nothing is marked up to KMAX", Rate(rate)));
        }
        // Thresholds are in units of 1000 bytes.
        let bytes = |k: u64| Size((u128::from(k) * 1000 / u128::from(ONE)) as u64);
        let pmax = *pmax as f64 / ONE as f64;
        red.push(Red { rate: Some(Rate(rate)), kmin: bytes(kmin), kmax: bytes(*kmax), pmax });
    }
    Ok(Some(Ecn { at: Mark::Dequeue, red }))
}
