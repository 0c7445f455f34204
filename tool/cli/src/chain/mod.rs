//! `remora chain`: programs of chains, from text to a run that one can look at.

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

/// `remora chain`.
#[derive(Subcommand)]
pub enum ChainCommand {
    /// Print the work requests of a program, byte by byte.
    #[command(
        after_help = "Examples:\n  remora chain asm if.chain\n  remora chain asm if.chain --json > if.json"
    )]
    Asm {
        /// The program's text (docs/reference/chains.md has the language); - takes it from standard input.
        file: PathBuf,
        /// One JSON object, which `disasm` reads.
        #[arg(long)]
        json: bool,
    },
    /// Print the text of work requests.
    #[command(after_help = "Example:\n  remora chain disasm if.json")]
    Disasm {
        /// What `asm --json` printed.
        file: PathBuf,
    },
    /// Look for what is wrong with a program before it runs.
    #[command(
        after_help = "Examples:\n  remora chain verify if.chain\n  remora chain verify get.chain --json\n\nEnds with status 1 if something cannot be right: a place outside of the program's memory, a count that never comes, a change\nwithout a barrier, a client that could say what a work request does. What somebody should know is a notice."
    )]
    Verify {
        /// The program's text; - takes it from standard input.
        file: PathBuf,
        /// A JSON object for each finding.
        #[arg(long)]
        json: bool,
    },
    /// Run a program on a NIC of its own, and print its data.
    #[command(
        after_help = "Examples:\n  remora chain run if.chain\n  remora chain run if.chain --set x=7 --show answer\n  remora chain run get.chain --send in=0x2a --budget 1000 --json\n\nEnds with status 1 if a work request failed."
    )]
    Run {
        #[command(flatten)]
        start: Start,
        /// Print these words only; may be given several times.
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
        /// The form of the trace.
        #[arg(long, default_value = "text")]
        format: Format,
    },
}

/// How a trace is written.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each work request, and one for each change.
    Text,
    /// What Perfetto and Chrome draw: a track for each queue, a microsecond for each step.
    Chrome,
    /// A page with the queues drawn, to step through.
    Html,
}

/// What is run, and how it begins.
#[derive(Args, Clone, Debug)]
pub struct Start {
    /// The program's text; - takes it from standard input.
    pub file: PathBuf,
    /// Work requests that it may execute.
    #[arg(long, default_value_t = 100_000, value_parser = natural::<u64>)]
    pub budget: u64,
    /// Change a word before the start: NAME=NUMBER; may be given several times.
    #[arg(long)]
    pub set: Vec<String>,
    /// A client's message: QUEUE=BYTES, where the bytes are hexadecimal digits in memory's order, or words
    /// with commas between: 0x and a value, &NAME for an address, [nop 42] for a header with that id; may be
    /// given several times.
    #[arg(long)]
    pub send: Vec<String>,
}

impl Start {
    /// The program, started.
    fn machine(&self) -> Result<Machine> {
        let mut machine = Machine::load(program(&self.file)?)?;
        for setting in &self.set {
            let (name, value) = setting.split_once('=').context("--set takes NAME=NUMBER")?;
            let value = number(value).with_context(|| {
                format!("`{value}` is no number: --set takes NAME=NUMBER, in decimal or behind 0x")
            })?;
            if !machine.set_word(name, value) {
                bail!("the program has no word `{name}`: name one of its data");
            }
        }
        machine.start();
        for message in &self.send {
            let (queue, bytes) = message.split_once('=').context("--send takes QUEUE=BYTES")?;
            let number = machine.program().queue(queue);
            let number = number
                .with_context(|| format!("the program has no queue `{queue}`: name one that it declares"))?;
            let bytes = message_bytes(&machine, bytes).with_context(|| {
                format!("`{bytes}` is neither hexadecimal digits nor words such as 0x2a,&NAME,[nop 42]")
            })?;
            if !machine.send(number, &bytes) {
                bail!("queue `{queue}` has no receive left that takes a message of {} bytes", bytes.len());
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

/// Reads a program's text.
fn program(file: &Path) -> Result<Program> {
    let text = text(file)?;
    let name = file.display().to_string();
    remora_chain::read(&text).map_err(|mistake| anyhow!("{}", mistake.show(&name, &text)))
}

fn text(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("standard input is no text");
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// `remora chain`.
pub fn run(command: ChainCommand) -> Result<()> {
    match command {
        ChainCommand::Asm { file, json } => image::assemble(&program(&file)?, json),
        ChainCommand::Disasm { file } => image::disassemble(&text(&file)?),
        ChainCommand::Verify { file, json } => verify::verify(&file, json),
        ChainCommand::Run { start, show, json } => run::run(&start, &show, json),
        ChainCommand::Trace { start, format } => trace::trace(&start, format),
    }
}
