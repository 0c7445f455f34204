//! `remora rma`: serves memory, and accesses the memory of others, by 1RMA: encrypted and without
//! connections.

mod client;
mod credentials;
mod rights;
mod serve;
mod target;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use serve::{IdentityArgs, rotate};
pub(crate) use target::refuse_shm;

/// Subcommands of `remora rma`.
#[derive(Subcommand)]
pub(crate) enum RmaCommand {
    /// Expose a region of memory and grant clients access to it.
    Serve(serve::Args),
    /// Read a region to standard output or a file.
    Read(client::ReadArgs),
    /// Write a region from standard input or a file.
    Write(client::WriteArgs),
    /// Change the key of a region. Clients with the old key must request a new grant.
    Rekey(client::RekeyArgs),
    /// List the regions that the server grants.
    Regions(client::RegionsArgs),
}

/// Runs a subcommand of `remora rma`.
pub(crate) fn run(command: RmaCommand) -> Result<()> {
    match command {
        RmaCommand::Serve(args) => serve::run(&args),
        RmaCommand::Read(args) => client::read(&args),
        RmaCommand::Write(args) => client::write(&args),
        RmaCommand::Rekey(args) => client::rekey(&args),
        RmaCommand::Regions(args) => client::regions(&args),
    }
}
