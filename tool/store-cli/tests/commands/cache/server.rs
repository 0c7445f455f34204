//! The cache server: its limits, misbehaving clients, and mistakes on the command line.

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use super::Served;
use crate::running::{command, finish, remora};

#[test]
fn a_taken_port_is_one_line_that_says_how_to_mend_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    remora(&["serve", "cache", "--listen", &address])
        .one_line(&format!("{address} is taken, perhaps by a memcached: end what listens there"));
}

#[test]
fn bad_arguments_are_refused() {
    remora(&["serve", "cache", "--listen", "127.0.0.1:0", "--memory", "1m"])
        .one_line("--memory takes at least 2m");
    remora(&["serve", "cache", "--listen", "127.0.0.1:0", "--items", "2g"]).one_line("--items takes at most");
    remora(&["serve", "cache", "--listen", "203.0.113.7:0"]).one_line("no address of this machine");
    for (option, value) in [("--memory", "64x"), ("--memory", "0"), ("--clients", "0"), ("--listen", "here")]
    {
        remora(&["serve", "cache", option, value]).bad_arguments(option);
    }
}

#[test]
fn more_clients_than_descriptors_are_told_with_their_limit() {
    let mut shell = std::process::Command::new("sh");
    let serve = "ulimit -n 100; exec \"$0\" serve cache --listen 127.0.0.1:0 --clients 1000";
    shell.args(["-c", serve, crate::running::binary()]).stdin(Stdio::null());
    finish(&mut shell)
        .one_line("1000 clients need 1016 file descriptors: raise `ulimit -Hn`, or serve --clients 84");
    // The server raises a soft limit by itself.
    let mut shell = std::process::Command::new("sh");
    let serve = "ulimit -S -n 64; exec \"$0\" serve cache --listen \"$1\" --clients 1000";
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    shell.args(["-c", serve, crate::running::binary(), &address]).stdin(Stdio::null());
    finish(&mut shell).one_line("is taken");
}

#[test]
fn a_client_too_many_is_told_and_gets_a_place_when_one_left() {
    let server = Served::remora(&["--clients", "2"]);
    let mut first = server.talk();
    let mut second = server.talk();
    assert_eq!(first.tell("verbosity 1"), "OK");
    assert_eq!(second.tell("verbosity 1"), "OK");
    let mut third = server.talk();
    assert_eq!(third.line(), b"ERROR Too many open connections\r\n");
    assert_eq!(third.line(), b"", "and hung up on");
    assert_eq!(first.stat("rejected_connections"), 1);
    drop(second);
    // The server needs a moment to notice that the second client has left; only then is a place free.
    let mut tries = 0;
    while first.stat("curr_connections") > 1 {
        tries += 1;
        assert!(tries < 1000, "it keeps the place of a client that left");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.talk().tell("verbosity 1"), "OK");
}

#[test]
fn a_thousand_clients_at_a_time_are_served_by_one_thread() {
    let server = Served::remora(&[]);
    let mut clients: Vec<_> = (0..1000).map(|_| server.talk()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        client.send(format!("set k{n} 0 0 4\r\n{n:04}\r\nget k{n}\r\n").as_bytes());
    }
    for (n, client) in clients.iter_mut().enumerate() {
        let expected = format!("STORED\r\nVALUE k{n} 0 4\r\n{n:04}\r\nEND\r\n");
        assert_eq!(client.bytes(expected.len()), expected.as_bytes());
    }
    assert_eq!(clients[0].stat("curr_connections"), 1000);
    assert_eq!(clients[0].stat("curr_items"), 1000);
}

#[test]
fn a_client_that_does_not_read_stops_itself_and_nobody_else() {
    let server = Served::remora(&[]);
    let mut slow = server.talk();
    let mut other = server.talk();
    let mut value = b"set a 0 0 1048576\r\n".to_vec();
    value.resize(value.len() + 1_048_576, b'v');
    value.extend_from_slice(b"\r\n");
    slow.send(&value);
    assert_eq!(slow.line(), b"STORED\r\n");
    // The request asks for 100 MiB of values, which no socket buffer can hold.
    slow.send(format!("get{}\r\n", " a".repeat(100)).as_bytes());
    assert_eq!(other.tell("set a 0 0 1\r\nx"), "STORED");
    assert_eq!(other.tell("delete a"), "DELETED");
    let mut whole = 0;
    loop {
        let line = slow.line();
        match line.as_slice() {
            b"END\r\n" => break,
            b"VALUE a 0 1048576\r\n" => {
                let bytes = slow.bytes(1_048_578);
                assert!(bytes[..1_048_576].iter().all(|byte| *byte == b'v') && bytes.ends_with(b"\r\n"));
                whole += 1;
            }
            // These answers belong to requests after the other client had stored another value.
            other => assert!(matches!(other, b"VALUE a 0 1\r\n" | b"x\r\n"), "{other:?}"),
        }
    }
    assert!(whole > 0);
}

#[test]
fn clients_that_go_in_the_middle_leave_nothing_behind() {
    let mut server = Served::remora(&["--memory", "2m"]);
    for round in 0..50 {
        let mut rude = server.talk();
        // The client disconnects within a value that it sends and that takes most of the memory, within one
        // that it receives, and within a line.
        rude.send(
            [&b"set a 0 0 1048576\r\nxyz"[..], b"get b", b"\x80\x01\x02", b"get b b b b\r\nget"][round % 4],
        );
        if round % 3 == 0 {
            let _ = rude.stream.get_ref().shutdown(Shutdown::Write);
        }
    }
    let mut polite = server.talk();
    let mut tries = 0;
    while polite.stat("curr_connections") > 1 {
        tries += 1;
        assert!(tries < 1000, "it keeps the places of clients that left");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut value = b"set a 0 0 1048576\r\n".to_vec();
    value.resize(value.len() + 1_048_578, b'\n');
    let end = value.len() - 2;
    value[end..].copy_from_slice(b"\r\n");
    polite.send(&value);
    assert_eq!(polite.line(), b"STORED\r\n");
    assert!(server.runs());
}

#[test]
fn the_end_of_a_clients_words_is_not_the_end_of_the_answers() {
    let server = Served::remora(&[]);
    let mut stream = TcpStream::connect(&server.address).expect("a connection");
    std::io::Write::write_all(&mut stream, b"set a 0 0 1\r\nx\r\nget a\r\nget").expect("it listens");
    stream.shutdown(Shutdown::Write).expect("a connection");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("answers, and their end");
    assert_eq!(all, "STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn an_item_dies_when_its_time_has_come() {
    let server = Served::remora(&[]);
    let mut talk = server.talk();
    assert_eq!(talk.tell("set a 0 2 1\r\nx"), "STORED");
    assert_eq!(talk.tell("set b 0 1000 1\r\nx"), "STORED");
    let mut tries = 0;
    while talk.tell("touch b 1000") == "TOUCHED" && talk.tell("append a 0 0 1\r\nx") == "STORED" {
        tries += 1;
        assert!(tries < 1000, "it never dies");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(tries > 0, "it lived for a while");
    assert_eq!(talk.tell("touch b 0"), "TOUCHED");
}

#[test]
fn its_help_says_where_the_protocol_is_described() {
    let help = finish(&mut command(&["serve", "cache", "--help"])).good();
    assert!(help.contains("docs/guides/cache.md") && help.contains("--memory"), "{help}");
}
