//! `remora man`: writes manual pages, generated from the same declarations as `--help`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;

use remora_options::print;

/// Arguments of `remora man`.
#[derive(Parser)]
#[command(after_help = "Examples:\n  remora man ~/.local/share/man/man1\n  man remora-kv-get")]
pub(crate) struct Args {
    /// Folder that receives one page for each command. It is created if it does not exist.
    folder: PathBuf,
}

/// Runs `remora man`.
pub(crate) fn run(args: &Args, command: clap::Command) -> Result<()> {
    let attempt = || format!("writing manual pages into {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).with_context(attempt)?;
    clap_mangen::generate_to(command, &args.folder).with_context(attempt)?;
    print::line(format_args!("manual pages are in {}", args.folder.display()));
    Ok(())
}
