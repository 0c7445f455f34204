//! The options that select the store of a client command.

use clap::Args;

use super::servers::ServersArgs;
use remora_options::device::PortArgs;

/// Options that select a transactional store and the NIC.
#[derive(Args, Clone, Debug)]
pub struct Target {
    #[command(flatten)]
    /// Addresses of the servers.
    pub servers: ServersArgs,
    #[command(flatten)]
    /// The port of the client's NIC.
    pub port: PortArgs,
}
