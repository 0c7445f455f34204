//! Eight pairs of programs at the same time on one address and UDP port, while one process after the other
//! is killed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use remora_broker::client::{self, Options, Report, Start};
use remora_netns::Process;

use crate::connections::CmServer;
use crate::library::{address, done, program_at, remora, unlimited_at};

/// A program as server and client. In its words, ADDRESS stands for the address, and @ for a port that no
/// other pair has.
struct Pair {
    /// The words of both sides.
    words: &'static str,
    server: &'static str,
    client: &'static str,
    /// Words for a run that ends by itself, and for a run that continues until a side is killed.
    finite: &'static str,
    endless: &'static str,
    /// A word of the client's output which shows that both sides are at work.
    works: &'static str,
    /// True if a side notices that the other one has died.
    notices: bool,
}

const PAIRS: [Pair; 4] = [
    Pair {
        words: "ib_write_bw -x 0 -F -s 4096 -p @",
        server: "",
        client: "127.0.0.1",
        finite: "-n 300",
        endless: "-D 100",
        works: "remote address",
        notices: true,
    },
    Pair {
        words: "ib_send_lat -x 0 -F -s 64 -p @",
        server: "",
        client: "127.0.0.1",
        finite: "-n 300",
        endless: "-n 4000000",
        works: "remote address",
        notices: true,
    },
    Pair {
        words: "ibv_ud_pingpong -g 0 -s 1024 -p @",
        server: "",
        client: "127.0.0.1",
        finite: "-n 300",
        endless: "-n 100000000",
        works: "remote address",
        notices: false,
    },
    Pair {
        words: "rping -p @ -a ADDRESS",
        server: "-s",
        client: "-c -v",
        finite: "-C 30",
        endless: "",
        works: "ping data",
        notices: true,
    },
];
/// The number of pairs that run at the same time: each kind twice.
const SLOTS: usize = 8;

/// The environment of the programs: a shared address, and a port.
struct Place<'a> {
    address: &'a str,
    port: &'a str,
}

impl Place<'_> {
    fn words(&self, pair: &Pair, side: &str, options: &str, port: usize) -> Vec<String> {
        let line = format!("{} {options} {side}", pair.words);
        let line = line.replace("ADDRESS", self.address).replace('@', &port.to_string());
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn on_port(&self, mut command: Command) -> Command {
        command.env("REMORA_PORT", self.port);
        command
    }

    /// Runs a pair to its end.
    fn finishes(&self, pair: &Pair, port: usize) {
        let side = |side| {
            let words = self.words(pair, side, pair.finite, port);
            self.on_port(program_at(self.address, &words.iter().map(String::as_str).collect::<Vec<_>>()))
        };
        let mut server = CmServer::start(side(pair.server));
        server.serves(side(pair.client));
        server.succeeds();
    }

    /// Starts one side of an endless run, with its output line-buffered.
    fn starts(&self, pair: &Pair, side: &str, port: usize) -> Process {
        let words = self.words(pair, side, pair.endless, port);
        let words: Vec<&str> =
            ["stdbuf", "-oL"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let mut command = self.on_port(unlimited_at(self.address, &words));
        Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))
    }

    /// Kills one side of a pair at work. The other side ends by itself if it can notice that, and both ranges
    /// are given back.
    fn loses_one(&self, pair: &Pair, kills_client: bool, port: usize) {
        let mut server = self.starts(pair, pair.server, port);
        // A client that finds no server ends, and is started once more.
        let mut client = loop {
            let mut client = self.starts(pair, pair.client, port);
            let output = BufReader::new(client.stdout.take().unwrap());
            if drains_after(output, pair.works) {
                break client;
            }
            assert!(server.try_wait().unwrap().is_none(), "{}: the server has ended", pair.words);
        };
        let both = [server.id(), client.id()];
        let findings = doctor(self.address);
        for (side, process) in [("server", &mut server), ("client", &mut client)] {
            let id = process.id();
            let ended = process.try_wait().unwrap();
            assert!(
                findings.contains(&format!(": process {id} (")),
                "{}: the {side}, {id}, ended: {ended:?}\n{findings}",
                pair.words
            );
        }
        let (victim, other) =
            if kills_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
        victim.kill();
        if !pair.notices {
            other.kill();
        }
        other.wait().unwrap();
        until(self.address, |report| report.programs.iter().all(|program| !both.contains(&program.pid)));
    }
}

/// Ends the pairs of all slots if the thread of one panics.
struct EndsAll<'a> {
    died: &'a AtomicUsize,
    deaths: usize,
}

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.died.store(self.deaths, Ordering::SeqCst);
        }
    }
}

/// Reads until a line contains this word; a thread then reads the rest. Returns false if no line does.
fn drains_after(mut output: BufReader<std::process::ChildStdout>, word: &str) -> bool {
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        if output.read_line(&mut line).unwrap() == 0 {
            return false;
        }
    }
    thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    true
}

fn doctor(address: &str) -> String {
    // The exit status concerns the whole machine, and is not checked.
    let output = Command::new(remora()).args(["doctor", "--address", address]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn until(address: &str, holds: impl Fn(&Report) -> bool) -> Report {
    let never = Options { start: Start::Never, ..Options::default() };
    loop {
        let report = client::report(SocketAddr::new(address.parse().unwrap(), 0), &never).unwrap();
        if holds(&report) {
            return report;
        }
        thread::yield_now();
    }
}

/// The numbers of descriptors, threads and shared memory mappings of a process.
fn belongings(pid: u32) -> [usize; 3] {
    let process = Path::new("/proc").join(pid.to_string());
    let count = |folder: &str| std::fs::read_dir(process.join(folder)).unwrap().count();
    let maps = std::fs::read_to_string(process.join("maps")).unwrap();
    [count("fd"), count("task"), maps.matches("/memfd:").count()]
}

/// The lines of the kernel's tables that show a socket of the address.
fn sockets(address: &str) -> String {
    let [a, b, c, d] = address.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let udp = format!("{d:02X}{c:02X}{b:02X}{a:02X}:12B7");
    let tables = ["udp", "unix"].map(|table| std::fs::read_to_string(format!("/proc/net/{table}")).unwrap());
    let lines = tables.iter().flat_map(|table| table.lines());
    let of_broker = |line: &&str| line.contains(&udp) || line.contains(&format!("remora-broker/{address}:"));
    lines.filter(of_broker).collect::<Vec<_>>().join("\n")
}

/// Starts the address's broker, and waits until it can be found.
fn broker(address: &str) -> Process {
    let words = ["broker", "--linger", "3600", "--address", address];
    let mut broker = Process::start(Command::new(remora()).args(words).stderr(Stdio::null()));
    while sockets(address).is_empty() {
        assert!(broker.try_wait().unwrap().is_none(), "the broker has ended");
        thread::yield_now();
    }
    broker
}

fn eight_pairs_outlive_the_dead(port: &str) {
    // One process of each kind is killed; with `REMORA_WHOLE`, each process of all pairs.
    let deaths = if std::env::var_os("REMORA_WHOLE").is_some() { 2 * SLOTS } else { PAIRS.len() };
    let address = address();
    let mut broker = broker(&address);
    let place = &Place { address: &address, port };
    // The first program makes the broker bind its sockets, which stay.
    place.finishes(&PAIRS[3], 7000);
    until(&address, |report| report.programs.is_empty());
    let before = belongings(broker.id());
    let died = &AtomicUsize::new(0);
    thread::scope(|scope| {
        for slot in 0..SLOTS {
            scope.spawn(move || {
                let _end = EndsAll { died, deaths };
                let pair = &PAIRS[slot % PAIRS.len()];
                for run in 0.. {
                    let tcp = remora_netns::free_port().unwrap().into();
                    place.finishes(pair, tcp);
                    let turn = died.load(Ordering::SeqCst);
                    if turn < deaths && turn % SLOTS == slot {
                        place.loses_one(pair, (turn + turn / SLOTS).is_multiple_of(2), tcp);
                        died.fetch_max(turn + 1, Ordering::SeqCst);
                    } else if turn == deaths && run > 0 {
                        break;
                    }
                }
            });
        }
    });
    let tally = until(&address, |report| report.programs.is_empty()).broker.tally;
    assert_eq!(tally.lent, tally.taken_back, "{tally:?}");
    assert_eq!((tally.strays, tally.forwarded, tally.relayed, tally.overflowed), (0, 0, 0, 0), "{tally:?}");
    assert!(tally.lent >= 2 * (SLOTS + deaths) as u64 && (tally.linked > 0) == (port == "auto"), "{tally:?}");
    let findings = doctor(&address);
    assert!(
        findings.contains(&format!("({} taken back)", tally.lent)) && !findings.contains("QPN range "),
        "{findings}"
    );
    // Descriptors of the last programs are closed when the broker next handles an event.
    while belongings(broker.id()).iter().zip(before).any(|(now, before)| *now > before) {
        thread::yield_now();
    }
    done(Command::new("kill").arg(broker.id().to_string()));
    assert!(broker.wait().unwrap().success());
    assert_eq!(sockets(&address), "", "sockets that the broker has left behind");
}

#[test]
fn eight_pairs_go_on_over_udp_while_others_are_killed_and_started_again_and_nothing_is_left() {
    eight_pairs_outlive_the_dead("udp");
}

#[test]
fn eight_pairs_go_on_by_links_while_others_are_killed_and_started_again_and_nothing_is_left() {
    eight_pairs_outlive_the_dead("auto");
}
