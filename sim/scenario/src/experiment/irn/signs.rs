//! On which side of 1 each ratio is: the paper's, and what is known of ours.

use serde::Deserialize;

/// A side of 1.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sign {
    /// The ratio is below 1.
    Below,
    /// It is 1 or above.
    Above,
}

impl Sign {
    /// That of a ratio.
    pub fn of(ratio: f64) -> Sign {
        if ratio < 1.0 { Sign::Below } else { Sign::Above }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Sign::Below => "below",
            Sign::Above => "above",
        }
    }
}

/// A ratio that is on the other side than the paper's, and why.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    figure: u32,
    who: String,
    to: String,
    control: String,
    metric: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    exception: Vec<Exception>,
}

/// The ratios that are known to be on the other side than the paper's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signs(Vec<Exception>);

impl Signs {
    /// Those of the quick run, as they are checked in.
    ///
    /// # Panics
    /// If the list that is compiled in cannot be read, which a test excludes.
    pub fn known() -> Signs {
        Signs::parse(include_str!("signs.toml")).expect("the list that is compiled in")
    }

    /// Reads a list.
    ///
    /// # Errors
    /// What is wrong and where, in one line.
    pub fn parse(text: &str) -> Result<Signs, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        match file.exception.iter().find(|exception| exception.reason.is_empty()) {
            Some(exception) => Err(format!("an exception of figure {} has no reason", exception.figure)),
            None => Ok(Signs(file.exception)),
        }
    }

    /// Why this ratio is on the other side than the paper's; `None`: it is on the same.
    pub fn reason(&self, figure: u32, [who, to]: [&str; 2], control: &str, metric: &str) -> Option<&str> {
        let known = self.0.iter().find(|known| {
            (known.figure, &*known.who, &*known.to, &*known.control, &*known.metric)
                == (figure, who, to, control, metric)
        });
        known.map(|known| &*known.reason)
    }
}
