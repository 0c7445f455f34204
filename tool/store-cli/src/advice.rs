//! Adds the command that starts the missing server to the errors of clients.

use std::net::SocketAddr;

use remora_grants::Error as Grants;
use remora_service::Error;

/// Adds advice to an error of a key-value client: the `remora serve kv` command that would start the
/// server.
pub fn start_kv(error: Error) -> anyhow::Error {
    match &error {
        Error::NoServer { address, .. } => {
            anyhow::anyhow!("{error}: start one with `remora serve kv --listen {address}`")
        }
        Error::Grants(Grants::NoServer(address)) => anyhow::anyhow!(
            "no key-value server gives grants at {address}: start one with `remora serve kv --transport rma \
             --listen {address}`"
        ),
        Error::Grants(Grants::NotAdmitted { server, certificate: Some(fingerprint) }) => anyhow::anyhow!(
            "{server} does not admit this client: start it with `remora serve kv --transport rma --admit \
             {fingerprint}`"
        ),
        Error::Grants(Grants::NotTls(address)) => anyhow::anyhow!(
            "what listens at {address} does not speak TLS 1.3: start it with `remora serve kv --transport rma`"
        ),
        _ => error.into(),
    }
}

/// Adds advice to an error of a client of `shards`: the `remora serve txn` command that would start the
/// missing shard.
pub fn start_shard(error: Error, shards: &[SocketAddr]) -> anyhow::Error {
    let Error::NoServer { address, .. } = &error else { return error.into() };
    let shard = shards.iter().position(|shard| shard.to_string() == *address).unwrap_or(0);
    let count = shards.len();
    anyhow::anyhow!(
        "{error}: start it with `remora serve txn --shard {shard} --shards {count} --listen {address}`"
    )
}
