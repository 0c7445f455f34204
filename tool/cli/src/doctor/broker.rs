//! The part of `remora doctor` about the broker of an address.

use std::net::SocketAddr;

use remora_broker::client::{ClientError, Options, Report, report};
use remora_verbs::doctor::{Finding, Verdict};

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
