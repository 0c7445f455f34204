//! Verbs programs of Debian, one on Remora and one in the guest: each as the server of the other.

use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use remora_broker::client;

use crate::capture::Capture;
use crate::guest::{Ended, Guest};
use crate::network::{GUEST, INTERFACE, Network, OWN};
use crate::rows::{QUICK, RELIABLE, Row, UC, UD};
use crate::{LIMIT, image, is_whole};

/// Environment variable with words of a row. Rows without these words do not run.
const ROW: &str = "REMORA_ROW";
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
/// Attempts of a row whose programs have raced.
const TRIES: usize = 3;

/// The environment in which the programs of a row run.
struct Bed<'a> {
    network: &'a Network,
    guest: &'a mut Guest,
    /// The port of `remora run`.
    port: &'a str,
    /// The address family: 0 for IPv4, 1 for IPv6.
    family: usize,
    /// True if frames of the guest are lost at times.
    lossy: bool,
    results: &'a mut Results,
}

/// The results of Remora's program and of the guest's.
type BothPrograms = (Output, Ended);

/// The results of the rows so far. A row that fails does not prevent others from running.
#[derive(Default)]
struct Results {
    passed: usize,
    skipped: usize,
    failed: Vec<String>,
}

impl Results {
    #[track_caller]
    fn judge(&self) {
        let Results { passed, skipped, failed } = self;
        println!("{passed} passed, {} failed, {skipped} skipped", failed.len());
        assert!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
        assert!(*passed > 0, "no row has the words of {ROW}");
    }
}

/// A program on Remora, which is killed when this value is dropped.
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

impl Bed<'_> {
    /// The command line of a program on one side.
    fn words(&self, row: &Row, role: &str, server: &[&str; 2], device: &str) -> String {
        // Programs that do not connect by the communication manager find each other over TCP, by IPv4.
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

    /// Runs the client on Remora, and the server in the guest.
    fn own_asks(&mut self, row: &Row) -> BothPrograms {
        let server = self.guest.spawn(&self.on_guest(row, row.server, &GUEST));
        let listens = match row.connects {
            true => "rdma resource show cm_id | grep -q LISTEN",
            false => "netstat -ltn | grep -q :18515",
        };
        while self.guest.run(listens).status != Some(0) && !self.guest.has_ended(server) {}
        let client = Running(Some(self.on_own(row, row.client, &GUEST).spawn().unwrap())).wait();
        (client, self.guest.wait(server, LIMIT))
    }

    /// Runs the client in the guest, and the server on Remora. Nothing reports that a server of the
    /// communication manager listens, so a client that is refused before is repeated.
    fn own_answers(&mut self, row: &Row) -> BothPrograms {
        let mut server = Running(Some(self.on_own(row, row.server, &OWN).spawn().unwrap()));
        while !row.connects && !self.listens() && !server.has_ended() {
            std::thread::yield_now();
        }
        let ask = self.on_guest(row, row.client, &OWN);
        let mut client = self.guest.run(&ask);
        while row.connects && client.status.is_some_and(|status| status != 0) && !server.has_ended() {
            client = self.guest.run(&ask);
        }
        (server.wait(), client)
    }

    /// Runs a row in one direction, and repeats it if its programs have raced.
    fn serve(&mut self, row: &Row, we: &str, way: fn(&mut Self, &Row) -> BothPrograms) {
        let began = Instant::now();
        let mut ends = way(self, row);
        for _ in 1..TRIES {
            let Some(race) = self.race(row, &ends) else { break };
            println!("again: {} ({we}): {race}", row.program);
            ends = way(self, row);
        }
        let (own, guest) = ends;
        self.judge(row, we, began, &own, &guest);
    }

    /// Returns the reason if the programs failed in a way that can happen over hardware, too, without a fault
    /// of the NIC.
    fn race(&self, row: &Row, (own, guest): &BothPrograms) -> Option<&'static str> {
        let printed = [&own.stdout, &own.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let prints = |words: &str| printed.iter().any(|text| text.contains(words));
        // A ping-pong program ends with the last message that it receives, and repeats nothing.
        let leaves = self.lossy && row.program.contains("pingpong") && guest.status == Some(0);
        if leaves && prints("transport retry counter exceeded") {
            return Some("the guest left, and the acknowledgement of the last message was lost");
        }
        // perftest's -R connects twice, and nothing reports that the server listens for the second time.
        let connects_twice = row.program.contains(" -R ");
        (connects_twice && prints("RDMA_CM_EVENT_REJECTED; error: 8"))
            .then_some("the guest did not listen yet")
    }

    fn listens(&self) -> bool {
        let output = self.network.host.command("ss").args(["-Hltn", "sport = :18515"]).output().unwrap();
        !output.stdout.is_empty()
    }

    fn judge(&mut self, row: &Row, we: &str, began: Instant, own: &Output, guest: &Ended) {
        let [out, err] = [&own.stdout, &own.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let case = format!("{} {} {} ({we})", self.port, FAMILIES[self.family], row.program);
        if own.status.success() && guest.status == Some(0) {
            self.results.passed += 1;
            println!("passed: {case}, {:.1} s", began.elapsed().as_secs_f32());
            return;
        }
        let status = &guest.status;
        let printed = &guest.printed;
        println!("FAILED: {case}\nRemora: {}\n{out}{err}\nguest: {status:?}\n{printed}", own.status);
        self.results.failed.push(case);
    }

    /// Runs rows in both directions, and checks that no intact frame was counted as corrupted.
    fn run(&mut self, rows: &[&[Row]]) {
        let words = std::env::var(ROW).unwrap_or_default();
        let rows = rows.iter().flat_map(|rows| rows.iter());
        for row in rows.filter(|row| row.program.contains(&words)) {
            let why = match () {
                () if row.connects && self.port != "udp" => Some("its port has no broker"),
                // perftest's -R resolves names only for IPv4.
                () if row.program.contains(" -R ") && self.family == 1 => Some("perftest's -R is of IPv4"),
                () => None,
            };
            if let Some(why) = why {
                println!("skipped: {} {} {} ({why})", self.port, FAMILIES[self.family], row.program);
                self.results.skipped += 1;
                continue;
            }
            let failed = self.results.failed.len();
            self.serve(row, "our client", Self::own_asks);
            self.serve(row, "our server", Self::own_answers);
            self.check_broker(row, self.results.failed.len() > failed);
        }
    }

    /// Checks that the broker has counted no intact frame as corrupted. If the row has failed, the broker may
    /// have ended: a program that hangs in the guest outlasts it.
    fn check_broker(&self, row: &Row, has_failed: bool) {
        if self.port != "udp" {
            return;
        }
        let address = std::net::SocketAddr::new(OWN[self.family].parse().unwrap(), 4791);
        let never = client::Options { start: client::Start::Never, ..client::Options::default() };
        let report = match self.network.host.inside(|| client::report(address, &never)).unwrap() {
            Err(client::ClientError::None(_)) if has_failed => return,
            report => report.unwrap(),
        };
        let broken = report.counters.iter().find(|(name, _)| *name == "rx_icrc_encapsulated").unwrap().1;
        assert_eq!(broken, 0, "frames of {} counted as broken", row.program);
    }
}

/// The stages of a run: their environment, and the results so far.
struct Stages<'a> {
    network: &'a Network,
    guest: Guest,
    results: Results,
}

impl Stages<'_> {
    /// Runs rows over both families while the guest's own frames are subject to `suffers`, and checks the
    /// capture.
    fn run(&mut self, port: &str, suffers: Option<&str>, rows: &[&[Row]]) {
        let Stages { network, guest, results } = self;
        if let Some(netem) = suffers {
            println!("the guest's frames suffer {netem}");
            guest.done(&format!("tc qdisc add dev eth0 root netem {netem}"));
        }
        let before = results.passed;
        let failed = results.failed.len();
        let name = format!("{port}-{}", suffers.unwrap_or("whole")).replace([' ', ':', '%'], "-");
        let capture = Capture::begin(&network.wire, &name);
        for family in [0, 1] {
            let lossy = suffers.is_some_and(|netem| netem.starts_with("loss"));
            Bed { network, guest, port, family, lossy, results }.run(rows);
        }
        let [own, theirs] = capture.check(results.failed.len() > failed);
        assert!(results.passed == before || own > 0 && theirs > 0, "{own} and {theirs} frames");
        println!("passed: every ICRC of {own} frames of ours and {theirs} of the guest's");
        if suffers.is_some() {
            guest.done("tc qdisc del dev eth0 root");
        }
    }
}

#[test]
#[ignore = "`make interop` starts the guest"]
fn verbs_programs_and_soft_roce_serve_each_other() {
    let image = image();
    let network = Network::new().unwrap();
    let guest = Guest::start(&image, &network.wire);
    let mut stages = Stages { network: &network, guest, results: Results::default() };
    if is_whole() {
        let xdp = format!("xdp:{INTERFACE}");
        for port in ["udp", &xdp] {
            stages.run(port, None, &[&QUICK, &RELIABLE, &UC, &UD]);
            stages.run(port, Some("loss 1%"), &[&QUICK, &RELIABLE]);
            stages.run(port, Some("delay 1ms reorder 25%"), &[&QUICK, &UD]);
        }
    } else {
        stages.run("udp", None, &[&QUICK]);
    }
    stages.results.judge();
}
