//! The path of a single flow, as text.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Largest number of switches in a given path.
pub(crate) const ABOVE_MAX: usize = 4;

/// The path of a flow, written `"7: 160 192"` for flow 7. Switches are listed from the one above the sender's
/// own switch up to the top of the path. The way down to the receiver is the shortest one from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenPath {
    /// Id of the flow.
    pub flow: u64,
    /// Node numbers of the switches, in the order of the path.
    pub above: Vec<u32>,
}

impl fmt::Display for GivenPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.flow)?;
        self.above.iter().try_for_each(|node| write!(f, " {node}"))
    }
}

impl FromStr for GivenPath {
    type Err = String;

    fn from_str(text: &str) -> Result<GivenPath, String> {
        let parsed = text.split_once(':').and_then(|(flow, rest)| {
            let above: Option<Vec<u32>> = rest.split_whitespace().map(|node| node.parse().ok()).collect();
            Some(GivenPath { flow: flow.trim().parse().ok()?, above: above? })
        });
        parsed.filter(|path| path.above.len() <= ABOVE_MAX).ok_or_else(|| {
            let text = crate::error::excerpt(text);
            format!(
                "`{text}` is not a path: write a flow and at most {ABOVE_MAX} switches, like \"7: 160 192\""
            )
        })
    }
}

impl Serialize for GivenPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GivenPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GivenPath, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
