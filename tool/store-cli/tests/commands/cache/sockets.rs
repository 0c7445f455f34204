//! Connections of cache clients: a Unix socket, silent clients, browsers, and clients of other protocols.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Served;
use crate::running::remora;

/// A path for a socket, in a directory that is removed at the end of the test.
struct Place(std::path::PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let directory = tempfile::Builder::new().prefix(name).tempdir().expect("a folder").keep();
        Place(directory)
    }

    fn socket(&self) -> String {
        self.0.join("cache.sock").to_str().expect("text").to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ask(path: &str, request: &str) -> String {
    let mut stream = UnixStream::connect(path).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("an option");
    stream.write_all(request.as_bytes()).expect("it listens");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    line
}

#[test]
fn a_unix_socket_is_served_with_its_mode_and_removed_at_the_end() {
    let place = Place::new("served");
    let path = place.socket();
    for (signal, mode) in [("-TERM", "660"), ("-INT", "700"), ("-HUP", "600")] {
        let mut server = Served::start(&["--unix-socket", &path, "--unix-socket-mode", mode]);
        assert_eq!(server.address, path, "it is served there alone");
        let metadata = fs::symlink_metadata(&path).expect("a socket");
        assert!(metadata.file_type().is_socket());
        assert_eq!(format!("{:o}", metadata.permissions().mode() & 0o777), mode);
        assert_eq!(ask(&path, "set a 0 0 1\r\nx\r\nget a\r\n"), "STORED\r\n");
        assert_eq!(ask(&path, "mg a v\r\n"), "VA 1\r\n");
        assert!(server.ended(Some(signal)).success(), "{signal}");
        assert_eq!(fs::read_dir(&place.0).expect("a directory").count(), 0, "{signal} leaves nothing");
    }
}

#[test]
fn a_socket_that_a_killed_server_left_is_taken_over_and_anything_else_is_not() {
    let place = Place::new("left");
    let path = place.socket();
    let mut killed = Served::start(&["--unix-socket", &path]);
    killed.kill();
    assert!(fs::symlink_metadata(&path).is_ok(), "nobody removed it");
    let next = Served::start(&["--unix-socket", &path, "--listen", "127.0.0.1:0"]);
    assert_eq!(ask(&path, "version\r\n"), "VERSION 1.6.18\r\n");
    // Both sockets lead to the same cache.
    let address = next.address.split(' ').next().expect("an address");
    let mut tcp = TcpStream::connect(address).expect("a connection");
    tcp.write_all(b"set a 0 0 1 noreply\r\nx\r\nquit\r\n").expect("it listens");
    assert_eq!(tcp.read(&mut [0]).expect("its end"), 0);
    assert_eq!(ask(&path, "mg a\r\n"), "HD\r\n");
    remora(&["serve", "cache", "--unix-socket", &path]).one_line("is taken, perhaps by a memcached");
    let file = place.0.join("file");
    fs::write(&file, "mine").expect("a file");
    remora(&["serve", "cache", "--unix-socket", file.to_str().expect("text")])
        .one_line("is there, and is no socket");
    assert_eq!(fs::read(&file).expect("a file"), b"mine");
    remora(&["serve", "cache", "--unix-socket", "/nowhere/at/all"]).one_line("its directory must be there");
    for mode in ["8", "1777", "rwx"] {
        remora(&["serve", "cache", "--unix-socket", &path, "--unix-socket-mode", mode])
            .bad_arguments("octal");
    }
}

#[test]
fn one_that_says_nothing_for_long_is_let_go_and_counted() {
    let server = Served::remora(&["--idle-timeout", "1"]);
    let mut silent = server.talk();
    let mut begun = server.talk();
    begun.send(b"set a 0 0 100\r\nxyz");
    let mut speaks = server.talk();
    for _ in 0..25 {
        assert_eq!(speaks.tell("verbosity 1"), "OK");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!((silent.line(), begun.line()), (Vec::new(), Vec::new()), "they are hung up on");
    assert_eq!((speaks.stat("idle_kicks"), speaks.stat("curr_connections")), (2, 1));
    speaks.send(b"stats settings\r\n");
    while speaks.line() != b"STAT idle_timeout 1\r\n" {}
}

#[test]
fn a_client_that_waits_for_the_answer_to_a_refused_line_gets_it_and_goes_on() {
    let server = Served::remora(&[]);
    let mut talk = server.talk();
    for line in ["set a 0 0 -1", "ms a", "set a 0 0 4294967295", "append"] {
        let answer = talk.tell(line);
        assert!(answer.contains("ERROR"), "{line:?}: {answer:?}");
        assert_eq!(talk.tell("verbosity 1"), "OK", "{line:?}");
    }
    // A client that has closed its sending side still gets an answer.
    let mut stream = TcpStream::connect(&server.address).expect("a connection");
    stream.write_all(b"set a 0 0 -1\r\n").expect("it listens");
    stream.shutdown(std::net::Shutdown::Write).expect("a connection");
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("an answer");
    assert_eq!(all, "CLIENT_ERROR bad command line format\r\n");
    // A client that sends the value of the refused line later is disconnected.
    let mut late = server.talk();
    late.send(b"set a 0 0 -1\r\n");
    std::thread::sleep(Duration::from_millis(20));
    late.send(b"set b 0 0 1\r\nx\r\n");
    assert_eq!(late.line(), b"CLIENT_ERROR bad command line format\r\n");
    assert_eq!(late.line(), b"");
    assert_eq!(talk.tell("mg b"), "EN");
}

#[test]
fn browsers_and_the_binary_protocol_are_hung_up_on_and_counted() {
    let server = Served::remora(&[]);
    let mut browser = server.talk();
    browser.send(b"POST / HTTP/1.1\r\n");
    assert_eq!(browser.line(), b"");
    let mut binary = server.talk();
    binary.send(b"\x80");
    assert_eq!(binary.line(), b"");
    let mut talk = server.talk();
    assert_eq!((talk.stat("rejected_http"), talk.stat("rejected_binary")), (1, 1));
}

#[test]
fn many_announced_values_evict_nothing() {
    let server = Served::remora(&[]);
    let mut talk = server.talk();
    let mut all = Vec::new();
    for n in 0..50_000 {
        all.extend_from_slice(format!("set k{n} 0 0 4 noreply\r\nsome\r\n").as_bytes());
    }
    talk.send(&all);
    assert_eq!(talk.stat("curr_items"), 50_000);
    let mut pins: Vec<_> = (0..64).map(|_| server.talk()).collect();
    for (n, pin) in pins.iter_mut().enumerate() {
        pin.send(format!("set pin{n} 0 0 1048000\r\n").as_bytes());
        // The client then sends some bytes of the value.
        pin.send(&vec![b'p'; n * 1000]);
    }
    while talk.stat("bytes_read") < all.len() as u64 + 64 * 63 / 2 * 1000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((talk.stat("curr_items"), talk.stat("evictions")), (50_000, 0));
}

#[test]
fn a_client_ends_the_server_if_that_is_allowed() {
    let mut server = Served::remora(&["--enable-shutdown"]);
    let mut talk = server.talk();
    assert_eq!(talk.tell("shutdown foo"), "CLIENT_ERROR invalid shutdown mode");
    talk.send(b"shutdown graceful\r\n");
    assert!(server.ended(None).success());
}

#[test]
fn the_version_is_three_numbers_and_stats_tell_the_rest() {
    let server = Served::remora(&[]);
    let mut talk = server.talk();
    assert_eq!(talk.tell("version"), "VERSION 1.6.18");
    talk.send(b"stats\r\n");
    while talk.line() != format!("STAT remora {}\r\n", env!("CARGO_PKG_VERSION")).as_bytes() {}
}
