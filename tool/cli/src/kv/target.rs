//! The server that a command is for, and sessions with it.

use anyhow::{Context as _, Result};
use clap::Args;
use remora_store::kv::ClientConfig;

use crate::advice::start_kv;
use remora_bench::command::designs;
use remora_bench::command::device::PortArgs;
use remora_service::kv::{Design, KvDesign, Session};

/// Which server.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Address of the server: its --listen.
    #[arg(long, default_value = "127.0.0.1:7471")]
    pub connect: String,
    /// Design of the server: its --design.
    #[arg(long, default_value = "farm", value_parser = designs::kv())]
    pub design: Design,
    #[command(flatten)]
    pub port: PortArgs,
}

/// Bytes of a key or a value at most.
pub const LONGEST: u32 = 1 << 20;

/// A session for keys of this length at most.
pub fn session<D: KvDesign>(target: &Target, max_key: usize) -> Result<Session<D>> {
    let max_key =
        u32::try_from(max_key.max(16)).ok().filter(|len| *len <= LONGEST).context("keys end at 1 MiB")?;
    let config = ClientConfig { window: 1, max_key, max_value: LONGEST, ..ClientConfig::default() };
    Session::connect(&target.port.open()?, &target.connect, config).map_err(start_kv)
}

/// A session that can list keys too.
pub fn listing_session<D: KvDesign>(target: &Target) -> Result<Session<D>> {
    let config = ClientConfig {
        window: remora_store::kv::prism::Scan::WINDOW,
        max_key: LONGEST,
        max_value: LONGEST,
        ..ClientConfig::default()
    };
    Session::connect(&target.port.open()?, &target.connect, config).map_err(start_kv)
}
