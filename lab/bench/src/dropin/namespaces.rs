//! Ping-pongs of UCX and libfabric between two network namespaces, over the kernel's TCP and over Remora's
//! libraries on UDP sockets.

use anyhow::Result;

use super::Bench;
use super::run_command::RunCommand;
use crate::stack::{Carrier, Stack};
use crate::testbed::Testbed;
use crate::{PortName, Row};

/// The length of a message in bytes.
const LEN: usize = 64;
/// Target ratio of the latency on Remora to the latency over TCP.
const OF_TCP: f64 = 0.5;
/// First TCP port of the programs in the namespaces, which are otherwise unused.
const FIRST_PORT: u16 = 21_000;

/// Returns the path of a library's case.
fn path(stack: Stack) -> String {
    format!("veth/{}/{LEN}", stack.short_name())
}

/// Measures the selected programs that are installed. Prints a warning if no namespaces can be created.
pub(crate) fn run(bench: &mut Bench<'_>, run: &RunCommand) -> Result<()> {
    let wanted = |stack: &Stack| bench.args.wants(PortName::Udp, &path(*stack));
    let stacks: Vec<Stack> = Stack::installed().into_iter().filter(wanted).collect();
    if stacks.is_empty() {
        return Ok(());
    }
    let asked = bench.args.only.as_ref().is_some_and(|only| only.contains("veth"));
    let Some(testbed) = Testbed::open(PortName::Xdp, bench.cores, 0, asked)? else { return Ok(()) };
    let mut ports = FIRST_PORT..;
    for stack in stacks {
        let mut took: [Vec<f64>; 2] = Default::default();
        bench.rounds(&path(stack), |_| {
            for (carrier, took) in [Carrier::Tcp, Carrier::Verbs(run)].into_iter().zip(&mut took) {
                let port = ports.next().unwrap_or(FIRST_PORT);
                // A failure invalidates only its own round.
                match stack.round_trip(&testbed, carrier, port, LEN) {
                    Ok(round_trip) => took.push(round_trip),
                    Err(error) => tracing::warn!("{} is left out of a round: {error:#}", stack.short_name()),
                }
            }
            Ok(())
        })?;
        rows(stack, &took).into_iter().for_each(|row| bench.report.add(row));
    }
    Ok(())
}

/// Returns the rows of a library: over UDP, with a bound if the rounds over TCP exist, and over TCP.
fn rows(stack: Stack, [tcp, udp]: &[Vec<f64>; 2]) -> Vec<Row> {
    let row = |case: String, took: &[f64]| Row::new("dropin", case, "latency_p50", "ns", took);
    let mut rows = Vec::new();
    if !udp.is_empty() {
        let own = row(path(stack), udp);
        rows.push(if tcp.is_empty() { own } else { own.against(stack.name(), tcp).within(OF_TCP) });
    }
    if !tcp.is_empty() {
        rows.push(row(format!("{}/tcp", path(stack)), tcp));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_judged_beside_its_own_tcp_if_that_was_measured() {
        let rows = |tcp: &[f64], udp: &[f64]| super::rows(Stack::Ucx, &[tcp.to_vec(), udp.to_vec()]);
        let both = rows(&[100.0], &[51.0]);
        assert_eq!((both.len(), both[0].holds, both[0].ratio), (2, Some(false), Some(0.51)));
        assert_eq!(both[0].baseline.as_deref(), Some("ucx-tcp-pingpong"));
        assert_eq!(rows(&[], &[51.0])[0].holds, None);
        assert_eq!(rows(&[100.0], &[]).len(), 1, "TCP's own");
        assert!(rows(&[], &[]).is_empty());
    }
}
