//! The NIC daemon as a command.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::running::{Folder, Lender, command, remora};

#[test]
fn a_daemon_says_who_is_there_and_ends_when_it_is_told_to() {
    let mut lender = Lender::start("who", &["--port", "udp"]);
    let facts: Value =
        serde_json::from_str(&remora(&["devinfo", "--nicd", lender.at(), "--json"]).good()).expect("JSON");
    assert_eq!((&facts["port"], &facts["port_manner"]), (&"udp".into(), &"through its daemon".into()));
    let context = remora_verbs::Device::nicd(&lender.path).keep("a tenant").open().expect("an attachment");
    let domain = context.alloc_pd().expect("a domain");
    let _region = domain.allocate(4096, remora_verbs::Access::LOCAL_WRITE).expect("a region");
    lender.signal(rustix::process::Signal::USR1);
    let tenant = lender.next();
    assert_eq!((&tenant["tenant"], &tenant["attached"]), (&"a tenant".into(), &true.into()), "{tenant}");
    assert_eq!((&tenant["regions"], &tenant["bytes"]), (&1.into(), &4096.into()), "{tenant}");
    lender.signal(rustix::process::Signal::TERM);
    assert!(lender.child.wait().expect("its end").success());
    assert!(!Path::new(&lender.path).exists(), "the socket is taken away");
}

#[test]
fn kept_tenants_are_listed_and_ended_by_command() {
    let lender = Lender::of(command(&["serve", "nic", "--json", "--socket"]), "ended", &[]);
    for name in ["first", "second\u{1b}[2J"] {
        let context = remora_verbs::Device::nicd(&lender.path).keep(name).open().expect("an attachment");
        let domain = context.alloc_pd().expect("a domain");
        let _region =
            domain.allocate_named("table", 4096, remora_verbs::Access::LOCAL_WRITE).expect("a region");
        context.leave();
    }
    let nic = |words: &[&str]| remora(&[words, &["--socket", lender.at()]].concat());
    for listing in [["nic", "tenants"], ["nicd", "list"]] {
        let table = nic(&listing).good();
        assert!(table.contains("first") && !table.contains('\u{1b}'), "{table}");
    }
    let out = nic(&["nic", "tenants", "--json"]).good();
    let tenants: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(tenants.len(), 2, "{out}");
    assert_eq!((&tenants[0]["tenant"], &tenants[0]["bytes"]), (&"first".into(), &4096.into()), "{out}");
    let ended: Value = serde_json::from_str(&nic(&["nic", "end", "first", "--json"]).good()).expect("JSON");
    assert_eq!((&ended["tenant"], &ended["ended"]), (&"first".into(), &true.into()), "{ended}");
    nic(&["nic", "end", "first"]).one_line("no kept tenant `first`: `remora nic tenants` shows them");
    assert_eq!(nic(&["nicd", "end", "second\u{1b}[2J", "--uid", "0"]).good(), "");
    assert_eq!(nic(&["nic", "tenants", "--json"]).good(), "");
}

#[test]
fn one_daemon_shares_an_address_and_lends_a_nic_and_the_doctor_shows_both() {
    let address = "127.93.8.1";
    let lender = Lender::start("share", &["--share", "--port", "udp", "--address", address]);
    remora(&["broker", "--address", address]).one_line("a broker has 127.93.8.1 already");
    let name = format!("@remora-broker/{address}:4791");
    let context = remora_verbs::Device::nicd(&name).keep("store").open().expect("an attachment");
    let domain = context.alloc_pd().expect("a domain");
    let _region = domain.allocate(4096, remora_verbs::Access::LOCAL_WRITE).expect("a region");
    let out = remora(&["nic", "tenants", "--socket", lender.at(), "--json"]).good();
    assert_eq!(remora(&["nic", "tenants", "--socket", &name, "--json"]).good(), out);
    let out = remora(&["doctor", "--address", address, "--json"]).out;
    let findings: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let found = |what: &str| {
        let finding = findings.iter().find(|finding| finding["what"] == what);
        finding.unwrap_or_else(|| panic!("no {what}: {out}"))["found"].as_str().expect("a text").to_owned()
    };
    let lent =
        format!("user {} shares {address}; 1 of 127 QPN ranges lent", rustix::process::getuid().as_raw());
    assert!(found("broker").contains(&lent), "{out}");
    assert_eq!(found("lent NIC"), format!("lent at {name}; tenants: 1"));
    assert!(
        found("NIC tenants").contains("tenants: 1 (0 without a program), queue pairs: 0, bytes: 4096"),
        "{out}"
    );
    drop(context);
    remora(&["serve", "nic", "--share"]).one_line("--share is for port udp");
}

#[test]
fn what_is_wrong_with_a_daemon_is_told_in_a_line() {
    let lender = Lender::start("wrong", &[]);
    remora(&["nicd", "--socket", lender.at()]).one_line("choose another --socket");
    remora(&["nicd", "--socket", "/nowhere/nic.sock"]).one_line("no such folder");
    remora(&["devinfo", "--nicd", "/nowhere/nic.sock"]).one_line("start it by `remora serve nic");
    remora(&["devinfo", "--nicd", lender.at(), "--port", "udp"]).bad_arguments("cannot be used with");
    remora(&["nicd", "--pairs", "0"]).bad_arguments("from 1 to 16384");
}

/// Starts a server whose NIC and table belong to the daemon.
fn keeper(lender: &Lender, listen: &str) -> Child {
    let words = ["serve", "kv", "--child", "--records", "500", "--capacity", "2000", "--listen", listen];
    let mut command = command(&words);
    command.args(["--nicd", lender.at(), "--keep", "store"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the server");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    assert_eq!(line.trim(), listen, "{:?}", child.wait_with_output());
    child
}

#[test]
fn a_table_that_a_daemon_keeps_outlives_its_servers() {
    let lender = Lender::start("store", &[]);
    let listen = crate::running::free_addresses(1).remove(0);
    let kv = |verb, rest: &[&str]| remora(&[&["kv", verb][..], rest, &["--connect", &listen]].concat());
    let mut server = keeper(&lender, &listen);
    kv("put", &["colour", "blue"]).good();
    kv("put", &["gone", "soon"]).good();
    kv("delete", &["gone"]).good();
    for round in ["red", "green"] {
        server.kill().expect("its death");
        server.wait().expect("its end");
        server = keeper(&lender, &listen);
        kv("put", &["new", round]).good();
        assert_eq!(kv("get", &["new"]).good().trim(), round);
    }
    assert_eq!(kv("get", &["colour"]).good().trim(), "blue");
    kv("get", &["gone"]).one_line("no such key");
    server.kill().expect("its death");
    server.wait().expect("its end");
    // Options that do not fit the kept table are refused, and the table is not lost.
    let other =
        ["serve", "kv", "--nicd", lender.at(), "--keep", "store", "--clients", "7", "--listen", &listen];
    remora(&other).one_line("start with the same words as before");
    remora(&[&other[..], &["--design", "pilaf"]].concat()).one_line("--keep supports only --design farm");
    let mut server = keeper(&lender, &listen);
    assert_eq!(kv("get", &["colour"]).good().trim(), "blue");
    server.kill().expect("its death");
    server.wait().expect("its end");
}

/// Kills a server with SIGKILL while clients GET. No GET fails. The longest gap is printed beside that of a
/// server with its own NIC and of a restarted memcached.
#[test]
fn gets_go_on_while_their_server_is_killed_where_a_daemon_keeps_the_table() {
    let folder = Folder::new("failure");
    let report = folder.0.to_str().expect("a path of letters");
    let words = ["bench", "failure", "--records", "2000", "--seconds", "0.2", "--rounds", "2", "--json"];
    let out = remora(&[&words[..], &["--report", report]].concat()).good();
    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let find = |case: &str, metric: &str| {
        let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
        row.unwrap_or_else(|| panic!("no {metric} of {case}: {out}"))["rounds"].clone()
    };
    for kept in ["chain", "farm"] {
        let failed = find(&format!("shm/{kept}/nicd/64"), "failed_gets");
        assert_eq!(failed, serde_json::json!([0.0, 0.0]), "{kept}");
    }
    let drawn = folder.read("redn-figure-16.svg");
    for word in ["Figure 16", "RedN", "memcached", "as the paper states"] {
        assert!(drawn.contains(word), "no {word} in the figure");
    }
    let sums = |case: &str| -> f64 {
        find(case, "failed_gets").as_array().expect("rounds").iter().filter_map(Value::as_f64).sum()
    };
    assert!(sums("shm/farm/64") > 0.0 && sums("tcp/memcached/64") > 0.0, "{out}");
}
