//! `remora rma`: memory that others read and write by 1RMA, encrypted and without connections.

mod client;
mod credentials;
mod serve;
mod target;

use anyhow::Result;
use clap::Subcommand;

pub use serve::{IdentityArgs, rotate};
pub use target::refuse_shm;

/// Verbs of `remora rma`.
#[derive(Subcommand)]
pub enum RmaCommand {
    /// Expose memory, and grant it to clients.
    Serve(serve::Args),
    /// Read a region to standard output or a file.
    Read(client::ReadArgs),
    /// Write a region from standard input or a file.
    Write(client::WriteArgs),
    /// Change the key of a region: all who have the old one must ask again.
    Rekey(client::RekeyArgs),
    /// List what the server grants.
    Regions(client::RegionsArgs),
}

/// `remora rma`.
pub fn run(command: RmaCommand) -> Result<()> {
    match command {
        RmaCommand::Serve(args) => serve::run(&args),
        RmaCommand::Read(args) => client::read(&args),
        RmaCommand::Write(args) => client::write(&args),
        RmaCommand::Rekey(args) => client::rekey(&args),
        RmaCommand::Regions(args) => client::regions(&args),
    }
}

/// The rights as the command line says them.
fn rights_in_words(rights: remora_verbs::rma::Rights) -> String {
    let names: Vec<_> =
        serve::RIGHTS.iter().filter(|(_, one)| rights.contains(*one)).map(|(name, _)| *name).collect();
    names.join(",")
}
