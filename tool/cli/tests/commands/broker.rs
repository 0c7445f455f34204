//! `remora broker` and `remora run`: a broker is started by the first program that needs it, and errors are
//! reported.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use remora_broker::client::{self, Options, Start};
use remora_netns::Process;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::running::{Folder, command, finish, remora};

/// Environment variable that makes `a_program` borrow a range at this address.
const ADDRESS: &str = "REMORA_TEST_ADDRESS";
const LONG: Duration = Duration::from_secs(60);

fn at(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), 0)
}

/// Returns the report of the broker of an address, without starting a broker.
fn report(ip: &str) -> Option<client::Report> {
    client::report(at(ip), &Options { start: Start::Never, ..Options::default() }).ok()
}

/// Waits until `holds` returns true, and fails after [`LONG`].
#[track_caller]
fn until(condition: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < limit, "{condition}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A helper process rather than a test: it borrows a QP number range as its environment says, and ends when
/// its input ends.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn a_program() {
    let ip = std::env::var(ADDRESS).expect("set by the test that starts this process");
    let range = client::open(at(&ip), &Options::from_environment()).expect("a range");
    println!("range {}", range.number());
    let _ = std::io::stdin().lines().count();
}

/// Returns the command that runs `a_program`.
fn program(ip: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--ignored", "--exact", "broker::a_program", "--nocapture"]).env(ADDRESS, ip);
    command.env(client::COMMAND, crate::running::binary());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Returns the session ID from the text of `/proc/PID/stat`.
fn session(stat: &str) -> String {
    stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(3)).unwrap_or_default().to_owned()
}

/// Returns the range that a started program prints, and the rest of its output.
fn range(child: &mut Child) -> (u8, BufReader<ChildStdout>) {
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    loop {
        let mut line = String::new();
        assert!(output.read_line(&mut line).expect("a line") > 0, "the program has ended");
        if let Some((_, range)) = line.split_once("range ") {
            return (range.trim().parse().expect("a number"), output);
        }
    }
}

/// Ends the broker of an address and waits until its process has ended.
fn end(ip: &str) {
    let Some(report) = report(ip) else { return };
    let id = Pid::from_raw(report.broker.pid as i32).expect("its number");
    kill_process(id, Signal::TERM).expect("a signal");
    until("the broker ends", || !PathBuf::from(format!("/proc/{}/exe", report.broker.pid)).exists());
}

/// Starts a broker.
fn running(ip: &str, more: &[&str]) -> Process {
    let mut broker = Process::start_piped(command(&["broker", "--json", "--address", ip]).args(more));
    let line = broker.line();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(ready["address"], ip);
    broker
}

#[test]
fn the_first_of_many_programs_starts_a_broker_that_is_nobodys_child() {
    let ip = "127.96.0.1";
    let mut programs: Vec<Child> = (0..8).map(|_| program(ip).spawn().expect("a program")).collect();
    let (mut ranges, _outputs): (Vec<u8>, Vec<_>) = programs.iter_mut().map(range).unzip();
    ranges.sort_unstable();
    assert_eq!(ranges, [1, 2, 3, 4, 5, 6, 7, 8]);
    let broker = report(ip).expect("a broker").broker;
    let status = std::fs::read_to_string(format!("/proc/{}/stat", broker.pid)).expect("its process");
    let fields: Vec<&str> = status.rsplit(')').next().expect("its fields").split_whitespace().collect();
    let parent: u32 = fields[1].parse().expect("its parent");
    assert!(!programs.iter().any(|program| program.id() == parent) && parent != std::process::id());
    // The broker has its own session, so that Ctrl-C in a program's terminal does not reach it.
    assert_ne!(
        fields[3],
        std::fs::read_to_string("/proc/self/stat").map(|own| session(&own)).expect("our own")
    );
    for program in &mut programs {
        drop(program.stdin.take());
        assert!(program.wait().expect("its end").success());
    }
    until("all ranges come back", || report(ip).is_some_and(|report| report.programs.is_empty()));
    end(ip);
    assert!(report(ip).is_none());
}

/// Returns a folder that `remora run` accepts as the folder of its libraries, for programs that load none.
fn libraries(name: &str) -> Folder {
    let folder = Folder::new(name);
    std::fs::create_dir(&folder.0).expect("a folder");
    std::fs::write(folder.0.join("libibverbs.so.1"), b"").expect("a file");
    folder
}

#[test]
fn run_sets_the_environment_starts_the_broker_and_passes_the_exit_status_on() {
    let ip = "127.96.0.2";
    let folder = libraries("run");
    let rules = folder.0.join("loss.toml");
    std::fs::write(&rules, "").expect("a file");
    let run = |more: &[&str], script: &str| {
        let mut command = command(&["run", "--address", ip]);
        command.args(more).args(["--", "sh", "-c", script]);
        command.env(client::LIBRARY_PATH, &folder.0).env("LD_LIBRARY_PATH", "/before");
        finish(&mut command)
    };
    let script = "echo $REMORA_ADDRESS $REMORA_PORT $REMORA_FAULT $REMORA_CAPTURE $REMORA_RECORD $REMORA_RECORD_LIMIT $LD_LIBRARY_PATH $REMORA_ALONE; exit 7";
    let fault = rules.to_str().expect("a name");
    let ended = run(
        &[
            "--port",
            "udp",
            "--fault",
            fault,
            "--capture",
            "/tmp/run.pcapng",
            "--record",
            "/tmp/run.rec",
            "--record-limit",
            "1k",
        ],
        script,
    );
    let path = format!("{}:/before", folder.0.display());
    assert_eq!((ended.status, ended.err), (7, String::new()));
    assert_eq!(ended.out.trim(), format!("{ip} udp {fault} /tmp/run.pcapng /tmp/run.rec 1024 {path}"));
    assert!(report(ip).is_some(), "a broker is there for the program");
    end(ip);
    // With --alone, and always over xdp, no broker is started.
    for more in [&["--alone"][..], &["--port", "xdp:eth7"]] {
        let ended = run(more, "echo alone=$REMORA_ALONE $REMORA_PORT; kill -TERM $$");
        assert_eq!(ended.status, 143, "{}", ended.err);
        assert!(ended.out.contains("alone=1"), "{}", ended.out);
        assert!(report(ip).is_none());
    }
}

/// Regression: below a folder with a blank or a colon `remora run` preloaded nothing.
#[test]
fn libraries_below_a_folder_with_a_blank_and_a_colon_are_found_by_a_link_that_goes_with_the_program() {
    let folder = libraries("listed");
    let odd = folder.0.join("a b:c;d");
    std::fs::create_dir(&odd).expect("a folder");
    std::fs::write(odd.join("libibverbs.so.1"), b"").expect("a file");
    // The constructor of this library shows that the program has preloaded it.
    let source = "#include <unistd.h>\n__attribute__((constructor)) void begin(void) { write(2, \"loaded\\n\", 7); }\n";
    std::fs::write(odd.join("begin.c"), source).expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-w", "-shared", "-fPIC", "-o"]).args([odd.join("libremora-paths.so"), odd.join("begin.c")]);
    assert!(cc.status().expect("a compiler").success());
    let mut run = command(&["run", "--address", "127.96.0.8", "--alone", "--"]);
    run.args(["sh", "-c", "echo ${LD_LIBRARY_PATH%%:*}; exec readlink ${LD_LIBRARY_PATH%%:*}"]);
    let ended = finish(run.env(client::LIBRARY_PATH, &odd).env_remove("LD_LIBRARY_PATH"));
    assert_eq!(ended.err, "loaded\nloaded\n", "the shell, and the program");
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!((ended.status, lines[1]), (0, odd.to_str().expect("a name")));
    assert!(!Path::new(lines[0]).parent().expect("its folder").exists(), "{}", lines[0]);
}

/// Regression: a static program and one with set-user-ID found no device, and nothing reported why.
#[test]
fn a_program_that_loads_no_library_of_ours_is_named_in_a_line_and_runs() {
    let folder = libraries("unreplaced");
    let program = folder.0.join("static");
    std::fs::write(folder.0.join("x.c"), "int main(void) { return 3; }\n").expect("a file");
    let mut cc = Command::new("cc");
    assert!(
        cc.args(["-static", "-o"]).args([&program, &folder.0.join("x.c")]).status().expect("cc").success()
    );
    let run = |program: &Path| {
        let mut run = command(&["run", "--address", "127.96.0.9", "--alone", "--"]);
        finish(run.arg(program).env(client::LIBRARY_PATH, &folder.0))
    };
    let ended = run(&program);
    let words = format!("remora: {} is linked statically, ", program.display());
    assert!(
        ended.status == 3 && ended.err.starts_with(&words) && ended.err.lines().count() == 1,
        "{}",
        ended.err
    );
    assert_eq!(run(Path::new("true")).err, "");
    if rustix::process::geteuid().is_root() {
        use std::os::unix::fs::PermissionsExt as _;
        std::os::unix::fs::chown(&program, Some(1001), None).expect("another owner");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("its mode");
        assert!(run(&program).err.contains("(set-user-ID)"));
    }
}

#[test]
fn run_gives_the_device_each_address_that_it_is_told_in_that_order() {
    let folder = libraries("run-addresses");
    let run = |words: &[&str]| {
        let script = ["--alone", "--", "sh", "-c", "echo $REMORA_ADDRESS"];
        let mut command = command(&[&["run"], words, &script].concat());
        finish(command.env(client::LIBRARY_PATH, &folder.0))
    };
    let listed = run(&["--address", "127.96.0.5,::1"]);
    assert_eq!((listed.out.trim(), listed.err.as_str()), ("127.96.0.5,::1", ""));
    let repeated = run(&["--address", "::1", "--address", "127.96.0.5"]);
    assert_eq!(repeated.out.trim(), "::1,127.96.0.5");
    for bad in ["127.96.0.5,no", "127.96.0.5,,::1", ","] {
        run(&["--address", bad]).bad_arguments("not an IP address");
    }
}

#[test]
fn what_is_wrong_with_run_is_told_in_a_line() {
    let ip = "127.96.0.3";
    let folder = libraries("wrong-run");
    let mut empty = command(&["run", "--address", ip, "--", "true"]);
    finish(empty.env(client::LIBRARY_PATH, "/no/such/folder"))
        .one_line("REMORA_LIBRARY_PATH names /no/such/folder, which has no libibverbs.so.1");
    let many: Vec<String> = (1..=33).map(|last| format!("127.95.0.{last}")).collect();
    remora(&["run", "--address", &many.join(","), "--", "true"])
        .one_line("a device has at most 32 addresses, but --address gives 33");
    let run = |words: &[&str]| {
        let mut command = command(&["run", "--address", ip]);
        finish(command.args(words).env(client::LIBRARY_PATH, &folder.0))
    };
    run(&["--alone", "--", "/no/such/program"]).one_line("running /no/such/program");
    run(&["--alone", "--fault", "/no/such/file", "--", "true"]).one_line("opening /no/such/file");
    let rules = folder.0.join("never.toml");
    std::fs::write(&rules, "[[post]]\nerrno = 'ENOMEM'\nat_most = 0").unwrap();
    run(&["--alone", "--fault", rules.to_str().unwrap(), "--", "true"]).bad_arguments(": fault rules: ");
    run(&["--port", "xdp", "--", "true"]).bad_arguments("invalid value 'xdp'");
    run(&[]).bad_arguments("required arguments");
    // This copy of the command has no libraries beside it, unlike the tested one.
    let apart = Folder(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("apart-{}", std::process::id())));
    std::fs::create_dir(&apart.0).expect("a folder");
    std::fs::hard_link(crate::running::binary(), apart.0.join("remora")).expect("a link");
    let mut apart = Command::new(apart.0.join("remora"));
    finish(apart.args(["run", "--address", ip, "--", "true"]).env_remove(client::LIBRARY_PATH))
        .one_line("run `make dropin`, or set REMORA_LIBRARY_PATH");
    let _taken = UdpSocket::bind((ip, 4791)).expect("the port");
    run(&["--", "true"]).one_line("UDP port 4791 on 127.96.0.3 is taken by a program of your own");
    let mut elsewhere = command(&["run", "--address", "192.0.2.7", "--", "true"]);
    finish(elsewhere.env(client::LIBRARY_PATH, &folder.0))
        .one_line("192.0.2.7 is not an address of this machine");
}

#[test]
fn doctor_and_devinfo_know_the_broker_its_gids_and_who_has_which_range() {
    let ip = "127.96.0.4";
    let rows = || -> Vec<Value> {
        let out = remora(&["doctor", "--address", ip, "--json"]).out;
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let texts = |rows: &[Value], subject: &str| -> Vec<String> {
        let matching = rows.iter().filter(|row| row["what"] == subject);
        matching.map(|row| row["found"].as_str().expect("a text").to_owned()).collect()
    };
    assert!(texts(&rows(), "broker")[0].contains("none for 127.96.0.4"));
    let broker = running(ip, &[]);
    let mut program = program(ip).spawn().expect("a program");
    let (lent, _output) = range(&mut program);
    assert_eq!(lent, 1);
    let rows = rows();
    let says = &texts(&rows, "broker")[0];
    assert!(
        says.contains(&format!("process {} of user", broker.id())) && says.contains("1 of 127 QPN ranges"),
        "{says}"
    );
    assert_eq!(texts(&rows, "UDP port 4791"), ["shared by the broker of 127.96.0.4"]);
    let ranges = texts(&rows, "QPN range");
    assert!(ranges.len() == 1 && ranges[0].contains(&format!("1: process {}", program.id())), "{ranges:?}");
    let words = ["devinfo", "--port", "udp", "--address", ip, "--json"];
    let facts: Value = serde_json::from_str(&remora(&words).good()).expect("JSON");
    assert!(facts["broker"].as_str().is_some_and(|broker| broker.contains("at 127.96.0.4")), "{facts}");
    assert_eq!(texts(&rows, "GID"), ["0: 127.96.0.4, RoCE v2"]);
    assert_eq!(facts["gids"], "0 127.96.0.4");
    assert!(facts["qpn_ranges"].as_str().is_some_and(|ranges| ranges.starts_with("1 ")), "{facts}");
    drop(program.stdin.take());
    program.wait().expect("its end");
}

/// Regression: the command took the signal that ends a broker for an error, because the signal
/// interrupts the wait.
#[test]
fn a_broker_ends_when_it_is_told_to_or_when_nobody_needs_it_and_a_second_one_says_who_is_first() {
    let ip = "127.96.0.5";
    let mut broker = running(ip, &[]);
    remora(&["broker", "--address", ip]).one_line("a broker has 127.96.0.5 already");
    kill_process(Pid::from_child(&broker), Signal::TERM).expect("a signal");
    assert!(broker.wait().expect("its end").success());
    let mut idle = running(ip, &["--linger", "0"]);
    assert!(idle.wait().expect("its end").success());
    remora(&["broker", "--address", "0.0.0.0"]).one_line("choose one that `ip address` lists");
}

#[test]
fn where_remora_cannot_be_started_a_program_is_told_what_to_set() {
    let options = Options { start: Start::Command("/no/such/remora".into()), ..Options::default() };
    let words = client::open(at("127.96.0.6"), &options).expect_err("no broker").to_string();
    assert!(
        words.contains("/no/such/remora cannot be started") && words.contains("set REMORA_COMMAND"),
        "{words}"
    );
    // `remora run` passes on what the broker reports while it starts.
    let _taken = UdpSocket::bind("127.96.0.6:4791").expect("the port");
    let options = Options { start: Start::Command(crate::running::binary().into()), ..Options::default() };
    let words = client::open(at("127.96.0.6"), &options).expect_err("no broker").to_string();
    assert!(words.contains("is taken by a program of your own") && !words.starts_with("error"), "{words}");
    let options = Options { start: Start::Command("/bin/true".into()), ..Options::default() };
    let words = client::open(at("127.96.0.7"), &options).expect_err("no broker").to_string();
    assert!(words.contains("/bin/true ended and said nothing"), "{words}");
    // A broker that never becomes ready is given up.
    let folder = Folder::new("slow-broker");
    std::fs::create_dir(&folder.0).expect("a folder");
    let slow = folder.0.join("slow");
    std::fs::write(&slow, "#!/bin/sh\nexec sleep 600\n").expect("a file");
    let mut mode = File::open(&slow).expect("a file").metadata().expect("its mode").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&slow, mode).expect("its mode");
    let options =
        Options { start: Start::Command(slow), patience: Duration::from_millis(300), ..Options::default() };
    let words = client::open(at("127.96.0.7"), &options).expect_err("no broker").to_string();
    assert!(words.contains("not ready in time"), "{words}");
}

#[test]
fn the_owner_lists_the_users_of_a_broker_and_ends_one_or_a_program() {
    let ip = "127.96.0.8";
    let _broker = running(ip, &[]);
    let mut program = program(ip).spawn().expect("a program");
    let (lent, _output) = range(&mut program);
    let listed = remora(&["broker", "list", "--address", ip]).good();
    let owner = rustix::process::geteuid().as_raw();
    assert!(listed.contains(&format!("user {owner}: 1 QPN ranges")), "{listed}");
    assert!(listed.contains(&format!("QPN range {lent}: process {}", program.id())), "{listed}");
    let rows = remora(&["broker", "list", "--address", ip, "--json"]).good();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(rows.iter().any(|row| row["guest"] == false && row["user"] == owner && row["ranges"] == 1));
    assert!(rows.iter().any(|row| row["range"] == lent && row["pid"] == program.id()));
    remora(&["broker", "end", "--address", ip]).bad_arguments("required arguments");
    remora(&["broker", "end", "--address", ip, "--range", "9"]).one_line("no program has QPN range 9");
    let ended = remora(&["broker", "end", "--address", ip, "--range", &lent.to_string()]);
    assert!(ended.status == 0 && ended.err.contains("ended 1 connections"), "{}", ended.err);
    until("the range comes back", || report(ip).is_some_and(|report| report.programs.is_empty()));
    drop(program.stdin.take());
    program.wait().expect("its end");
}

/// Regression: a broker kept the descriptor limit of the program that had started it, and its refusals
/// advised what did not help.
#[test]
fn a_broker_with_the_limits_of_its_first_program_gives_way_to_one_of_the_next() {
    let ip = "127.96.0.9";
    let poor = |limit: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "61001", "--regid", "61001", "--clear-groups", "prlimit"]);
        let program = program(ip);
        command.arg(format!("--nofile={limit}")).arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            command.env(name, value.expect("a value"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let first = poor("40:40").output().expect("a program");
    let stderr = String::from_utf8_lossy(&first.stderr);
    assert!(
        stderr.contains("129 descriptors") && stderr.contains("This is a limit of the broker, process "),
        "{stderr}"
    );
    let mut next = poor("2000:2000").spawn().expect("a program");
    let (lent, _output) = range(&mut next);
    assert_eq!(lent, 1);
    drop(next.stdin.take());
    next.wait().expect("its end");
}
