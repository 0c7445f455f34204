//! Connects to the chains of a cache server.

use anyhow::Result;
use remora_options::device::PortArgs;
use remora_service::Error;
use remora_service::cache::Client;

/// Connects to the `--chains` address of a server.
pub fn connect(port: &PortArgs, address: &str) -> Result<Client> {
    Client::connect(port.open()?, address).map_err(|error| match error {
        Error::Connect(_) => anyhow::Error::from(error).context(format!(
            "cannot connect to a cache at {address}: start one with `remora serve cache --chains {address}`"
        )),
        error => error.into(),
    })
}
