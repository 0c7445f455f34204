//! `remora serve txn`: one shard.

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
    after_help = "Examples:\n  remora serve txn\n  remora serve txn --shard 0 --shards 2 --listen 127.0.0.1:7491\n  remora serve txn --shard 1 --shards 2 --listen 127.0.0.1:7492\n  remora serve txn --design farm --port udp --address 10.0.0.1 --listen 10.0.0.1:7491\n\nStart all shards of a store with the same words but --shard and --listen. A shard begins empty, so one that ended takes its\nkeys with it, and all begin anew: docs/guides/transactions.md says why."
)]
pub struct ServeArgs {
    /// Design of the store; all shards have the same.
    #[arg(long, default_value = "prism-tx", value_parser = designs::txn())]
    pub design: Design,
    /// Number of this shard in its store, from 0.
    #[arg(long, default_value_t = 0, value_parser = whole::<u32>(0..=MOST_SHARDS as u32 - 1))]
    pub shard: u32,
    /// How many shards there are.
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=MOST_SHARDS as u32))]
    pub shards: u32,
    #[command(flatten)]
    pub port: PortArgs,
    /// TCP address for the set-up of connections.
    #[arg(long, default_value = "127.0.0.1:7491")]
    pub listen: SocketAddr,
    /// Keys that this shard may have, those included that were deleted.
    #[arg(long, default_value_t = 10_000, value_parser = whole::<u64>(1..=1 << 24))]
    pub keys: u64,
    /// Slots of its table [default: twice as many].
    #[arg(long, value_parser = whole::<u64>(1..=1 << 26))]
    pub slots: Option<u64>,
    /// Longest key, in bytes.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=4096))]
    pub key_len: u32,
    /// Longest value, in bytes.
    #[arg(long, default_value_t = 1024, value_parser = whole::<u32>(1..=1 << 20))]
    pub value_len: u32,
    /// Keys of a transaction, over all shards.
    #[arg(long, default_value_t = 16, value_parser = whole::<u32>(1..=64))]
    pub max_keys: u32,
    /// Transactions of a client at a time.
    #[arg(long, default_value_t = 16, value_parser = whole::<u32>(1..=64))]
    pub window: u32,
    /// Clients that may be connected at a time.
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=1024))]
    pub clients: u32,
    #[command(flatten)]
    pub conduct: Conduct,
}

impl ServeArgs {
    /// How large the shard is.
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

/// `remora serve txn`.
pub fn run(args: &ServeArgs) -> Result<()> {
    let ServeArgs { shard, shards, .. } = *args;
    ensure!(shard < shards, "there is no shard {shard} of {shards}: shards are counted from 0");
    args.conduct.begin()?;
    let (context, size) = (args.port.open()?, args.shard());
    match args.design {
        Design::PrismTx => serve(args, txn::open_prism_tx(context, &size)?),
        Design::Farm => serve(args, txn::open_farm(context, &size)?),
    }
}

fn serve<P: Program>(args: &ServeArgs, mut service: Service<P>) -> Result<()> {
    let ServeArgs { shard, shards, keys, design, .. } = args;
    let what = format!("transactions on {keys} keys as shard {shard} of {shards} of {}", design.name());
    args.conduct.serve(&what, args.listen, &mut service)
}
