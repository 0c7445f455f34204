//! `remora capture`, and the options `--capture` and `--fault`.

use crate::running::{Scratch, Server, counters, packets, remora};

#[test]
fn a_command_under_capture_leaves_its_frames_in_a_file() {
    for port in ["shm", "udp"] {
        let server = Server::start("farm", port, &[]);
        server.kv("put", &["key", "value"]).good();
        let file = Scratch::new(b"to be replaced");
        let words = ["capture", "-o", file.path(), "--", "remora"];
        let ended = remora(&[words.as_slice(), &server.words("get", &["key"])].concat());
        assert_eq!(ended.good(), "value\n");
        // These are two READs and their responses.
        assert!(packets(file.path()) >= 4, "{} over {port}", packets(file.path()));
    }
}

#[test]
fn a_capture_of_udp_says_how_tshark_decodes_it() {
    let server = Server::start("farm", "udp", &[]);
    server.kv("put", &["key", "value"]).good();
    let file = Scratch::new(b"");
    let words = ["capture", "-o", file.path(), "--", "remora"];
    let ended = remora(&[words.as_slice(), &server.words("get", &["key"])].concat());
    let hint =
        ended.err.lines().find_map(|line| line.strip_prefix("to decode it: ")).expect("a hint").to_owned();
    ended.good();
    let mut words = hint.split(' ');
    let tshark = std::process::Command::new(words.next().unwrap()).args(words).output().expect("tshark");
    let text = String::from_utf8_lossy(&tshark.stdout);
    assert!(text.contains("RRoCE") && text.contains("RC RDMA Read Request"), "{hint}: {text}");
}

#[test]
fn a_capture_of_nothing_says_so() {
    let file = Scratch::new(b"");
    remora(&["capture", "-o", file.path(), "true"]).one_line("opened no NIC");
    remora(&["capture", "-o", file.path(), "/none/such"]).one_line("/none/such");
    let none = ["kv", "get", "--capture", "/none/such/file", "key"];
    remora(&none).one_line("the capture /none/such/file cannot be written");
}

#[test]
fn a_server_that_loses_frames_still_answers_right() {
    let rules = Scratch::new(b"[[rule]]\nfault = 'drop'\nevery = 5\n");
    for port in ["shm", "udp"] {
        let server = Server::start("farm", port, &["--fault", rules.path(), "--metrics", "127.0.0.1:0"]);
        for value in ["one", "two", "three"] {
            server.kv("put", &["key", value]).good();
            assert_eq!(server.kv("get", &["key"]).good().trim_end(), value);
        }
        let name = format!("remora_port_faults_dropped_total{{engine=\"0\",port=\"{port}\"}}");
        assert!(counters(&server.metrics)[&name] > 0.0);
    }
}

#[test]
fn rules_that_are_wrong_are_told_in_one_line() {
    let rules = Scratch::new(b"[[rule]]\nfault = 'explode'\n");
    remora(&["kv", "get", "--fault", rules.path(), "key"]).one_line("explode");
    remora(&["kv", "get", "--fault", "/none/such", "key"]).one_line("/none/such");
}
