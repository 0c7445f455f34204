//! Remora clients of a cache, which read it through the chains of the server's NIC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use remora_store::cache::{ANSWER, Directory, Item};
use remora_verbs::{
    Access, Call, CompletionKind, CompletionQueue, Device, EMPTY, MemoryRegion, QpOptions, QueuePair,
    ReceiveRequest, Status, work,
};

use super::Served;
use crate::admission::{Silent, first_message};
use crate::running::{Ended, Lender, remora};

fn get(server: &Served, port: &str, key: &str) -> Ended {
    let chains = server.chains.as_deref().expect("it was started so");
    remora(&["cache", "get", key, "--connect", chains, "--port", port, "--explain"])
}

/// Returns the CPU time in nanoseconds of the thread that serves TCP, which is the first thread of the
/// process.
fn worked(server: &Served) -> u64 {
    let pid = server.pid();
    let path = format!("/proc/{pid}/task/{pid}/schedstat");
    let text = std::fs::read_to_string(path).expect("a thread");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("nanoseconds")
}

/// Returns the CPU time of that thread once it is asleep.
fn rested(server: &Served) -> u64 {
    let mut before = worked(server);
    loop {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = worked(server);
        if now == std::mem::replace(&mut before, now) {
            return now;
        }
    }
}

fn is_served(port: &str) {
    let server = Served::remora(&["--chains", "127.0.0.1:0", "--port", port]);
    let mut talk = server.talk();
    let long = "x".repeat(700_000);
    for (key, value) in [("colour", "crimson"), ("empty", ""), ("long", &long)] {
        assert_eq!(talk.tell(&format!("set {key} 5 0 {}\r\n{value}", value.len())), "STORED");
    }
    let gets = talk.stat("cmd_get");
    let before = rested(&server);
    for (key, value) in [("colour", "crimson"), ("long", &long), ("empty", ""), ("colour", "crimson")] {
        let ended = get(&server, port, key);
        assert_eq!(ended.err, "by the chain\n");
        assert_eq!(ended.good(), format!("{value}\n"));
    }
    assert_eq!(worked(&server), before, "the cache's own thread has not run");
    assert_eq!(talk.stat("cmd_get"), gets);

    // What the chain does not find is requested through TCP, where it does not exist either.
    let missing = get(&server, port, "shape");
    assert_eq!((missing.status, missing.out.as_str()), (1, ""));
    assert!(
        missing.err.starts_with("by TCP") && missing.err.contains("no such key: shape"),
        "{}",
        missing.err
    );
    assert_eq!(talk.stat("cmd_get"), gets + 1);

    // Remora clients see the changes of TCP clients.
    assert_eq!(talk.tell("set colour 0 0 4\r\nblue"), "STORED");
    assert_eq!(get(&server, port, "colour").good(), "blue\n");
    assert_eq!(talk.tell("incr colour 1"), "CLIENT_ERROR cannot increment or decrement non-numeric value");
    assert_eq!(talk.tell("set colour 0 0 2\r\n41"), "STORED");
    assert_eq!(talk.tell("incr colour 1"), "42");
    let ended = get(&server, port, "colour");
    assert_eq!((ended.err.as_str(), ended.out.as_str()), ("by the chain\n", "42\n"));
    assert_eq!(talk.tell("delete colour"), "DELETED");
    assert_eq!(get(&server, port, "colour").status, 1);
    assert_eq!(talk.tell("touch long -1"), "TOUCHED");
    assert_eq!(get(&server, port, "long").status, 1);
    assert_eq!(talk.tell("flush_all"), "OK");
    assert_eq!(get(&server, port, "empty").status, 1);
}

#[test]
fn gets_over_shm_are_answered_while_the_caches_thread_sleeps() {
    is_served("shm");
}

#[test]
fn gets_over_udp_are_answered_while_the_caches_thread_sleeps() {
    is_served("udp");
}

#[test]
fn more_clients_than_chains_take_the_place_of_the_idle_one() {
    let server = Served::remora(&["--chains", "127.0.0.1:0", "--clients", "2"]);
    assert_eq!(server.talk().tell("set colour 0 0 4\r\nblue"), "STORED");
    for _ in 0..5 {
        assert_eq!(get(&server, "shm", "colour").good(), "blue\n");
    }
}

#[test]
fn silent_connections_hold_up_no_client_of_chains() {
    let server = Served::remora(&["--chains", "127.0.0.1:0"]);
    let chains = server.chains.as_deref().expect("it was started so");
    assert_eq!(server.talk().tell("set colour 0 0 4\r\nblue"), "STORED");
    let request =
        first_message(|address| ["cache", "get", "colour", "--connect", address].map(str::to_owned).to_vec());
    for (count, words) in [(1, &[][..]), (1, &request[..]), (64, &[][..]), (64, &request[..])] {
        let _silent = Silent::at(chains, count, words);
        for _ in 0..3 {
            assert_eq!(get(&server, "shm", "colour").good(), "blue\n");
        }
    }
}

/// A client that stays connected.
struct Staying {
    pair: QueuePair,
    cq: CompletionQueue,
    reply: MemoryRegion,
    directory: Directory,
}

impl Staying {
    fn connect(address: &str) -> Staying {
        let context = Device::shm().open().expect("a NIC");
        let domain = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(16).expect("a queue");
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let reply = domain.allocate(ANSWER, access).expect("memory");
        let call = Call { program: "cache".to_owned(), reply: reply.remote_memory() };
        let options = QpOptions { private_data: call.to_bytes(), ..QpOptions::default() };
        let pair = domain.create_qp(&cq, &cq, &options).expect("a pair").connect(address).expect("a chain");
        let directory =
            Directory::from_bytes(&pair.peer_private_data()[..Directory::LEN]).expect("a cache's");
        Staying { pair, cq, reply, directory }
    }

    fn get(&mut self, key: &str) -> Option<String> {
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &[] }).expect("the queue is not full");
        self.pair
            .post_send(&work::send_inline(2, &self.directory.ask(key.as_bytes())))
            .expect("the queue is not full");
        let mut done = [EMPTY; 1];
        while done[0].kind != CompletionKind::ReceiveWriteImm {
            assert_eq!(self.cq.wait(&mut done, Duration::from_secs(60)), Ok(1));
            assert_eq!(done[0].status, Status::Success);
        }
        let mut answer = vec![0; done[0].byte_len as usize];
        self.reply.read(0, &mut answer).expect("its own");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        let item = Item::of(&answer, key.as_bytes(), remora_transport::Instant(now.as_nanos() as u64))?;
        Some(String::from_utf8_lossy(item.value).into_owned())
    }
}

#[test]
fn gets_go_on_after_the_cache_is_killed_where_a_daemon_keeps_its_chains() {
    let lender = Lender::start("cache", &[]);
    let words = ["--chains", "127.0.0.1:0", "--nicd", lender.at(), "--keep", "cache"];
    let mut server = Served::remora(&words);
    assert_eq!(server.talk().tell("set colour 5 0 7\r\ncrimson"), "STORED");
    let mut client = Staying::connect(server.chains.as_deref().expect("chains"));
    assert_eq!(client.get("colour").as_deref(), Some("crimson"));
    server.kill();
    for _ in 0..100 {
        assert_eq!(client.get("colour").as_deref(), Some("crimson"));
        assert_eq!(client.get("shape"), None);
    }
    // The next server uses the same tenant name and begins empty.
    let server = Served::remora(&words);
    assert_eq!(get(&server, "shm", "colour").status, 1);
    assert_eq!(server.talk().tell("set colour 5 0 4\r\nblue"), "STORED");
    let ended = get(&server, "shm", "colour");
    assert_eq!((ended.err.as_str(), ended.out.as_str()), ("by the chain\n", "blue\n"));
    remora(&["serve", "cache", "--nicd", lender.at(), "--keep", "cache"])
        .bad_arguments("required arguments were not provided");
}

#[test]
fn what_is_wrong_with_a_get_is_one_line() {
    remora(&["cache", "get", "colour", "--connect", "127.0.0.1:1"])
        .one_line("cannot connect to a cache at 127.0.0.1:1");
    remora(&["cache", "get", "two words"]).one_line("a key has 1 to 250 bytes without spaces");
}
