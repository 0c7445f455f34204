//! Standard output. Who reads it may have seen enough and leave, as `head` does: the command ends then,
//! without a word and with the status of a program that a closed pipe has ended.

use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::process::exit;

/// 128 and the number of SIGPIPE.
const UNREAD: i32 = 141;

/// Prints a line.
pub fn line(text: impl Display) {
    bytes(format!("{text}\n").as_bytes());
}

/// Prints these bytes at once.
pub fn bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        exit(UNREAD);
    }
    eprintln!("error: what is to be said cannot be printed: {error}");
    exit(1);
}
