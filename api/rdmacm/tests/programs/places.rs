//! Programs run by `remora run` without rights and hardware: as an unprivileged user, in a user and network
//! namespace with only the loopback interface, on two hosts, and where the kernel does not steer datagrams.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};

use remora_broker::client::{self, Options, Start};
use remora_broker::{Broker, Options as BrokerOptions};
use remora_netns::Namespace;

use crate::connections::CmServer;
use crate::gids::hosts;
use crate::library::{address, folder, remora};
use crate::seccomp;

/// Time limit of a program in seconds.
const LIMIT: &str = "60";
/// Starts a program as a user that owns nothing.
const NOBODY: [&str; 6] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--"];
/// Starts a program without capabilities.
const NO_CAPABILITIES: [&str; 4] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"];

/// The words of the server and of its client, and a text that the client prints. TCP stands for the server's
/// address for the ping-pongs, and ADDRESS for the address of its device.
const ROWS: [[&str; 3]; 3] = [
    ["ibv_rc_pingpong -g 0 -n 200", "ibv_rc_pingpong -g 0 -n 200 TCP", "200 iters in"],
    ["ibv_ud_pingpong -g 0 -n 200 -s 1000", "ibv_ud_pingpong -g 0 -n 200 -s 1000 TCP", "200 iters in"],
    ["rping -s -a ADDRESS", "rping -c -v -C 20 -a ADDRESS", "ping data: rdma-ping-19"],
];

/// The environment of a program.
struct Place {
    /// The words that start a program in this environment.
    before: Vec<String>,
    /// The address of the program's device.
    address: String,
    /// `auto`, or `udp` for no links to neighbours.
    port: &'static str,
    /// True if the kernel refuses to steer datagrams.
    refuses: bool,
}

impl Place {
    fn new(before: &[&str], address: &str) -> Place {
        let before = before.iter().map(|word| (*word).to_owned()).collect();
        Place { before, address: address.to_owned(), port: "auto", refuses: false }
    }

    /// A command that starts a program by `remora run` in this environment.
    fn run(&self, line: &str) -> Command {
        let remora = remora();
        let limit = ["timeout", "--signal=KILL", LIMIT];
        let run = [remora.to_str().unwrap(), "run", "--port", self.port, "--address", &self.address, "--"];
        let before = self.before.iter().map(String::as_str);
        let mut words = before.chain(run).chain(limit).chain(line.split_whitespace());
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env("REMORA_LIBRARY_PATH", folder());
        if self.refuses {
            seccomp::refuses_steering(&mut command);
        }
        command
    }

    /// Runs the rows with servers in this environment, and clients in `there`.
    fn serves(&self, tcp: &str, there: &Place) {
        for [server, client, prints] in ROWS {
            let words = |line: &str| line.replace("TCP", tcp).replace("ADDRESS", &self.address);
            // ibverbs-utils listen at every address, where other tests may use the port.
            let port = remora_netns::free_port().unwrap();
            let with_port = |line: &str| format!("{line} -p {port}");
            let mut serves = CmServer::start(self.run(&with_port(&words(server))));
            let printed = serves.serves(there.run(&with_port(&words(client))));
            assert!(printed.contains(prints), "{client}: {printed}");
            serves.succeeds();
        }
    }
}

/// Returns the words that run a program as an unprivileged user; empty if this user is one.
fn as_nobody() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() { &NOBODY } else { &[] }
}

#[test]
fn an_unprivileged_user_runs_programs_of_rc_ud_and_rdma_cm() {
    let here = Place::new(as_nobody(), &address());
    here.serves(&here.address, &here);
}

/// A user and network namespace of an unprivileged user, which is removed when this value is dropped.
struct UserNamespace {
    holder: Child,
    _input: ChildStdin,
}

impl UserNamespace {
    /// Creates a namespace in which only the loopback interface is up. The machine may forbid that, which is
    /// the error.
    fn new() -> Result<UserNamespace, String> {
        let script = "ip link set lo up && echo up && exec cat";
        let words = [as_nobody(), &["unshare", "-Urn", "sh", "-c", script]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().map_err(|error| error.to_string())?;
        let input = holder.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line == "up\n" {
            return Ok(UserNamespace { holder, _input: input });
        }
        drop(input);
        let output = holder.wait_with_output().unwrap();
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Returns the words that start a program without capabilities in the namespace.
    fn enter(&self) -> Vec<String> {
        let target = format!("--target={}", self.holder.id());
        let nsenter = ["nsenter", "--user", "--net", &target];
        nsenter.into_iter().chain(NO_CAPABILITIES).map(str::to_owned).collect()
    }
}

impl Drop for UserNamespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn programs_run_without_capabilities_in_a_fresh_namespace_where_only_loopback_is_up() {
    let space = remora_netns::require!(UserNamespace::new());
    for address in ["127.0.0.1", "::1"] {
        let here = Place { before: space.enter(), ..Place::new(&[], address) };
        here.serves("127.0.0.1", &here);
    }
}

#[test]
fn programs_of_two_hosts_with_a_broker_each_run_over_ipv4_and_ipv6() {
    let [near, far] = remora_netns::require!(hosts());
    let place = |host: &Namespace, address: &str| {
        let words = [&host.exec()[..], as_nobody()].concat();
        Place::new(&words, address)
    };
    for [here, there] in [["10.93.0.1", "10.93.0.2"], ["fd93::1", "fd93::2"]] {
        place(&near, here).serves("10.93.0.1", &place(&far, there));
    }
}

#[test]
fn where_the_kernel_steers_no_datagrams_the_broker_relays_them() {
    for port in ["auto", "udp"] {
        let here = Place { port, refuses: true, ..Place::new(&[], &address()) };
        here.serves(&here.address, &here);
        let never = Options { start: Start::Never, ..Options::default() };
        let socket_address = SocketAddr::new(here.address.parse().unwrap(), 0);
        let tally = client::report(socket_address, &never).unwrap().broker.tally;
        // Links carry most frames, if there are links.
        assert!(tally.relayed > if port == "udp" { 400 } else { 0 }, "{port}: {tally:?}");
    }
}

#[test]
fn programs_of_two_users_that_a_broker_admits_run_on_one_address_with_links_and_relayed() {
    remora_netns::require!(rustix::process::geteuid().is_root(), "only root can run programs of two users");
    for port in ["auto", "udp"] {
        let address = address();
        let socket_address = SocketAddr::new(address.parse().unwrap(), 0);
        let options = BrokerOptions { allow: vec![61_001, 61_002], ..BrokerOptions::default() };
        let _broker = Broker::open(socket_address, &options).unwrap();
        let of_user = |reuid: &str, regid: &str| {
            let words = ["setpriv", reuid, regid, "--clear-groups", "--no-new-privs", "--"];
            Place { port, ..Place::new(&words, &address) }
        };
        let one = of_user("--reuid=61001", "--regid=61001");
        one.serves(&address, &of_user("--reuid=61002", "--regid=61002"));
        let never = Options { start: Start::Never, ..Options::default() };
        let tally = client::report(socket_address, &never).unwrap().broker.tally;
        assert!(tally.relayed > if port == "udp" { 400 } else { 0 }, "{port}: {tally:?}");
        assert_eq!((tally.strays, tally.overflowed), (0, 0), "{port}: {tally:?}");
    }
}
