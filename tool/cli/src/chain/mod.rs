//! `remora chain`: assembles, verifies, runs and traces chain programs.

mod description;
mod image;
mod page;
mod run;
mod start;
mod trace;
mod verify;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use start::{Format, Start, program, text};

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
