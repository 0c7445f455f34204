//! `remora cache get`: an item by the chain that the server's NIC runs, or by memcached's protocol where that
//! does not do.

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use remora_options::device::PortArgs;
use remora_options::print;
use remora_store::cache::MAX_KEY;

use super::connect::connect;

/// `remora cache`.
#[derive(Subcommand)]
pub enum CacheCommand {
    /// Print the value of a key.
    Get(GetArgs),
}

/// Arguments of `remora cache get`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  remora cache get colour\n  remora cache get colour --port udp --connect 10.0.0.1:11212\n\nThe server is one that was started with --chains. Ends with status 1 if there is no such key."
)]
pub struct GetArgs {
    /// The key.
    key: String,
    /// Where the server takes Remora clients: its --chains.
    #[arg(long, default_value = "127.0.0.1:11212")]
    connect: String,
    #[command(flatten)]
    port: PortArgs,
    /// Say which way the value came.
    #[arg(long)]
    explain: bool,
}

/// `remora cache`.
pub fn run(command: CacheCommand) -> Result<()> {
    match command {
        CacheCommand::Get(args) => get(&args),
    }
}

fn get(args: &GetArgs) -> Result<()> {
    let is_key = |byte: u8| byte > b' ' && byte != 127;
    ensure!(
        (1..=MAX_KEY).contains(&args.key.len()) && args.key.bytes().all(is_key),
        "a key has 1 to {MAX_KEY} bytes, and no spaces"
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
