//! `remora serve kv --transport rma`: clients read the table by 1RMA, and store pairs by calls over TLS.

use anyhow::{Context as _, Result, ensure};
use remora_grants::Token;
use remora_host::metrics;
use remora_options::print_table;
use remora_options::{ending, print};
use remora_service::kv::rma::RmaServer;
use remora_service::kv::{Design, FarmDesign};
use remora_verbs::Mode;

use super::{ServeArgs, begins_with, load};
use crate::rma::{refuse_shm, rotate};

/// Serves until a signal ends the process.
pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    ensure!(args.design == Design::Farm, "--transport rma supports only design farm: leave --design out");
    ensure!(args.nicd.is_none(), "--transport rma needs its own NIC: leave --nicd and --keep out");
    refuse_shm(&args.port)?;
    let stop_signal = ending::readable()?;
    let (size, file) = begins_with::<FarmDesign>(args)?;
    // No thread of the server polls for the reads of clients, so the engine needs its own thread.
    let context = args.port.device()?.mode(Mode::Dedicated).open();
    let context = context.with_context(|| format!("opening a NIC with port {}", args.port.port.name()))?;
    let options = args.identity.options()?;
    let token = options.token.clone();
    let load = |table: &mut _| load(args, file.as_ref(), table);
    let server = RmaServer::open_with(&context, args.listen, options, &args.limits(), &size, load)?;
    let endpoint = args
        .conduct
        .metrics
        .map(|address| {
            let context = context.clone();
            metrics::Endpoint::start(address, move || context.metrics())
        })
        .transpose()?;
    tell(args, &server, token.as_ref());
    if let Some(endpoint) = endpoint.as_ref().filter(|_| !args.conduct.child) {
        eprintln!("metrics for Prometheus and `remora top` at {}", endpoint.address());
    }
    rotate(
        args.identity.rotate,
        &stop_signal,
        |ahead| Ok(server.announce(ahead)?),
        || Ok(server.change_keys()?),
    )
}

/// Prints what clients need to connect: address, fingerprint and token.
fn tell(args: &ServeArgs, server: &RmaServer, token: Option<&Token>) {
    let address = server.address().to_string();
    let fingerprint = server.fingerprint().to_string();
    let token = token.map(ToString::to_string);
    if args.conduct.child {
        print::line(address);
        print::line(fingerprint);
        print::line(token.unwrap_or_default());
        return;
    }
    let facts = [
        ("address", address.clone()),
        ("fingerprint", fingerprint),
        ("token", token.unwrap_or_else(|| "none: certificates admit".to_owned())),
    ];
    print_table(["attribute", "value"], facts.into_iter().map(|(name, value)| [name.to_owned(), value]));
    let keys = server.keys();
    let port = server.context().port().kind;
    eprintln!("serving {keys} keys as farm by 1RMA over {port} at {address}; end with Ctrl-C");
}
