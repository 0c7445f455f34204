//! `remora capture`: runs a command with everything that its NICs send and receive recorded.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use crate::device::CAPTURE;
use crate::ending;

/// Arguments of `remora capture`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora capture -- remora kv get colour\n  remora capture -o demo.pcapng -- remora demo --records 1000 --gets 1000\n  tshark -r remora.pcapng\n\nEach NIC that the command opens has a file: FILE, FILE with 2 before its ending, and so on. `remora serve kv --capture\nFILE` does the same for a server alone."
)]
pub struct Args {
    /// File of the first NIC; one that is there already is replaced.
    #[arg(short, long, value_name = "FILE", default_value = "remora.pcapng")]
    output: PathBuf,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// `remora capture`.
pub fn run(args: &Args) -> Result<()> {
    let Some((program, words)) = args.command.split_first() else { bail!("which command?") };
    match std::fs::remove_file(&args.output) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("replacing {}", args.output.display()));
        }
        _ => {}
    }
    let output = std::path::absolute(&args.output)?;
    // Whoever says `remora` means this one, installed or not.
    let program = if program == "remora" { std::env::current_exe()? } else { PathBuf::from(program) };
    let mut command = Command::new(&program);
    let status = ending::pass_on(command.args(words).env(CAPTURE, &output))
        .with_context(|| format!("running {}", program.display()))?;
    if !output.exists() {
        bail!("the command opened no NIC ({status}): nothing is recorded");
    }
    eprintln!("recorded in {}", args.output.display());
    if !status.success() {
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}
