//! The cost of a UDP port, compared with the bare socket: round trips of one frame, and trains.
//!
//! `cargo bench -p remora-port --bench udp -- [--json] [--rounds N]`. Two threads run, each pinned to a core.
//! Every baseline is measured in the same round as the value it is compared with, and all rounds are printed.
#![allow(missing_docs, reason = "a program, not a library")]

use remora_port::udp::{Options, Socket, UdpPort};
use remora_port::{Class, Egress, Port};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A way to send a frame and to wait for another by spinning.
trait Wire {
    fn send(&mut self, len: usize);
    /// Returns the number of frames that have arrived, without waiting.
    fn poll(&mut self) -> usize;
}

/// The bare socket with `sendto` and `recvfrom`: the lower bound.
struct Plain(Socket, rustix::net::SocketAddrAny, Vec<u8>);

/// The bare socket with `sendto` and `recvmsg` under `UDP_GRO`.
struct Joined(Socket, rustix::net::SocketAddrAny, Vec<u8>);

/// The port itself and its only peer, which is compared with the socket's own calls.
struct Whole(UdpPort, remora_port::Peer);

impl Wire for Plain {
    #[inline(always)]
    fn send(&mut self, len: usize) {
        self.0.send_to(&self.2[..len], &self.1).expect("sendto");
    }
    #[inline(always)]
    fn poll(&mut self) -> usize {
        usize::from(self.0.recv_from(&mut self.2).expect("recvfrom").is_some())
    }
}

impl Wire for Joined {
    #[inline(always)]
    fn send(&mut self, len: usize) {
        self.0.send_to(&self.2[..len], &self.1).expect("sendto");
    }
    #[inline(always)]
    fn poll(&mut self) -> usize {
        usize::from(self.0.recv_train(&mut self.2).expect("recvmsg").is_some())
    }
}

impl Wire for Whole {
    #[inline(always)]
    fn send(&mut self, len: usize) {
        let lease = self.0.lend(self.1, Class::default(), len).expect("space");
        std::hint::black_box(lease.bytes);
        self.0.commit();
        self.0.flush();
    }
    #[inline(always)]
    fn poll(&mut self) -> usize {
        self.0.receive(32, &mut |frame| {
            std::hint::black_box(frame.bytes);
        })
    }
}

fn sockets(host: &str, options: &Options) -> [(Socket, SocketAddr); 2] {
    let address = SocketAddr::new(host.parse().expect("address"), 0);
    let open = || Socket::open(address, options).unwrap_or_else(|error| panic!("{error}"));
    let one = open();
    let two = open();
    let a = one.local();
    let b = two.local();
    [(one, b), (two, a)]
}

fn plain(host: &str) -> [Plain; 2] {
    let options = Options { trains: false, ..Options::default() };
    sockets(host, &options).map(|(socket, destination)| {
        let destination = socket.destination(destination);
        Plain(socket, destination, vec![0; 65_535])
    })
}

fn joined(host: &str) -> [Joined; 2] {
    sockets(host, &Options::default()).map(|(mut socket, destination)| {
        socket.join(true).expect("UDP_GRO");
        let destination = socket.destination(destination);
        Joined(socket, destination, vec![0; 65_535])
    })
}

fn whole(host: &str) -> [Whole; 2] {
    let address = SocketAddr::new(host.parse().expect("address"), 0);
    let open = || UdpPort::open(address, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let mut one = open();
    let mut two = open();
    let a = one.endpoint();
    let b = two.endpoint();
    let to_b = one.peer(b).expect("peer");
    let to_a = two.peer(a).expect("peer");
    [Whole(one, to_b), Whole(two, to_a)]
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // With one core, or in a container that forbids pinning, the numbers get worse but the ratios still
    // hold.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Returns the median time in ns of `count` round trips of `there` bytes out and `back` bytes back.
fn round_trip<W: Wire + Send + 'static>(
    [mut near, mut far]: [W; 2],
    there: usize,
    back: usize,
    count: usize,
) -> f64 {
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let echo = thread::spawn(move || {
        pin(1);
        while !seen.load(Ordering::Relaxed) {
            for _ in 0..far.poll() {
                far.send(back);
            }
        }
    });
    pin(0);
    let mut times = Vec::with_capacity(count);
    let mut jitter = 1u32;
    for _ in 0..count + count / 8 {
        // Two spinning loops lock into a phase: one more nanosecond in one of them can then change the
        // round trip by a whole poll, in either direction. A pause of random length (up to about 2 µs)
        // before each round averages that out.
        jitter = jitter.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let pause = Instant::now() + Duration::from_nanos(u64::from(jitter >> 21));
        while Instant::now() < pause {}
        let start = Instant::now();
        near.send(there);
        while near.poll() == 0 {}
        times.push(start.elapsed().as_nanos() as f64);
    }
    over.store(true, Ordering::Relaxed);
    echo.join().expect("echo");
    median(&mut times[count / 8..])
}

/// Returns the frames per second over 300 ms. `send` sends some frames; `receive` returns the number of
/// frames that arrived.
fn rate(mut send: impl FnMut() + Send + 'static, mut receive: impl FnMut() -> usize) -> f64 {
    let over = std::sync::Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let (ready, go) = mpsc::channel();
    let sender = thread::spawn(move || {
        pin(1);
        ready.send(()).expect("main thread");
        while !seen.load(Ordering::Relaxed) {
            send();
        }
    });
    pin(0);
    go.recv().expect("sender");
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_millis(50) {
        receive();
    }
    let start = Instant::now();
    let mut frames = 0;
    while start.elapsed() < Duration::from_millis(300) {
        for _ in 0..16 {
            frames += receive();
        }
    }
    let rate = frames as f64 / start.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    sender.join().expect("sender");
    rate
}

/// Measures trains over the bare socket.
fn raw_train_rate(host: &str, len: usize) -> f64 {
    let [(one, destination), (mut two, _)] = sockets(host, &Options::default());
    two.join(true).expect("UDP_GRO");
    let destination = one.destination(destination);
    let count = (65_507 / len).min(64);
    let bytes = vec![0; len * count];
    let mut buffer = vec![0; 65_535];
    rate(
        move || {
            let _ = one.send_train(&bytes, len as u16, &destination);
        },
        move || {
            two.recv_train(&mut buffer).expect("recvmsg").map_or(0, |came| came.len.div_ceil(came.segment))
        },
    )
}

/// Measures trains through the port.
fn port_train_rate(host: &str, len: usize) -> f64 {
    let [mut one, mut two] = whole(host);
    rate(
        move || {
            // Many trains per flush, because a flush ends a train early.
            for _ in 0..960 {
                if let Some(lease) = one.0.lend(one.1, Class::default(), len) {
                    std::hint::black_box(lease.bytes);
                    one.0.commit();
                }
            }
            one.0.flush();
        },
        move || {
            two.0.receive(64, &mut |frame| {
                std::hint::black_box(frame.bytes);
            })
        },
    )
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints a result as one line of the table, or as one JSON object.
fn show(json: bool, case: &str, metric: &str, unit: &str, name: &str, rounds: &[(f64, f64)]) {
    let mut values: Vec<f64> = rounds.iter().map(|round| round.0).collect();
    let mut bases: Vec<f64> = rounds.iter().map(|round| round.1).collect();
    let mut ratios: Vec<f64> = rounds.iter().map(|(value, base)| value / base).collect();
    let listed =
        rounds.iter().map(|(value, base)| format!("[{value:.1},{base:.1}]")).collect::<Vec<_>>().join(",");
    let value = median(&mut values);
    let base = median(&mut bases);
    let ratio = median(&mut ratios);
    if json {
        println!(
            "{{\"bench\":\"port\",\"case\":\"{case}\",\"metric\":\"{metric}\",\"unit\":\"{unit}\",\"value\":{value:.1},\
             \"baseline\":\"{name}\",\"baseline_value\":{base:.1},\"ratio\":{ratio:.3},\"rounds\":[{listed}]}}"
        );
    } else {
        println!("{case:28} {metric:12} {value:12.0} {unit:4} {ratio:6.3} x {name} {base:.0}   {listed}");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let rounds = arguments.iter().position(|argument| argument == "--rounds");
    let rounds =
        rounds.and_then(|index| arguments.get(index + 1)).and_then(|count| count.parse().ok()).unwrap_or(7);
    let hosts = [("v4", "127.0.0.1"), ("v6", "::1")];
    for (family, host) in hosts {
        // A 64 B READ: request 32 B, response 84 B (BTH to ICRC).
        for (there, back) in [(32, 84), (32, 4116)] {
            let mut port = Vec::new();
            let mut gro = Vec::new();
            for _ in 0..rounds {
                let base = round_trip(plain(host), there, back, 8000);
                gro.push((round_trip(joined(host), there, back, 8000), base));
                port.push((round_trip(whole(host), there, back, 8000), base));
            }
            let case = format!("udp/{family}/round-trip/{there}+{back}");
            show(json, &format!("{case}/recvmsg-gro"), "latency_p50", "ns", "raw-udp-pingpong", &gro);
            show(json, &case, "latency_p50", "ns", "raw-udp-pingpong", &port);
        }
        for len in [96, 1052, 4132] {
            let train: Vec<_> =
                (0..rounds).map(|_| (port_train_rate(host, len), raw_train_rate(host, len))).collect();
            show(json, &format!("udp/{family}/train/{len}"), "rate", "1/s", "raw-gso-gro", &train);
        }
    }
}
