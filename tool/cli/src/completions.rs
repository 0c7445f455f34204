//! `remora completions`: prints shell completion scripts.

use anyhow::Result;
use clap::Parser;
use clap_complete::Shell;

use remora_options::print;

/// Arguments of `remora completions`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora completions bash > ~/.local/share/bash-completion/completions/remora\n  remora completions zsh > ~/.zfunc/_remora\n  remora completions fish > ~/.config/fish/completions/remora.fish"
)]
pub(crate) struct Args {
    /// Shell that will read the script.
    shell: Shell,
}

/// Runs `remora completions`.
pub(crate) fn run(args: &Args, command: &mut clap::Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "remora", &mut script);
    print::bytes(&script);
    Ok(())
}
