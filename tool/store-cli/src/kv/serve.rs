//! `remora serve kv`: serves a key-value table to its clients, with one polling thread.

mod args;
mod contents;
mod file;
mod rma;

use anyhow::{Result, ensure};
use remora_service::kv::persist::Kept;
use remora_service::kv::{self, Design, KvDesign, Loads, Size};
use remora_service::server::Service;
use remora_service::with_design;

pub(crate) use args::ServeArgs;
use contents::{begins_with, load};
use file::Lines;

use crate::transport::TransportName;

/// Runs `remora serve kv`.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    args.conduct.begin()?;
    if args.transport == TransportName::Rma {
        return rma::run(args);
    }
    ensure!(
        !args.identity.is_given(),
        "--certificate, --token-file, --admit and --rotate need --transport rma: add it, or leave them out"
    );
    with_design!(args.design, serve(args))
}

fn serve<D: KvDesign>(args: &ServeArgs) -> Result<()> {
    let (size, file) = begins_with::<D>(args)?;
    let mut service = open::<D>(args, size, file.as_ref())?;
    let description = format!("{} keys as {}", service.program.keys(), args.design.name());
    args.conduct.serve(&description, args.listen, &mut service)
}

/// Opens the server: with its initial contents, or as its predecessor left it in a NIC daemon.
fn open<D: KvDesign>(args: &ServeArgs, size: Size, file: Option<&Lines>) -> Result<Service<D::Program>> {
    let limits = args.limits();
    let (Some(socket), Some(name)) = (&args.nicd, &args.keep) else {
        return kv::open_with::<D, _>(args.port.open()?, &limits, size, |program| load(args, file, program));
    };
    ensure!(args.design == Design::Farm, "--keep supports only --design farm");
    let kept = Kept::open(socket, name)?;
    if !kept.has_table() {
        return kept.begin::<D, _>(&limits, &size, |program| load(args, file, program));
    }
    let unheeded = [
        (args.records > 0, "--records"),
        (args.file.is_some(), "--file"),
        (args.capacity.is_some(), "--capacity"),
        (args.memory.is_some(), "--memory"),
    ];
    for (_, option) in unheeded.iter().filter(|(given, _)| *given) {
        eprintln!("{option} is ignored: the table of the previous server is used");
    }
    let (service, clients) = kept.resume::<D>(&limits)?;
    eprintln!("continues the table of the previous server, with {clients} of its clients");
    Ok(service)
}
