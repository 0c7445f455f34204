//! A single flow, as text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::flow::{After, DATA_CLASS, Dependency, End, Flow, Start, Verb};
use crate::units::{Size, Time};

/// Largest number of flows that one flow waits for.
const WAITS_MAX: usize = 100_000;

/// A flow, written `"7: 3->12 2MB at 10us"`: id, source, destination, size and start. Optional words follow:
/// `class 2`, `read` or `send`, `ports 10000 100`.
///
/// Instead of `at TIME` a flow has `after 3 4` if it waits until flows 3 and 4 are acknowledged, or `after 3r
/// 4r` until they are received. Then `any 1` may say how many of them are enough, and `delay TIME` how long
/// the flow waits afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowText(pub Flow);

impl fmt::Display for FlowText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flow { id, src, dst, size, ref start, class, verb, ports: [sport, dport] } = self.0;
        write!(f, "{id}: {src}->{dst} {}", Size(size))?;
        match start {
            Start::At(time) => write!(f, " at {}", Time(*time))?,
            Start::After(after) => {
                f.write_str(" after")?;
                for Dependency { flow, end } in &after.flows {
                    write!(f, " {flow}{}", if *end == End::Received { "r" } else { "" })?;
                }
                if after.count as usize != after.flows.len() {
                    write!(f, " any {}", after.count)?;
                }
                if after.delay > 0 {
                    write!(f, " delay {}", Time(after.delay))?;
                }
            }
        }
        if class != DATA_CLASS {
            write!(f, " class {class}")?;
        }
        match verb {
            Verb::Write => {}
            Verb::Read => f.write_str(" read")?,
            Verb::Send => f.write_str(" send")?,
        }
        if [sport, dport] == [0, 0] { Ok(()) } else { write!(f, " ports {sport} {dport}") }
    }
}

/// Parses the next word.
fn value<T: FromStr>(words: &mut dyn Iterator<Item = &str>) -> Option<T> {
    words.next()?.parse().ok()
}

fn parse(text: &str) -> Option<Flow> {
    let (id, rest) = text.split_once(':')?;
    let mut words = rest.split_whitespace().peekable();
    let (src, dst) = words.next()?.split_once("->")?;
    let size: Size = value(&mut words)?;
    let mut flow = Flow::write(id.trim().parse().ok()?, src.parse().ok()?, dst.parse().ok()?, size.0, 0);
    if flow.size == 0 {
        return None;
    }
    match words.next()? {
        "at" => flow.start = Start::At(value::<Time>(&mut words)?.0),
        "after" => {
            let mut flows = Vec::new();
            while let Some(word) = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                let (number, end) = match word.strip_suffix('r') {
                    Some(number) => (number, End::Received),
                    None => (word, End::Acknowledged),
                };
                flows.push(Dependency { flow: number.parse().ok()?, end });
            }
            if flows.is_empty() || flows.len() > WAITS_MAX {
                return None;
            }
            let mut after = After { count: flows.len() as u32, flows, delay: 0 };
            if words.next_if_eq(&"any").is_some() {
                after.count = value(&mut words)?;
            }
            if words.next_if_eq(&"delay").is_some() {
                after.delay = value::<Time>(&mut words)?.0;
            }
            flow.start = Start::After(Arc::new(after));
        }
        _ => return None,
    }
    while let Some(word) = words.next() {
        match word {
            "class" => flow.class = value(&mut words).filter(|class| *class <= 7)?,
            "write" => flow.verb = Verb::Write,
            "read" => flow.verb = Verb::Read,
            "send" => flow.verb = Verb::Send,
            "ports" => flow.ports = [value(&mut words)?, value(&mut words)?],
            _ => return None,
        }
    }
    Some(flow)
}

impl FromStr for FlowText {
    type Err = String;

    fn from_str(text: &str) -> Result<FlowText, String> {
        parse(text).map(FlowText).ok_or_else(|| {
            let text = crate::error::excerpt(text);
            format!(
                "`{text}` is not a flow: write one like \"7: 3->12 2MB at 10us\" or \"8: 12->3 1KB after 7\""
            )
        })
    }
}

impl Serialize for FlowText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FlowText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FlowText, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
