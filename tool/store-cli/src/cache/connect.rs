//! A connection to the chains of a cache.

use anyhow::Result;
use remora_options::device::PortArgs;
use remora_service::Error;
use remora_service::cache::Client;

/// Connects to a server's --chains.
pub fn connect(port: &PortArgs, address: &str) -> Result<Client> {
    Client::connect(port.open()?, address).map_err(|error| match error {
        Error::Connect(_) => anyhow::Error::from(error).context(format!(
            "no cache takes Remora clients at {address}: `remora serve cache --chains {address}` does"
        )),
        error => error.into(),
    })
}
