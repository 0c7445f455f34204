//! Reads standard input line by line for shells. Lines may contain any bytes; a byte order mark and
//! carriage returns before line feeds are removed.

use std::io::{BufRead, Error, ErrorKind, Read as _, Result};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use anyhow::Context as _;
use remora_store::load::BOM;

/// Maximum number of lines that are read ahead.
const READ_AHEAD: usize = 64;
/// Maximum length of a line in bytes.
const LONGEST: u64 = 8 << 20;

/// A line without its line end. An error of kind `InvalidData` concerns this line only; any other error
/// ends the input.
pub(crate) type Line = Result<Vec<u8>>;

/// Returns a channel with the lines of standard input. A separate thread reads them, so that the caller can
/// do other work while no line is available.
///
/// # Errors
/// Fails if the thread cannot be started.
pub(crate) fn of_input() -> anyhow::Result<Receiver<Line>> {
    let (sender, lines) = sync_channel(READ_AHEAD);
    let read = move || {
        let mut input = std::io::stdin().lock();
        let mut is_first = true;
        while let Some(line) = next(&mut input, std::mem::take(&mut is_first)).transpose() {
            let is_last = line.as_ref().is_err_and(|error| error.kind() != ErrorKind::InvalidData);
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("lines".into())
        .spawn(read)
        .context("starting the thread that reads standard input")?;
    Ok(lines)
}

/// Returns the next line, or `None` at the end of the input.
fn next(input: &mut impl BufRead, is_first: bool) -> Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if input.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_none() && line.len() as u64 == LONGEST {
        pass(input)?;
        return Err(Error::new(ErrorKind::InvalidData, format!("the line is longer than {LONGEST} bytes")));
    }
    line.pop_if(|last| *last == b'\r');
    if is_first && line.starts_with(BOM) {
        line.drain(..BOM.len());
    }
    Ok(Some(line))
}

/// Discards the rest of a line.
fn pass(input: &mut impl BufRead) -> Result<()> {
    loop {
        let piece = input.fill_buf()?;
        let end = piece.iter().position(|byte| *byte == b'\n');
        let len = piece.len();
        input.consume(end.map_or(len, |end| end + 1));
        if end.is_some() || len == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut input: &[u8]) -> Vec<std::result::Result<Vec<u8>, String>> {
        let mut lines = Vec::new();
        while let Some(line) = next(&mut input, lines.is_empty()).transpose() {
            lines.push(line.map_err(|error| error.to_string()));
        }
        lines
    }

    #[test]
    fn what_other_systems_put_around_text_is_taken_away_and_bytes_that_are_no_text_stay() {
        let expected = [b"a".to_vec(), b"\xff\0".to_vec(), Vec::new(), b"\xef\xbb\xbfb".to_vec()];
        assert_eq!(all(b"\xef\xbb\xbfa\r\n\xff\0\n\n\xef\xbb\xbfb"), expected.map(Ok));
        assert_eq!(all(b""), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_one_bad_line() {
        let most = LONGEST as usize;
        let input = [&vec![b'x'; most + 9][..], b"\nb\n", &vec![b'y'; most - 1][..], b"\n"].concat();
        let lines = all(&input);
        assert!(lines[0].as_ref().is_err_and(|words| words.contains("longer than")));
        assert_eq!(lines[1], Ok(b"b".to_vec()));
        assert_eq!(lines[2].as_ref().map(Vec::len), Ok(most - 1));
        assert_eq!(lines.len(), 3);
    }
}
