//! The NIC daemon, its programs and their peers, each in a process of its own: this test binary runs itself.

mod chains;
mod departures;
mod kernels;
mod rma;
mod secrets;

use remora_netns::Process;
use remora_verbs::{
    Access, CompletionQueue, Context, CqOptions, CreateError, Device, EMPTY, Listener, MemoryRegion, Notify,
    ProtectionDomain, QpOptions, QueuePair, ReceiveRequest, RemoteMemory, State, Status, nicd, work,
};
use std::fs::Permissions;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Environment variable with the role of another process, which makes `other_process` act.
const ROLE: &str = "REMORA_TEST_ROLE";
/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 20;

fn device(port: &str) -> Device {
    match port {
        "shm" => Device::shm(),
        "udp" => Device::udp("127.0.0.1:0").unwrap(),
        other => panic!("{other}"),
    }
}

/// Opens a NIC of this process (`shm`, `udp`), or one that a daemon lends (`/path`, `/path=tenant`).
fn open(nic: &str) -> Context {
    match nic.split_once('=') {
        Some((path, tenant)) => Device::nicd(path).keep(tenant).open().unwrap(),
        None if nic.starts_with('/') => Device::nicd(nic).open().unwrap(),
        None => device(nic).open().unwrap(),
    }
}

fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Another process.
struct Program {
    process: Process,
    first_line: String,
}

/// Returns whether all threads of a process are stopped.
fn is_stopped(id: &str) -> bool {
    let mut threads = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    threads.all(|thread| {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        // The process name, in parentheses, may contain any characters.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    })
}

impl Program {
    /// Starts a process with this role, and waits for its first line of output.
    fn start(role: &[&str]) -> Program {
        Program::start_as(None, role)
    }

    /// Like [`start`](Program::start), as another user.
    fn start_as(user: Option<u32>, role: &[&str]) -> Program {
        let mut command = Command::new(std::env::current_exe().unwrap());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.args(["--ignored", "--exact", "other_process", "--nocapture"]).env(ROLE, role.join(" "));
        let mut process = Process::start_piped(&mut command);
        let first_line = process.line_with("says ");
        Program { process, first_line }
    }

    /// Sends a line to the process, and returns the next line of its output.
    fn ask(&mut self, line: &str) -> String {
        self.process.send(line);
        self.process.line_with("says ")
    }

    fn address(&self) -> SocketAddr {
        self.first_line.parse().unwrap()
    }

    fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        // A running thread stops a moment after the signal.
        while signal == "-STOP" && !is_stopped(&id) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until the process ends by itself.
    fn end(self) {
        self.process.end();
    }
}

/// The path of a daemon's socket. A daemon that is killed leaves the socket behind, so that the test removes
/// it.
struct SocketPath(PathBuf);

impl SocketPath {
    /// Returns a path in a new folder that other users may enter.
    fn new(name: &str) -> SocketPath {
        let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir();
        SocketPath(folder.unwrap().keep().join(name))
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

/// A daemon and its socket.
struct Lender {
    process: Program,
    path: SocketPath,
}

impl Lender {
    fn start(port: &str, test: &str) -> Lender {
        let path = SocketPath::new(test);
        let process = Program::start(&["daemon", port, path.0.to_str().unwrap()]);
        Lender { process, path }
    }

    fn nic(&self) -> &str {
        self.path.0.to_str().unwrap()
    }
}

/// The entry point of the other processes.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn other_process() {
    let role = std::env::var(ROLE).expect("set by the test that starts this process");
    let role: Vec<&str> = role.split(' ').collect();
    match role[..] {
        ["daemon", port, path] => {
            let options = nicd::Options {
                attachments: 8,
                loader: Some(remora_sandbox::load),
                ..nicd::Options::default()
            };
            let _daemon = nicd::Daemon::open(&device(port), Path::new(path), &options).unwrap();
            println!("says ready");
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        }
        ["chains", nic] => chains::serve(nic),
        ["fork", nic] => departures::fork(nic),
        ["kernels", nic] => kernels::serve(nic),
        ["rma-daemon", path] => rma::lend(Path::new(path)),
        ["rma", nic, slots] => rma::program(nic, slots.parse().unwrap()),
        ["server", nic] => serve(nic, "127.0.0.1:0".parse().unwrap()),
        ["server", nic, address] => serve(nic, address.parse().unwrap()),
        _ => panic!("{role:?}"),
    }
}

/// The initial value of word `index` of the table.
fn word(index: usize) -> u64 {
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Lets each client access one region, and returns each message with 1 added to each byte. Takes over the
/// objects that a daemon has kept, and ends when its standard input is closed.
fn serve(nic: &str, address: SocketAddr) {
    let context = open(nic);
    let mut kept = if nic.contains('=') { context.kept().unwrap() } else { nicd::Kept::default() };
    let again = !kept.is_empty();
    let domain = kept.domains.pop().unwrap_or_else(|| context.alloc_pd().unwrap());
    let mut region =
        |name| kept.region(name).unwrap_or_else(|| domain.allocate_named(name, LEN, shared()).unwrap());
    let table = region("table");
    let inbox = region("inbox");
    let mut cq = kept.queues.pop().unwrap_or_else(|| context.create_cq(256).unwrap());
    let mut pairs: Vec<QueuePair> = std::mem::take(&mut kept.pairs);
    // The first word counts the servers that have used this memory.
    for index in (1..LEN / 8).filter(|_| !again) {
        table.put(index * 8, &word(index)).unwrap();
    }
    table.put(0, &(table.get::<u64>(0).unwrap() + 1)).unwrap();
    let listener = Listener::bind(address).unwrap();
    println!("says {}", listener.address());
    let over = input_ended();
    while !over.load(Ordering::Acquire) {
        if let Some(request) = listener.accept(Some(Duration::from_millis(1))).unwrap() {
            let private_data = table.remote_memory().to_bytes().to_vec();
            let options = QpOptions { private_data, ..QpOptions::default() };
            let mut pair = domain.create_qp(&cq, &cq, &options).unwrap();
            pair.post_recv(&ReceiveRequest { id: 0, sges: &[inbox.sge(0, 64)] }).unwrap();
            pairs.push(request.accept(pair).unwrap());
        }
        echo(&mut cq, &mut pairs, &inbox);
    }
}

/// Returns a flag that becomes true when the standard input is closed.
fn input_ended() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        tells.store(true, Ordering::Release);
    });
    over
}

fn echo(cq: &mut CompletionQueue, pairs: &mut [QueuePair], inbox: &MemoryRegion) {
    let mut done = [EMPTY; 16];
    let count = cq.poll(&mut done).unwrap();
    for done in done[..count].iter().filter(|done| done.status == Status::Success && done.byte_len > 0) {
        let mut message = vec![0; done.byte_len as usize];
        inbox.read(0, &mut message).unwrap();
        message.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        let pair = pairs.iter_mut().find(|pair| pair.number() == done.qp_num).unwrap();
        pair.post_recv(&ReceiveRequest { id: 0, sges: &[inbox.sge(0, 64)] }).unwrap();
        pair.post_send(&work::send_inline(0, &message)).unwrap();
    }
}

struct Client {
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Client {
    fn new(nic: &str) -> Client {
        let context = open(nic);
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let memory = domain.allocate(LEN, shared()).unwrap();
        Client { context, domain, cq, memory }
    }

    fn connect(&self, address: SocketAddr) -> (QueuePair, RemoteMemory) {
        let pair = self.domain.create_qp(&self.cq, &self.cq, &QpOptions::default()).unwrap();
        let pair = pair.connect(address).unwrap();
        let table = RemoteMemory::from_bytes(pair.peer_private_data()).unwrap();
        (pair, table)
    }

    fn wait(&mut self) -> Status {
        let mut done = [EMPTY; 1];
        assert_eq!(self.cq.wait(&mut done, LONG), Ok(1));
        done[0].status
    }

    /// Reads `count` words of the peer's table from word `index` on.
    fn read(&mut self, pair: &mut QueuePair, table: RemoteMemory, index: usize, count: usize) -> Vec<u64> {
        let local = [self.memory.sge(0, count * 8)];
        pair.post_send(&work::read(2, &local, table.at(index as u64 * 8))).unwrap();
        assert_eq!(self.wait(), Status::Success);
        (0..count).map(|word| self.memory.get(word * 8).unwrap()).collect()
    }

    fn message(&mut self, pair: &mut QueuePair, round: u8) {
        pair.post_recv(&ReceiveRequest { id: 9, sges: &[self.memory.sge(0, 64)] }).unwrap();
        pair.post_send(&work::send_inline(3, &[round; 10])).unwrap();
        assert_eq!((self.wait(), self.wait()), (Status::Success, Status::Success));
        assert_eq!(self.memory.get::<[u8; 10]>(0), Ok([round.wrapping_add(1); 10]));
    }
}

fn one_sided_and_messages(server: &str, client: &str) {
    let server = Program::start(&["server", server]);
    let mut client = Client::new(client);
    let (mut pair, table) = client.connect(server.address());
    assert_eq!((table.len, pair.state()), (LEN as u64, State::Rts));
    assert_eq!(client.read(&mut pair, table, 1, 1000), (1..1001).map(word).collect::<Vec<_>>());
    let data: Vec<u8> = (0..LEN).map(|i| (i ^ i >> 8) as u8).collect();
    client.memory.write(0, &data).unwrap();
    pair.post_send(&work::write(1, &[client.memory.sge(0, LEN)], table.at(0))).unwrap();
    assert_eq!(client.wait(), Status::Success);
    client.memory.write(0, &vec![0; LEN]).unwrap();
    pair.post_send(&work::read(2, &[client.memory.sge(0, LEN)], table.at(0))).unwrap();
    assert_eq!(client.wait(), Status::Success);
    let mut back = vec![0; LEN];
    client.memory.read(0, &mut back).unwrap();
    assert!(back == data);
    for round in 0..20 {
        client.message(&mut pair, round);
    }
    let local = [client.memory.sge(0, 8)];
    for _ in 0..10 {
        pair.post_send(&work::fetch_add(4, &local, table.at(4096), 1)).unwrap();
        assert_eq!(client.wait(), Status::Success);
    }
    let before = u64::from_ne_bytes(data[4096..4104].try_into().unwrap());
    assert_eq!(client.memory.get::<u64>(0), Ok(before.wrapping_add(9)));
    drop(pair);
    server.end();
}

#[test]
fn a_lent_nic_serves_and_asks_over_shm() {
    let lender = Lender::start("shm", "shm");
    one_sided_and_messages(lender.nic(), "shm");
    one_sided_and_messages("shm", lender.nic());
    lender.process.end();
}

#[test]
fn a_lent_nic_serves_and_asks_over_udp() {
    let lender = Lender::start("udp", "udp");
    one_sided_and_messages(lender.nic(), "udp");
    one_sided_and_messages("udp", lender.nic());
    lender.process.end();
}

#[test]
fn two_programs_of_one_daemon_meet() {
    let lender = Lender::start("shm", "two");
    one_sided_and_messages(lender.nic(), lender.nic());
    lender.process.end();
}

#[test]
fn completions_wake_a_program_that_sleeps() {
    let lender = Lender::start("shm", "wake");
    let server = Program::start(&["server", "shm"]);
    let client = Client::new(lender.nic());
    let channel = client.context.create_channel().unwrap();
    let options = CqOptions { depth: 16, channel: Some(&channel), ..CqOptions::default() };
    let mut cq = client.context.create_cq_with(&options).unwrap();
    let pair = client.domain.create_qp(&client.cq, &cq, &QpOptions::default()).unwrap();
    let mut pair = pair.connect(server.address()).unwrap();
    for round in 0..3 {
        pair.post_recv(&ReceiveRequest { id: 9, sges: &[client.memory.sge(0, 64)] }).unwrap();
        cq.arm(Notify::Any).unwrap();
        pair.post_send(&work::send_inline(3, &[round; 10])).unwrap();
        assert_eq!(channel.wait(Some(LONG)), Ok(cq.tag()));
        assert_eq!(cq.wait(&mut [EMPTY; 1], LONG), Ok(1));
        assert_eq!(channel.poll(), None);
    }
}

/// READs the whole table until `over`, and checks that each READ succeeds.
fn read_on(
    client: &mut Client,
    pair: &mut QueuePair,
    table: RemoteMemory,
    reads: &Reads,
    over: &AtomicBool,
) -> u64 {
    let mut count = 0;
    while !over.load(Ordering::Acquire) {
        let index = 1 + count as usize * 61 % (LEN / 8 - 64);
        assert_eq!(client.read(pair, table, index, 64), (index..index + 64).map(word).collect::<Vec<_>>());
        count += 1;
        reads.made(count);
    }
    count
}

/// The number of READs that one test has performed so far. Tests run at the same time, so each has its own
/// count.
#[derive(Default)]
struct Reads(AtomicU64);

impl Reads {
    /// Sets the number of successful READs.
    fn made(&self, count: u64) {
        self.0.store(count, Ordering::Release);
    }

    /// Sleeps until 200 more READs have succeeded.
    fn some_more(&self) {
        let until = self.0.load(Ordering::Acquire) + 200;
        while self.0.load(Ordering::Acquire) < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn reads_go_on_while_their_server_is_stopped_killed_and_started_again() {
    let lender = Lender::start("shm", "kept");
    let nic = format!("{}=store", lender.nic());
    let mut server = Program::start(&["server", &nic]);
    let mut reader = Client::new("shm");
    let (mut pair, table) = reader.connect(server.address());
    let mut sender = Client::new("shm");
    let (mut letters, _) = sender.connect(server.address());
    sender.message(&mut letters, 1);
    let made = Reads::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| read_on(&mut reader, &mut pair, table, &made, &over));
        made.some_more();
        server.signal("-STOP");
        made.some_more();
        server.signal("-CONT");
        sender.message(&mut letters, 2);
        for round in 3..6 {
            server.kill();
            made.some_more();
            // A message that arrives while the server is dead is answered by the next server, on the same
            // connection.
            letters.post_recv(&ReceiveRequest { id: 9, sges: &[sender.memory.sge(0, 64)] }).unwrap();
            letters.post_send(&work::send_inline(3, &[round; 10])).unwrap();
            assert_eq!(sender.wait(), Status::Success);
            made.some_more();
            server = Program::start(&["server", &nic]);
            assert_eq!(sender.wait(), Status::Success);
            assert_eq!(sender.memory.get::<[u8; 10]>(0), Ok([round + 1; 10]));
            sender.message(&mut letters, round);
        }
        // New connections access the same memory, which four servers have used.
        let mut late = Client::new("shm");
        let (mut visitor, again) = late.connect(server.address());
        assert_eq!(again, table, "key and address have changed");
        assert_eq!(late.read(&mut visitor, again, 0, 1), [4]);
        over.store(true, Ordering::Release);
        assert!(reads.join().unwrap() > 1000);
    });
}

#[test]
fn what_is_not_kept_goes_with_its_program() {
    let lender = Lender::start("shm", "passing");
    let mut server = Program::start(&["server", lender.nic()]);
    let mut client = Client::new("shm");
    let (mut pair, table) = client.connect(server.address());
    client.read(&mut pair, table, 1, 8);
    server.kill();
    let status = loop {
        pair.post_send(&work::read(2, &[client.memory.sge(0, 8)], table.at(8))).unwrap();
        match client.wait() {
            Status::Success => {}
            status => break status,
        }
    };
    assert_eq!(status, Status::RetryExceeded);
}

#[test]
fn a_program_takes_what_was_kept_or_gives_it_back() {
    let lender = Lender::start("shm", "taken");
    let open = || Device::nicd(&lender.path).keep("one").open().unwrap();
    let context = open();
    assert!(context.kept().unwrap().is_empty());
    let domain = context.alloc_pd().unwrap();
    let (table, log) =
        (domain.allocate_named("table", 4096, shared()), domain.allocate_named("log", 64, shared()));
    let table = table.unwrap();
    let log = log.unwrap();
    assert!(matches!(domain.allocate_named("log", 64, shared()), Err(CreateError::Daemon(_))));
    assert_ne!(table.rkey(), log.rkey());
    table.write(0, b"still here").unwrap();
    let address = table.address();
    let key = table.rkey();
    let cq = context.create_cq(16).unwrap();
    let tag = cq.tag();
    context.leave();
    drop((table, log, cq, domain, context));

    let context = open();
    let mut kept = context.kept().unwrap();
    let table = kept.region("table").unwrap();
    assert_eq!((table.address(), table.rkey()), (address, key));
    assert_eq!(table.get::<[u8; 10]>(0), Ok(*b"still here"));
    assert_eq!(kept.queues[0].tag(), tag);
    assert_ne!(context.create_cq(16).unwrap().tag(), tag);
    let mut cq = kept.queues.remove(0);
    let channel = context.create_channel().unwrap();
    cq.set_channel(&channel).unwrap();
    let pair = || kept.domains[0].create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let (mut pair, other) = QueuePair::connect_pair(pair(), pair()).unwrap();
    cq.arm(Notify::Any).unwrap();
    pair.post_send(&work::write_inline(1, b"and written", table.remote(0))).unwrap();
    assert_eq!(channel.wait(Some(LONG)), Ok(tag));
    assert_eq!(cq.wait(&mut [EMPTY; 1], LONG), Ok(1));
    drop((kept, table, pair, other, cq, channel, context));
    assert!(open().kept().unwrap().is_empty(), "the daemon keeps dropped objects");

    let other = Device::nicd(&lender.path).keep("two").open().unwrap();
    assert!(other.kept().unwrap().is_empty());
    let twice = Device::nicd(&lender.path).keep("two").open().unwrap_err().to_string();
    assert!(twice.contains("is attached as `two`"), "{twice}");
}

#[test]
fn a_program_finds_out_that_its_daemon_is_gone() {
    let mut lender = Lender::start("shm", "gone");
    let mut client = Client::new(lender.nic());
    lender.process.kill();
    let error = loop {
        match client.cq.poll(&mut [EMPTY; 1]) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("daemon is gone"), "{error}");
    assert!(matches!(client.domain.allocate(64, shared()), Err(CreateError::Daemon(_))));
    std::fs::remove_file(&lender.path).unwrap();
}

#[test]
fn a_stopped_daemon_is_given_up_with_a_word_and_its_late_answers_are_not_taken() {
    let lender = Lender::start("shm", "still");
    let client = Client::new(lender.nic());
    lender.process.signal("-STOP");
    let attached = std::thread::scope(|scope| {
        let attaching = scope.spawn(|| Device::nicd(&lender.path).open());
        // The second request gives the daemon up, because a late reply would be taken for another request's.
        for words in ["has not answered for 20 seconds", "is it running?"] {
            let error = client.domain.allocate(64, shared()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        attaching.join().unwrap()
    });
    let error = attached.unwrap_err().to_string();
    assert!(error.contains(lender.nic()) && error.contains("`kill -CONT`"), "{error}");
    lender.process.signal("-CONT");
    Client::new(lender.nic());
    lender.process.end();
}
