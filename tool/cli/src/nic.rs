//! `remora nic`: lists and ends what the programs of a daemon keep on its NIC.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use remora_options::device::LentArgs;
use remora_options::number::natural;
use remora_options::{print, print_table};
use remora_verbs::nicd::{self, TenantFacts};
use serde_json::json;

/// Commands for the NIC of a running daemon.
#[derive(Subcommand)]
pub(crate) enum Manage {
    /// List the tenants of a NIC: all tenants for its owner and root, otherwise your own.
    #[command(
        alias = "list",
        after_help = "Examples:\n  remora nic tenants\n  remora nic tenants --socket /run/nic.sock --json\n\nA tenant is the objects of one program, or of one name under which programs keep them. What one user's tenants hold is limited in sum."
    )]
    Tenants {
        #[command(flatten)]
        socket: SocketArgs,
        /// Print one JSON object per tenant.
        #[arg(long)]
        json: bool,
    },
    /// End a kept tenant: disconnect its program and destroy its queue pairs and regions.
    #[command(
        after_help = "Examples:\n  remora nic end store\n  remora nic end store --uid 1001 --socket /run/nic.sock --json"
    )]
    End {
        /// Name of the tenant, as given with --keep.
        name: String,
        /// ID of the tenant's user [default: yours]. Only the daemon's owner and root may end tenants of
        /// other users.
        #[arg(long, value_parser = natural::<u32>)]
        uid: Option<u32>,
        #[command(flatten)]
        socket: SocketArgs,
        /// Print the ended tenant as one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Option that names the socket of a running daemon.
#[derive(clap::Args)]
pub(crate) struct SocketArgs {
    /// Socket of the daemon [default: remora-nicd.sock in $XDG_RUNTIME_DIR, or in /run/user/UID].
    #[arg(long = "socket", value_name = "PATH")]
    path: Option<PathBuf>,
}

impl SocketArgs {
    fn path(&self) -> PathBuf {
        self.path.clone().unwrap_or_else(LentArgs::default_socket)
    }
}

/// Runs a command of `remora nic`.
pub(crate) fn run(command: &Manage) -> Result<()> {
    match command {
        Manage::Tenants { socket, json } => print_tenants(&nicd::tenants(&socket.path())?, *json),
        Manage::End { name, uid, socket, json } => {
            let uid = uid.unwrap_or_else(|| rustix::process::geteuid().as_raw());
            nicd::end(&socket.path(), uid, name)?;
            if *json {
                print::line(json!({ "uid": uid, "tenant": name, "ended": true }));
            }
        }
    }
    Ok(())
}

/// Prints the tenants as a table, or as JSON objects, one on each line.
pub(crate) fn print_tenants(tenants: &[TenantFacts], as_json: bool) {
    if as_json {
        for tenant in tenants {
            let TenantFacts { uid, name, attached, regions, queues, pairs, bytes, rma_slots, rma_regions } =
                tenant;
            print::line(json!({
                "uid": uid, "tenant": name, "attached": attached,
                "regions": regions, "queues": queues, "pairs": pairs, "bytes": bytes,
                "rma_slots": rma_slots, "rma_regions": rma_regions,
            }));
        }
        return;
    }
    let rows = tenants.iter().map(|tenant| {
        let attached = if tenant.attached { "attached" } else { "kept" };
        let TenantFacts { regions, queues, pairs, rma_slots, rma_regions, .. } = *tenant;
        let numbers = [regions, queues, pairs, rma_slots, rma_regions].map(|number| number.to_string());
        let [regions, queues, pairs, rma_slots, rma_regions] = numbers;
        [
            tenant.uid.to_string(),
            tenant.name.clone(),
            attached.to_owned(),
            regions,
            queues,
            pairs,
            rma_slots,
            rma_regions,
            tenant.bytes.to_string(),
        ]
    });
    let head = [
        "uid",
        "tenant",
        "program",
        "regions",
        "completion queues",
        "queue pairs",
        "command slots",
        "regions of 1RMA",
        "bytes",
    ];
    print_table(head, rows);
}
