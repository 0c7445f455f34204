//! memcached's meta commands: `mg`, `ms`, `md`, `ma`, `me` and `mn`.

mod answer;
mod change;
mod flags;
mod get;

pub(crate) use answer::Reply;
pub(crate) use flags::Request;

/// Maximum number of words of a line, including command and key.
pub(crate) const WORDS: usize = 19;

/// The reason for which a meta command is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wrong {
    /// A key or a length is invalid.
    Format,
    /// The number of a flag is invalid.
    Token,
    /// The client's flags are not a number.
    ClientFlags,
    /// The flag is unknown.
    Flag,
    /// A flag occurs twice.
    Twice,
    /// The key is not valid base64.
    Encoding,
    /// The mode has more than one letter.
    ModeLength,
    /// The mode is unknown.
    Mode,
    /// The amount to count by is not a number.
    Delta,
    /// The initial value is not a number.
    Initial,
    /// The opaque value has more than 31 bytes.
    Opaque,
    /// The line has more flags than exist.
    Long,
}

/// The meta commands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// `mg`: reads an item.
    Get,
    /// `ms`: stores an item.
    Set,
    /// `md`: removes an item.
    Delete,
    /// `ma`: counts an item up or down.
    Arithmetic,
    /// `me`: shows an item for debugging.
    Debug,
    /// `mn`: no operation.
    Nothing,
}

impl Verb {
    /// Returns the command with which a line begins.
    pub(crate) fn of(word: &[u8]) -> Option<Verb> {
        Some(match word {
            b"mg" => Verb::Get,
            b"ms" => Verb::Set,
            b"md" => Verb::Delete,
            b"ma" => Verb::Arithmetic,
            b"me" => Verb::Debug,
            b"mn" => Verb::Nothing,
            _ => return None,
        })
    }

    /// Returns the answer to an invalid line of this command.
    pub(crate) fn refusal(self, wrong: Wrong) -> &'static str {
        let alike = matches!(self, Verb::Delete | Verb::Arithmetic);
        match wrong {
            Wrong::Opaque => "CLIENT_ERROR opaque token too long",
            Wrong::Mode if self == Verb::Set => "CLIENT_ERROR invalid mode for ms M token",
            Wrong::Mode => "CLIENT_ERROR invalid mode for ma M token",
            Wrong::Long if self == Verb::Get => "CLIENT_ERROR options flags are too long",
            Wrong::Long => "CLIENT_ERROR options flags too long",
            Wrong::Format => "CLIENT_ERROR bad command line format",
            _ if self == Verb::Debug => "CLIENT_ERROR bad command line format",
            _ if alike => "CLIENT_ERROR invalid or duplicate flag",
            Wrong::ClientFlags => "CLIENT_ERROR bad command line format",
            Wrong::Token => "CLIENT_ERROR bad token in command line format",
            Wrong::Flag => "CLIENT_ERROR invalid flag",
            Wrong::Twice => "CLIENT_ERROR duplicate flag",
            Wrong::Encoding => "CLIENT_ERROR error decoding key",
            Wrong::ModeLength => "CLIENT_ERROR incorrect length for M token",
            Wrong::Delta => "CLIENT_ERROR invalid numeric delta value",
            Wrong::Initial => "CLIENT_ERROR invalid numeric initial value",
        }
    }
}
