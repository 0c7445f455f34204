//! The words of one line. Unlike htsim, which splits at single spaces, this module ignores carriage returns
//! and additional white space.

use remora_scenario::error::{ScenarioError, Source, Warnings, excerpt};
use remora_scenario::units::{parse_saturating, whole};

/// Separator between the source and the destination of a flow.
const ARROW: &str = "->";

/// An iterator over the words of one line.
pub(crate) struct Line<'a> {
    source: Source<'a>,
    number: u32,
    words: std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>,
}

impl<'a> Line<'a> {
    /// Splits a line into words. Warns once per line about white space that htsim would not accept.
    pub(crate) fn of(
        source: Source<'a>,
        number: u32,
        text: &'a str,
        warnings: &mut Warnings<'_>,
    ) -> Line<'a> {
        let words = text.trim_end();
        if words.contains("  ") || words.contains('\t') || words.starts_with(' ') {
            warnings.add(number, "htsim splits at single blanks; more of them or tabs are read as one here");
        }
        Line { source, number, words: text.split_ascii_whitespace().peekable() }
    }

    /// Returns the source and the destination if the line begins with `SRC->DST`, with or without spaces
    /// around the arrow. Returns `None` and consumes nothing if the line is not a flow.
    pub(crate) fn ends(&mut self) -> Option<[&'a str; 2]> {
        let mut ahead = self.words.clone();
        let first = ahead.next().filter(|word| !word.starts_with('#'))?;
        let (src, arrow) = match first.split_once(ARROW) {
            Some((src, dst)) => (src, dst),
            None => (first, ahead.next()?.strip_prefix(ARROW)?),
        };
        let dst = if arrow.is_empty() { ahead.next().unwrap_or("") } else { arrow };
        self.words = ahead;
        Some([src, dst])
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.words.next()
    }

    /// Returns the number of the line, from 1.
    pub(crate) fn number_of_line(&self) -> u32 {
        self.number
    }

    /// Returns an error that names this line.
    pub(crate) fn error(&self, says: impl Into<String>) -> ScenarioError {
        self.source.error(self.number, says)
    }

    /// Reads the number after the word `key`, at most `max`.
    pub(crate) fn number(&mut self, key: &str, max: u64) -> Result<u64, ScenarioError> {
        let word = self.next().unwrap_or("");
        whole(word, max).map_err(|fault| self.error(fault.of(key, word)))
    }

    /// Reads the id after the word `key`, which must not be 0.
    pub(crate) fn id(&mut self, key: &str) -> Result<u64, ScenarioError> {
        match self.number(key, u64::from(u32::MAX))? {
            0 => Err(self.error(format!("{key} is 0: choose an id from 1"))),
            id => Ok(id),
        }
    }

    /// Reads the time after `start`, in ps. Decimals are cut off, as in htsim. A larger number than fits
    /// becomes `u64::MAX`, a time that is never reached.
    pub(crate) fn start(&mut self) -> Result<u64, ScenarioError> {
        let word = self.next().unwrap_or("");
        parse_saturating(word, 1)
            .ok_or_else(|| self.error(format!("start is `{}`: write a time in ps", excerpt(word))))
    }

    /// Reads the source or destination of a flow, which must be below `nodes`.
    pub(crate) fn host(&self, word: &str, nodes: u64) -> Result<u32, ScenarioError> {
        match word.parse::<u32>() {
            Ok(host) if u64::from(host) < nodes => Ok(host),
            Ok(host) => {
                Err(self
                    .error(format!("host {host} does not exist, as Nodes is {nodes}: correct one of them")))
            }
            Err(_) => Err(self.error(format!("`{}` is not a host: write `SRC->DST`", excerpt(word)))),
        }
    }

    pub(crate) fn skip_number(&mut self) {
        self.words.next_if(|word| word.parse::<u64>().is_ok());
    }
}
