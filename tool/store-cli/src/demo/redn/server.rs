//! The server, with a table and a chain for each connection. Its thread drives the NIC and executes no code
//! for a GET.

use std::net::SocketAddr;

use anyhow::Result;
use clap::Parser;
use remora_verbs::{Access, EMPTY, Listener, QpOptions};

use super::table::Table;
use crate::chains::loading::Loading;
use crate::chains::table as redn;
use crate::conduct::Conduct;
use remora_options::device::PortArgs;
use remora_options::print;

/// Number of polls between two checks for new connections.
const POLLS: u32 = 1 << 14;

/// The arguments of the server, named like those of `remora serve kv`.
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

/// Runs `remora __chains`.
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
    // The server sends the address and no key, because a client of a chain needs none.
    let private_data = memory.address().to_le_bytes().to_vec();
    let options = QpOptions { private_data, ..redn::late() };
    let mut loading = Loading::new(&domain, &memory)?;
    loop {
        for _ in 0..POLLS {
            cq.poll(&mut [EMPTY; 1])?;
        }
        loading.turn(&listener, &options)?;
    }
}
