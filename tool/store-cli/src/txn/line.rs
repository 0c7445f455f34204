//! Parses the lines of `remora txn shell`.

use remora_options::escape::{escape, unescape};

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Begins a transaction.
    Begin,
    /// Reads the value of this key.
    Get(Vec<u8>),
    /// Stores the value (second field) under the key (first field).
    Put(Vec<u8>, Vec<u8>),
    /// Removes this key.
    Delete(Vec<u8>),
    /// Commits the transaction.
    Commit,
    /// Aborts the transaction.
    Abort,
}

/// Syntax of all commands, for messages.
pub(crate) const VERBS: &str = "BEGIN, GET key, PUT key value, DELETE key, COMMIT, ABORT";

/// Parses a line without its line end. Returns `None` for an empty line and for a comment that begins with
/// `#`.
///
/// # Errors
/// Returns a message that names the mistake and the correct form.
pub(crate) fn parse(line: &[u8]) -> Result<Option<Line>, String> {
    let line = line.trim_ascii_start();
    let (verb, rest) = word(line);
    let name = verb.to_ascii_uppercase();
    let line = match &name[..] {
        b"" => return Ok(None),
        _ if name[0] == b'#' => return Ok(None),
        b"BEGIN" => alone("BEGIN", rest, Line::Begin)?,
        b"COMMIT" => alone("COMMIT", rest, Line::Commit)?,
        b"ABORT" => alone("ABORT", rest, Line::Abort)?,
        b"GET" => Line::Get(only_key("GET", rest)?),
        b"DELETE" => Line::Delete(only_key("DELETE", rest)?),
        b"PUT" => {
            let (key, value) = word(rest.unwrap_or_default());
            match value {
                Some(value) if !key.is_empty() => Line::Put(unescape(key)?, unescape(value)?),
                _ => return Err("PUT needs a key and a value: PUT key value".to_owned()),
            }
        }
        _ => {
            let verb = String::from_utf8_lossy(&escape(verb)).into_owned();
            return Err(format!("unknown command {verb}; commands: {VERBS}"));
        }
    };
    Ok(Some(line))
}

/// Splits a line at its first space or tab. The second part is `None` if there is no such separator.
fn word(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match line.iter().position(|byte| matches!(byte, b' ' | b'\t')) {
        Some(end) => (&line[..end], Some(&line[end + 1..])),
        None => (line, None),
    }
}

fn alone(verb: &str, rest: Option<&[u8]>, line: Line) -> Result<Line, String> {
    match rest.is_none_or(|rest| rest.trim_ascii().is_empty()) {
        true => Ok(line),
        false => Err(format!("{verb} takes no arguments")),
    }
}

fn only_key(verb: &str, rest: Option<&[u8]>) -> Result<Vec<u8>, String> {
    let key = rest.unwrap_or_default().trim_ascii();
    match !key.is_empty() && word(key).1.is_none() {
        true => unescape(key),
        false => Err(format!("{verb} needs one key: {verb} key")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn each_command_is_understood_in_either_case() {
        let right = [
            ("BEGIN", Some(Line::Begin)),
            ("  begin ", Some(Line::Begin)),
            ("get a", Some(Line::Get(key("a")))),
            ("GET\ta ", Some(Line::Get(key("a")))),
            ("put a  two words ", Some(Line::Put(key("a"), key(" two words ")))),
            ("PUT a ", Some(Line::Put(key("a"), key("")))),
            ("PUT a\\sb \\x00\\\\", Some(Line::Put(key("a b"), vec![0, b'\\']))),
            ("DELETE a", Some(Line::Delete(key("a")))),
            ("Commit", Some(Line::Commit)),
            ("abort", Some(Line::Abort)),
            ("", None),
            ("  ", None),
            ("# a comment", None),
        ];
        for (text, expected) in right {
            assert_eq!(parse(text.as_bytes()), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_be_right() {
        let wrong = [
            ("GET", "GET key"),
            ("GET a b", "GET key"),
            ("DELETE ", "DELETE key"),
            ("PUT a", "PUT key value"),
            ("PUT  a", "PUT key value"),
            ("COMMIT now", "takes no arguments"),
            ("SELECT 1", "BEGIN, GET key"),
            ("GET \\q", "for a backslash"),
            ("GET \\xg0", "hexadecimal"),
            ("GET \\", "for a backslash"),
        ];
        for (text, words) in wrong {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(words) && !error.contains('\n'), "{text:?}: {error}");
        }
    }
}
