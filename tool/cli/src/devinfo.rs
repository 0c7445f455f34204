//! `remora devinfo`: prints the attributes of the device, named as in `ibv_devinfo`.

use anyhow::Result;
use clap::Parser;

use remora_broker::client::{Options, report};
use remora_options::device::{LentArgs, OwnAddress};
use remora_options::print;
use remora_options::print_table;
use remora_verbs::doctor::icrc_check;

/// Arguments of `remora devinfo`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora devinfo\n  remora devinfo --port udp --address 10.0.0.1 --json\n  remora devinfo --nicd /run/nic.sock\n  remora devinfo --port xdp --interface eth0"
)]
pub(crate) struct Args {
    #[command(flatten)]
    port: LentArgs,
    /// Print the attributes as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Returns the broker of the address, its GIDs, and the QP number ranges of its programs. Empty if no
/// broker answers.
fn sharing(own: Option<OwnAddress>) -> Vec<(&'static str, String)> {
    let address = own.unwrap_or_else(OwnAddress::loopback).at(0);
    let Ok(report) = report(address, &Options::from_environment()) else { return Vec::new() };
    let broker = &report.broker;
    let ranges: Vec<String> =
        report.programs.iter().map(|program| format!("{} {}", program.range, program.name)).collect();
    let gids: Vec<String> = report.gids().map(|(index, gid)| format!("{index} {gid}")).collect();
    vec![
        ("broker", format!("process {} of user {} at {}", broker.pid, broker.uid, broker.address.ip())),
        ("gids", gids.join(", ")),
        ("qpn_ranges", ranges.join(", ")),
    ]
}

/// Runs `remora devinfo`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let context = args.port.open()?;
    let port = context.port();
    let nic = remora_nic::Config::default();
    let memory = remora_verbs::MemoryConfig::default();
    let address = std::net::IpAddr::from(port.endpoint.address);
    let mut facts: Vec<(&str, String)> = vec![
        ("device", "remora0".to_owned()),
        ("transport", "RoCE v2".to_owned()),
        ("port", port.kind.to_string()),
        ("port_manner", port.manner.to_owned()),
        ("icrc", icrc_check(port.kind, port.endpoint.address.is_ipv4()).to_owned()),
        ("state", "ACTIVE".to_owned()),
        ("gid", address.to_string()),
        ("udp_port", port.endpoint.udp_port.to_string()),
        ("active_mtu", port.path_mtu.to_string()),
        ("engines", context.engines().to_string()),
        ("max_qp", nic.max_qps.to_string()),
        ("max_cq", nic.max_cqs.to_string()),
        ("max_mr", memory.max_regions.to_string()),
        ("max_pd", memory.max_pds.to_string()),
        ("max_sge", remora_nic::wqe::MAX_SGE.to_string()),
        ("max_inline_data", remora_nic::wqe::MAX_INLINE.to_string()),
        ("max_qp_wr", remora_nic::MAX_RING_SLOTS.to_string()),
        ("on_nic_memory", format!("{} bytes", memory.on_nic_bytes)),
        ("services", "RC".to_owned()),
        ("atomics", "8 bytes, against every access of this host's CPUs".to_owned()),
    ];
    facts.extend(sharing(args.port.port.address));
    facts.retain(|(_, value)| !value.is_empty());
    if args.json {
        let object: serde_json::Map<String, serde_json::Value> =
            facts.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        print::line(serde_json::to_string(&object)?);
    } else {
        print_table(["attribute", "value"], facts.into_iter().map(|(name, value)| [name.to_owned(), value]));
    }
    Ok(())
}
