//! The store that a command is for.

use clap::Args;

use super::servers::ServersArgs;
use remora_options::device::PortArgs;

/// Which store.
#[derive(Args, Clone, Debug)]
pub struct Target {
    #[command(flatten)]
    /// Addresses of the servers.
    pub servers: ServersArgs,
    #[command(flatten)]
    /// The port of the client's NIC.
    pub port: PortArgs,
}
