//! Mistakes on the command line: each is reported in one clear line with a nonzero exit status and without
//! a backtrace.

use crate::running::{Scratch, Server, remora};

#[test]
fn the_wrong_design_is_told_which_one_is_right() {
    let server = Server::start("farm", "shm", &[]);
    let words = ["kv", "get", "--design", "pilaf", "--connect", &server.address, "key"];
    remora(&words).one_line("the server runs farm: choose that design");
}

#[test]
fn the_wrong_port_is_told_which_one_is_right() {
    let server = Server::start("farm", "shm", &[]);
    let words = ["kv", "get", "--port", "udp", "--connect", &server.address, "key"];
    remora(&words)
        .one_line("ports shm and udp do not meet: open both NICs with shm, or both with udp or xdp");
}

#[test]
fn nobody_listening_is_told_how_to_start_a_server() {
    remora(&["kv", "get", "--connect", "127.0.0.1:1", "key"])
        .one_line("start one with `remora serve kv --listen 127.0.0.1:1`");
}

#[test]
fn a_taken_tcp_port_is_named() {
    let server = Server::start("farm", "shm", &[]);
    remora(&["serve", "kv", "--listen", &server.address]).one_line(&server.address);
}

#[test]
fn a_taken_metrics_port_is_named() {
    let server = Server::start("farm", "shm", &[]);
    remora(&["serve", "kv", "--listen", "127.0.0.1:0", "--metrics", &server.address])
        .one_line(&server.address);
}

#[test]
fn addresses_that_are_none_are_refused() {
    remora(&["kv", "get", "--connect", "nonsense", "key"]).one_line("nonsense");
    remora(&["serve", "kv", "--listen", "bad"]).bad_arguments("--listen");
    remora(&["devinfo", "--port", "udp", "--address", "here"]).bad_arguments("--address");
}

#[test]
fn an_address_of_another_machine_is_told() {
    remora(&["devinfo", "--port", "udp", "--address", "203.0.113.7"]).one_line("203.0.113.7");
}

#[test]
fn an_address_for_a_port_without_one_is_refused() {
    remora(&["devinfo", "--address", "127.0.0.1"]).one_line("--address is for ports udp and xdp");
}

#[test]
fn a_benchmark_that_was_asked_for_what_it_has_not_says_so() {
    remora(&["bench", "congestion", "--report", "/proc/none", "--rounds", "1"]).one_line("/proc/none");
    remora(&["bench", "congestion", "trace.txt"]).one_line("leave trace.txt out");
    remora(&["bench", "verbs", "--only", "no-such-case", "--rounds", "1"]).one_line("no-such-case");
}

#[test]
fn files_that_are_not_there_are_named() {
    let server = Server::start("farm", "shm", &[]);
    server.kv("load", &["/none/such"]).one_line("/none/such");
    remora(&["serve", "kv", "--listen", "127.0.0.1:0", "--file", "/none/such"]).one_line("/none/such");
}

#[test]
fn numbers_out_of_range_are_refused() {
    remora(&["demo", "--records", "0"]).bad_arguments("--records");
    remora(&["bench", "kv", "--records", "0"]).bad_arguments("--records");
    remora(&["bench", "kv", "--workload", "G"]).bad_arguments("--workload");
    remora(&["bench", "kv", "--cores", "1"]).one_line("--cores takes two cores");
    remora(&["top", "--interval", "0"]).bad_arguments("--interval");
}

#[test]
fn a_table_too_small_for_its_records_says_what_to_ask_for() {
    let words = ["serve", "kv", "--listen", "127.0.0.1:0", "--records", "5000", "--memory", "65536"];
    remora(&words).one_line("increase --capacity or --memory");
}

#[test]
fn values_beyond_a_mebibyte_are_refused() {
    let file = Scratch::new(&vec![b'x'; (1 << 20) + 1]);
    let server = Server::start("farm", "shm", &[]);
    let input = std::fs::File::open(file.path()).expect("a scratch file");
    let ended = crate::running::command(&server.words("put", &["key", "-"]))
        .stdin(input)
        .output()
        .expect("the binary");
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!((ended.status.code(), stderr.as_str()), (Some(1), "error: the value is longer than 1 MiB\n"));
}

#[test]
fn no_metrics_there_is_told_how_to_get_some() {
    remora(&["top", "127.0.0.1:1", "--once"]).one_line("remora serve kv --metrics 127.0.0.1:1");
}

#[test]
fn an_interface_that_is_none_or_not_wanted_is_named() {
    remora(&["devinfo", "--port", "xdp"]).one_line("port xdp needs --interface");
    remora(&["devinfo", "--interface", "eth0"]).one_line("--interface is for port xdp");
    let devinfo = |interface| remora(&["devinfo", "--port", "xdp", "--interface", interface]);
    devinfo("no-such-one").one_line("there is no interface no-such-one here");
    devinfo("lo").one_line("lo has no Ethernet frames");
}

#[test]
fn a_key_that_is_too_long_is_refused_and_told_what_says_how_long_it_may_be() {
    let long = "k".repeat(5000);
    for design in ["farm", "prism"] {
        let server = Server::start(design, "shm", &[]);
        server.kv("put", &[&long, "value"]).one_line("the server's --max-key");
        let server = Server::start(design, "shm", &["--max-key", "5000"]);
        server.kv("put", &[&long, "value"]).good();
        assert_eq!(server.kv("get", &[&long]).good(), "value\n");
    }
}

#[test]
fn the_longest_key_with_the_longest_value_is_taken() {
    let key = "k".repeat(1024);
    let file = Scratch::new(&vec![b'x'; 1 << 20]);
    let server = Server::start("prism", "shm", &[]);
    let mut put = crate::running::command(&server.words("put", &[&key, "-"]));
    crate::running::finish(put.stdin(std::fs::File::open(file.path()).expect("a scratch file"))).good();
    assert_eq!(server.kv("get", &[&key]).good().len(), (1 << 20) + 1);
}

/// Runs a command with a closed standard output, and returns its status and error output.
fn unread(words: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = crate::running::command(words).stdout(writer).output().expect("the binary");
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn a_reader_that_has_seen_enough_ends_a_command_without_a_word() {
    assert_eq!(unread(&["devinfo"]), (Some(141), String::new()));
    assert_eq!(unread(&["devinfo", "--json"]), (Some(141), String::new()));
    let server = Server::start("farm", "shm", &[]);
    server.kv("put", &["key", "value"]).good();
    assert_eq!(unread(&server.words("get", &["key"])), (Some(141), String::new()));
}

#[test]
fn a_full_disk_is_told_in_one_line() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has one");
    let ended = crate::running::command(&["devinfo"]).stdout(full).output().expect("the binary");
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        stderr.starts_with("error: ") && stderr.lines().count() == 1 && stderr.contains("space"),
        "{stderr}"
    );
    assert_eq!(ended.status.code(), Some(1));
}

#[test]
fn a_core_that_is_not_there_is_named_once() {
    remora(&["bench", "verbs", "--cores", "0,4000"]).one_line("cannot run on core 4000");
    remora(&["serve", "kv", "--core", "4000"]).one_line("cannot run on core 4000: choose a core that");
}

#[test]
fn figures_that_cannot_be_written_are_not_measured() {
    remora(&["figures", "3", "--report", "/proc/none"]).one_line("creating the folder /proc/none");
}

#[test]
fn metrics_asked_where_none_are_is_told() {
    remora(&["top", "nonsense", "--once"]).one_line("nonsense is not a metrics address");
    let server = Server::start("farm", "shm", &[]);
    remora(&["top", &server.address, "--once"]).one_line("serves no metrics");
}

#[test]
fn a_map_of_servers_that_is_not_there_is_told() {
    remora(&["txn", "get", "key", "--members", "/none/such"])
        .one_line("there is no map of servers at /none/such");
}

#[test]
fn memory_is_counted_in_the_same_words_by_every_server() {
    let server = Server::start("farm", "shm", &["--memory", "4m"]);
    server.kv("put", &["key", "value"]).good();
    remora(&["serve", "kv", "--memory", "lots"])
        .bad_arguments("give a size above 0, such as 4096, 64k, 64m or 1g");
    remora(&["serve", "cache", "--memory", "lots"])
        .bad_arguments("give a size above 0, such as 4096, 64k, 64m or 1g");
}

#[test]
fn what_is_no_number_is_told_with_the_numbers_that_there_are() {
    remora(&["kv", "bench", "--records", "minusone"])
        .bad_arguments("'--records <RECORDS>': give a whole number from 1 to 100000000");
    remora(&["bench", "verbs", "--rounds", "0"]).bad_arguments("give a whole number from 1 to 1000");
    remora(&["kv", "bench", "--seed", "-"]).bad_arguments("give a whole number, 0 or more");
    remora(&["serve", "kv", "--capacity", "4294967296"]).bad_arguments("the number is too large");
    remora(&["bench", "failure", "--seconds", "soon"]).bad_arguments("give seconds from 0 to 86400");
}

#[test]
fn records_longer_than_values_may_be_are_refused() {
    let words = ["serve", "kv", "--records", "1", "--value-len", "200", "--max-value", "100"];
    remora(&words).one_line("--value-len is 200, more than --max-value allows: 100");
}

#[test]
fn a_file_without_rows_is_no_figure() {
    let empty = Scratch::new(b"\n");
    let folder = std::env::temp_dir();
    let report = folder.to_str().expect("a name");
    remora(&["figures", "3", "--rows", empty.path(), "--report", report]).one_line("has no rows");
}

#[test]
fn the_version_names_the_command() {
    let version = remora(&["--version"]).good();
    let mut lines = version.lines();
    assert_eq!(lines.next(), Some(concat!("remora ", env!("CARGO_PKG_VERSION"))));
    assert!(lines.next().is_some_and(|line| line.starts_with("commit: ")), "{version}");
    assert!(lines.next().is_some_and(|line| line.contains("remora-store")), "{version}");
}
