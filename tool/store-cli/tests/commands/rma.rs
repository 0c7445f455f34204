//! `remora rma`: a server and its clients, each a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use remora_netns::Process;
use serde_json::Value;

use crate::running::{Ended, Lender, Scratch, command, counters, finish, free_addresses, remora};

const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A server that is killed at the end of its test.
struct RmaServer {
    child: Process,
    facts: Value,
    host: &'static str,
}

impl RmaServer {
    #[track_caller]
    fn start(host: &'static str, more: &[&str]) -> RmaServer {
        let listen = if host.contains(':') { format!("[{host}]:0") } else { format!("{host}:0") };
        RmaServer::on(host, &["--address", host, "--listen", &listen], more)
    }

    /// Starts a server with the NIC of the daemon that listens at this socket.
    #[track_caller]
    fn lent(nicd: &str, more: &[&str]) -> RmaServer {
        RmaServer::on("127.0.0.1", &["--nicd", nicd, "--listen", "127.0.0.1:0"], more)
    }

    #[track_caller]
    fn on(host: &'static str, nic: &[&str], more: &[&str]) -> RmaServer {
        let mut serve = command(&[&["rma", "serve", "--json"][..], nic].concat());
        let mut child = Process::start_piped(serve.args(more));
        let line = child.line();
        let facts = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        RmaServer { child, facts, host }
    }

    fn fact(&self, name: &str) -> &str {
        self.facts[name].as_str().unwrap_or_else(|| panic!("{name}: {}", self.facts))
    }

    /// Runs `remora rma VERB` against this server, with its token.
    #[track_caller]
    fn rma(&self, verb: &str, more: &[&str]) -> Ended {
        self.rma_as(verb, &["--token", self.fact("token")], more)
    }

    #[track_caller]
    fn rma_as(&self, verb: &str, credential: &[&str], more: &[&str]) -> Ended {
        let server = ["--connect", self.fact("address"), "--fingerprint", self.fact("fingerprint")];
        let own = ["--address", self.host];
        remora(&[&["rma", verb][..], &server, &own, credential, more].concat())
    }

    fn kill(&mut self) {
        self.child.kill();
    }
}

fn reads_writes_and_rekeys(host: &'static str) {
    let table = Scratch::new(b"what the region begins with");
    let data = Scratch::new(b"REGION");
    let rights = "read,write,rekey";
    let server = RmaServer::start(host, &["--file", table.path(), "--rights", rights, "--name", "table"]);
    assert_eq!(server.rma("read", &[]).good(), "what the region begins with");
    server.rma("write", &["--offset", "9", "--file", data.path(), "--len", "6"]).good();
    assert_eq!(
        server.rma("read", &["--offset", "5", "--len", "10", "--region", "table"]).good(),
        "the REGION"
    );
    let regions: Value = serde_json::from_str(&server.rma("regions", &["--json"]).good()).expect("JSON");
    let number = regions["region"].to_string();
    assert_eq!(
        (&regions["name"], &regions["len"], &regions["rights"]),
        (&"table".into(), &27.into(), &rights.into())
    );
    assert_eq!(regions["nic"], server.facts["nic"]);
    server.rma("rekey", &[]).good();
    let read = server.rma("read", &["--len", "4", "--region", &number, "--json"]).good();
    let read: Value = serde_json::from_str(&read).expect("JSON");
    assert_eq!(read["data"], "d2hhdA==", "grants are under the new key");
    let out = Scratch::new(b"");
    server.rma("read", &["--file", out.path()]).good();
    assert_eq!(std::fs::read(out.path()).expect("the file"), b"what the REGION begins with");
}

#[test]
fn a_region_is_read_written_and_rekeyed_over_udp() {
    reads_writes_and_rekeys("127.0.0.1");
}

#[test]
fn a_region_is_read_written_and_rekeyed_over_udp_with_ipv6() {
    reads_writes_and_rekeys("::1");
}

/// Runs `remora rma VERB` with the NIC of a daemon, against this server.
#[track_caller]
fn through(nicd: &str, server: &RmaServer, verb: &str, more: &[&str]) -> Ended {
    let words = ["rma", verb, "--nicd", nicd, "--connect", server.fact("address")];
    let admitted = ["--fingerprint", server.fact("fingerprint"), "--token", server.fact("token")];
    remora(&[&words[..], &admitted, more].concat())
}

#[test]
fn a_region_of_a_daemons_nic_is_read_written_and_rekeyed_through_it() {
    let lender = Lender::start("rma", &["--port", "udp", "--rma-slots", "64"]);
    let table = Scratch::new(b"what the region begins with");
    let data = Scratch::new(b"REGION");
    let rights = ["--rights", "read,write,rekey", "--file", table.path()];
    let server = RmaServer::lent(lender.at(), &rights);
    assert_eq!(through(lender.at(), &server, "read", &[]).good(), "what the region begins with");
    through(lender.at(), &server, "write", &["--offset", "9", "--file", data.path()]).good();
    through(lender.at(), &server, "rekey", &[]).good();
    assert_eq!(through(lender.at(), &server, "read", &["--len", "15"]).good(), "what the REGION");
    // A client with its own NIC can reach the server, too.
    assert_eq!(server.rma("read", &["--len", "4"]).good(), "what");
    let regions = through(lender.at(), &server, "regions", &["--json"]).good();
    assert_eq!(serde_json::from_str::<Value>(&regions).expect("JSON")["nic"], server.facts["nic"]);
    let small = Lender::start("rma-small", &["--port", "udp", "--rma-slots", "63"]);
    through(small.at(), &server, "read", &[]).one_line("larger --rma-slots");
    let shared = Lender::start("rma-shm", &[]);
    through(shared.at(), &server, "read", &[]).one_line("start `remora serve nic` with --port udp");
}

/// Attack 20: the log of a daemon contains no key.
#[test]
fn rma_attack_20_the_log_of_a_daemon_holds_no_key() {
    let key: [u8; 16] = std::array::from_fn(|index| 0x31 + index as u8);
    let file = Scratch::new(&key);
    let owners = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(file.path(), owners).expect("its owner may");
    let log = Scratch::new(b"");
    let mut daemon = command(&["nicd", "--json", "--socket"]);
    daemon.env("RUST_LOG", "trace").stderr(std::fs::File::create(log.path()).expect("a file"));
    let lender = Lender::of(daemon, "rma-log", &["--port", "udp"]);
    let server = RmaServer::lent(lender.at(), &["--key-file", file.path()]);
    assert_eq!(through(lender.at(), &server, "read", &["--len", "4"]).good(), "\0\0\0\0");
    drop((server, lender));
    let text = std::fs::read(log.path()).expect("the log");
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let listed = format!("{key:?}");
    for secret in [&key[..], hex.as_bytes(), &listed.as_bytes()[1..listed.len() - 1]] {
        assert!(!text.windows(secret.len()).any(|bytes| bytes == secret), "{secret:?}");
    }
}

#[test]
fn a_wrong_fingerprint_and_a_client_that_is_not_admitted_are_told_in_a_line() {
    let server = RmaServer::start("127.0.0.1", &[]);
    let address = server.fact("address");
    let token = server.fact("token");
    let words = ["rma", "read", "--connect", address, "--fingerprint", ZEROS, "--token", token];
    remora(&words).one_line("has another fingerprint: take the one that the server printed");
    server.rma_as("read", &["--token", ZEROS], &[]).one_line("take the token that it printed");
    server
        .rma("write", &["--file", "/dev/zero", "--len", "4"])
        .one_line("does not grant write to region memory");
    server.rma("read", &["--offset", "1048577", "--len", "1"]).one_line("region memory has 1048576 bytes");
    server.rma("read", &["--region", "none"]).one_line("choose one of memory");
    let words = ["rma", "read", "--fingerprint", ZEROS, "--token", ZEROS, "--port", "shm"];
    remora(&words).one_line("use --port udp");
}

#[test]
fn a_client_is_admitted_by_the_certificate_that_the_server_lists() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let own = path("own.pem");
    let other = path("other.pem");
    let certificate = path("server.pem");
    let first = RmaServer::start("127.0.0.1", &["--certificate", &certificate]);
    // The client's first attempt creates its certificate. The refusal contains the fingerprint.
    let refused = first.rma_as("read", &["--certificate", &own], &[]).err;
    let (_, fingerprint) = refused.split_once("--admit ").expect("how to mend it");
    let fingerprint = fingerprint.split('`').next().expect("the fingerprint");
    let server = RmaServer::start("127.0.0.1", &["--certificate", &certificate, "--admit", fingerprint]);
    assert_eq!(first.fact("fingerprint"), server.fact("fingerprint"), "it is kept");
    assert_eq!(server.facts["token"], Value::Null);
    assert_eq!(server.rma_as("read", &["--certificate", &own], &["--len", "4"]).good(), "\0\0\0\0");
    server.rma_as("read", &["--certificate", &other], &[]).one_line("remora rma serve --admit");
}

#[test]
fn nobody_listening_and_a_server_that_was_killed_are_told() {
    let free = free_addresses(1);
    let words = ["rma", "read", "--connect", &free[0], "--fingerprint", ZEROS, "--token", ZEROS];
    remora(&words).one_line("start one with `remora rma serve --listen");
    let mut server = RmaServer::start("127.0.0.1", &["--size", "1g"]);
    // The server is killed in the middle of a read of 1 GiB.
    let mut read = command(&["rma", "read", "--connect", server.fact("address"), "--timeout", "2"]);
    read.args(["--fingerprint", server.fact("fingerprint"), "--token", server.fact("token")]);
    let mut read = read.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary");
    let mut out = BufReader::new(read.stdout.take().expect("piped"));
    assert!(!out.fill_buf().expect("a first byte").is_empty());
    server.kill();
    let count = std::io::copy(&mut out, &mut std::io::sink()).expect("a pipe");
    assert!(count < 1 << 30, "the rest cannot have come");
    let ended = read.wait_with_output().expect("its end");
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.lines().count() == 1 && stderr.contains("does not answer: the server has ended"),
        "{stderr}"
    );
}

#[test]
fn a_rotating_key_is_followed_while_a_long_read_goes_on() {
    let server = RmaServer::start("127.0.0.1", &["--size", "1m", "--rotate", "1"]);
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_secs(4) {
        assert_eq!(server.rma("read", &[]).good().len(), 1 << 20);
    }
}

#[test]
fn secrets_that_others_can_read_and_keys_that_are_none_are_refused() {
    let open = Scratch::new(b"00112233445566778899aabbccddeeff");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(open.path(), permissions).expect("its owner may");
    let serve = ["rma", "serve", "--listen", "127.0.0.1:0", "--key-file", open.path()];
    remora(&serve).one_line("run `chmod 600");
    let zeros = Scratch::new(&[0; 16]);
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(zeros.path(), permissions).expect("its owner may");
    let serve = ["rma", "serve", "--listen", "127.0.0.1:0", "--key-file", zeros.path()];
    remora(&serve).one_line("holds no key");
    remora(&["rma", "serve", "--port", "shm"]).one_line("use --port udp");
    remora(&["rma", "serve", "--rights", "all"]).bad_arguments("--rights");
    remora(&["rma", "read", "--fingerprint", "ab", "--token", ZEROS]).bad_arguments("64 hexadecimal digits");
    remora(&["rma", "read", "--fingerprint", ZEROS]).bad_arguments("required");
}

#[test]
fn a_file_of_credentials_is_all_that_a_client_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let file = path("server.json");
    let own = path("own.pem");
    let other = path("other.json");
    let read = ["rma", "read", "--address", "127.0.0.1", "--len", "4", "--credentials", &file];
    let first = RmaServer::start("127.0.0.1", &["--credentials", &file]);
    assert_eq!(remora(&read).good(), "\0\0\0\0");
    // The next server replaces the file, which is also the initial content of its region. --connect
    // overrides the file's address.
    let second = RmaServer::start("127.0.0.1", &["--credentials", &file, "--file", &file]);
    assert_eq!(remora(&read).good(), "{\"ad");
    remora(&[&read[..], &["--connect", first.fact("address")]].concat()).one_line("has another fingerprint");
    drop(second);
    let permissions: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&file, permissions).expect("its owner may");
    remora(&read).one_line("run `chmod 600");
    let mut certified = RmaServer::start("127.0.0.1", &["--credentials", &other, "--admit", ZEROS]);
    let words = ["rma", "read", "--address", "127.0.0.1", "--credentials", &other];
    remora(&words).one_line("give yours with --certificate");
    remora(&[&words[..], &["--certificate", &own]].concat()).one_line("remora rma serve --admit");
    certified.kill();
    let serve = ["rma", "serve", "--listen", "127.0.0.1:0", "--credentials", &own];
    remora(&serve).one_line("it exists and is not a credentials file");
    assert!(std::fs::read_to_string(&own).expect("the file").contains("PRIVATE KEY"), "it is as it was");
}

#[test]
fn the_counters_of_a_server_are_told_by_top_and_judged_by_the_doctor() {
    let server = RmaServer::start("127.0.0.1", &["--metrics", "127.0.0.1:0"]);
    let served = |samples: &std::collections::BTreeMap<String, f64>| samples["remora_rma_served_total{engine=\"0\",port=\"udp\"}"];
    let before = counters(server.fact("metrics"));
    server.rma("read", &["--len", "8192"]).good();
    let after = counters(server.fact("metrics"));
    assert_eq!(served(&after) - served(&before), 2.0, "commands of 4 KB");
    assert!(after["remora_rma_seconds_total{engine=\"0\",port=\"udp\"}"] > 0.0);
    let bound = "remora_rma_issue_delay_seconds_bucket{engine=\"0\",port=\"udp\",le=\"+Inf\"}";
    assert_eq!(after[bound], 0.0, "it has no commands of its own");
    let doctor = remora(&["doctor", "--metrics", server.fact("metrics"), "--json"]).out;
    let findings: Vec<Value> = doctor.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let text_of = |subject: &str| {
        findings.iter().find(|finding| finding["what"] == subject).map(|finding| finding["found"].to_string())
    };
    let window = text_of("1RMA window").expect("a finding");
    assert!(window.contains("the window was full 0 % of the time since its start"), "{window}");
    assert!(text_of("1RMA delays").expect("a finding").contains("no command of its own"));
    remora(&["doctor", "--metrics", "127.0.0.1:1"]).one_line("no metrics at 127.0.0.1:1");
}

/// Returns the examples in a command's help that use a credentials file.
fn examples(verb: &str) -> Vec<String> {
    let help = remora(&["rma", verb, "--help"]).good();
    let lines = help.lines().map(str::trim).filter(|line| line.contains("--credentials server.json"));
    lines.map(str::to_owned).collect()
}

/// A script that runs the lines `$2` in the folder `$1`, in its own network namespace, with the commands in
/// folder `$0`. The first line starts a server, which writes the file that the others read.
const TYPED: &str = r#"
ip link set lo up || exit 77
cd "$1" && PATH="$0:$PATH" && rm -f server.json
eval "$(printf '%s' "$2" | head -n 1)" >/dev/null
server=$!
trap 'kill $server' EXIT
until [ -s server.json ]; do kill -0 $server || exit 79; sleep 0.05; done
set -e
printf '%s' "$2" | tail -n +2 > typed
. ./typed
"#;

/// Regression: the examples of `remora rma --help` named a fingerprint that does not exist.
#[test]
fn the_examples_of_each_help_work_when_typed() {
    let binary = std::path::Path::new(crate::running::binary()).parent().expect("a folder");
    for verb in ["serve", "read", "write", "rekey", "regions"] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("page"), b"a page").expect("a file");
        let lines = examples(verb);
        assert!(lines.len() >= 2 && lines[0].starts_with("remora rma serve"), "{verb}: {lines:?}");
        let mut shell = Command::new("unshare");
        shell.args(["--user", "--map-root-user", "--net", "sh", "-c", TYPED]).arg(binary);
        shell.arg(folder.path()).arg(lines.join("\n")).stdin(Stdio::null());
        let ended = finish(&mut shell);
        let refused = ended.status == 77 || ended.err.contains("unshare");
        remora_netns::require!(!refused, format!("this process gets no user namespace: {}", ended.err));
        ended.good();
    }
}

/// A script that runs a server and a client without any capability. `$0` is the command, `$1` an address,
/// `$2` a folder.
const UNPRIVILEGED: &str = r#"
grep -q '^CapEff:.0*$' /proc/self/status || exit 78
case $1 in *:*) listen="[$1]:0";; *) listen="$1:0";; esac
"$0" rma serve --json --address $1 --listen $listen --file $2/table --token-file $2/token > $2/facts &
server=$!
until [ -s $2/facts ]; do kill -0 $server || exit 79; sleep 0.05; done
fact() { sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/" $2/facts; }
"$0" rma read --address $1 --connect $(fact address $2) --fingerprint $(fact fingerprint $2) --token-file $2/token
status=$?
kill $server
exit $status
"#;

#[test]
fn a_server_and_a_client_need_no_capability() {
    for address in ["127.0.0.1", "::1"] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("table"), b"read without any right").expect("a file");
        let inside = "ip link set lo up || exit 77; exec setpriv --bounding-set=-all --inh-caps=-all sh -c \"$3\" \"$0\" \"$1\" \"$2\"";
        let mut shell = Command::new("unshare");
        shell.args(["--user", "--map-root-user", "--net", "sh", "-c", inside, crate::running::binary()]);
        shell.arg(address).arg(folder.path()).arg(UNPRIVILEGED).stdin(Stdio::null());
        let ended = finish(&mut shell);
        let refused = ended.status == 77 || ended.err.contains("unshare");
        remora_netns::require!(!refused, format!("this process gets no user namespace: {}", ended.err));
        assert_eq!(ended.good(), "read without any right", "{address}");
    }
}
