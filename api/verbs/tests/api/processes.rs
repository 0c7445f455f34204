//! Two processes: this test binary runs itself as the other side. Connections over TCP, a peer that is
//! killed, idle processes, and strangers on the listener's port.

use remora_netns::Process;
use remora_verbs::{
    Access, CompletionQueue, ConnectError, Device, EMPTY, Listener, MemoryRegion, ProtectionDomain,
    QpOptions, QueuePair, ReceiveRequest, RemoteMemory, Status, work,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Environment variable with the device's name, which makes `other_process` act.
const DEVICE: &str = "REMORA_TEST_DEVICE";
/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 20;

fn device(name: &str) -> Device {
    match name {
        "shm" => Device::shm(),
        "udp" => Device::udp("127.0.0.1:0").unwrap(),
        "udp6" => Device::udp("[::1]:0").unwrap(),
        "dedicated" => Device::shm().mode(remora_verbs::Mode::Dedicated),
        other => panic!("{other}"),
    }
}

fn shared() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// The other process.
struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    fn start(name: &str) -> Server {
        let mut command = crate::own::test(module_path!(), "other_process");
        let mut process = Process::start_piped(command.env(DEVICE, name));
        let address = process.line_with("listening at ").parse().unwrap();
        Server { process, address }
    }
}

/// The entry point of the other process. The process lets each client
/// access one region, and returns each message with 1 added to each byte. It ends when its standard input is
/// closed.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn other_process() {
    let name = std::env::var(DEVICE).expect("set by the test that starts this process");
    let context = device(&name).open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let table = domain.allocate(LEN, shared()).unwrap();
    let inbox = domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let mut cq = context.create_cq(256).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    println!("listening at {}", listener.address());
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = std::sync::Arc::clone(&over);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, std::sync::atomic::Ordering::Release);
    });
    let mut pairs: Vec<QueuePair> = Vec::new();
    let before = cpu_time();
    while !over.load(std::sync::atomic::Ordering::Acquire) {
        // The program sleeps most of the time, so that the attendant serves one-sided verbs.
        if let Some(request) = listener.accept(Some(Duration::from_millis(20))).unwrap() {
            let private_data = table.remote_memory().to_bytes().to_vec();
            let options = QpOptions { private_data, ..QpOptions::default() };
            let mut pair = domain.create_qp(&cq, &cq, &options).unwrap();
            pair.post_recv(&ReceiveRequest { id: pairs.len() as u64, sges: &[inbox.sge(0, 64)] }).unwrap();
            match request.accept(pair) {
                Ok(pair) => pairs.push(pair),
                Err(error) => println!("not connected: {error}"),
            }
        }
        echo(&mut cq, &mut pairs, &inbox);
    }
    println!("cpu {} us", (cpu_time() - before).as_micros());
    println!("lost {}", context.metrics().len());
}

fn echo(cq: &mut CompletionQueue, pairs: &mut [QueuePair], inbox: &MemoryRegion) {
    let mut done = [EMPTY; 16];
    let count = cq.poll(&mut done).unwrap();
    for done in done[..count].iter().filter(|done| done.status == Status::Success && done.byte_len > 0) {
        let mut message = vec![0; done.byte_len as usize];
        inbox.read(0, &mut message).unwrap();
        message.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        let pair = &mut pairs[done.id as usize];
        pair.post_recv(&ReceiveRequest { id: done.id, sges: &[inbox.sge(0, 64)] }).unwrap();
        pair.post_send(&work::send_inline(done.id, &message)).unwrap();
    }
}

/// User and system time of this process.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = text.rsplit(')').next().unwrap();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).map(|word| word.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

struct Client {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Client {
    fn new(name: &str) -> Client {
        let context = device(name).open().unwrap();
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let memory = domain.allocate(LEN, shared()).unwrap();
        Client { domain, cq, memory }
    }

    fn connect(
        &self,
        address: SocketAddr,
        options: &QpOptions,
    ) -> Result<(QueuePair, RemoteMemory), ConnectError> {
        let pair = self.domain.create_qp(&self.cq, &self.cq, options).unwrap().connect(address)?;
        let table = RemoteMemory::from_bytes(pair.peer_private_data()).unwrap();
        Ok((pair, table))
    }

    fn wait(&mut self) -> Status {
        let mut done = [EMPTY; 1];
        assert_eq!(self.cq.wait(&mut done, LONG), Ok(1));
        done[0].status
    }
}

fn one_sided_and_messages(name: &str) {
    let server = Server::start(name);
    let mut client = Client::new(name);
    let (mut pair, table) = client.connect(server.address, &QpOptions::default()).unwrap();
    assert_eq!(table.len, LEN as u64);
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
    for round in 0..20u8 {
        pair.post_recv(&ReceiveRequest { id: 9, sges: &[client.memory.sge(0, 64)] }).unwrap();
        pair.post_send(&work::send_inline(3, &[round; 10])).unwrap();
        assert_eq!((client.wait(), client.wait()), (Status::Success, Status::Success));
        assert_eq!(client.memory.get::<[u8; 10]>(0), Ok([round + 1; 10]));
    }
    let local = [client.memory.sge(0, 8)];
    for _ in 0..10 {
        pair.post_send(&work::fetch_add(4, &local, table.at(4096), 1)).unwrap();
        assert_eq!(client.wait(), Status::Success);
    }
    let before = u64::from_ne_bytes(data[4096..4104].try_into().unwrap());
    assert_eq!(client.memory.get::<u64>(0), Ok(before.wrapping_add(9)));
    drop(pair);
    server.process.end();
}

#[test]
fn one_sided_verbs_and_messages_between_processes_over_shm() {
    one_sided_and_messages("shm");
}

#[test]
fn one_sided_verbs_and_messages_between_processes_over_udp() {
    one_sided_and_messages("udp");
}

#[test]
fn one_sided_verbs_and_messages_between_processes_over_udp_over_ipv6() {
    one_sided_and_messages("udp6");
}

#[test]
fn one_sided_verbs_and_messages_between_dedicated_engines_over_shm() {
    one_sided_and_messages("dedicated");
}

fn many_pairs_share_a_peer(name: &str) {
    let server = Server::start(name);
    let mut client = Client::new(name);
    let mut pairs: Vec<_> =
        (0..40).map(|_| client.connect(server.address, &QpOptions::default()).unwrap()).collect();
    for (number, (pair, table)) in pairs.iter_mut().enumerate() {
        client.memory.write(0, &[number as u8; 8]).unwrap();
        pair.post_send(&work::write(1, &[client.memory.sge(0, 8)], table.at(number as u64 * 8))).unwrap();
        assert_eq!(client.wait(), Status::Success);
    }
    let (pair, table) = &mut pairs[7];
    pair.post_send(&work::read(1, &[client.memory.sge(0, 320)], table.at(0))).unwrap();
    assert_eq!(client.wait(), Status::Success);
    for number in 0..40 {
        assert_eq!(client.memory.get::<[u8; 8]>(number * 8), Ok([number as u8; 8]));
    }
    let peers: std::collections::BTreeSet<u32> =
        pairs.iter().map(|(pair, _)| pair.agreement().unwrap().peer.0).collect();
    assert_eq!(peers.len(), 1, "all connections share one link");
}

#[test]
fn queue_pairs_to_one_process_share_its_link() {
    many_pairs_share_a_peer("shm");
    many_pairs_share_a_peer("udp");
}

fn a_killed_peer(name: &str) {
    let mut server = Server::start(name);
    let mut client = Client::new(name);
    // A timeout of 4.096 µs × 2^12 = 17 ms, and two retries.
    let options = QpOptions { timeout: 12, retry_cnt: 2, ..QpOptions::default() };
    let (mut pair, table) = client.connect(server.address, &options).unwrap();
    for id in 0..16 {
        pair.post_send(&work::write(id, &[client.memory.sge(0, LEN)], table.at(0))).unwrap();
    }
    server.process.kill();
    // If this process was delayed, the peer may have received everything before it was killed. It cannot
    // receive this WRITE.
    pair.post_send(&work::write(16, &[client.memory.sge(0, LEN)], table.at(0))).unwrap();
    let statuses: Vec<Status> = (0..17).map(|_| client.wait()).collect();
    let failed: Vec<Status> =
        statuses.iter().copied().skip_while(|status| *status == Status::Success).collect();
    assert_eq!(failed.first(), Some(&Status::RetryExceeded), "{statuses:?}");
    assert!(failed[1..].iter().all(|status| *status == Status::WrFlushed), "{statuses:?}");
    assert_eq!(pair.state(), remora_verbs::State::Err);
    drop(pair);
    // The same NIC can be used with another peer.
    let server = Server::start(name);
    let (mut pair, table) = client.connect(server.address, &QpOptions::default()).unwrap();
    pair.post_send(&work::read(1, &[client.memory.sge(0, 64)], table.at(0))).unwrap();
    assert_eq!(client.wait(), Status::Success);
}

#[test]
fn a_peer_killed_in_mid_transfer_ends_it_within_the_retries_over_shm() {
    a_killed_peer("shm");
}

#[test]
fn a_peer_killed_in_mid_transfer_ends_it_within_the_retries_over_udp() {
    a_killed_peer("udp");
}

/// A client that is killed does not disturb the server.
fn a_killed_client(name: &str) {
    let server = Server::start(name);
    for _ in 0..3 {
        let client = Client::new(name);
        let (mut pair, table) = client.connect(server.address, &QpOptions::default()).unwrap();
        // The client is dropped in the middle of its work.
        pair.post_send(&work::read(1, &[client.memory.sge(0, LEN)], table.at(0))).unwrap();
    }
    let mut client = Client::new(name);
    let (mut pair, table) = client.connect(server.address, &QpOptions::default()).unwrap();
    pair.post_send(&work::read(1, &[client.memory.sge(0, 64)], table.at(0))).unwrap();
    assert_eq!(client.wait(), Status::Success);
    drop(pair);
    server.process.end();
}

#[test]
fn clients_that_vanish_do_not_stop_the_server() {
    a_killed_client("shm");
    a_killed_client("udp");
}

#[test]
fn an_idle_connected_pair_costs_little() {
    let server = Server::start("shm");
    let client = Client::new("shm");
    let _connected = client.connect(server.address, &QpOptions::default()).unwrap();
    let before = cpu_time();
    std::thread::sleep(Duration::from_secs(2));
    println!("client: {:?} of CPU in 2 s", cpu_time() - before);
    let output = server.process.end();
    println!("server (which also wakes 50 times a second by itself): {}", output.trim());
    assert!(output.contains("cpu "));
}

#[test]
fn strangers_on_the_listeners_port_do_no_harm() {
    let server = Server::start("shm");
    let mut good = b"RemoraCM\x01\x00\x01\x00".to_vec();
    good.extend(u32::MAX.to_le_bytes());
    let nonsense: [&[u8]; 6] = [
        b"GET / HTTP/1.0\r\n\r\n",
        &[0xff; 300],
        b"RemoraCM",
        b"RemoraCM\x01\x00\x03\x00\0\0\0\0",
        &good,
        b"",
    ];
    // Some connections hang up at once, some stay and send nothing more.
    let mut idle = Vec::new();
    for bytes in nonsense.iter().cycle().take(60) {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let _ = stream.write_all(bytes);
        if idle.len() < 20 {
            idle.push(stream);
        }
    }
    let mut old = TcpStream::connect(server.address).unwrap();
    old.write_all(b"RemoraCM\x63\x00\x01\x00\0\0\0\0").unwrap();
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("speaks version 99"), "the peer learns the reason");
    // A client that stops in the middle does not block the server for ever.
    let client = Client::new("shm");
    let (_pair, table) = client.connect(server.address, &QpOptions::default()).unwrap();
    assert_eq!(table.len, LEN as u64);
    server.process.end();
}

#[test]
fn what_cannot_be_connected_is_told_in_a_line() {
    let client = Client::new("shm");
    let options = QpOptions::default();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    let taken = Listener::bind(address).unwrap_err().to_string();
    assert!(taken.contains("is taken: choose another port"), "{taken}");
    let refusing =
        std::thread::spawn(move || listener.accept(Some(LONG)).unwrap().unwrap().reject("not today"));
    let error = client.connect(address, &options).unwrap_err();
    assert_eq!(error.to_string(), "the other side refused: not today");
    refusing.join().unwrap();
    let error = client.connect(address, &options).unwrap_err().to_string();
    assert!(error.contains("nobody listens at 127.0.0.1"), "{error}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hasty = QpOptions { connect_timeout: Duration::from_secs(1), ..QpOptions::default() };
    let error = client.connect(silent.local_addr().unwrap(), &hasty).unwrap_err().to_string();
    assert!(error.contains("waiting for the server's answer"), "{error}");
    let other_kind = {
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.address();
        let connecting =
            std::thread::spawn(move || Client::new("udp").connect(address, &QpOptions::default()).err());
        let request = listener.accept(Some(LONG)).unwrap().unwrap();
        let pair = client.domain.create_qp(&client.cq, &client.cq, &options).unwrap();
        let ours = request.accept(pair).unwrap_err().to_string();
        assert!(ours.contains("ports shm and udp do not meet"), "{ours}");
        connecting.join().unwrap().unwrap().to_string()
    };
    assert!(other_kind.contains("the other side refused: ports shm and udp do not meet"), "{other_kind}");
    let long = QpOptions { private_data: vec![0; 257], ..QpOptions::default() };
    assert!(matches!(client.connect(address, &long), Err(ConnectError::PrivateTooLong(257))));
}
