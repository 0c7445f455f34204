//! Offloads over real ports: a server loads a chain for each client that connects, and the server's program
//! then does nothing.

use remora_verbs::chain::offload::{BUCKET, LIST, OFFLOADS, ask, ask_list, ask_two, bucket, node, places};
use remora_verbs::chain::{self, Program};
use remora_verbs::{
    Access, Call, CompletionKind, CompletionQueue, Context, Device, EMPTY, Key, Listener, Loader,
    MemoryRegion, Mode, Offload, Operation, ProtectionDomain, QpOptions, QueuePair, ReceiveRequest, Remote,
    RemoteMemory, Status, WorkCompletion, WorkRequest, work,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(10);
/// The layout of the server's memory: a table, a list, and their values.
const BUCKETS: u64 = 256;
const LIST_AT: u64 = BUCKETS * BUCKET;
const VALUES: u64 = 16 << 10;
const VALUE: u64 = 1 << 16;
const KEYS: u64 = 12;
const MEMORY: u64 = VALUES + (KEYS + 1) * VALUE;

fn shm() -> Device {
    Device::shm()
}

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap()
}

/// Lengths of 64 bytes to 64 KiB, in powers of two.
fn length(key: u64) -> u64 {
    64 << (key % 11)
}

fn value(key: u64) -> Vec<u8> {
    (0..length(key)).map(|index| (key.wrapping_mul(31) ^ index.wrapping_mul(7) ^ index >> 8) as u8).collect()
}

fn program(name: &str) -> Program {
    let text = OFFLOADS.iter().find(|(known, _)| *known == name).expect("it ships").1;
    chain::assemble(text).unwrap()
}

/// A server that fills its memory once and loads a chain for each client.
struct Server {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The keys by which the chains read the server's memory.
    keys: [Key; 2],
    memory: u64,
    copy: Vec<u8>,
    bytes: remora_verbs::Bytes,
}

impl Server {
    fn start(device: &Device) -> Server {
        Server::on(&device.clone().mode(Mode::Dedicated).open().unwrap())
    }

    fn on(context: &Context) -> Server {
        let domain = context.alloc_pd().unwrap();
        // Chains only read the table, as the source or the target of a work request, and nobody writes it.
        let table = domain.allocate(MEMORY as usize, Access::REMOTE_READ).unwrap();
        let bytes = table.bytes().unwrap().clone();
        fill(&table);
        let listener = Listener::bind("127.0.0.1:0").unwrap();
        let address = listener.address();
        let over = Arc::new(AtomicBool::new(false));
        let memory = table.address();
        let keys = [table.rkey(), table.lkey()];
        let mut copy = vec![0; MEMORY as usize];
        bytes.read(0, &mut copy).unwrap();
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut loaded: Vec<Offload> = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                if let Some(request) = listener.accept(Some(Duration::from_millis(20))).unwrap() {
                    loaded.push(serve(&domain, &table, request));
                }
            }
            drop(loaded);
        });
        Server { address, over, thread: Some(thread), keys, memory, copy, bytes }
    }

    fn is_as_it_was(&self) -> bool {
        let mut now = vec![0; MEMORY as usize];
        self.bytes.read(0, &mut now).unwrap();
        now == self.copy
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Serves a connection request: creates a queue pair without rights and a code region, and links the program
/// to the client's reply memory.
fn serve(domain: &ProtectionDomain, table: &MemoryRegion, request: remora_verbs::ConnectRequest) -> Offload {
    let call = Call::from_bytes(request.private_data()).unwrap();
    let program = program(&call.program);
    let options = QpOptions { private_data: table.address().to_le_bytes().to_vec(), ..QpOptions::default() };
    let port = request.accept(domain.create_port(&program, "port", &options).unwrap()).unwrap();
    let name = if call.program.starts_with("list") { "list" } else { "table" };
    let loader = Loader::new(&program).connection("port", port);
    loader.region(name, table.remote_memory()).region("reply", call.reply).load(domain).unwrap()
}

fn fill(memory: &MemoryRegion) {
    let value_offset = |key: u64| VALUES + key * VALUE;
    let mut taken = [false; BUCKETS as usize];
    for place in 0..BUCKETS {
        memory.write((place * BUCKET) as usize, &bucket(0, 0, 0)).unwrap();
    }
    for key in 1..=KEYS {
        memory.write(value_offset(key) as usize, &value(key)).unwrap();
        // Keys with an even number are stored in their second bucket.
        let place = places(key, BUCKETS)[usize::from(key % 2 == 0)];
        assert!(!std::mem::replace(&mut taken[place as usize], true), "two keys have the same place");
        let bytes = bucket(key, memory.address() + value_offset(key), length(key));
        memory.write((place * BUCKET) as usize, &bytes).unwrap();
    }
    for place in 0..=LIST as u64 {
        let next = memory.address() + LIST_AT + (place + 1).min(LIST as u64) * BUCKET;
        let key = place + 1;
        let entry = node(key, memory.address() + value_offset(key), length(key), next);
        let bytes = if place == LIST as u64 { node(0, 0, 0, next) } else { entry };
        memory.write((LIST_AT + place * BUCKET) as usize, &bytes).unwrap();
    }
}

struct Client {
    _context: Context,
    cq: CompletionQueue,
    pair: QueuePair,
    reply: MemoryRegion,
    small: MemoryRegion,
    /// The address of the server's memory. The client does not learn its key.
    there: u64,
}

impl Client {
    fn call(device: &Device, server: &Server, program: &str) -> Client {
        Client::on(device.open().unwrap(), server, program)
    }

    fn on(context: Context, server: &Server, program: &str) -> Client {
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(64).unwrap();
        let reply = domain.allocate(VALUE as usize, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let small = domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
        let call = Call { program: program.into(), reply: reply.remote_memory() };
        let options = QpOptions { private_data: call.to_bytes(), ..QpOptions::default() };
        let pair = domain.create_qp(&cq, &cq, &options).unwrap().connect(server.address).unwrap();
        let there = u64::from_le_bytes(pair.peer_private_data().try_into().unwrap());
        Client { _context: context, cq, pair, reply, small, there }
    }

    /// Sends a request and waits for the answer. Returns the value, or `None` if there is none.
    fn ask(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &[] }).unwrap();
        self.pair.post_send(&work::send_inline(2, message)).unwrap();
        let mut done = [EMPTY; 2];
        let mut came = 0;
        while came < 2 {
            came += self.cq.wait(&mut done[came..], SECOND).unwrap();
        }
        assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
        let answer = done.iter().find(|wc| wc.kind == CompletionKind::ReceiveWriteImm).unwrap();
        let mut value = vec![0; answer.byte_len as usize];
        self.reply.read(0, &mut value).unwrap();
        Some(value).filter(|value| !value.is_empty())
    }

    fn one(&mut self, request: &WorkRequest<'_>) -> WorkCompletion {
        self.pair.post_send(request).unwrap();
        let mut done = [EMPTY; 1];
        self.cq.wait(&mut done, SECOND).unwrap();
        done[0]
    }
}

/// Asks a server's chains. `open` opens the NIC of a client.
pub(crate) fn answers_as_the_table_does(server: &Context, open: &dyn Fn() -> Context) {
    let server = Server::on(server);
    let call = |program| Client::on(open(), &server, program);
    let mut one = call("get");
    let places_of =
        |client: &Client, key: u64| places(key, BUCKETS).map(|place| client.there + place * BUCKET);
    for key in (1..=2 * KEYS).chain(1..=3) {
        // A GET with one bucket finds odd keys, which are in their first bucket, and does not find even ones.
        let address = places_of(&one, key)[0];
        let expected = (key <= KEYS && key % 2 == 1).then(|| value(key));
        assert!(one.ask(&ask(address, key)) == expected, "key {key}");
    }
    for name in ["get-two-sequential", "get-two-parallel"] {
        let mut two = call(name);
        for key in 1..=2 * KEYS {
            let addresses = places_of(&two, key);
            assert!(
                two.ask(&ask_two(addresses, key)) == (key <= KEYS).then(|| value(key)),
                "{name}, key {key}"
            );
        }
    }
    // Two clients at the same time, each with a code region of its own.
    let mut other = call("get");
    for key in [1, 3, 2, 5] {
        let address = places_of(&one, key)[0];
        assert_eq!(one.ask(&ask(address, key)), other.ask(&ask(address, key)));
    }
    assert!(server.is_as_it_was());
}

fn on_own_nics(device: &Device) {
    let server = device.clone().mode(Mode::Dedicated).open().unwrap();
    answers_as_the_table_does(&server, &|| device.open().unwrap());
}

#[test]
fn hash_gets_over_shm_answer_as_the_table_does() {
    on_own_nics(&shm());
}

#[test]
fn hash_gets_over_udp_answer_as_the_table_does() {
    on_own_nics(&udp());
}

fn finds_what_the_list_holds(device: &Device) {
    let server = Server::start(device);
    type Asks = fn(u64, u64) -> Vec<u8>;
    let lists: [(&str, Asks); 2] = [("list", ask_list), ("list-break", ask)];
    for (name, ask) in lists {
        let mut client = Client::call(device, &server, name);
        for key in (1..=LIST as u64 + 2).chain([2, 1]) {
            let first = client.there + LIST_AT;
            let expected = (key <= LIST as u64).then(|| value(key));
            assert!(client.ask(&ask(first, key)) == expected, "{name}, key {key}");
        }
    }
}

#[test]
fn a_list_over_shm_and_udp_is_searched_to_its_end_and_to_the_key() {
    finds_what_the_list_holds(&shm());
    finds_what_the_list_holds(&udp());
}

/// RedN, section 3.5: a client may only SEND. Everything else is refused, even to a client that has guessed
/// a key.
#[test]
fn a_client_of_an_offload_can_do_nothing_but_send() {
    let device = shm();
    let server = Server::start(&device);
    let mut honest = Client::call(&device, &server, "get");
    for key in server.keys {
        let remote = Remote { addr: server.memory, rkey: key };
        let refused = [
            (Operation::Write(remote), Status::RemoteInvalidRequest),
            (Operation::WriteImm(remote, 7), Status::RemoteInvalidRequest),
            (Operation::Read(remote), Status::RemoteInvalidRequest),
            (Operation::CompareSwap { remote, compare: 0, swap: 1 }, Status::RemoteInvalidRequest),
            (Operation::FetchAdd { remote, add: 1 }, Status::RemoteInvalidRequest),
            // Also what only an agreement or a loopback queue pair allows.
            (Operation::Rpc { opcode: 1, tag: 0 }, Status::LocalQpOperation),
            (Operation::RpcWrite { opcode: 1, tag: 0 }, Status::LocalQpOperation),
            (
                Operation::Calculate { calculation: remora_verbs::Calculation::Max, remote, operand: 9 },
                Status::LocalQpOperation,
            ),
            // The key belongs to the server but not to a window, so the server's queue pair ends without a
            // NAK.
            (Operation::SendInv(key), Status::RetryExceeded),
        ];
        for (operation, status) in refused {
            let mut hostile = Client::call(&device, &server, "get");
            let local = [hostile.small.sge(0, 8)];
            let done = hostile.one(&work::request(5, operation, &local));
            assert_eq!((done.id, done.status), (5, status), "{operation:?}");
            assert!(server.is_as_it_was(), "{operation:?}");
            // Each violation ends the client's own connection and no other.
            let key = 1;
            let address = honest.there + places(key, BUCKETS)[0] * BUCKET;
            assert_eq!(honest.ask(&ask(address, key)), Some(value(key)), "{operation:?}");
        }
    }
}

#[test]
fn what_does_not_fit_a_program_is_refused_with_words() {
    let context = shm().open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let program = program("get");
    let words = |loader: Loader<'_>| loader.load(&domain).map(drop).unwrap_err().to_string();
    let memory = RemoteMemory { addr: 0, len: 1 << 20, rkey: Key::new(1) };
    assert!(words(Loader::new(&program)).contains("the region `table` has no memory"));
    assert!(
        words(Loader::new(&program).region("tables", memory)).contains("no such queue or region: `tables`")
    );
    let small = RemoteMemory { len: 8, ..memory };
    assert!(words(Loader::new(&program).region("table", small)).contains("has 8 bytes"));
    let pair = || domain.create_qp(&cq, &cq, &QpOptions::default()).unwrap();
    let (plain, _other) = QueuePair::connect_pair(pair(), pair()).unwrap();
    let loader = Loader::new(&program).region("table", memory).region("reply", memory);
    assert!(words(loader.connection("port", plain)).contains("make it by `create_port`"));
    let strange = domain.create_port(&program, "harbour", &QpOptions::default()).map(drop);
    assert!(strange.unwrap_err().to_string().contains("`harbour`"));
}
