//! The options of each benchmark. An option that a benchmark does not use is an error, because otherwise
//! nobody would notice that it has no effect.

use std::ffi::OsStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, ValueEnum as _};

use super::Name;

/// Returns the options of a benchmark. Any other option is an error.
fn heeded(name: Name) -> &'static [&'static str] {
    match name {
        Name::Verbs => &["port", "json", "rounds", "only", "cores"],
        Name::Loss => &["port", "json", "rounds", "only", "cores", "packets", "report"],
        Name::Prism | Name::Redn | Name::Strom => &["port", "json", "rounds", "only", "cores", "report"],
        Name::Congestion => &["json", "rounds", "report"],
        Name::Sim => &["json", "rounds", "only"],
        Name::IrnReceiver => &["file", "out"],
        Name::IrnSender => &["file", "out", "cap", "packets"],
    }
}

/// The options of `remora bench txn` that belong to a single workload.
const OF_WORKLOADS: [(&str, &str, &str); 5] = [
    ("records", "--records", "ycsb-t"),
    ("value_len", "--value-len", "ycsb-t"),
    ("keys", "--keys", "ycsb-t"),
    ("customers", "--customers", "smallbank"),
    ("subscribers", "--subscribers", "tatp"),
];

/// Returns an error message if an option belongs to a workload that is not selected.
fn of_transactions(matches: &ArgMatches) -> Option<String> {
    let asked: Vec<&OsStr> = matches.get_raw("workloads")?.collect();
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let bad =
        OF_WORKLOADS.iter().find(|(id, _, workload)| given(id) && !asked.contains(&OsStr::new(workload)));
    bad.map(|(_, option, workload)| format!("{option} is for {workload}, which is not among the workloads"))
}

/// Returns an error message if an option of `remora bench NAME` would have no effect.
pub fn unheeded(matches: &ArgMatches) -> Option<String> {
    if let Some(("txn", own)) = matches.subcommand() {
        return of_transactions(own);
    }
    let name = matches.try_get_one::<Name>("name").ok().flatten().copied()?;
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    // Another function checks the options that depend on FILE.
    let ids = matches.ids().map(clap::Id::as_str).filter(|id| !matches!(*id, "name" | "file" | "Args"));
    let bad = ids.filter(|id| given(id)).find(|id| !heeded(name).contains(id))?;
    let shown = name.to_possible_value()?;
    let others = heeded(name).iter().filter(|id| **id != "file").map(|id| format!("--{id}"));
    let others = others.collect::<Vec<_>>().join(", ");
    Some(format!("`bench {}` takes no --{bad}: its options are {others}", shown.get_name()))
}
