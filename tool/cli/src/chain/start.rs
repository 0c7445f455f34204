//! A program and its initial state, as the command line names them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use remora_chain::{Machine, Program};
use remora_options::number::natural;

use super::image;

/// Formats of a trace.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text: one line per work request and one per change.
    Text,
    /// Trace events for Perfetto and Chrome: one track per queue, one microsecond per step.
    Chrome,
    /// HTML page that shows the queues step by step.
    Html,
}

/// Options that select a program and its initial state.
#[derive(Args, Clone, Debug)]
pub(crate) struct Start {
    /// File with the program's text; - reads standard input.
    pub file: PathBuf,
    /// Maximum number of work requests that are executed.
    #[arg(long, default_value_t = 100_000, value_parser = natural::<u64>)]
    pub budget: u64,
    /// Set a word before the start, in the form NAME=NUMBER; may be given several times.
    #[arg(long)]
    pub set: Vec<String>,
    /// Deliver a client's message, in the form QUEUE=BYTES; may be given several times. The bytes are
    /// hexadecimal digits in memory order, or words separated by commas: 0x and a value, &NAME for an
    /// address, or [nop 42] for a header with that id.
    #[arg(long)]
    pub send: Vec<String>,
}

impl Start {
    /// Loads and starts the program, with its words set and its messages delivered.
    pub(crate) fn machine(&self) -> Result<Machine> {
        let mut machine = Machine::load(program(&self.file)?)?;
        for setting in &self.set {
            let (name, value) = setting.split_once('=').context("--set takes NAME=NUMBER")?;
            let value = number(value).with_context(|| {
                format!(
                    "`{value}` is not a number: --set takes NAME=NUMBER, in decimal or hexadecimal (0x2a)"
                )
            })?;
            if !machine.set_word(name, value) {
                bail!("the program has no data word `{name}`: name one of its data");
            }
        }
        machine.start();
        for message in &self.send {
            let (queue, bytes) = message.split_once('=').context("--send takes QUEUE=BYTES")?;
            let number = machine.program().queue(queue);
            let number = number
                .with_context(|| format!("the program has no queue `{queue}`: name one that it declares"))?;
            let bytes = message_bytes(&machine, bytes).with_context(|| {
                format!("`{bytes}` is not a message: give hexadecimal digits, or words such as 0x2a,&NAME,[nop 42]")
            })?;
            if !machine.send(number, &bytes) {
                bail!("queue `{queue}` has no posted receive for a message of {} bytes", bytes.len());
            }
        }
        Ok(machine)
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn message_bytes(machine: &Machine, text: &str) -> Option<Vec<u8>> {
    let word = |text: &str| {
        if let Some(name) = text.strip_prefix('&') {
            return Some(machine.numbers().address(machine.program().find(name)?.0));
        }
        match text.strip_prefix("[nop").and_then(|rest| rest.strip_suffix(']')) {
            Some(id) => Some(remora_chain::offload::wanted(number(id.trim())?)),
            None => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        }
    };
    let words: Option<Vec<u64>> = text.split(',').map(|part| word(part.trim())).collect();
    match words {
        Some(words) => Some(words.into_iter().flat_map(u64::to_le_bytes).collect()),
        None => image::bytes(text),
    }
}

/// Reads and parses the text of a program.
pub(crate) fn program(file: &Path) -> Result<Program> {
    let text = text(file)?;
    let name = file.display().to_string();
    remora_chain::read(&text).map_err(|mistake| anyhow!("{}", mistake.show(&name, &text)))
}

pub(crate) fn text(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("standard input is not UTF-8 text");
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
