//! Each key-value design over each port, used from the command line.

use std::process::Stdio;
use std::time::Duration;

use crate::running::{Scratch, Server, command, remora};

const PAIRS: &[u8] = b"colour blue\nlonely\nshape round and red\n\n wide\nlast one\n";

#[track_caller]
fn use_it(design: &str, port: &str) {
    let server = Server::start(design, port, &["--records", "100"]);
    server.kv("get", &["none"]).one_line("no such key: none");
    server.kv("put", &["colour", "blue"]).good();
    assert_eq!(server.kv("get", &["colour"]).good(), "blue\n");
    server.kv("put", &["colour", "green, and longer than before"]).good();
    assert_eq!(server.kv("get", &["colour"]).good(), "green, and longer than before\n");
    server.kv("delete", &["colour"]).good();
    server.kv("delete", &["colour"]).one_line("no such key: colour");
    let file = Scratch::new(PAIRS);
    let loaded = server.kv("load", &[file.path()]);
    assert!(loaded.err.contains("line 2: ") && loaded.err.contains("line 5: "), "{}", loaded.err);
    assert_eq!(loaded.good(), "3 keys stored, 2 lines left out\n");
    assert_eq!(server.kv("get", &["shape"]).good(), "round and red\n");
}

#[test]
fn pilaf_over_shm_stores_reads_removes_and_loads() {
    use_it("pilaf", "shm");
}

#[test]
fn pilaf_over_udp_stores_reads_removes_and_loads() {
    use_it("pilaf", "udp");
}

#[test]
fn farm_over_shm_stores_reads_removes_and_loads() {
    use_it("farm", "shm");
}

#[test]
fn farm_over_udp_stores_reads_removes_and_loads() {
    use_it("farm", "udp");
}

#[test]
fn two_sided_over_shm_stores_reads_removes_and_loads() {
    use_it("two-sided", "shm");
}

#[test]
fn two_sided_over_udp_stores_reads_removes_and_loads() {
    use_it("two-sided", "udp");
}

#[test]
fn prism_over_shm_stores_reads_removes_and_loads() {
    use_it("prism", "shm");
}

#[test]
fn prism_over_udp_stores_reads_removes_and_loads() {
    use_it("prism", "udp");
}

#[test]
fn strom_over_shm_stores_reads_removes_and_loads() {
    use_it("strom", "shm");
}

#[test]
fn strom_over_udp_stores_reads_removes_and_loads() {
    use_it("strom", "udp");
}

#[test]
fn prism_takes_values_to_a_mebibyte_and_a_client_of_another_design_is_told() {
    let server = Server::start("prism", "shm", &["--records", "10"]);
    let file = Scratch::new(&[b"long ".as_slice(), &vec![b'x'; 1 << 20]].concat());
    assert_eq!(server.kv("load", &[file.path()]).good(), "1 keys stored, 0 lines left out\n");
    assert_eq!(server.kv("get", &["long"]).good().trim_end().len(), 1 << 20);
    let other = Server::start("farm", "shm", &[]);
    let refused = remora(&["kv", "get", "--design", "prism", "--connect", &other.address, "key"]);
    assert!(refused.err.contains("the server runs farm"), "{}", refused.err);
}

#[test]
fn a_server_loads_a_file_and_reports_its_bad_lines_by_number() {
    let file = Scratch::new(PAIRS);
    let server = Server::start("farm", "shm", &["--file", file.path()]);
    let text = server.messages.join("\n");
    assert!(text.contains("line 2: there is no space or tab"), "{text}");
    assert!(text.contains("line 5: the key is empty"), "{text}");
    assert!(text.contains("2 lines were left out, 3 loaded"), "{text}");
    assert_eq!(server.kv("get", &["last"]).good(), "one\n");
}

#[test]
fn a_value_longer_than_the_server_takes_is_refused_and_the_next_is_taken() {
    let server = Server::start("farm", "shm", &["--max-value", "1000"]);
    let long = "x".repeat(2000);
    server.kv("put", &["key", &long]).one_line("the value is longer than client or server take");
    server.kv("put", &["key", &long[..1000]]).good();
    assert_eq!(server.kv("get", &["key"]).good().trim_end(), &long[..1000]);
}

/// Runs `remora kv VERB` and repeats it until the server has a place for this client.
#[track_caller]
fn when_there_is_room(server: &Server, verb: &str, rest: &[&str]) -> String {
    server.kv(verb, rest).good()
}

#[test]
fn clients_that_left_make_room_for_others_over_shm() {
    places_come_back("shm");
}

#[test]
fn clients_that_left_make_room_for_others_over_udp() {
    places_come_back("udp");
}

#[track_caller]
fn places_come_back(port: &str) {
    let server = Server::start("farm", port, &["--clients", "2"]);
    for round in 0..5 {
        let value = round.to_string();
        when_there_is_room(&server, "put", &["key", &value]);
        assert_eq!(when_there_is_room(&server, "get", &["key"]).trim_end(), value);
    }
}

#[test]
fn a_client_killed_in_the_middle_leaves_the_server_to_the_next() {
    let many: String = (0..1_000_000).map(|n| format!("key{} value{n}\n", n % 500)).collect();
    let file = Scratch::new(many.as_bytes());
    for port in ["shm", "udp"] {
        let server = Server::start("two-sided", port, &["--clients", "2"]);
        for round in 0..3 {
            let mut client = command(&server.words("load", &[file.path()]))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the binary");
            std::thread::sleep(Duration::from_millis(200));
            client.kill().expect("a client");
            client.wait().expect("a client");
            let round = round.to_string();
            when_there_is_room(&server, "put", &["after", &round]);
            assert_eq!(when_there_is_room(&server, "get", &["after"]).trim_end(), round);
        }
    }
}
