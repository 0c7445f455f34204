//! The side of 1 on which each ratio of the evaluation is: in the paper, and known exceptions in this
//! simulation.

use serde::Deserialize;

/// A side of 1.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sign {
    /// The ratio is below 1.
    Below,
    /// The ratio is 1 or above.
    Above,
}

impl Sign {
    /// Returns the side on which a ratio is.
    pub fn of(ratio: f64) -> Sign {
        if ratio < 1.0 { Sign::Below } else { Sign::Above }
    }

    /// Returns the name of the side.
    pub fn name(self) -> &'static str {
        match self {
            Sign::Below => "below",
            Sign::Above => "above",
        }
    }
}

/// A ratio that is on the other side than the paper's.
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

/// The ratios that are known to be on the other side than the paper's, with reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signs(Vec<Exception>);

impl Signs {
    /// Returns the checked-in list, which is valid for the quick run.
    ///
    /// # Panics
    /// Panics if the list is malformed, which a test excludes.
    pub fn known() -> Signs {
        Signs::parse(include_str!("signs.toml")).expect("the compiled-in list of signs is valid")
    }

    /// Reads a list in TOML.
    ///
    /// # Errors
    /// Fails if the text is malformed or if an exception has no reason. The message is one line.
    pub fn parse(text: &str) -> Result<Signs, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        match file.exception.iter().find(|exception| exception.reason.is_empty()) {
            Some(exception) => Err(format!("an exception of figure {} has no reason", exception.figure)),
            None => Ok(Signs(file.exception)),
        }
    }

    /// Returns the reason why this ratio is on the other side than the paper's, or `None` if it is not in the
    /// list.
    pub fn reason(
        &self,
        figure: u32,
        [subject, reference]: [&str; 2],
        control: &str,
        metric: &str,
    ) -> Option<&str> {
        let known = self.0.iter().find(|known| {
            (known.figure, &*known.who, &*known.to, &*known.control, &*known.metric)
                == (figure, subject, reference, control, metric)
        });
        known.map(|known| &*known.reason)
    }
}
