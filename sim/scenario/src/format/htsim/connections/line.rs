//! The words of one line. htsim splits at single blanks; a carriage return or a second blank is no word here.

use crate::error::{ScenarioError, Source, Warnings, excerpt};
use crate::units::{parse_saturating, whole};

/// Stands between the two ends of a flow.
const ARROW: &str = "->";

/// The words of one line, one after the other.
pub struct Line<'a> {
    source: Source<'a>,
    number: u32,
    words: std::iter::Peekable<std::str::SplitAsciiWhitespace<'a>>,
}

impl<'a> Line<'a> {
    /// The words of this line. Blanks that htsim would stumble over are named once.
    pub fn of(source: Source<'a>, number: u32, text: &'a str, warnings: &mut Warnings<'_>) -> Line<'a> {
        let words = text.trim_end();
        if words.contains("  ") || words.contains('\t') || words.starts_with(' ') {
            warnings.add(number, "htsim splits at single blanks; more of them or tabs are read as one here");
        }
        Line { source, number, words: text.split_ascii_whitespace().peekable() }
    }

    /// The two ends of the flow that the line begins with, `SRC->DST`, with or without blanks around the
    /// arrow. `None` for a line that is no flow.
    pub fn ends(&mut self) -> Option<[&'a str; 2]> {
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

    /// The next word.
    pub fn next(&mut self) -> Option<&'a str> {
        self.words.next()
    }

    /// The number of the line, from 1.
    pub fn number_of_line(&self) -> u32 {
        self.number
    }

    /// An error of this line.
    pub fn error(&self, says: impl Into<String>) -> ScenarioError {
        self.source.error(self.number, says)
    }

    /// The number behind the word `key`.
    pub fn number(&mut self, key: &str, max: u64) -> Result<u64, ScenarioError> {
        let word = self.next().unwrap_or("");
        whole(word, max).map_err(|fault| self.error(fault.of(key, word)))
    }

    /// The id behind the word `key`: not 0.
    pub fn id(&mut self, key: &str) -> Result<u64, ScenarioError> {
        match self.number(key, u64::from(u32::MAX))? {
            0 => Err(self.error(format!("{key} is 0, which is no id: number from 1"))),
            id => Ok(id),
        }
    }

    /// The time behind `start`, in ps: htsim takes a decimal and cuts it. A time that is too large is the
    /// last one, which never comes.
    pub fn start(&mut self) -> Result<u64, ScenarioError> {
        let word = self.next().unwrap_or("");
        parse_saturating(word, 1)
            .ok_or_else(|| self.error(format!("start is `{}`: write a time in ps", excerpt(word))))
    }

    /// One end of a flow: a host below `nodes`.
    pub fn host(&self, word: &str, nodes: u64) -> Result<u32, ScenarioError> {
        match word.parse::<u32>() {
            Ok(host) if u64::from(host) < nodes => Ok(host),
            Ok(host) => {
                Err(self.error(format!("host {host} is not below {nodes}, the count of Nodes: mend one")))
            }
            Err(_) => Err(self.error(format!("`{}` is not a host: write `SRC->DST`", excerpt(word)))),
        }
    }

    /// Skips the next word if it is a number.
    pub fn skip_number(&mut self) {
        self.words.next_if(|word| word.parse::<u64>().is_ok());
    }
}
