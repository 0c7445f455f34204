//! The server: a table, and a chain for each connection. Its thread drives the NIC and does nothing for a GET.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use verbs::{
    Access, Call, ConnectRequest, EMPTY, Listener, MemoryRegion, Offload, ProtectionDomain, QpOptions,
};

use super::table::Table;
use crate::bench::redn::table as redn;
use crate::device::PortArgs;
use crate::print;
use crate::serving::conduct::Conduct;

/// Polls between looks at who wants to connect.
const POLLS: u32 = 1 << 14;

/// Arguments of the server, in the words of `remora serve kv`.
#[derive(Parser)]
pub struct Args {
    #[command(flatten)]
    port: PortArgs,
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    records: u64,
    #[arg(long)]
    value_len: u32,
    #[command(flatten)]
    conduct: Conduct,
}

/// `remora __chains`.
pub fn run(args: &Args) -> Result<()> {
    args.conduct.begin()?;
    let context = args.port.open()?;
    let domain = context.alloc_pd()?;
    let table = Table::new(args.records, args.value_len);
    let memory = domain.allocate(table.bytes(), Access::REMOTE_READ)?;
    table.fill(&memory)?;
    let mut cq = context.create_cq(16)?;
    let listener = Listener::bind(args.listen)?;
    print::line(listener.address());
    let mut loaded = Vec::new();
    loop {
        for _ in 0..POLLS {
            cq.poll(&mut [EMPTY; 1])?;
        }
        while let Some(request) = listener.accept(Some(Duration::ZERO))? {
            match load(&domain, &memory, request) {
                Ok(offload) => loaded.push(offload),
                Err(error) => tracing::warn!("a client of the demo was not served: {error:#}"),
            }
        }
    }
}

/// The call that sets a client's chain up.
fn load(domain: &ProtectionDomain, table: &MemoryRegion, request: ConnectRequest) -> Result<Offload> {
    let call = Call::from_bytes(request.private_data()).context("it does not say what it wants")?;
    // Addresses are told, and no key: a client of a chain needs none.
    let private_data = table.address().to_le_bytes().to_vec();
    let options = QpOptions { private_data, ..redn::late() };
    redn::load(domain, request, (&call, "table"), (table, &options))
}
