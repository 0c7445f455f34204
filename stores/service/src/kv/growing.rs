//! Tests of a PRISM-KV server over real ports: its table grows under a reader, and runs out of buffers.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use remora_store::kv::{ClientConfig, Finished, Outcome, Refusal, Refused};
use remora_verbs::{Context, Device, Listener};

use super::client::Session;
use super::session::{Driver, KvSession as _};
use super::{Contents, Limits, PrismDesign, PrismServer, Size, open};
use crate::server::{Pace, StopOnDrop};
use remora_store::PostPrism;
use remora_store::kv::Machine;

/// Maximum number of operations in flight.
const WINDOW: u32 = 16;

/// A function that opens a NIC of one kind of port.
type Open = fn() -> Context;

fn shm() -> Context {
    Device::shm().open().unwrap()
}

fn udp() -> Context {
    Device::udp("127.0.0.1:0").unwrap().open().unwrap()
}

/// The default limits of the command line.
const LIMITS: Limits =
    Limits { clients: 64, max_key: 1024, max_value: 1 << 20, record_len: None, irn: false };

/// Serves 1000 keys in `bytes` bytes while `work` runs with the server's address; then calls `look` with the
/// server.
fn served(
    nic: Open,
    limits: Limits,
    bytes: usize,
    work: impl FnOnce(SocketAddr),
    look: impl FnOnce(&PrismServer) + Send,
) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stops = StopOnDrop(&stop);
        scope.spawn(|| {
            let size = Size::fresh::<PrismDesign>(&limits, Contents::default(), Some(1000), Some(bytes));
            let mut service = open::<PrismDesign>(nic(), &limits, size.unwrap()).unwrap();
            service.work(Pace::default(), &listener, &stop).unwrap();
            look(&service.program);
        });
        work(address);
        drop(stops);
    });
}

fn session(nic: Open, address: SocketAddr) -> Session<PrismDesign> {
    let config = ClientConfig { window: WINDOW, max_key: 16, max_value: 64, ..ClientConfig::default() };
    Session::connect(&nic(), &address.to_string(), config).unwrap()
}

fn name(key: u64) -> [u8; 8] {
    key.to_le_bytes()
}

fn value(key: u64) -> [u8; 40] {
    std::array::from_fn(|index| (key >> (8 * (index % 8))) as u8 ^ index as u8)
}

/// Reads the existing keys in a loop. Every GET must return its value, and may retry only because its
/// remembered slot was out of date.
fn read_all(mut session: Session<PrismDesign>, there: &AtomicU64, stop: &AtomicBool) {
    let mut reads = 0u64;
    let mut trips = 0u64;
    let mut key = 0;
    while !stop.load(Ordering::Relaxed) {
        key = (key + 7) % there.load(Ordering::Acquire);
        let look = |finished: &Finished<'_>| {
            assert_eq!(finished.outcome, Outcome::Value(&value(key)), "key {key}");
            assert!(finished.tries <= 1, "a GET waits for nobody: {} tries", finished.tries);
            u64::from(finished.round_trips)
        };
        trips += session.one(|client, nic| client.get(&name(key), nic), look).unwrap();
        reads += 1;
    }
    println!("{reads} GETs of {:.2} round trips", trips as f64 / reads as f64);
}

/// A driver that stores a range of keys, with a full window.
struct Puts(Range<u64>);

impl Driver for Puts {
    fn wants(&mut self, in_flight: usize) -> bool {
        !self.0.is_empty() && in_flight < WINDOW as usize
    }

    fn start(&mut self, client: &mut impl Machine, nic: &mut impl PostPrism) -> Result<(), Refused> {
        let key = self.0.start;
        client.put(&name(key), &value(key), nic)?;
        self.0.start += 1;
        Ok(())
    }

    fn ended(&mut self, finished: &Finished<'_>) {
        assert_eq!(finished.outcome, Outcome::Done);
    }
}

fn put_all(session: &mut Session<PrismDesign>, keys: Range<u64>) {
    let mut puts = Puts(keys);
    while !puts.0.is_empty() || session.in_flight() > 0 {
        session.turn(&mut puts).unwrap();
    }
}

fn takes_twenty_thousand(nic: Open) {
    let work = |address| {
        let there = AtomicU64::new(1);
        let stop = AtomicBool::new(false);
        let mut writer = session(nic, address);
        writer.put(&name(0), &value(0)).unwrap();
        thread::scope(|scope| {
            let stops = StopOnDrop(&stop);
            scope.spawn(|| read_all(session(nic, address), &there, &stop));
            for first in (1..20_000).step_by(50) {
                put_all(&mut writer, first..first + 50);
                there.store(first + 50, Ordering::Release);
            }
            drop(stops);
        });
        let mut fresh = session(nic, address);
        for key in (0..20_000).step_by(7) {
            assert_eq!(fresh.get(&name(key)).unwrap().as_deref(), Some(&value(key)[..]), "key {key}");
            // A client that is silent for seconds is disconnected, because the growing table waits for it.
            if key % 100 == 0 {
                assert!(writer.get(&name(key)).unwrap().is_some(), "key {key}");
            }
        }
        assert!(fresh.delete(&name(0)).unwrap() && writer.get(&name(0)).unwrap().is_none());
    };
    served(nic, LIMITS, 32 << 20, work, |server| {
        let (tables, given_up) = server.table().tables();
        println!("{tables} tables, of which {given_up} are given up");
        // The first table has 4000 slots, half of which may be used.
        assert!(tables >= 4 && given_up >= 3, "{tables} tables, {given_up} given up");
    });
}

#[test]
fn a_table_for_a_thousand_keys_takes_twenty_thousand_under_a_reader_over_shm() {
    takes_twenty_thousand(shm);
}

#[test]
fn a_table_for_a_thousand_keys_takes_twenty_thousand_under_a_reader_over_udp() {
    takes_twenty_thousand(udp);
}

/// Stores new keys until one is refused, and returns that key.
fn fill(session: &mut Session<PrismDesign>, first: u64) -> u64 {
    (first..)
        .find(|key| {
            let look = |finished: &Finished<'_>| match finished.outcome {
                Outcome::Done => false,
                outcome => {
                    assert_eq!(outcome, Outcome::Refused(Refusal::NoSpace));
                    true
                }
            };
            session.one(|client, nic| client.put(&name(*key), &value(*key), nic), look).unwrap()
        })
        .unwrap()
}

fn runs_out_and_recovers(nic: Open) {
    let work = |address| {
        let mut one = session(nic, address);
        let mut other = session(nic, address);
        let most = fill(&mut one, 0);
        // The free list of the objects' own size has 256 buffers; then larger ones are allocated.
        assert!((500..1000).contains(&most), "{most} buffers");
        let words = other.put(&name(most), &value(most)).unwrap_err().to_string();
        assert!(words.contains("ENOMEM"), "{words}");
        for round in 1..=5 {
            let gone = round * 10;
            (gone - 10..gone).for_each(|key| assert!(other.delete(&name(key)).unwrap()));
            // Buffers are returned by a message, which takes a moment.
            let first = most + gone - 10;
            let mut next = first;
            for _ in 0..1000 {
                next = fill(&mut one, next);
                if next == first + 10 {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(next, first + 10, "as many as were deleted");
        }
        for key in 0..most + 50 {
            let expected = (key >= 50).then(|| value(key).to_vec());
            assert_eq!(other.get(&name(key)).unwrap(), expected, "key {key}");
        }
        assert!(one.put(&name(most + 50), &value(0)).is_err(), "and no buffer more");
    };
    served(nic, Limits { max_value: 64, ..LIMITS }, 256 << 10, work, |_| {});
}

#[test]
fn without_a_buffer_a_put_is_refused_with_enomem_and_what_is_deleted_makes_room_over_shm() {
    runs_out_and_recovers(shm);
}

#[test]
fn without_a_buffer_a_put_is_refused_with_enomem_and_what_is_deleted_makes_room_over_udp() {
    runs_out_and_recovers(udp);
}
