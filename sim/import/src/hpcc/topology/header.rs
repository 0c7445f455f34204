//! The first line of a topology file, as written by HPCC's program and by its descendants.

use remora_fabric::topology::{LINKS_MAX, NODES_MAX};

use remora_scenario::error::{ScenarioError, Warnings};
use remora_scenario::tokens::Tokens;

/// The counts of a topology. All other words of the first line are checked and ignored.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of nodes, including switches.
    pub nodes: u64,
    /// Number of switches.
    pub switches: u64,
    /// Number of links.
    pub links: u64,
}

/// Number of words in the line of a link, which distinguishes a link from a list of switches.
const WORDS_OF_LINK: usize = 5;

/// The program whose first line a topology file has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Dialect {
    /// `nodes switches links`.
    Hpcc,
    /// `nodes switches ToRs links`.
    PowerTcp,
    /// `nodes switches ToRs links server-rate leaf-rate`.
    Reverie,
    /// `nodes GPUs-per-server NVSwitches switches links GPU`. In the list of switches, the NVSwitches come
    /// first.
    SimAi,
}

impl Dialect {
    /// Infers the dialect from the number of words in the first line. Any other number of words is read as
    /// HPCC's.
    fn of(tokens: &Tokens<'_>) -> Dialect {
        let mut ahead = tokens.clone();
        let words = ahead.left_in_line();
        let last = ahead.nth(words.saturating_sub(1));
        let ends_in_number = last.is_some_and(|word| word.text.parse::<f64>().is_ok());
        match words {
            // HPCC's counts, with the only switch in the same line: the next line is a link.
            4 if ahead.left_in_line() == WORDS_OF_LINK && !ahead.nth(2).is_some_and(is_number) => {
                Dialect::Hpcc
            }
            4 => Dialect::PowerTcp,
            6 if ends_in_number => Dialect::Reverie,
            6 => Dialect::SimAi,
            _ => Dialect::Hpcc,
        }
    }
}

fn is_number(word: remora_scenario::tokens::Token<'_>) -> bool {
    word.text.parse::<u64>().is_ok()
}

impl Header {
    /// Reads the first line and leaves `tokens` at the list of switches. Warns if the dialect is not HPCC's.
    ///
    /// # Errors
    /// Fails if a word is not a number or exceeds the limits of a network.
    pub(super) fn parse(
        tokens: &mut Tokens<'_>,
        warnings: &mut Warnings<'_>,
    ) -> Result<Header, ScenarioError> {
        let dialect = Dialect::of(tokens);
        let line = tokens.peek().map_or(1, |token| token.line);
        let nodes = tokens.number("the count of nodes", NODES_MAX)?;
        let header = match dialect {
            Dialect::Hpcc => {
                let switches = tokens.number("the count of switches", nodes)?;
                Header { nodes, switches, links: tokens.number("the count of links", LINKS_MAX)? }
            }
            Dialect::PowerTcp | Dialect::Reverie => {
                let switches = tokens.number("the count of switches", nodes)?;
                tokens.number("the count of ToR switches", switches)?;
                let links = tokens.number("the count of links", LINKS_MAX)?;
                if dialect == Dialect::Reverie {
                    tokens.need("the rate of a server")?;
                    tokens.need("the rate of a leaf switch")?;
                }
                Header { nodes, switches, links }
            }
            Dialect::SimAi => {
                tokens.number("the count of GPUs of a server", nodes)?;
                let nvswitches = tokens.number("the count of NVSwitches", nodes)?;
                let switches = nvswitches + tokens.number("the count of switches", nodes - nvswitches)?;
                let links = tokens.number("the count of links", LINKS_MAX)?;
                tokens.need("the kind of GPU")?;
                Header { nodes, switches, links }
            }
        };
        let says = match dialect {
            Dialect::Hpcc => return Ok(header),
            Dialect::PowerTcp => "PowerTCP's; which switches are ToRs changes nothing here",
            Dialect::Reverie => "Reverie's; ToRs and rates of it change nothing here, those of links count",
            Dialect::SimAi => "SimAI's; NVSwitches are switches here, and the kind of GPU changes nothing",
        };
        warnings.add(line, format!("the first line is {says}"));
        Ok(header)
    }
}
