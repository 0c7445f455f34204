//! Verbs programs of Debian, one on Remora and one in the guest: each as the server of the other.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use remora_broker::client;
use remora_netns::or_skip;

use crate::capture::Capture;
use crate::guest::{Ended, Guest};
use crate::network::{GUEST, INTERFACE, Network, OWN};
use crate::{LIMIT, image, is_whole};

/// A program. In its words, `@` is the server's address, and `%` is this side's device and GID.
struct Row {
    program: &'static str,
    /// What the server's words have beside these, and the client's.
    server: &'static str,
    client: &'static str,
    /// It connects by the communication manager, and not over TCP.
    connects: bool,
}

const fn row(program: &'static str) -> Row {
    Row { program, server: "", client: "@", connects: false }
}

const fn connecting(program: &'static str, server: &'static str, client: &'static str) -> Row {
    Row { program, server, client, connects: true }
}

/// What each run of CI has.
const QUICK: [Row; 5] = [
    row("ibv_rc_pingpong -g % -n 100"),
    row("ib_write_bw -F -x % -s 65536 -n 20"),
    row("ib_read_bw -F -x % -s 65536 -n 20"),
    row("ib_atomic_lat -F -x % -n 20"),
    connecting("rping -a @ -C 20 -S 1000", "-s", "-c"),
];

/// Reliable services, which pass under loss, too.
const RELIABLE: [Row; 14] = [
    row("ibv_srq_pingpong -g % -n 100"),
    row("ibv_rc_pingpong -g % -n 50 -m 256 -e"),
    row("ib_write_bw -F -x % -s 1048576 -n 10"),
    row("ib_write_bw -F -x % -s 16384 -n 20 -q 4 -b"),
    row("ib_write_lat -F -x % -n 50"),
    row("ib_read_bw -F -x % -s 1048576 -n 5"),
    row("ib_read_lat -F -x % -s 4096 -n 50"),
    row("ib_send_bw -F -x % -s 65536 -n 50 -e"),
    row("ib_send_lat -F -x % -s 64 -n 50"),
    row("ib_atomic_bw -F -x % -n 50"),
    row("ib_atomic_lat -F -x % -n 50 -A CMP_AND_SWAP"),
    connecting("ucmatose", "", "-s @"),
    connecting("udaddy", "", "-s @"),
    connecting("ib_write_bw -R -F -s 65536 -n 20", "", "@"),
];

/// Services that wait for ever where a message is lost; those of UC lose one whose frames are out of order.
const UC: [Row; 2] = [row("ibv_uc_pingpong -g % -n 100"), row("ib_write_bw -F -x % -c UC -s 4096 -n 20")];
const UD: [Row; 2] =
    [row("ibv_ud_pingpong -g % -n 100 -s 1000"), row("ib_send_bw -F -x % -c UD -s 1024 -n 100")];

/// Where programs run, and how.
struct Bed<'a> {
    network: &'a Network,
    guest: &'a mut Guest,
    /// The port of `remora run`.
    port: &'a str,
    /// 0: IPv4. 1: IPv6.
    family: usize,
}

/// A program of ours that is gone with its value.
struct Running(Option<Child>);

impl Running {
    fn wait(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The folder of Remora's libraries.
fn libraries() -> PathBuf {
    PathBuf::from(
        std::env::var_os(client::LIBRARY_PATH).expect("`make interop` says where the libraries are"),
    )
}

impl Bed<'_> {
    /// A program's words on one side.
    fn words(&self, row: &Row, role: &str, server: &[&str; 2], device: &str) -> String {
        // Programs that do not connect by the manager find each other over TCP, by IPv4.
        let address = if row.connects { server[self.family] } else { server[0] };
        format!("{} {role}", row.program).replace('@', address).replace('%', device)
    }

    fn on_guest(&self, row: &Row, role: &str, server: &[&str; 2]) -> String {
        self.words(row, role, server, if self.family == 0 { "1 -d rxe0" } else { "2 -d rxe0" })
    }

    fn on_own(&self, row: &Row, role: &str, server: &[&str; 2]) -> Command {
        let remora = std::env::var_os(client::COMMAND).expect("`make interop` says where `remora` is");
        let mut command = self.network.host.command("timeout");
        command.args(["--signal=KILL", &LIMIT.as_secs().to_string()]).arg(remora);
        command.args(["run", "--port", self.port, "--address", OWN[self.family], "--"]);
        command.args(self.words(row, role, server, "0").split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Our client, the guest's server; the client comes again while a server that connects is not ready.
    fn own_asks(&mut self, row: &Row) {
        let server = self.guest.spawn(&self.on_guest(row, row.server, &GUEST));
        while !row.connects && self.guest.run("netstat -ltn | grep -q :18515").status != Some(0) {
            if self.guest.has_ended(server) {
                break;
            }
        }
        let ask = |bed: &Self| {
            let child = bed.on_own(row, row.client, &GUEST).spawn().unwrap();
            Running(Some(child)).wait()
        };
        let mut client = ask(self);
        while row.connects && !client.status.success() && !self.guest.has_ended(server) {
            client = ask(self);
        }
        let served = self.guest.wait(server, LIMIT);
        self.judge(row, "our client", &client, &served);
    }

    /// The guest's client, our server.
    fn own_answers(&mut self, row: &Row) {
        let mut server = Running(Some(self.on_own(row, row.server, &OWN).spawn().unwrap()));
        while !row.connects && !self.listens() && !server.has_ended() {
            std::thread::yield_now();
        }
        let ask = self.on_guest(row, row.client, &OWN);
        let mut client = self.guest.run(&ask);
        while row.connects && client.status != Some(0) && !server.has_ended() {
            client = self.guest.run(&ask);
        }
        let served = server.wait();
        self.judge(row, "our server", &served, &client);
    }

    fn listens(&self) -> bool {
        let output = self.network.host.command("ss").args(["-Hltn", "sport = :18515"]).output().unwrap();
        !output.stdout.is_empty()
    }

    fn judge(&self, row: &Row, we: &str, own: &Output, guest: &Ended) {
        let [out, err] = [&own.stdout, &own.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let at = format!("{} {} {} ({we})", self.port, ["IPv4", "IPv6"][self.family], row.program);
        let passed = own.status.success() && guest.status == Some(0);
        assert!(passed, "{at}\nRemora: {}\n{out}{err}\nguest: {guest:?}", own.status);
        println!("passed: {at}");
    }

    /// Runs rows each way; whole frames were never taken for broken ones.
    fn run(&mut self, rows: &[&[Row]]) {
        for row in rows.iter().flat_map(|rows| rows.iter()) {
            if row.connects && (self.port != "udp" || !libraries().join("librdmacm.so.1").exists()) {
                let why =
                    if self.port == "udp" { "librdmacm.so.1 is not built" } else { "its port has no broker" };
                println!("skipped: {} {} ({why})", self.port, row.program);
                continue;
            }
            self.own_asks(row);
            self.own_answers(row);
            if self.port == "udp" {
                let address = std::net::SocketAddr::new(OWN[self.family].parse().unwrap(), 4791);
                let never = client::Options { start: client::Start::Never, ..client::Options::default() };
                let report = self.network.host.inside(|| client::report(address, &never)).unwrap().unwrap();
                let broken =
                    report.counters.iter().find(|(name, _)| *name == "rx_icrc_encapsulated").unwrap().1;
                assert_eq!(broken, 0, "frames of {} counted as broken", row.program);
            }
        }
    }
}

/// Runs rows over both families while the guest's own frames suffer this, and looks at what passed the wire.
fn stage(network: &Network, guest: &mut Guest, port: &str, suffers: Option<&str>, rows: &[&[Row]]) {
    if let Some(netem) = suffers {
        println!("the guest's frames suffer {netem}");
        guest.done(&format!("tc qdisc add dev eth0 root netem {netem}"));
    }
    let capture = Capture::begin(&network.wire, "frames");
    for family in [0, 1] {
        Bed { network, guest, port, family }.run(rows);
    }
    let [own, theirs] = capture.check();
    assert!(own > 0 && theirs > 0, "{own} and {theirs} frames");
    println!("passed: every ICRC of {own} frames of ours and {theirs} of the guest's");
    if suffers.is_some() {
        guest.done("tc qdisc del dev eth0 root");
    }
}

#[test]
fn verbs_programs_and_soft_roce_serve_each_other() {
    let Some(image) = image() else { return };
    let Some(network) = or_skip(Network::new()) else { return };
    let mut guest = Guest::start(&image, &network.wire);
    if !is_whole() {
        return stage(&network, &mut guest, "udp", None, &[&QUICK]);
    }
    let xdp = format!("xdp:{INTERFACE}");
    for port in ["udp", &xdp] {
        stage(&network, &mut guest, port, None, &[&QUICK, &RELIABLE, &UC, &UD]);
        stage(&network, &mut guest, port, Some("loss 1%"), &[&QUICK, &RELIABLE]);
        stage(&network, &mut guest, port, Some("delay 1ms reorder 25%"), &[&QUICK, &UD]);
    }
}
