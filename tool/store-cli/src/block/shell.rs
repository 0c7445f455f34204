//! `remora block shell`: executes the commands on standard input over one connection.

use std::io::ErrorKind;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::value::{padded, shown};
use crate::lines;
use remora_options::escape::shown as shown_bytes;
use remora_options::print;
use remora_service::block::Session;

/// Pause between two calls of the session while no command is in progress.
const IDLE: Duration = Duration::from_millis(1);

/// Executes each line and prints one line as its answer, until the input ends.
pub(crate) fn run(mut session: Session) -> Result<()> {
    let lines = lines::of_input()?;
    loop {
        match lines.try_recv() {
            Ok(Err(error)) if error.kind() != ErrorKind::InvalidData => return Err(error.into()),
            Ok(line) => {
                let answer = line.map_err(anyhow::Error::from).and_then(|line| act(&mut session, &line));
                let answer = answer.unwrap_or_else(|error| format!("error: {error:#}").into());
                print::bytes(&[&answer[..], b"\n"].concat());
            }
            Err(TryRecvError::Empty) => {
                session.turn(|_| ())?;
                std::thread::sleep(IDLE);
            }
            Err(TryRecvError::Disconnected) => return Ok(session.close()?),
        }
    }
}

fn act(session: &mut Session, line: &[u8]) -> Result<Vec<u8>> {
    let number = |word: &[u8]| {
        let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        number.with_context(|| format!("{} is not a block number", shown_bytes(word)))
    };
    match line.trim_ascii().splitn(3, |byte| *byte == b' ').collect::<Vec<_>>()[..] {
        [b"read", block] => Ok(shown(&session.read(number(block)?)?).to_vec()),
        [b"write", block, value] => {
            let value = padded(value.to_vec(), session.layout()?.block_len)?;
            session.write(number(block)?, &value)?;
            Ok(b"done".to_vec())
        }
        _ => bail!("unknown command; use `read BLOCK` or `write BLOCK VALUE`"),
    }
}
