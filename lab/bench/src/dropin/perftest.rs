//! The programs of perftest on Remora's libraries: a server and a client, each on its core, and the client's
//! output.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::run_command::RunCommand;
use crate::PortName;
use crate::stack::{is_installed, reason};
use crate::testbed::process::Process;

/// The maximum run time of a program in seconds.
const TIMEOUT: &str = "60";

/// Runner of perftest programs. They run on the loopback interface, at an address that no other program uses.
pub(crate) struct Perftest {
    run: RunCommand,
    cores: [usize; 2],
    address: IpAddr,
}

/// A column of perftest's table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// The median latency: the round trip of a READ, or half the round trip of a SEND.
    Typical,
    /// Bytes per second from the first post to the last completion.
    Bandwidth,
    /// Messages per second from the first post to the last completion.
    Rate,
}

impl Column {
    /// Returns the head of the column in the output with `--report_gbits`.
    fn head(self) -> &'static str {
        match self {
            Column::Typical => "t_typical[usec]",
            Column::Bandwidth => "BW average[Gb/sec]",
            Column::Rate => "MsgRate[Mpps]",
        }
    }

    /// Returns the factor from the column's unit to nanoseconds, bytes per second or messages per second.
    fn scale(self) -> f64 {
        match self {
            Column::Typical => 1e3,
            Column::Bandwidth => 1e9 / 8.0,
            Column::Rate => 1e6,
        }
    }

    /// Returns the value of the column in nanoseconds, bytes per second or messages per second.
    fn value(self, text: &str) -> Option<f64> {
        let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("#bytes"));
        let heads = heads(lines.next()?);
        let index = heads.iter().position(|head| head == self.head())?;
        let value: f64 = lines.next()?.split_whitespace().nth(index)?.parse().ok()?;
        (value > 0.0).then_some(value * self.scale())
    }
}

/// Returns the heads of a table's columns. A single blank either separates two heads or is part of one.
fn heads(line: &str) -> Vec<String> {
    let mut heads: Vec<String> = Vec::new();
    let mut goes_on = false;
    for word in line.split_whitespace() {
        match heads.last_mut().filter(|_| goes_on) {
            Some(head) => *head += &format!(" {word}"),
            None => heads.push(word.to_owned()),
        }
        goes_on = word == "BW" || word.ends_with('%');
    }
    heads
}

impl Perftest {
    /// Creates a runner with these libraries, with the client on the first core and the server on the second.
    pub(crate) fn new(run: &RunCommand, cores: [usize; 2]) -> Perftest {
        let [high, low] = [std::process::id() / 250, std::process::id()].map(|part| (part % 250) as u8 + 2);
        Perftest { run: run.clone(), cores, address: Ipv4Addr::new(127, 84, high, low).into() }
    }

    /// Returns whether the program is installed, and prints how to install it if not.
    pub(crate) fn has(program: &str) -> bool {
        let there = is_installed(program);
        if !there {
            tracing::warn!(
                "{program} is not installed (package perftest, `make setup-bench`): its figures are left out"
            );
        }
        there
    }

    /// Runs a perftest program as server and client over a port, and returns the client's value of a column.
    /// The calling thread must run on the client's core.
    ///
    /// # Errors
    /// Fails if a program fails or does not print the column; the error holds the program's output.
    pub(crate) fn measure(
        &self,
        port: PortName,
        program: &str,
        words: &[String],
        column: Column,
    ) -> Result<f64> {
        let tcp = remora_netns::free_port()?;
        let [_, core] = self.cores;
        let server = self.command(port, program, words, tcp);
        let mut server =
            Process::start_server(core, server)?.with_context(|| format!("starting {program}"))?;
        server.wait_until_listening(tcp).with_context(|| format!("{program} as a server"))?;
        let mut client = self.command(port, program, words, tcp);
        let ended = client.arg(self.address.to_string()).output();
        let ended = ended.with_context(|| format!("running {program}"))?;
        ensure!(ended.status.success(), "{program} failed: {}", reason(&ended));
        server.end()?;
        let text = String::from_utf8_lossy(&ended.stdout);
        column.value(&text).with_context(|| format!("{program} prints no {}:\n{text}", column.head()))
    }

    fn command(&self, port: PortName, program: &str, words: &[String], tcp: u16) -> Command {
        let mut command = Command::new(self.run.program());
        self.run.complete(&mut command, port.name(), self.address);
        // -F: perftest prints no warning about the CPU frequency.
        command.args(["timeout", TIMEOUT, program, "-x", "0", "-F", "-p", &tcp.to_string()]).args(words);
        command.stdin(Stdio::null());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      1000          9.52           116.79       10.08     	       10.52       	2.27   		13.29   		116.79
---------------------------------------------------------------------------------------
";
    const BANDWIDTH: &str = "\
 Mtu             : 4096[B]
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      300              0.00              16.00   		   0.030517
";

    #[test]
    fn a_figure_is_found_by_the_head_of_its_column() {
        assert_eq!(Column::Typical.value(LATENCY), Some(10_080.0));
        assert_eq!(Column::Bandwidth.value(BANDWIDTH), Some(2e9));
        assert_eq!(Column::Rate.value(BANDWIDTH), Some(30_517.0));
        let heads = heads(LATENCY.lines().next().unwrap());
        assert_eq!((heads.len(), heads[7].as_str()), (9, "99% percentile[usec]"));
    }

    #[test]
    fn a_table_without_the_column_or_a_figure_gives_none() {
        for text in
            ["", "Couldn't connect", " #bytes #iterations", " #bytes #iterations t_typical[usec]\n64 5"]
        {
            assert_eq!(Column::Typical.value(text), None, "{text}");
        }
        assert_eq!(Column::Typical.value(BANDWIDTH), None);
        assert_eq!(Column::Rate.value(&BANDWIDTH.replace("0.030517", "0.000000")), None);
    }
}
