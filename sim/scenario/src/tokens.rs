//! Words between white space with the line of each, as ns-3's programs read their files.

use crate::error::{ScenarioError, Source, excerpt};
use crate::units::{WholeError, whole};

/// One word.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Its text.
    pub text: &'a str,
    /// Its line, from 1.
    pub line: u32,
}

/// The words of a text, one after the other. Newlines only count lines.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    source: Source<'a>,
    at: usize,
    line: u32,
}

impl<'a> Tokens<'a> {
    /// From the first word.
    pub fn of(source: Source<'a>) -> Tokens<'a> {
        Tokens { source, at: 0, line: 1 }
    }

    /// The file that it reads.
    pub fn source(&self) -> Source<'a> {
        self.source
    }

    /// The next word, which stays.
    pub fn peek(&self) -> Option<Token<'a>> {
        self.clone().next()
    }

    /// How many words the line of the next word has, from that word on.
    pub fn left_in_line(&self) -> usize {
        let mut tokens = self.clone();
        let Some(first) = tokens.next() else { return 0 };
        1 + tokens.take_while(|token| token.line == first.line).count()
    }

    /// The next word, which must be there.
    ///
    /// # Errors
    /// The text ends; `what` should have come.
    pub fn need(&mut self, what: &str) -> Result<Token<'a>, ScenarioError> {
        let end = self.line;
        self.next().ok_or_else(|| {
            self.source
                .error(end, format!("the file ends where {what} should stand: add it or mend the count"))
        })
    }

    /// The next word as a whole number.
    ///
    /// # Errors
    /// The text ends, or the word is none, or more than `max`.
    pub fn number(&mut self, what: &str, max: u64) -> Result<u64, ScenarioError> {
        let token = self.need(what)?;
        self.number_of(token, what, max)
    }

    /// This word as a whole number.
    ///
    /// # Errors
    /// It is none, or more than `max`.
    pub fn number_of(&self, token: Token<'a>, what: &str, max: u64) -> Result<u64, ScenarioError> {
        whole(token.text, max).map_err(|fault| {
            let says = match fault {
                WholeError::NoNumber => {
                    format!("`{}` is not {what}: write a whole number", excerpt(token.text))
                }
                WholeError::TooLarge(_) => fault.of(what, token.text),
            };
            self.error(token, says)
        })
    }

    /// An error at this word.
    pub fn error(&self, token: Token<'a>, says: impl Into<String>) -> ScenarioError {
        self.source.error(token.line, says)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.source.text.as_bytes();
        while let Some(byte) = bytes.get(self.at)
            && is_space(*byte)
        {
            // Two bytes that end one line count once.
            let ends_line = *byte == b'\n' || *byte == b'\r' && bytes.get(self.at + 1) != Some(&b'\n');
            self.line += u32::from(ends_line);
            self.at += 1;
        }
        let start = self.at;
        while let Some(byte) = bytes.get(self.at)
            && !is_space(*byte)
        {
            self.at += 1;
        }
        // White space is ASCII, so these are the bounds of characters.
        let text = &self.source.text[start..self.at];
        (!text.is_empty()).then_some(Token { text, line: self.line })
    }
}

/// What C's `isspace` takes for white space.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_lines_whatever_ends_a_line() {
        let mut tokens = Tokens::of(Source::new("t", "a b\r\n\r\n\tc\x0bd"));
        assert_eq!(tokens.left_in_line(), 2);
        let words: Vec<_> = tokens.by_ref().map(|token| (token.text, token.line)).collect();
        assert_eq!(words, [("a", 1), ("b", 1), ("c", 3), ("d", 3)]);
        let says = tokens.need("a link").unwrap_err().to_string();
        assert_eq!(says, "t:3: the file ends where a link should stand: add it or mend the count");
    }

    #[test]
    fn a_number_is_whole_and_bounded() {
        let mut tokens = Tokens::of(Source::new("t", "7 8 -1"));
        assert_eq!(tokens.number("a class", 7), Ok(7));
        assert_eq!(tokens.number("a class", 7).unwrap_err().says, "a class is 8: choose at most 7");
        let says = tokens.number("a class", 7).unwrap_err().says;
        assert_eq!(says, "`-1` is not a class: write a whole number");
    }
}
