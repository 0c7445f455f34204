//! `remora block shell`: one client that stays connected, and does what lines of standard input say.

use std::io::BufRead as _;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::client::Session;
use super::command::{padded, shown};
use crate::print;

/// Time between two turns while nothing is asked.
const IDLE: Duration = Duration::from_millis(1);

/// Reads and writes until the input ends; each line is answered by one.
pub fn run(mut session: Session) -> Result<()> {
    let (sender, lines) = channel();
    let read = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("lines".into()).spawn(read).context("a thread for the input")?;
    loop {
        match lines.try_recv() {
            Ok(line) => {
                let answer =
                    act(&mut session, &line).unwrap_or_else(|error| format!("error: {error:#}").into());
                print::bytes(&[&answer[..], b"\n"].concat());
            }
            Err(TryRecvError::Empty) => {
                session.turn(|_| ())?;
                std::thread::sleep(IDLE);
            }
            Err(TryRecvError::Disconnected) => return session.close(),
        }
    }
}

fn act(session: &mut Session, line: &str) -> Result<Vec<u8>> {
    let number = |word: &str| word.parse().with_context(|| format!("{word:?} is no block"));
    match line.trim().splitn(3, ' ').collect::<Vec<_>>()[..] {
        ["read", block] => Ok(shown(&session.read(number(block)?)?).to_vec()),
        ["write", block, value] => {
            let value = padded(value.as_bytes().to_vec(), session.layout()?.block_len)?;
            session.write(number(block)?, &value)?;
            Ok(b"done".to_vec())
        }
        _ => bail!("say `read BLOCK` or `write BLOCK VALUE`"),
    }
}
