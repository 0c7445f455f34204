//! Files of `key value` lines, read as a stream.
//!
//! The format has no quotes and no escapes:
//!
//! - A line ends with LF or CR LF; the last one may end with the file.
//! - The **key** is everything before its first space or tab. The **value** is everything after that one
//!   byte, with further spaces. Bytes are taken as they are; neither need be text.
//! - Empty lines are skipped, and so is the byte-order mark of UTF-8 in front of the first line.
//! - A line is *bad* if its key is empty or if it has no space or tab (`key ` with the space is an empty
//!   value). It is also bad if key or value are longer than the store takes. It is reported by its number,
//!   and reading continues.
//! - A file that begins with a byte-order mark of UTF-16 or UTF-32 has no such lines: that is an error.

use crate::kv::{MAX_KEY, MAX_VALUE};
use std::io::{BufRead, Error, ErrorKind};

/// A key and its value, borrowed until the next pair is read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// Number of the pair's line, from 1.
    pub line: u64,
    /// The key: at least one byte.
    pub key: &'a [u8],
    /// The value: may be empty.
    pub value: &'a [u8],
}

/// A line that contains no usable pair.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Number of the line, from 1.
    pub line: u64,
    /// The reason for which the line is bad.
    pub fault: Fault,
}

/// The reason for which a line is bad.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The line begins with a space or tab.
    EmptyKey,
    /// The line has neither space nor tab.
    NoValue,
    /// The key is longer than this maximum, in bytes.
    KeyTooLong(usize),
    /// The value is longer than this maximum, in bytes.
    ValueTooLong(usize),
}

impl core::fmt::Display for BadLine {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Fault::EmptyKey => f.write_str("the key is empty (the line begins with a space or tab)"),
            Fault::NoValue => f.write_str("there is no space or tab between key and value"),
            Fault::KeyTooLong(most) => write!(f, "the key is longer than {most} bytes"),
            Fault::ValueTooLong(most) => write!(f, "the value is longer than {most} bytes"),
        }
    }
}

/// A reader of the pairs of a file. Its buffer grows to the longest line, and never beyond the longest pair
/// that a store takes.
#[derive(Debug)]
pub struct Pairs<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
    max_key: usize,
    max_value: usize,
}

/// The UTF-8 byte-order mark, which some systems write in front of text.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// Bytes of a line that are kept: a byte-order mark, the longest pair, its separator, CR. A line with one
/// more byte is too long.
const KEPT: usize = BOM.len() + MAX_KEY + MAX_VALUE + 3;

impl<R: BufRead> Pairs<R> {
    /// Reads from the beginning of `reader`.
    pub fn new(reader: R) -> Pairs<R> {
        Pairs { reader, line: Vec::new(), number: 0, max_key: MAX_KEY, max_value: MAX_VALUE }
    }

    /// Lowers the limits of the reader to `max_key` and `max_value` bytes.
    pub fn limited(self, max_key: usize, max_value: usize) -> Pairs<R> {
        let max_key = max_key.min(MAX_KEY);
        let max_value = max_value.min(MAX_VALUE);
        Pairs { max_key, max_value, ..self }
    }

    /// Returns the number of the line that was read last.
    pub fn line(&self) -> u64 {
        self.number
    }

    /// Returns the next pair or bad line, and `None` at the end of the file.
    ///
    /// # Errors
    /// An error of the reader, or `InvalidData` for text in UTF-16 or UTF-32.
    pub fn next_pair(&mut self) -> Result<Option<Result<Pair<'_>, BadLine>>, Error> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            if !self.line.is_empty() {
                break;
            }
        }
        let line = self.number;
        Ok(Some(match split(&self.line, self.max_key, self.max_value) {
            Ok((key, value)) => Ok(Pair { line, key, value }),
            Err(fault) => Err(BadLine { line, fault }),
        }))
    }

    /// Reads a line without its end; bytes beyond [`KEPT`] are skipped. Returns false at the end of the file.
    fn read_line(&mut self) -> Result<bool, Error> {
        self.line.clear();
        let mut any = false;
        loop {
            let piece = match self.reader.fill_buf() {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                piece => piece?,
            };
            if piece.is_empty() {
                break;
            }
            any = true;
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = &piece[..end.unwrap_or(piece.len())];
            let free = KEPT - self.line.len();
            self.line.extend_from_slice(&taken[..taken.len().min(free)]);
            let consumed = end.map_or(piece.len(), |end| end + 1);
            self.reader.consume(consumed);
            if end.is_some() {
                break;
            }
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.number += u64::from(any);
        if self.number == 1 {
            self.begin()?;
        }
        Ok(any)
    }

    /// Removes a UTF-8 byte-order mark from the first line, and refuses UTF-16 and UTF-32.
    fn begin(&mut self) -> Result<(), Error> {
        if self.line.starts_with(BOM) {
            self.line.drain(..BOM.len());
        }
        // Two bytes alone may be a key. Latin text in UTF-16 also has a zero byte beside each letter.
        let wide = matches!(self.line[..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 0, 0xfe, 0xff, ..]);
        if wide && self.line.contains(&0) {
            let words =
                "the text is UTF-16 or UTF-32: turn it into UTF-8 first, as `iconv -f UTF-16 -t UTF-8` does";
            return Err(Error::new(ErrorKind::InvalidData, words));
        }
        Ok(())
    }
}

/// Splits a line into key and value at its first space or tab.
fn split(line: &[u8], max_key: usize, max_value: usize) -> Result<(&[u8], &[u8]), Fault> {
    let separator = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
    let (key, value) = match separator {
        Some(0) => return Err(Fault::EmptyKey),
        Some(index) => (&line[..index], &line[index + 1..]),
        None if line.len() > max_key => return Err(Fault::KeyTooLong(max_key)),
        None => return Err(Fault::NoValue),
    };
    if key.len() > max_key {
        return Err(Fault::KeyTooLong(max_key));
    }
    if value.len() > max_value {
        return Err(Fault::ValueTooLong(max_value));
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    type Owned = Result<(Vec<u8>, Vec<u8>), BadLine>;

    fn read_by(input: &[u8], buffer: usize) -> Vec<Owned> {
        let mut pairs = Pairs::new(BufReader::with_capacity(buffer, input));
        let mut out = Vec::new();
        while let Some(pair) = pairs.next_pair().unwrap() {
            out.push(pair.map(|pair| (pair.key.to_vec(), pair.value.to_vec())));
        }
        out
    }

    fn pair(key: &[u8], value: &[u8]) -> Owned {
        Ok((key.to_vec(), value.to_vec()))
    }

    /// A line is a key and a value.
    #[test]
    fn the_rule_by_example() {
        let input = b"a 1\nb\t two  words \r\n\nkey \n\xff\0 \xfe\rx\nlast  one";
        let expected = vec![
            pair(b"a", b"1"),
            pair(b"b", b" two  words "),
            pair(b"key", b""),
            pair(b"\xff\0", b"\xfe\rx"),
            pair(b"last", b" one"),
        ];
        for buffer in 1..40 {
            assert_eq!(read_by(input, buffer), expected, "buffer of {buffer}");
        }
        assert_eq!(read_by(b"", 8), vec![]);
        assert_eq!(read_by(b"\n\r\n\n", 8), vec![]);
    }

    #[test]
    fn bad_lines_are_numbered_and_passed_over() {
        let bad = |line, fault| Err(BadLine { line, fault });
        let expected = vec![
            pair(b"a", b"1"),
            bad(2, Fault::NoValue),
            bad(4, Fault::EmptyKey),
            pair(b"b", b"2"),
            bad(6, Fault::EmptyKey),
        ];
        assert_eq!(read_by(b"a 1\nalone\n\n value\nb 2\n\t", 5), expected);
        let BadLine { line, fault } = *expected[1].as_ref().unwrap_err();
        assert_eq!(
            BadLine { line, fault }.to_string(),
            "line 2: there is no space or tab between key and value"
        );
    }

    #[test]
    fn lengths_to_the_limit_and_beyond() {
        let most = vec![b'x'; MAX_KEY];
        let line = |key: &[u8], value: &[u8]| [key, b" ", value, b"\r\n"].concat();
        let more = [&most[..], b"x"].concat();
        let input =
            [line(&most, &most), line(&more, b"v"), line(b"k", &more), more.repeat(5), b"\nk v\n".to_vec()];
        let read = read_by(&input.concat(), 1 << 16);
        assert_eq!(read[0], pair(&most, &most));
        assert_eq!(read[1], Err(BadLine { line: 2, fault: Fault::KeyTooLong(MAX_KEY) }));
        assert_eq!(read[2], Err(BadLine { line: 3, fault: Fault::ValueTooLong(MAX_VALUE) }));
        assert_eq!(read[3], Err(BadLine { line: 4, fault: Fault::KeyTooLong(MAX_KEY) }));
        assert_eq!(read[4], pair(b"k", b"v"));
    }

    #[test]
    fn a_store_that_takes_less_says_how_much() {
        let input = [&[b'k'; 9][..], b" v\nk v\nk 12345\n", &[b'k'; 8], b" 1234"].concat();
        let mut pairs = Pairs::new(&input[..]).limited(8, 4);
        let mut messages = Vec::new();
        while let Some(pair) = pairs.next_pair().unwrap() {
            messages.push(pair.map_or_else(|bad| bad.to_string(), |_| "good".to_owned()));
        }
        let bad = ["line 1: the key is longer than 8 bytes", "line 3: the value is longer than 4 bytes"];
        assert_eq!(messages, [bad[0], "good", bad[1], "good"]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_key() {
        let input = b"\xef\xbb\xbfa 1\r\n\xef\xbb\xbfb 2";
        let expected = vec![pair(b"a", b"1"), pair(b"\xef\xbb\xbfb", b"2")];
        for buffer in 1..20 {
            assert_eq!(read_by(input, buffer), expected, "buffer of {buffer}");
        }
        assert_eq!(read_by(b"\xef\xbb\xbf", 8), vec![]);
        assert_eq!(read_by(b"\xff\xfe 1", 8), vec![pair(b"\xff\xfe", b"1")], "a key may begin so");
    }

    #[test]
    fn text_in_utf_16_or_utf_32_is_refused_in_words() {
        let text = "a 1\nb 2\n";
        let little: Vec<u8> =
            "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> =
            "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect();
        let widest: Vec<u8> = "\u{feff}a 1\n".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        for input in [little, big, widest] {
            let error = Pairs::new(&input[..]).next_pair().unwrap_err();
            assert!(error.to_string().contains("iconv"), "{error}");
        }
    }

    #[test]
    fn errors_of_the_reader_come_through() {
        struct Failing;
        impl std::io::Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> Result<usize, Error> {
                Err(Error::other("gone"))
            }
        }
        let mut pairs = Pairs::new(BufReader::new(Failing));
        assert_eq!(pairs.next_pair().unwrap_err().to_string(), "gone");
    }
}
