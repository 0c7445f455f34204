//! Sweeps: runs of one scenario with all combinations of values for some of its keys, described in TOML.
//!
//! ```toml
//! base = "irn.toml"
//!
//! [[axis]]
//! key = "transport.name"
//! values = ["irn", "roce+pfc"]
//!
//! [[axis]]
//! key = "seed"
//! values = [1, 2, 3]
//! ```

use serde::Deserialize;
use toml::Value;

use crate::error::{ScenarioError, Source, excerpt};
use crate::format::change::{Change, text_of};
use crate::format::own;

/// Largest number of runs in a sweep.
pub const RUNS_MAX: u64 = 10_000;

/// A base scenario and the keys that vary.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Path of the scenario file, relative to the sweep file.
    pub base: String,
    /// Keys that vary. The last one varies fastest.
    #[serde(default, rename = "axis")]
    pub axes: Vec<Axis>,
}

/// A key of the scenario and its values.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Names of tables and indices of lists, separated by dots.
    pub key: String,
    /// Values of the key.
    pub values: Vec<Value>,
}

/// Reads a sweep.
///
/// # Errors
/// Fails if the text is not TOML, if a key is unknown, if there is no axis, if an axis has no values or a
/// value twice, or if there are more than [`RUNS_MAX`] combinations.
pub fn parse(source: Source<'_>) -> Result<Sweep, ScenarioError> {
    source.check_size()?;
    let sweep: Sweep = own::read(source)?;
    sweep.check().map_err(|says| source.error(0, says))?;
    Ok(sweep)
}

impl Sweep {
    fn check(&self) -> Result<(), String> {
        if self.axes.is_empty() {
            return Err("has no axis: add [[axis]] with a key and its values".into());
        }
        for (number, axis) in self.axes.iter().enumerate() {
            let key = excerpt(&axis.key);
            if axis.values.is_empty() {
                return Err(format!("the axis {key} has no values: add one for each run"));
            }
            if self.axes[..number].iter().any(|other| other.key == axis.key) {
                return Err(format!("two axes are {key}: write their values in one"));
            }
            let twice = |(index, value): &(usize, &Value)| axis.values[..*index].contains(value);
            if let Some((_, value)) = axis.values.iter().enumerate().find(twice) {
                let value = excerpt(&text_of(value));
                return Err(format!("the axis {key} has {value} twice: remove one"));
            }
        }
        let count =
            self.axes.iter().fold(1_u64, |count, axis| count.saturating_mul(axis.values.len() as u64));
        match count <= RUNS_MAX {
            true => Ok(()),
            false => Err(format!("asks for {count} runs, and the limit is {RUNS_MAX}: remove values")),
        }
    }

    /// Returns the changes of each run, in the order of the axes.
    pub fn runs(&self) -> Vec<Vec<Change>> {
        let mut runs = vec![Vec::new()];
        for axis in &self.axes {
            let longer = |run: &Vec<Change>| {
                let run = run.clone();
                axis.values.iter().map(move |value| {
                    let change = Change { key: axis.key.clone(), value: value.clone() };
                    [run.as_slice(), &[change]].concat()
                })
            };
            runs = runs.iter().flat_map(longer).collect();
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Sweep, String> {
        parse(Source::new("load.toml", text)).map_err(|error| error.to_string())
    }

    const AXES: &str = "base = \"irn.toml\"\n[[axis]]\nkey = \"transport.name\"\nvalues = [\"irn\", \"roce\"]\n\
        [[axis]]\nkey = \"seed\"\nvalues = [1, 2, 3]\n";

    #[test]
    fn runs_are_the_product_and_the_last_axis_is_the_fastest() {
        let runs = read(AXES).unwrap().runs();
        let text = |run: &Vec<Change>| run.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(runs.len(), 6);
        assert_eq!(text(&runs[0]), "transport.name=irn seed=1");
        assert_eq!(text(&runs[1]), "transport.name=irn seed=2");
        assert_eq!(text(&runs[5]), "transport.name=roce seed=3");
    }

    #[test]
    fn what_is_no_sweep_is_one_line_with_a_remedy() {
        let many = |count: u64| {
            let values: Vec<String> = (0..count).map(|value| value.to_string()).collect();
            let axis = |key| format!("[[axis]]\nkey = \"{key}\"\nvalues = [{}]\n", values.join(", "));
            format!("base = \"a.toml\"\n{}{}", axis("seed"), axis("mtu"))
        };
        assert_eq!(read(&many(100)).unwrap().runs().len() as u64, RUNS_MAX);
        for (text, words) in [
            (many(101), "asks for 10201 runs, and the limit is 10000: remove values"),
            ("base = \"a.toml\"\n".into(), "has no axis: add"),
            (AXES.replace("[1, 2, 3]", "[]"), "the axis seed has no values: add"),
            (AXES.replace("[1, 2, 3]", "[1, 2, 1]"), "the axis seed has 1 twice: remove"),
            (AXES.replace("transport.name", "seed"), "two axes are seed"),
            (AXES.replace("values = [1, 2, 3]\n", ""), "missing field `values`"),
            (AXES.replace("base", "bases"), "load.toml:1: unknown field `bases`"),
            ("base = ".into(), "load.toml:1:"),
        ] {
            let says = read(&text).unwrap_err();
            assert!(says.contains(words) && !says.contains('\n'), "{says}");
        }
    }
}
