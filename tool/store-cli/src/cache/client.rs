//! `remora cache get`: reads a cache item through the chains of the server's NIC, or through memcached's
//! protocol if the chains cannot answer.

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use remora_options::device::PortArgs;
use remora_options::print;
use remora_store::cache::MAX_KEY;

use super::connect::connect;

/// Subcommands of `remora cache`.
#[derive(Subcommand)]
pub(crate) enum CacheCommand {
    /// Print the value of a key.
    Get(GetArgs),
}

/// Arguments of `remora cache get`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  remora cache get colour\n  remora cache get colour --port udp --connect 10.0.0.1:11212\n\nThe server must run with --chains. Ends with status 1 if there is no such key."
)]
pub(crate) struct GetArgs {
    /// Key to look up: 1 to 250 bytes without spaces.
    key: String,
    /// Address for Remora clients (host:port): the server's --chains.
    #[arg(long, default_value = "127.0.0.1:11212")]
    connect: String,
    #[command(flatten)]
    port: PortArgs,
    /// Also print whether the value came through the chain or through TCP, and why.
    #[arg(long)]
    explain: bool,
}

/// Runs a subcommand of `remora cache`.
pub(crate) fn run(command: CacheCommand) -> Result<()> {
    match command {
        CacheCommand::Get(args) => get(&args),
    }
}

fn get(args: &GetArgs) -> Result<()> {
    let is_key = |byte: u8| byte > b' ' && byte != 127;
    ensure!(
        (1..=MAX_KEY).contains(&args.key.len()) && args.key.bytes().all(is_key),
        "a key has 1 to {MAX_KEY} bytes without spaces"
    );
    let mut client = connect(&args.port, &args.connect)?;
    let (value, way) = match client.ask(args.key.as_bytes()) {
        Ok(Some(value)) => (Some(value), "by the chain".to_owned()),
        Ok(None) => (client.fall_back(&args.key)?, "by TCP: the chain had nothing that fits".to_owned()),
        Err(error) => (client.fall_back(&args.key)?, format!("by TCP: {}", error.chain())),
    };
    if args.explain {
        eprintln!("{way}");
    }
    let Some(value) = value else { bail!("no such key: {}", args.key) };
    print::bytes(&value);
    if !value.ends_with(b"\n") {
        print::line("");
    }
    Ok(())
}
