//! Writes to standard output. If the reader closes the pipe, as `head` does, the command ends silently with
//! the exit status of a program that SIGPIPE has ended.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::process::exit;

/// Exit status of a program that SIGPIPE (13) has ended: 128 + 13.
const UNREAD: i32 = 141;

/// Prints a text and a line feed to standard output.
pub fn line(text: impl Display) {
    bytes(format!("{text}\n").as_bytes());
}

/// Returns a text of another process or host in a form that is safe on a terminal. Control characters,
/// which could move the cursor or set a title, are written as hexadecimal escapes such as `\x1b`.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => shown.extend(format!("\\x{:02x}", u32::from(character)).chars()),
            false => shown.push(character),
        }
    }
    shown
}

/// Writes the bytes to standard output and flushes it.
pub fn bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        exit(UNREAD);
    }
    eprintln!("error: cannot write to standard output: {error}");
    exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: names of guests' processes and of tenants reached the terminal with their escape
    /// sequences.
    #[test]
    fn control_characters_of_a_text_are_written_and_never_sent_to_the_terminal() {
        let name = "\u{1b}[2J\u{1b}[31mhi\u{7}\u{9b}31m\r\n\u{7f} blå";
        let text = shown(name);
        assert_eq!(text, "\\x1b[2J\\x1b[31mhi\\x07\\x9b31m\\x0d\\x0a\\x7f blå");
        assert!(!text.chars().any(char::is_control));
    }
}
