//! Errors in the text of a program.

/// An error in a text, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {what}")]
pub struct Mistake {
    /// Line number, starting at 1.
    pub line: u32,
    /// Column in characters, starting at 1.
    pub column: u32,
    /// Description of the error and of a correct text.
    pub what: String,
}

impl Mistake {
    /// Returns the message with the source line and a mark under the position, in the style of compilers.
    pub fn show(&self, file: &str, text: &str) -> String {
        let line = text.lines().nth(self.line as usize - 1).unwrap_or_default();
        let before: String = line.chars().take(self.column as usize - 1).collect();
        // Tabs are kept, so that the mark is aligned with the error.
        let blank: String = before.chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
        format!("{file}:{}:{}: {}\n  | {line}\n  | {blank}^", self.line, self.column, self.what)
    }
}
