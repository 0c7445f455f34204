//! `remora bench rma`: encrypted one-sided operations, compared with RC on the same port and with the cipher
//! alone in interleaved rounds; the software above a NIC that answers at once; and the interruption of reads
//! by a key change.
//!
//! | file | contents |
//! |---|---|
//! | `args.rs`, `bench.rs` | the arguments, and the state of a run |
//! | `client.rs` | the bench's end of RC and of 1RMA |
//! | `place.rs` | constants and formats that the bench shares with its peer |
//! | `crypto.rs` | the cipher alone, compared with OpenSSL |
//! | `single.rs` | latency and rates of single operations |
//! | `cold.rs` | more initiators than a server caches keys of |
//! | `beside.rs` | short reads during a long transfer |
//! | `incast.rs` | reads from many NICs at the same time |
//! | `executor.rs` | the software above the NIC |
//! | `rekey.rs`, `rotate.rs` | key changes, as seen by a reader |
//! | `lent.rs`, `tenants.rs` | the NIC of a daemon, and programs that share it |

mod args;
mod bench;
mod beside;
mod client;
mod cold;
mod crypto;
mod executor;
mod incast;
mod lent;
pub(crate) mod place;
mod rekey;
mod rotate;
mod single;
mod tenants;

use anyhow::{Result, ensure};

use self::client::Client;
use crate::testbed::Testbed;
use crate::testbed::pair::Peer;
use crate::{PortName, Report, Row};
pub(crate) use args::Args;
use bench::{Bench, Part, path};
use remora_options::cores::{pin, two_cores};
use remora_options::progress;

/// The cases that use only port `udp`.
const OF_UDP: [&str; 4] = [cold::CASE, incast::CASE, rekey::CASE, rekey::OTHERS];

impl Args {
    /// Runs the measurements, adds a row for each result to the report, and draws the plots.
    ///
    /// # Errors
    /// A process does not start or ends early, an answer is wrong, or a file cannot be written.
    pub(crate) fn measure(&self, report: &mut Report) -> Result<()> {
        ensure!(
            self.port != Some(PortName::Xdp),
            "port xdp needs a network between its NICs: choose shm or udp"
        );
        let cores = two_cores(&self.cores)?;
        let mut bench = Bench { args: self, report, bar: progress::bar(0, "rounds")?, cores };
        bench.software()?;
        if bench.wants_any_port() {
            // The peer has a NIC on each port.
            let peer = Peer::start(&Testbed::loopback(PortName::Udp, cores))?;
            for port in [PortName::Shm, PortName::Udp] {
                bench.over(port, &peer)?;
            }
        }
        tenants::run(&mut bench)?;
        rotate::run(&mut bench)?;
        bench.bar.finish_and_clear();
        ensure!(
            !bench.report.is_empty(),
            "no case contains {}: without --only all are run and named",
            self.only.as_deref().unwrap_or_default()
        );
        Ok(())
    }
}

impl Bench<'_> {
    /// Returns whether `--only` and `--port` select this case.
    fn wants(&self, case: &str) -> bool {
        let port = case.split('/').next().unwrap_or_default();
        let other = |only: PortName| ["shm", "udp"].contains(&port) && port != only.name();
        !self.args.port.is_some_and(other)
            && self.args.only.as_ref().is_none_or(|only| case.contains(only.as_str()))
    }

    /// Returns whether a selected case needs a peer process.
    fn wants_any_port(&self) -> bool {
        [PortName::Shm, PortName::Udp].into_iter().any(|port| self.wants_port(port))
    }

    fn wants_port(&self, port: PortName) -> bool {
        let of_both = single::CASES.iter().chain([&beside::CASE]);
        let of_udp: &[&str] = if port == PortName::Udp { &OF_UDP } else { &[] };
        of_both.chain(of_udp).any(|case| self.wants(&path(port, case)))
    }

    /// Returns the fraction of a round to run.
    fn part(&self) -> Part {
        Part(self.args.part)
    }

    /// Measures the cases that need no other process.
    fn software(&mut self) -> Result<()> {
        // This process uses one core, as in the other cases.
        pin(self.cores[0])?;
        self.crypto()?;
        executor::run(self)
    }

    fn over(&mut self, port: PortName, peer: &Peer) -> Result<()> {
        if !self.wants_port(port) {
            return Ok(());
        }
        let mut client = Client::open(peer, port, self.part())?;
        single::run(self, peer, &mut client)?;
        beside::run(self, peer, &mut client)?;
        if port == PortName::Udp {
            cold::run(self, peer, &client)?;
            incast::run(self, peer)?;
            rekey::run(self, peer, &mut client)?;
        }
        Ok(())
    }

    /// Compares the cipher with OpenSSL's, to show that the cipher is not an easy baseline.
    fn crypto(&mut self) -> Result<()> {
        for len in [64, 4096] {
            let case = format!("crypto/seal/{len}");
            let mut installed = true;
            let rounds = self.rounds(&case, || {
                let own = len as f64 * 1e9 / crypto::seal(13, len)?;
                let theirs = crypto::openssl(len)?;
                installed &= theirs.is_some();
                Ok([own, theirs.unwrap_or(f64::NAN)])
            })?;
            let Some([own, theirs]) = rounds else { continue };
            let row = Row::new("rma", case, "bandwidth", "B/s", &own);
            self.report.add(match installed {
                // OpenSSL must be within 15 %, because a slow cipher would make 1RMA look good.
                true => row.against("openssl-speed", &theirs).at_least(0.85),
                false => row,
            });
        }
        Ok(())
    }

    /// Runs `round` for the number of rounds and shows the progress. Returns `None` if the case is not
    /// selected.
    fn rounds<const N: usize>(
        &mut self,
        case: &str,
        mut round: impl FnMut() -> Result<[f64; N]>,
    ) -> Result<Option<[Vec<f64>; N]>> {
        if !self.wants(case) {
            return Ok(None);
        }
        self.bar.set_message(case.to_owned());
        self.bar.set_length(u64::from(self.args.rounds));
        let mut all: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
        for number in 0..self.args.rounds {
            self.bar.set_position(u64::from(number));
            for (values, value) in all.iter_mut().zip(round()?) {
                values.push(value);
            }
        }
        Ok(Some(all))
    }

    /// Adds a row to the report.
    fn add(&mut self, row: Row) {
        self.report.add(row);
    }
}
