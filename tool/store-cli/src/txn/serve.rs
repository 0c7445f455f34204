//! `remora serve txn`: serves one shard of a transactional store.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use clap::Args;
use remora_store::txn::{Design, Limits};

use crate::conduct::Conduct;
use crate::designs;
use remora_options::device::PortArgs;
use remora_options::number::whole;
use remora_service::server::{Program, Service};
use remora_service::txn::{self, MOST_SHARDS, ShardConfig, ShardId};

/// Arguments of `remora serve txn`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  remora serve txn\n  remora serve txn --shard 0 --shards 2 --listen 127.0.0.1:7491\n  remora serve txn --shard 1 --shards 2 --listen 127.0.0.1:7492\n  remora serve txn --design farm --port udp --address 10.0.0.1 --listen 10.0.0.1:7491\n\nStart all shards of a store with the same options except --shard and --listen. A shard starts empty: if one ends, its keys are lost, and\nall shards must be started again. docs/guides/transactions.md explains why."
)]
pub(crate) struct ServeArgs {
    /// Design of the store; it must be the same for all shards.
    #[arg(long, default_value = "prism-tx", value_parser = designs::txn())]
    pub design: Design,
    /// Number of this shard in its store, counted from 0.
    #[arg(long, default_value_t = 0, value_parser = whole::<u32>(0..=MOST_SHARDS as u32 - 1))]
    pub shard: u32,
    /// Number of shards in the store.
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=MOST_SHARDS as u32))]
    pub shards: u32,
    #[command(flatten)]
    pub port: PortArgs,
    /// TCP address (IP:PORT) on which clients set up their connections.
    #[arg(long, default_value = "127.0.0.1:7491")]
    pub listen: SocketAddr,
    /// Number of keys that this shard has space for, including deleted ones.
    #[arg(long, default_value_t = 10_000, value_parser = whole::<u64>(1..=1 << 24))]
    pub keys: u64,
    /// Number of slots in the hash table [default: twice --keys].
    #[arg(long, value_parser = whole::<u64>(1..=1 << 26))]
    pub slots: Option<u64>,
    /// Maximum length of a key in bytes.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=4096))]
    pub key_len: u32,
    /// Maximum length of a value in bytes.
    #[arg(long, default_value_t = 1024, value_parser = whole::<u32>(1..=1 << 20))]
    pub value_len: u32,
    /// Maximum number of keys in a transaction, over all shards.
    #[arg(long, default_value_t = 16, value_parser = whole::<u32>(1..=64))]
    pub max_keys: u32,
    /// Maximum number of transactions that a client has in progress.
    #[arg(long, default_value_t = 16, value_parser = whole::<u32>(1..=64))]
    pub window: u32,
    /// Clients that may be connected at the same time.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=1024))]
    pub clients: u32,
    #[command(flatten)]
    pub conduct: Conduct,
}

impl ServeArgs {
    /// Returns the size of the shard.
    fn shard(&self) -> ShardConfig {
        let ServeArgs { shard, shards, keys, max_keys, window, clients, .. } = *self;
        ShardConfig {
            id: ShardId { shard, shards },
            keys,
            slots: self.slots.unwrap_or(keys * 2),
            limits: Limits { max_key: self.key_len, max_value: self.value_len, max_keys, window },
            clients,
        }
    }
}

/// Runs `remora serve txn`.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    let ServeArgs { shard, shards, .. } = *args;
    ensure!(shard < shards, "there is no shard {shard} of {shards}: shards are counted from 0");
    args.conduct.begin()?;
    let context = args.port.open()?;
    let size = args.shard();
    match args.design {
        Design::PrismTx => serve(args, txn::open_prism_tx(context, &size)?),
        Design::Farm => serve(args, txn::open_farm(context, &size)?),
    }
}

fn serve<P: Program>(args: &ServeArgs, mut service: Service<P>) -> Result<()> {
    let ServeArgs { shard, shards, keys, design, .. } = args;
    let description =
        format!("transactions on {keys} keys as shard {shard} of {shards} of {}", design.name());
    args.conduct.serve(&description, args.listen, &mut service)
}
