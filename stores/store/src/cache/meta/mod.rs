//! memcached's meta commands: `mg`, `ms`, `md`, `ma`, `me` and `mn`.

mod answer;
mod change;
mod flags;
mod get;

pub use answer::Reply;
pub use flags::Request;

/// Words of a line at most, command and key among them.
pub const WORDS: usize = 19;

/// Why a meta command's line is refused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// A key or a length is none.
    Format,
    /// A flag's number is none.
    Token,
    /// The client's own flags are no number.
    ClientFlags,
    /// No such flag.
    Flag,
    /// A flag came twice.
    Twice,
    /// The key is no base64.
    Encoding,
    /// A mode has one letter.
    ModeLength,
    /// No such mode.
    Mode,
    /// The amount to count by is no number.
    Delta,
    /// Nor is what to begin with.
    Initial,
    /// The opaque value has more than 31 bytes.
    Opaque,
    /// More flags than there are.
    Long,
}

/// The meta commands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verb {
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
    /// The command that a line begins with.
    pub fn of(word: &[u8]) -> Option<Verb> {
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

    /// The answer to a line of this command that is wrong.
    pub fn refusal(self, wrong: Wrong) -> &'static str {
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
