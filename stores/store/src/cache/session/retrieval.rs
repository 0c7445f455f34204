//! The state of a retrieval, and its parsing.

use crate::cache::command::{Wrong, key, signed};

/// The state of a retrieval.
#[derive(Copy, Clone)]
pub(crate) struct Retrieval {
    /// True if each value is reported with its number for `cas`.
    pub unique: bool,
    /// The expiry that a `gat` sets, which is its first word.
    pub touch: Touch,
    /// True if a key was received.
    pub any: bool,
}

/// The expiry that a retrieval sets.
#[derive(Copy, Clone)]
pub(crate) enum Touch {
    No,
    Awaited,
    Seconds(i64),
}

/// The state after a value was sent.
#[derive(Copy, Clone)]
pub(crate) enum After {
    /// More keys of the same retrieval.
    Keys(Retrieval),
    /// The next command.
    Line,
}

impl Retrieval {
    /// Returns the reason for which the arguments of the verb are refused.
    pub(super) fn wrong(self, words: &[u8]) -> Option<Wrong> {
        let words = words.strip_suffix(b"\r").unwrap_or(words);
        let mut words = words.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        if matches!(self.touch, Touch::Awaited) && signed(words.next()?).is_none() {
            return Some(Wrong::Expiry);
        }
        words.any(|word| key(word).is_none()).then_some(Wrong::Format)
    }
}

/// Returns the retrieval with which the input begins and the position after its verb, or `None` if the input
/// is another command.
pub(crate) fn retrieval(input: &[u8]) -> Option<(usize, Retrieval)> {
    let spaces = input.iter().take_while(|byte| **byte == b' ').count();
    let verb = input[spaces..].iter().take(5).position(|byte| *byte == b' ')?;
    let (unique, touch) = match &input[spaces..spaces + verb] {
        b"get" => (false, Touch::No),
        b"gets" => (true, Touch::No),
        b"gat" => (false, Touch::Awaited),
        b"gats" => (true, Touch::Awaited),
        _ => return None,
    };
    Some((spaces + verb, Retrieval { unique, touch, any: false }))
}
