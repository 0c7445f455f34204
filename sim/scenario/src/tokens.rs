//! Words separated by white space, with their line numbers, as ns-3's programs read their files.

use crate::error::{ScenarioError, Source, excerpt};
use crate::units::{WholeError, whole};

/// A word of the line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Characters of the word.
    pub text: &'a str,
    /// Line number, from 1.
    pub line: u32,
}

/// An iterator over the words of a text. Line breaks separate words like any other white space.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    source: Source<'a>,
    offset: usize,
    line: u32,
}

impl<'a> Tokens<'a> {
    /// Starts at the first word.
    pub fn of(source: Source<'a>) -> Tokens<'a> {
        Tokens { source, offset: 0, line: 1 }
    }

    /// Returns the file that is being read.
    pub fn source(&self) -> Source<'a> {
        self.source
    }

    /// Returns the next word without consuming it.
    pub fn peek(&self) -> Option<Token<'a>> {
        self.clone().next()
    }

    /// Returns the number of words from the next word to the end of its line.
    pub fn left_in_line(&self) -> usize {
        let mut tokens = self.clone();
        let Some(first) = tokens.next() else { return 0 };
        1 + tokens.take_while(|token| token.line == first.line).count()
    }

    /// Consumes the next word, which must exist.
    ///
    /// # Errors
    /// Fails if the text has ended; the message says that `what` is missing.
    pub fn need(&mut self, what: &str) -> Result<Token<'a>, ScenarioError> {
        let end = self.line;
        self.next().ok_or_else(|| {
            self.source
                .error(end, format!("the file ends where {what} should follow: add it or correct the count"))
        })
    }

    /// Consumes the next word as a whole number.
    ///
    /// # Errors
    /// Fails if the text has ended or the word is not a whole number of at most `max`.
    pub fn number(&mut self, what: &str, max: u64) -> Result<u64, ScenarioError> {
        let token = self.need(what)?;
        self.number_of(token, what, max)
    }

    /// Parses this word as a whole number.
    ///
    /// # Errors
    /// Fails if the word is not a whole number or is larger than `max`.
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

    /// Returns an error that names the line of the word.
    pub fn error(&self, token: Token<'a>, says: impl Into<String>) -> ScenarioError {
        self.source.error(token.line, says)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.source.text.as_bytes();
        while let Some(byte) = bytes.get(self.offset)
            && is_space(*byte)
        {
            // A carriage return followed by a line feed ends one line, not two.
            let ends_line = *byte == b'\n' || *byte == b'\r' && bytes.get(self.offset + 1) != Some(&b'\n');
            self.line += u32::from(ends_line);
            self.offset += 1;
        }
        let start = self.offset;
        while let Some(byte) = bytes.get(self.offset)
            && !is_space(*byte)
        {
            self.offset += 1;
        }
        // White space is ASCII, so the slice cannot split a character.
        let text = &self.source.text[start..self.offset];
        (!text.is_empty()).then_some(Token { text, line: self.line })
    }
}

/// Returns true for the characters that C's `isspace` accepts.
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
        assert_eq!(says, "t:3: the file ends where a link should follow: add it or correct the count");
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
