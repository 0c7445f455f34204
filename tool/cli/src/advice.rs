//! What a person does about a server that is not there.

use std::net::SocketAddr;

use remora_service::Error;

/// Of a key-value client.
pub fn start_kv(error: Error) -> anyhow::Error {
    match &error {
        Error::NoServer { address, .. } => {
            anyhow::anyhow!("{error}: start one with `remora serve kv --listen {address}`")
        }
        _ => error.into(),
    }
}

/// Of a client of these shards.
pub fn start_shard(error: Error, shards: &[SocketAddr]) -> anyhow::Error {
    let Error::NoServer { address, .. } = &error else { return error.into() };
    let shard = shards.iter().position(|shard| shard.to_string() == *address).unwrap_or(0);
    let count = shards.len();
    anyhow::anyhow!(
        "{error}: start it with `remora serve txn --shard {shard} --shards {count} --listen {address}`"
    )
}
