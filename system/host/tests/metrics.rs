//! The metrics endpoint with well-behaved and hostile clients.

use remora_host::metrics::{Endpoint, Family, HEAD_BYTES_MAX, StartError, TOGETHER_MAX};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn start() -> Endpoint {
    let asked = AtomicU64::new(0);
    let snapshot = move || {
        let times = asked.fetch_add(1, Ordering::Relaxed) + 1;
        vec![Family::counter("asked", "Snapshots taken.").sample(&[("engine", "0")], times)]
    };
    Endpoint::start("127.0.0.1:0".parse().expect("an address"), snapshot).expect("loopback has a free port")
}

/// Sends `request` in one piece and reads until the endpoint hangs up.
fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(address).expect("connecting to the server");
    stream.write_all(request.as_ref()).expect("sending to the server");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer and the end of the connection");
    answer
}

fn status(answer: &str) -> &str {
    answer.split_whitespace().nth(1).unwrap_or("no status")
}

#[test]
fn each_get_is_answered_with_a_fresh_snapshot() {
    let endpoint = start();
    for times in 1..=3 {
        let answer = ask(endpoint.address(), "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
        let expected = format!(
            "# HELP asked_total Snapshots taken.\n# TYPE asked_total counter\nasked_total{{engine=\"0\"}} {times}\n"
        );
        assert_eq!(body, expected);
    }
}

#[test]
fn a_head_request_has_the_length_and_no_body() {
    let endpoint = start();
    let answer = ask(endpoint.address(), "HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert_eq!(status(&answer), "200");
    assert!(answer.ends_with("\r\n\r\n") && !answer.contains("Content-Length: 0"), "{answer}");
}

#[test]
fn a_request_in_single_bytes_is_understood() {
    let endpoint = start();
    let mut stream = TcpStream::connect(endpoint.address()).expect("connecting to the server");
    stream.set_nodelay(true).expect("a socket option");
    for byte in b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n" {
        stream.write_all(&[*byte]).expect("sending to the server");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_eq!(status(&answer), "200");
}

#[test]
fn bad_requests_are_answered_and_the_endpoint_goes_on() {
    let endpoint = start();
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(HEAD_BYTES_MAX));
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65));
    for (request, expected) in [
        ("GET /elsewhere HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", "405"),
        ("\u{0}\u{1}\u{2}rubbish\r\n\r\n", "400"),
        ("GET /metrics HTTP/9.9\r\n\r\n", "400"),
        (&long, "431"),
        (&many, "431"),
    ] {
        let answer = ask(endpoint.address(), request);
        assert_eq!(status(&answer), expected, "{request:.40} {answer}");
    }
    assert!(ask(endpoint.address(), "PUT /metrics HTTP/1.1\r\n\r\n").contains("\r\nAllow: GET, HEAD\r\n"));
    assert_eq!(status(&ask(endpoint.address(), "GET /metrics HTTP/1.1\r\n\r\n")), "200");
}

#[test]
fn a_client_that_goes_away_is_no_trouble() {
    let endpoint = start();
    for request in ["", "GET /met"] {
        let mut stream = TcpStream::connect(endpoint.address()).expect("connecting to the server");
        stream.write_all(request.as_bytes()).expect("sending to the server");
    }
    assert_eq!(status(&ask(endpoint.address(), "GET /metrics HTTP/1.1\r\n\r\n")), "200");
}

#[test]
fn slow_clients_are_told_so_when_their_time_is_over() {
    let endpoint = start();
    let slow: Vec<TcpStream> = (0..TOGETHER_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(endpoint.address()).expect("connecting to the server");
            stream.write_all(b"GET /metrics HTTP/1.1\r\nA: ").expect("sending to the server");
            stream
        })
        .collect();
    for mut stream in slow {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer after the time limit");
        assert_eq!(status(&answer), "408");
    }
}

/// Regression: eight silent connections made `/metrics` answer everybody with 503.
#[test]
fn one_that_asks_is_answered_beside_silent_connections_and_the_oldest_is_cut_off() {
    let endpoint = start();
    let mut silent: Vec<TcpStream> = Vec::new();
    for _ in 0..3 * TOGETHER_MAX {
        silent.push(TcpStream::connect(endpoint.address()).expect("connecting to the server"));
        assert_eq!(status(&ask(endpoint.address(), "GET /metrics HTTP/1.1\r\n\r\n")), "200");
    }
    // The connection sent nothing, and gets no answer.
    assert_eq!(silent[0].read(&mut [0; 16]).expect("the end of the connection"), 0);
}

#[test]
fn a_taken_port_is_one_line_that_says_how_to_mend_it() {
    let endpoint = start();
    let error = Endpoint::start(endpoint.address(), Vec::new).expect_err("the port is taken");
    assert!(matches!(error, StartError::Taken(_)));
    let line = error.to_string();
    assert!(line.contains(&endpoint.address().to_string()) && line.contains("choose another port"), "{line}");
    assert!(!line.contains('\n'));
}

#[test]
fn an_address_of_another_machine_is_refused_with_the_systems_words() {
    let error = Endpoint::start("192.0.2.1:0".parse().expect("an address"), Vec::new).expect_err("not ours");
    assert!(error.to_string().starts_with("metrics: cannot listen on 192.0.2.1:0: "), "{error}");
}

#[test]
fn dropping_it_gives_back_the_port_and_the_snapshot() {
    let kept = Arc::new(());
    let inside = Arc::clone(&kept);
    let snapshot = move || {
        let _ = &inside;
        Vec::new()
    };
    let endpoint =
        Endpoint::start("127.0.0.1:0".parse().expect("an address"), snapshot).expect("a free port");
    let address = endpoint.address();
    drop(endpoint);
    assert_eq!(Arc::strong_count(&kept), 1);
    drop(Endpoint::start(address, Vec::new).expect("the port is free again"));
}
