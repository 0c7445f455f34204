//! The cases of `remora bench kv`: a workload and its name.

use remora_store::ycsb::{Distribution, Mix};

use remora_store_cli::measure::workload::Chosen;

/// PUTs of keys with a Zipf distribution.
pub(crate) const PUTS: Mix = Mix { name: 'p', read: 0, update: 100, ..Mix::A };

/// A workload with the name of its results.
pub struct Case {
    /// Mix of operations of the workload.
    pub mix: Mix,
    /// Name of the workload in the paths of rows.
    pub name: String,
}

impl Case {
    /// Makes the case of a workload that was chosen on the command line.
    pub fn new(Chosen { mix, name, .. }: Chosen) -> Case {
        let workload = if mix.name == PUTS.name { "put".to_owned() } else { format!("ycsb-{name}") };
        let keys = match mix.distribution {
            Distribution::Uniform => "uniform".to_owned(),
            Distribution::Zipfian(theta) => format!("zipf-{}", f64::from(theta) / 1000.0),
            Distribution::Latest(_) => "latest".to_owned(),
        };
        Case { mix, name: format!("{workload}/{keys}") }
    }

    /// Returns whether the workload consists of reads only.
    pub fn reads(&self) -> bool {
        self.mix.read == 100
    }
}
