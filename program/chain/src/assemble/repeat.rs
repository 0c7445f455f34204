//! Expansion of `repeat N` … `end` into N copies of the enclosed lines. `@` is replaced by the number of the
//! copy, starting at 1, and `@@` by the next number.

use std::borrow::Cow;

use super::Mistake;

/// Maximum number of copies.
const ROUNDS: usize = 1 << 12;

/// A `repeat` without its `end` so far.
struct Open<'a> {
    line: u32,
    rounds: usize,
    lines: Vec<(u32, &'a str)>,
}

/// Returns all lines in the order of assembly, with their line numbers in the text.
pub(super) fn unrolled(text: &str) -> Result<Vec<(u32, Cow<'_, str>)>, Mistake> {
    let mut all = Vec::new();
    let mut open: Option<Open<'_>> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split(';').next().unwrap_or_default().split_whitespace();
        let column = (line.len() - line.trim_start().len()) as u32 + 1;
        let fault = |description: &str| Mistake { line: number, column, what: description.into() };
        match (words.next(), &mut open) {
            (Some("repeat"), Some(_)) => return Err(fault("no `repeat` stands in another")),
            (Some("repeat"), None) => {
                let rounds = words.next().and_then(|count| count.parse().ok());
                let rounds = rounds.filter(|rounds| *rounds <= ROUNDS && words.next().is_none());
                let rounds = rounds.ok_or_else(|| fault("how often? `repeat 8`"))?;
                open = Some(Open { line: number, rounds, lines: Vec::new() });
            }
            (Some("end"), None) => return Err(fault("this ends no `repeat`")),
            (Some("end"), Some(repeat)) => {
                for round in 1..=repeat.rounds {
                    let one = |(number, line): &(u32, &str)| (*number, Cow::Owned(numbered(line, round)));
                    all.extend(repeat.lines.iter().map(one));
                }
                open = None;
            }
            (_, Some(repeat)) => repeat.lines.push((number, line)),
            (_, None) => all.push((number, Cow::Borrowed(line))),
        }
    }
    match open {
        Some(Open { line, .. }) => {
            Err(Mistake { line, column: 1, what: "this `repeat` has no `end`".into() })
        }
        None => Ok(all),
    }
}

fn numbered(line: &str, round: usize) -> String {
    line.replace("@@", &(round + 1).to_string()).replace('@', &round.to_string())
}
