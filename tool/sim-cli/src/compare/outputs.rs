//! Prints the results of comparisons and writes them to files.

use std::path::Path;

use anyhow::Result;
use remora_options::print_table;
use remora_options::{output, print};
use remora_plot as plot;
use serde_json::{Value, json};

use super::verdict::{Bound, Comparison, Pair, Verdict};
use crate::charts::{self, Series};

/// Prints the results as a table, or as one JSON object per line.
pub(crate) fn print(compared: &[Comparison], verdicts: &[Verdict], json: bool) {
    if json {
        verdicts.iter().for_each(|verdict| print::line(object(verdict)));
        return;
    }
    let head = ["comparison", "what", "theirs", "ours", "difference", "bound", "holds"];
    print_table(head, verdicts.iter().map(cells));
    for comparison in compared.iter().filter(|comparison| comparison.lost > 0) {
        print::line(format!("{}: {} packets were lost here", comparison.name, comparison.lost));
    }
}

fn cells(verdict: &Verdict) -> [String; 7] {
    [
        verdict.comparison.clone(),
        verdict.metric.clone(),
        verdict.theirs.map_or_else(|| "-".to_owned(), number),
        number(verdict.ours),
        verdict.difference().map_or_else(|| "-".to_owned(), |share| format!("{:+.2} %", share * 100.0)),
        match verdict.bound {
            Bound::Within(share) => format!("within {} %", share * 100.0),
            Bound::AtLeast(least) => format!("at least {least}"),
        },
        if verdict.holds() { "yes" } else { "NO" }.to_owned(),
    ]
}

fn number(value: f64) -> String {
    format!("{value:.3}")
}

fn object(verdict: &Verdict) -> Value {
    let Verdict { comparison, metric, theirs, ours, bound } = verdict;
    let (within, at_least) = match bound {
        Bound::Within(share) => (Some(share), None),
        Bound::AtLeast(least) => (None, Some(least)),
    };
    json!({ "comparison": comparison, "metric": metric, "theirs": theirs, "ours": ours,
        "difference": verdict.difference(), "within": within, "at_least": at_least, "holds": verdict.holds() })
}

/// Writes `comparison.csv`, `flows.csv` and `comparison.svg`.
///
/// # Errors
/// Fails if a file cannot be written.
pub(crate) fn write(folder: &Path, compared: &[Comparison], verdicts: &[Verdict]) -> Result<()> {
    output::folder(folder)?;
    let mut text = "comparison,metric,theirs,ours,difference,within,at_least,holds\n".to_owned();
    for verdict in verdicts {
        let cell = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let (within, at_least) = match verdict.bound {
            Bound::Within(share) => (Some(share), None),
            Bound::AtLeast(least) => (None, Some(least)),
        };
        let cells = [verdict.theirs, Some(verdict.ours), verdict.difference(), within, at_least].map(cell);
        let Verdict { comparison, metric, .. } = verdict;
        text += &format!("{comparison},\"{metric}\",{},{}\n", cells.join(","), verdict.holds());
    }
    output::write(&folder.join("comparison.csv"), text.as_bytes())?;
    let mut text = "comparison,case,src,dst,bytes,theirs_ps,ours_ps,alone_ps\n".to_owned();
    for comparison in compared {
        for Pair { case, hosts: [src, dst], size, theirs, ours, alone } in &comparison.pairs {
            text += &format!("{},{case},{src},{dst},{size},{theirs},{ours},{alone}\n", comparison.name);
        }
    }
    output::write(&folder.join("flows.csv"), text.as_bytes())?;
    let drawn: Vec<_> = compared.iter().filter(|comparison| comparison.has_many()).map(drawing).collect();
    let drawn: Vec<&dyn plot::Drawing> = drawn.iter().map(|plot| plot as &dyn plot::Drawing).collect();
    match drawn.is_empty() {
        true => Ok(()),
        false => plot::write(&folder.join("comparison.svg"), &drawn),
    }
}

/// Returns a chart of the slowdowns in both simulators.
fn drawing(comparison: &Comparison) -> plot::Plot<'_> {
    let series = |name: &str, time: fn(&Pair) -> u64| Series {
        name: name.to_owned(),
        flows: comparison
            .pairs
            .iter()
            .map(|pair| (pair.size, time(pair) as f64 / pair.alone.max(1) as f64))
            .collect(),
    };
    let both = [series("theirs", |pair| pair.theirs), series("ours", |pair| pair.ours)];
    plot::Plot { title: &comparison.name, ..charts::distribution(&both) }
}
