//! `remora chain`: assembles, verifies, runs and traces chain programs.

mod description;
mod image;
mod page;
mod run;
mod trace;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use remora_chain::{Machine, Program};
use remora_options::number::natural;

/// Subcommands of `remora chain`.
#[derive(Subcommand)]
pub(crate) enum ChainCommand {
    /// Print the work requests of a program and their bytes.
    #[command(
        after_help = "Examples:\n  remora chain asm if.chain\n  remora chain asm if.chain --json > if.json"
    )]
    Asm {
        /// File with the program's text (language: docs/reference/chains.md); - reads standard input.
        file: PathBuf,
        /// Print one JSON object, which `remora chain disasm` reads.
        #[arg(long)]
        json: bool,
    },
    /// Print the program text of assembled work requests.
    #[command(after_help = "Example:\n  remora chain disasm if.json")]
    Disasm {
        /// File with the output of `remora chain asm --json`; - reads standard input.
        file: PathBuf,
    },
    /// Check a program for faults without running it.
    #[command(
        after_help = "Examples:\n  remora chain verify if.chain\n  remora chain verify get.chain --json\n\nEnds with status 1 if the program has a fault: an address outside of its memory, a WAIT for a count that is never reached, a change of a\nwork request without a barrier, or a work request that a client could choose. Notices do not change the status."
    )]
    Verify {
        /// File with the program's text; - reads standard input.
        file: PathBuf,
        /// Print one JSON object per finding.
        #[arg(long)]
        json: bool,
    },
    /// Run a program on a NIC in this process and print its data.
    #[command(
        after_help = "Examples:\n  remora chain run if.chain\n  remora chain run if.chain --set x=7 --show answer\n  remora chain run get.chain --send in=0x2a --budget 1000 --json\n\nEnds with status 1 if a work request failed."
    )]
    Run {
        #[command(flatten)]
        start: Start,
        /// Print only the words with this name; may be given several times [default: all data].
        #[arg(long)]
        show: Vec<String>,
        /// Print the result as one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Run a program step by step and print which verb changed which bytes.
    #[command(
        after_help = "Examples:\n  remora chain trace if.chain\n  remora chain trace if.chain --format html > if.html\n  remora chain trace if.chain --format chrome > if.json\n  remora chain trace get.chain --send 'port=&bucket,[nop 42]'\n\nThe page opens in any browser; the Chrome trace in ui.perfetto.dev."
    )]
    Trace {
        #[command(flatten)]
        start: Start,
        /// Format of the trace.
        #[arg(long, default_value = "text")]
        format: Format,
    },
}

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
    fn machine(&self) -> Result<Machine> {
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
fn program(file: &Path) -> Result<Program> {
    let text = text(file)?;
    let name = file.display().to_string();
    remora_chain::read(&text).map_err(|mistake| anyhow!("{}", mistake.show(&name, &text)))
}

fn text(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("standard input is not UTF-8 text");
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Runs a subcommand of `remora chain`.
pub(crate) fn run(command: ChainCommand) -> Result<()> {
    match command {
        ChainCommand::Asm { file, json } => image::assemble(&program(&file)?, json),
        ChainCommand::Disasm { file } => image::disassemble(&text(&file)?),
        ChainCommand::Verify { file, json } => verify::verify(&file, json),
        ChainCommand::Run { start, show, json } => run::run(&start, &show, json),
        ChainCommand::Trace { start, format } => trace::trace(&start, format),
    }
}
