//! The part of `remora doctor` about the daemon: the address that it shares, and the NIC that it lends.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use remora_broker::client::{self, ClientError, Options, Report, report};
use remora_options::device::LentArgs;
use remora_verbs::doctor::{Finding, Verdict};
use remora_verbs::nicd::{self, TenantFacts};

/// Adds findings about the broker of `address`, its GIDs and its QP number ranges. A UDP port that this
/// broker occupies is reported as good.
pub(crate) fn examine(address: SocketAddr, findings: &mut Vec<Finding>) {
    let ip = address.ip();
    let of_broker = match report(address, &Options::from_environment()) {
        Ok(report) => {
            let shared = report.broker.bound > 0;
            let port = findings.iter_mut().find(|finding| finding.what == "UDP port 4791").filter(|_| shared);
            if let Some(port) = port {
                let text = format!("shared by the broker of {ip}");
                *port = Finding { verdict: Verdict::Good, found: text, mend: "", ..port.clone() };
            }
            of_report(&report)
        }
        Err(ClientError::None(_)) => vec![Finding {
            what: "broker",
            verdict: Verdict::Good,
            found: format!("none for {ip}: a program starts one"),
            mend: "",
        }],
        Err(error) => vec![Finding {
            what: "broker",
            verdict: Verdict::Limited,
            found: error.to_string(),
            mend: "see the message",
        }],
    };
    findings.extend(of_broker);
    findings.extend(lent_nic(address));
}

/// Findings about the NIC that the daemon of `address` lends, or else the daemon at the default socket: what
/// each user keeps on it. Empty without such a daemon.
fn lent_nic(address: SocketAddr) -> Vec<Finding> {
    let good = |what, found| Finding { what, verdict: Verdict::Good, found, mend: "" };
    let mut sockets = [client::socket_name(address), LentArgs::default_socket()].into_iter();
    let Some((path, tenants)) = sockets.find_map(|path| Some((path.clone(), nicd::tenants(&path).ok()?)))
    else {
        return Vec::new();
    };
    let mut users: BTreeMap<u32, Vec<TenantFacts>> = BTreeMap::new();
    let lent = good("lent NIC", format!("lent at {}; tenants: {}", path.display(), tenants.len()));
    for tenant in tenants {
        users.entry(tenant.uid).or_default().push(tenant);
    }
    let of_user = |(uid, tenants): (&u32, &Vec<TenantFacts>)| {
        let kept = tenants.iter().filter(|tenant| !tenant.attached).count();
        let pairs: usize = tenants.iter().map(|tenant| tenant.pairs).sum();
        let bytes: u64 = tenants.iter().map(|tenant| tenant.bytes).sum();
        let count = tenants.len();
        good(
            "NIC tenants",
            format!(
                "user {uid}: tenants: {count} ({kept} without a program), queue pairs: {pairs}, bytes: {bytes}"
            ),
        )
    };
    std::iter::once(lent).chain(users.iter().map(of_user)).collect()
}

fn of_report(report: &Report) -> Vec<Finding> {
    let broker = &report.broker;
    let tally = broker.tally;
    let manner = match (broker.alone, broker.relays) {
        (true, _) => "a thread of the one program that has the address",
        (false, true) => "the kernel cannot steer, so the broker relays all frames",
        (false, false) => "the kernel steers",
    };
    let text = format!(
        "process {} of user {} shares {}; {} of {} QPN ranges lent ({} taken back); {manner}; {} frames strayed, {} lost",
        broker.pid,
        broker.uid,
        broker.address.ip(),
        broker.programs,
        remora_broker::PROGRAMS,
        tally.taken_back,
        tally.strays,
        tally.overflowed,
    );
    let (verdict, mend) = match broker.relays {
        true => {
            (Verdict::Limited, "a kernel with SO_ATTACH_REUSEPORT_CBPF steers by itself, many times as fast")
        }
        false => (Verdict::Good, ""),
    };
    let ranges = report.programs.iter().map(|program| Finding {
        what: "QPN range",
        verdict: Verdict::Good,
        found: format!(
            "{}: process {} ({}) of user {}, links to {} neighbours",
            program.range, program.pid, program.name, program.uid, program.links
        ),
        mend: "",
    });
    let gids = report.gids().map(|(index, gid)| Finding {
        what: "GID",
        verdict: Verdict::Good,
        found: format!("{index}: {gid}, RoCE v2"),
        mend: "",
    });
    std::iter::once(Finding { what: "broker", verdict, found: text, mend })
        .chain(gids)
        .chain(ranges)
        .collect()
}
