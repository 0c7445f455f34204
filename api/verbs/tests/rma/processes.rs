//! Processes that are killed, processes that restart with the same PID, and ten thousand processes.

use crate::bed::{ALL, options, share, wait_until_idle};
use crate::process::{self, Mapped};
use remora_netns::Process;
use remora_verbs::rma::{Portal, Rights, Rma, RmaOptions, RmaRegion, Settings, Timers};
use remora_verbs::{Access, Context, Device, Listener, QpOptions, QueuePair, Ready};
use remora_wire::rma::{Body, Class, Kind, Message};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variable with the line of a server, for clients in other processes.
const SERVER: &str = "REMORA_TEST_RMA_SERVER";
/// Environment variable with the path of a client's capture, to which the stage is appended.
const CAPTURE: &str = "REMORA_TEST_RMA_CAPTURE";
const LEN: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// The paper's timers in milliseconds, so that leftovers of dead processes are freed soon.
fn settings() -> Settings {
    let fixed = Settings { timers: Timers::Fixed, ..Settings::software() };
    Settings { dispatch_timeout: 100_000_000, timeout: 200_000_000, max_server_timeout: 200_000_000, ..fixed }
}

fn device(port: &str) -> Device {
    if port == "shm" { Device::shm() } else { Device::udp("127.0.0.1:0").unwrap() }
}

fn pair(context: &Context) -> QueuePair<remora_verbs::Init> {
    let cq = context.create_cq(4).unwrap();
    context.alloc_pd().unwrap().create_qp(&cq, &cq, &QpOptions::default()).unwrap()
}

/// Accepts a connection, which gives a link over `shm`.
fn accepted(context: &Context, listener: &Listener) -> QueuePair<Ready> {
    let request = listener.accept(Some(PATIENCE)).unwrap().expect("somebody connects");
    request.accept(pair(context)).unwrap()
}

/// A client on an open device.
struct Client {
    portal: Portal,
    local: RmaRegion,
    rma: Rma,
}

impl Client {
    fn new(context: &Context, options: &RmaOptions) -> Client {
        let rma = context.open_rma(options).unwrap();
        let domain = context.alloc_pd().unwrap();
        let local =
            rma.expose(domain.allocate(LEN, Access::LOCAL_WRITE).unwrap(), Rights::NONE, None).unwrap();
        Client { portal: rma.create_portal(&domain, 16.min(options.settings.slots)).unwrap(), local, rma }
    }

    /// Begins a read and a write of all bytes.
    fn begin(&mut self, words: &str) {
        let grant = process::grant(words, &self.portal.identity(), &self.local);
        for kind in [Kind::Write, Kind::Read] {
            let len = LEN as u64;
            self.portal.submit(kind, Class::Latency, &self.local, 0, &grant, 0, len, None).unwrap();
        }
    }

    /// Waits until two transfers have ended.
    fn two_ends(&mut self) {
        let mut ended = 0;
        while ended < 2 {
            ended += usize::from(self.portal.poll().unwrap().is_some());
        }
    }
}

/// The entry point of the other processes.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn acts_its_role() {
    let role = std::env::var(process::ROLE).expect("set by the test that starts this process");
    let (role, argument) = role.split_once(' ').unwrap();
    match role {
        "serve" => serve(argument),
        "write" => write_without_end(argument),
        _ => ask_and_come_again(argument),
    }
}

fn serve(port: &str) {
    let memory = Mapped::create("served", LEN);
    let (context, ..) = &process::serve(&device(port), memory.path.clone(), LEN, settings());
    std::fs::remove_file(&memory.path).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    println!("listening {}", listener.address());
    let _link = (port == "shm").then(|| accepted(context, &listener));
    process::until_told();
}

/// Writes until the process is killed.
fn write_without_end(port: &str) {
    let words = std::env::var(SERVER).unwrap();
    let (words, listener) = words.rsplit_once(' ').unwrap();
    let context = device(port).open().unwrap();
    let listener: SocketAddr = listener.parse().unwrap();
    let _link = (port == "shm").then(|| pair(&context).connect(listener).unwrap());
    let mut client = Client::new(&context, &options(settings()));
    client.begin(words);
    println!("writing");
    loop {
        client.two_ends();
        client.begin(words);
    }
}

fn a_killed_server_gives_the_window_back(port: &str) {
    let mut server = Process::start_piped(&mut process::command(module_path!(), &format!("serve {port}")));
    let words = server.line_with("serving ");
    let listener: SocketAddr = server.line_with("listening ").parse().unwrap();
    let context = device(port).open().unwrap();
    let _link = (port == "shm").then(|| pair(&context).connect(listener).unwrap());
    let mut client = Client::new(&context, &options(settings()));
    for round in 0..20 {
        client.begin(&words);
        if round == 19 {
            server.kill();
        }
        client.two_ends();
    }
    client.begin(&words);
    let full = client.rma.facts().unwrap();
    assert!(full.free < full.window || full.waiting > 0, "{full:?}");
    client.two_ends();
    let Client { portal, rma, .. } = &mut client;
    wait_until_idle(&[&*rma], || {
        portal.poll().unwrap();
    });
}

fn a_killed_client_gives_the_window_back(port: &str) {
    let context = device(port).open().unwrap();
    let serving = context.open_rma(&options(settings())).unwrap();
    let memory = context.alloc_pd().unwrap().allocate(LEN, Access::LOCAL_WRITE).unwrap();
    let region = serving.expose(memory, ALL, Some(process::key())).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let words = format!("{} {} {LEN} {}", serving.endpoint(), region.id(), listener.address());
    let mut cq = context.create_cq(4).unwrap();
    let mut held = 0;
    for _ in 0..10 {
        let mut command = process::command(module_path!(), &format!("write {port}"));
        command.env(SERVER, &words);
        let mut client = Process::start_piped(&mut command);
        let _link = (port == "shm").then(|| accepted(&context, &listener));
        client.line_with("writing");
        while serving.facts().unwrap().serving == 0 {
            cq.poll(&mut []).unwrap();
        }
        client.kill();
        held += u64::from(serving.facts().unwrap().serving > 0);
        wait_until_idle(&[&serving], || {
            cq.poll(&mut []).unwrap();
        });
    }
    println!("{port}: {held} of 10 were killed in the middle of an operation");
}

#[test]
fn who_is_killed_gives_the_other_its_window_back_over_udp() {
    a_killed_server_gives_the_window_back("udp");
    a_killed_client_gives_the_window_back("udp");
}

#[test]
fn who_is_killed_gives_the_other_its_window_back_over_shm() {
    a_killed_server_gives_the_window_back("shm");
    a_killed_client_gives_the_window_back("shm");
}

/// Sends requests, then executes itself: the same PID with another incarnation.
fn ask_and_come_again(stage: &str) {
    let words = std::env::var(SERVER).unwrap();
    let file = std::env::var(CAPTURE).unwrap();
    let context = device("udp").capture(format!("{file}{stage}")).open().unwrap();
    let mut client = Client::new(&context, &options(settings()));
    for _ in 0..4 {
        client.begin(&words);
        client.two_ends();
    }
    drop((client, context));
    if stage == "1" {
        let error = process::command(module_path!(), "ask 2").exec();
        panic!("the process was not started anew: {error}");
    }
}

/// Returns the messages in a capture.
fn messages(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let word = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap()) as usize;
    let mut offset = 0;
    let mut messages = Vec::new();
    while offset < bytes.len() {
        if word(offset) == 6 {
            // The message follows the Ethernet, IPv4 and UDP headers.
            messages.push(bytes[offset + 28 + 42..offset + 28 + word(offset + 20)].to_vec());
        }
        offset += word(offset + 4);
    }
    messages
}

#[test]
fn the_same_pid_again_repeats_no_nonce() {
    let context = device("udp").open().unwrap();
    let serving = context.open_rma(&options(settings())).unwrap();
    let memory = context.alloc_pd().unwrap().allocate(LEN, Access::LOCAL_WRITE).unwrap();
    let region = serving.expose(memory, ALL, Some(process::key())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture-");
    let mut command = process::command(module_path!(), "ask 1");
    command.env(SERVER, format!("{} {} {LEN}", serving.endpoint(), region.id())).env(CAPTURE, &file);
    assert!(command.status().unwrap().success());
    let mut nonces = BTreeSet::new();
    let mut pids = BTreeSet::new();
    let mut starts = BTreeSet::new();
    for stage in ["1", "2"] {
        let file = PathBuf::from(format!("{}{stage}", file.display()));
        let messages = messages(&file);
        std::fs::remove_file(&file).unwrap();
        for message in &messages {
            let message = Message::parse(message).unwrap();
            let nonce = message.header.nonce;
            assert!(nonces.insert((nonce.sender, nonce.counter)), "{nonce:?} comes twice");
            if let Body::Request(request) = message.body {
                pids.insert(request.pid);
                starts.insert(request.incarnation);
            }
        }
    }
    assert_eq!((pids.len(), starts.len()), (1, 2), "one process ID with two incarnations");
    assert!(nonces.len() > 4 * LEN / 4096, "{} messages", nonces.len());
}

/// Resident memory of a process in kilobytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Each initiator has an incarnation of its own and so keys of its own; some have an address of their own.
/// The usual run has 500 of them.
#[test]
fn after_ten_thousand_initiators_the_server_is_no_larger_than_after_one() {
    let mut server = Process::start_piped(&mut process::command(module_path!(), "serve udp"));
    let words = server.line_with("serving ");
    let small = Settings { slots: 2, served: 1, ..settings() };
    let options = RmaOptions { regions: 2, keys: 2, ..options(small) };
    let ask = |context: &Context| {
        let mut client = Client::new(context, &options);
        let grant = process::grant(&words, &client.portal.identity(), &client.local);
        client.portal.read(&client.local, 0, &grant, 0, 64, PATIENCE).unwrap();
        client.portal.write(&client.local, 0, &grant, 64, 64, PATIENCE).unwrap();
    };
    let mut first = None;
    for host in 0..50 {
        let context = Device::udp((std::net::Ipv4Addr::new(127, 0, 2, 1 + host), 0)).unwrap().open().unwrap();
        for _ in 0..share(10_000) / 50 {
            ask(&context);
            first.get_or_insert_with(|| resident(server.id()));
        }
    }
    let first = first.unwrap();
    let last = resident(server.id());
    println!("{first} kB after one initiator, {last} kB after the last");
    // Pages of the server's tables and stacks are touched late; 64 bytes for each of 10,000 initiators would
    // be 640 kB.
    assert!(last < first + 512, "{first} kB, then {last} kB");
}
