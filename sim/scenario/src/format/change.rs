//! Changes of single keys of a scenario, written `KEY=VALUE` as in `workload.0.traffic.load=0.7`.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize as _;
use toml::{Table, Value};

use crate::error::excerpt;
use crate::scenario::Scenario;

/// A key of a scenario and the value that replaces its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Names of tables and indices of lists, separated by dots.
    pub key: String,
    /// New value of the key.
    pub value: Value,
}

impl FromStr for Change {
    type Err = String;

    /// Parses `KEY=VALUE`. The value is TOML if it parses as TOML, and a string without quotes otherwise.
    fn from_str(text: &str) -> Result<Change, String> {
        let split = text.split_once('=').filter(|(key, _)| !key.trim().is_empty());
        let (key, value) = split.ok_or_else(|| {
            format!("`{}` is not KEY=VALUE: write it like transport.name=irn", excerpt(text))
        })?;
        Ok(Change { key: key.trim().to_owned(), value: value_of(value) })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, text_of(&self.value))
    }
}

/// Parses a value as TOML, or takes it as a string.
fn value_of(text: &str) -> Value {
    match text.trim().parse::<Value>() {
        // No key of a scenario is a date, so a date is a string, too.
        Ok(Value::Datetime(_)) | Err(_) => Value::String(text.trim().to_owned()),
        Ok(value) => value,
    }
}

/// Returns the text that parses to this value, without quotes if they are not needed.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) if value_of(text) == *value => text.clone(),
        _ => value.to_string(),
    }
}

/// Returns the scenario with all changes applied.
///
/// # Errors
/// Fails if a key does not exist or does not accept its value. The message is one line and names the key.
pub fn apply(scenario: &Scenario, changes: &[Change]) -> Result<Scenario, String> {
    if changes.is_empty() {
        return Ok(scenario.clone());
    }
    applied(scenario, changes).map_err(|says| {
        // A change that is wrong on its own is named alone. If only the combination is wrong, all keys are
        // named.
        let wrong = |change: &&Change| applied(scenario, std::slice::from_ref(*change)).is_err();
        let (keys, says) = match changes.iter().find(wrong) {
            Some(change) => {
                let own = applied(scenario, std::slice::from_ref(change)).err().unwrap_or(says);
                (change.key.clone(), own)
            }
            None => (changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>().join(", "), says),
        };
        format!("{}: {says}", excerpt(&keys))
    })
}

fn applied(scenario: &Scenario, changes: &[Change]) -> Result<Scenario, String> {
    let table = Table::try_from(scenario).map_err(|error| error.to_string())?;
    let mut root = Value::Table(table);
    for change in changes {
        put(&mut root, &change.key, change.value.clone())?;
    }
    let changed = Scenario::deserialize(root).map_err(|error| super::own::remedied(error.message()))?;
    changed.check()?;
    Ok(changed)
}

/// Sets the value at the path `key`, and creates tables that do not exist.
fn put(root: &mut Value, key: &str, value: Value) -> Result<(), String> {
    let mut target = root;
    let mut path = "the scenario".to_owned();
    for name in key.split('.') {
        target = match target {
            Value::Table(table) => table.entry(name).or_insert_with(|| Value::Table(Table::new())),
            Value::Array(list) => {
                let count = list.len();
                let place = name.parse::<usize>().ok().and_then(|number| list.get_mut(number));
                place.ok_or_else(|| {
                    let last = count.saturating_sub(1);
                    format!("{path} is a list of {count}: add an index from 0 to {last}")
                })?
            }
            _ => {
                return Err(format!(
                    "{path} is a single value and has no key `{}`: end the key there",
                    excerpt(name)
                ));
            }
        };
        path = name.to_owned();
    }
    *target = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use crate::format::own;

    const TEXT: &str = "seed = 1\n[network]\nkind = \"fat-tree\"\nk = 4\nrate = \"100Gbps\"\ndelay = \"1us\"\n\
        [[workload]]\ntraffic = { kind = \"poisson\", sizes = \"irn\", load = 0.7, duration = \"2ms\" }\n";

    fn scenario() -> Scenario {
        own::parse(Source::new("own.toml", TEXT)).unwrap().value
    }

    fn changed(changes: &[&str]) -> Result<Scenario, String> {
        let changes: Vec<Change> = changes.iter().map(|text| text.parse().unwrap()).collect();
        apply(&scenario(), &changes)
    }

    #[test]
    fn a_changed_scenario_is_the_one_whose_file_says_so() {
        let file = TEXT.replace("seed = 1", "seed = 5").replace("load = 0.7", "load = 0.25");
        let file = format!("{file}[transport]\nname = \"roce+pfc\"\n[switch.pfc]\nheadroom = \"1KB\"\n");
        let expected = own::parse(Source::new("own.toml", &file)).unwrap().value;
        let changes =
            ["seed=5", "workload.0.traffic.load=0.25", "transport.name=roce+pfc", "switch.pfc.headroom=1KB"];
        assert_eq!(changed(&changes), Ok(expected));
        assert_eq!(changed(&[]), Ok(scenario()));
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let all = [
            "a=1",
            "a=1.5",
            "a=true",
            "a=irn",
            "a=40Gbps",
            "a=\"7\"",
            "a=[1, 2]",
            "a=",
            "a=x=y",
            "a=2026-01-01",
            "a={ b = 1 }",
        ];
        for text in all {
            let change: Change = text.parse().unwrap();
            assert_eq!(change.to_string().parse::<Change>().unwrap(), change, "{text}");
        }
        assert_eq!("a=\"7\"".parse::<Change>().unwrap().value, Value::String("7".into()));
        for text in ["a", "=1", " =1", ""] {
            assert!(text.parse::<Change>().unwrap_err().contains("KEY=VALUE"), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_set_is_named_with_its_key() {
        let says = |changes: &[&str]| changed(changes).unwrap_err();
        assert!(says(&["transport.nam=irn"]).starts_with("transport.nam: unknown field `nam`"));
        assert!(says(&["seed=5", "mtu=long"]).starts_with("mtu: invalid type"));
        assert!(says(&["workload.3.class=1"]).contains("a list of 1: add an index from 0 to 0"));
        assert!(says(&["seed.low=1"]).contains("seed is a single value and has no key `low`"));
        assert!(says(&["loss=2"]).contains("choose a probability"));
        // Each of these changes needs the other one, and they are wrong together as well.
        assert!(says(&["transport.name=rocket"]).contains("rocket"));
        for changes in [&["network.kind=ring"][..], &["network.kind=dumbbell", "network.k=4"]] {
            assert!(!says(changes).contains('\n'));
        }
    }
}
