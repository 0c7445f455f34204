//! Kernels that a daemon runs for a program.

use remora_verbs::kernel::{Lookup, Shipped, Slot, Status};
use remora_verbs::{
    Access, AnswerBuffers, CreateError, KernelModule, KernelOptions, Listener, QpOptions, QueuePair,
    RemoteMemory, nicd,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Client, LONG, Lender, Program, Reads, input_ended, open};

const OPCODE: u64 = 0x6e7;
/// Slots of the table with one key each. Values have 8 bytes.
const SLOTS: u64 = 50;

fn strom(private_data: Vec<u8>) -> QpOptions {
    QpOptions { strom: true, private_data, ..QpOptions::default() }
}

/// Deploys the GET kernel, connects each client and does nothing else. Takes over the objects that a daemon
/// has kept.
pub(crate) fn serve(nic: &str) {
    let context = open(nic);
    let mut kept = if nic.contains('=') { context.kept().unwrap() } else { nicd::Kept::default() };
    let again = kept.kernels.len();
    let domain = kept.domains.pop().unwrap_or_else(|| context.alloc_pd().unwrap());
    let fresh = || domain.allocate_named("table", 1 << 16, Access::LOCAL_WRITE).unwrap();
    let table = kept.region("table").unwrap_or_else(fresh);
    if again == 0 {
        let len = Slot { keys: [0; 3], values: [0; 3], lens: [0; 3] }.emit().len();
        assert!(len <= 64);
        for key in 1..=SLOTS {
            let offset = (32 << 10) + key as usize * 8;
            let value = table.remote(offset as u64).addr;
            let slot = Slot { keys: [key, 0, 0], values: [value, 0, 0], lens: [8, 0, 0] };
            table.write(key as usize * 64, &slot.emit()).unwrap();
            table.put(offset, &(key * 77)).unwrap();
        }
        let options = KernelOptions {
            opcode: Some(OPCODE),
            grants: &[&table],
            longest: 64,
            ..KernelOptions::default()
        };
        kept.kernels.push(domain.deploy_shipped(Shipped::Get, 4, &options).unwrap());
    }
    let taken = KernelOptions { opcode: Some(OPCODE), ..KernelOptions::default() };
    let taken = domain.deploy_shipped(Shipped::Get, 1, &taken).unwrap_err().to_string();
    assert!(taken.contains("in use"), "{taken}");
    let cq = context.create_cq(16).unwrap();
    let mut pairs: Vec<QueuePair> = Vec::new();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    println!("says {} {again}", listener.address());
    let over = input_ended();
    while !over.load(Ordering::Acquire) {
        if let Some(request) = listener.accept(Some(Duration::from_millis(1))).unwrap() {
            let options = strom(table.remote_memory().to_bytes().to_vec());
            pairs.push(request.accept(domain.create_qp(&cq, &cq, &options).unwrap()).unwrap());
        }
    }
}

/// A client of the kernel.
struct Asker {
    client: Client,
    answers: AnswerBuffers,
    pair: QueuePair,
    table: RemoteMemory,
}

impl Asker {
    fn connect(nic: &str, address: SocketAddr) -> Asker {
        let client = Client::new(nic);
        let answers = client.domain.create_answers(4, 64).unwrap();
        let pair = client.domain.create_qp(&client.cq, &client.cq, &strom(Vec::new())).unwrap();
        let pair = pair.connect(address).unwrap();
        let table = RemoteMemory::from_bytes(pair.peer_private_data()).unwrap();
        Asker { client, answers, pair, table }
    }

    fn get(&mut self, key: u64) {
        let lookup = Lookup { slot: self.table.addr + key * 64, key };
        let tag = self.answers.ask(&mut self.pair, OPCODE, &lookup.emit()).unwrap();
        let answer = self.answers.wait(&mut self.client.cq, tag, LONG).unwrap();
        assert_eq!((answer.status, answer.len), (Status::DONE, 8));
        let mut value = [0; 8];
        self.answers.read(&answer, &mut value).unwrap();
        assert_eq!(u64::from_le_bytes(value), key * 77);
    }
}

fn server_facts(server: &Program) -> (SocketAddr, &str) {
    let (address, kernels) = server.first_line.split_once(' ').unwrap();
    (address.parse().unwrap(), kernels)
}

#[test]
fn a_kernel_answers_while_its_program_is_dead_and_the_next_one_has_it() {
    let lender = Lender::start("shm", "kernel");
    let nic = format!("{}=kernels", lender.nic());
    let mut server = Program::start(&["kernels", &nic]);
    assert_eq!(server_facts(&server).1, "0");
    let mut asker = Asker::connect("shm", server_facts(&server).0);
    let made = Reads::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            for count in 0.. {
                asker.get(1 + count % SLOTS);
                made.made(count + 1);
                if over.load(Ordering::Acquire) {
                    return;
                }
            }
        });
        made.some_more();
        for _ in 0..2 {
            server.kill();
            made.some_more();
            server = Program::start(&["kernels", &nic]);
            assert_eq!(server_facts(&server).1, "1");
            // A program of the same daemon can use the kernel like any other peer.
            Asker::connect(lender.nic(), server_facts(&server).0).get(3);
        }
        over.store(true, Ordering::Release);
        asks.join().unwrap();
    });
    server.end();
    // The last server ended by itself and gave its objects back.
    let next = Program::start(&["kernels", &nic]);
    assert_eq!(server_facts(&next).1, "0");
}

#[test]
fn a_kernel_that_a_program_hands_over_itself_is_not_taken_and_what_was_removed_is_gone() {
    let lender = Lender::start("shm", "kernel-own");
    let client = Client::new(lender.nic());
    let options = KernelOptions { opcode: Some(OPCODE), ..KernelOptions::default() };
    let own = client.domain.deploy_kernel(Shipped::Get.lanes(1), &options);
    assert_eq!(own.map(drop), Err(CreateError::NotByDaemon));
    for _ in 0..3 {
        let kernel = client.domain.deploy_shipped(Shipped::Get, 1, &options).unwrap();
        kernel.remove().unwrap();
        assert!(matches!(kernel.remove(), Err(CreateError::Daemon(_))));
    }
    // A dropped kernel handle removes its kernel too.
    drop(client.domain.deploy_shipped(Shipped::Get, 1, &options).unwrap());
    client.domain.deploy_shipped(Shipped::Get, 1, &options).unwrap();
}

/// Returns a module whose kernel answers a number by its multiple.
fn multiplier(factor: u64) -> Vec<u8> {
    let text = format!(
        r#"(module
            (memory (export "memory") 1)
            (data (i32.const 0) "\01")
            (func (export "mailbox") (result i32) i32.const 0)
            (func (export "reset"))
            (func (export "step") (result i32)
                (if (i32.eqz (i32.load (i32.const 24))) (then (return (i32.const 0))))
                (i32.store (i32.const 64) (i32.const 1))
                (i32.store (i32.const 72) (i32.const 1))
                (i32.store (i32.const 80) (i32.const 8))
                (i32.store (i32.const 100) (i32.const 8))
                (i32.store (i32.const 104) (i32.const 1))
                (i64.store (i32.const 8320) (i64.mul (i64.load (i32.const 128)) (i64.const {factor})))
                i32.const 0))"#
    );
    wat::parse_str(text).unwrap()
}

/// A kernel of the user's own serves, is replaced and gives its memory back, on a NIC of the process and on
/// the NIC of a daemon.
#[test]
fn a_module_serves_on_a_nic_of_ones_own_and_on_that_of_a_daemon() {
    let lender = Lender::start("shm", "module");
    for nic in ["shm", lender.nic()] {
        let mut client = Client::new(nic);
        let mut answers = client.domain.create_answers(4, 64).unwrap();
        let pairs =
            [(); 2].map(|()| client.domain.create_qp(&client.cq, &client.cq, &strom(Vec::new())).unwrap());
        let [first, second] = pairs;
        let (mut asking, _serving) = QueuePair::connect_pair(first, second).unwrap();
        let options = KernelOptions { opcode: Some(OPCODE), longest: 64, ..KernelOptions::default() };
        let module =
            |bytes, lanes| KernelModule { bytes, lanes, memory: 1 << 20, loader: remora_sandbox::load };
        let mut times = |factor: u64| {
            let tag = answers.ask(&mut asking, OPCODE, &3u64.to_le_bytes()).unwrap();
            let answer = answers.wait(&mut client.cq, tag, LONG).unwrap();
            assert_eq!((answer.status, answer.len), (Status::DONE, 8));
            let mut value = [0; 8];
            answers.read(&answer, &mut value).unwrap();
            assert_eq!(u64::from_le_bytes(value), 3 * factor);
        };
        let [first, second] = [77, 78].map(multiplier);
        // Each deployment claims a quarter of the memory that a user of the daemon may have.
        for _ in 0..8 {
            let kernel = client.domain.deploy_module(&module(&first, 1024), &options).unwrap();
            times(77);
            kernel.replace_by_module(&module(&second, 1024)).unwrap();
            times(78);
        }
        let error = client.domain.deploy_module(&module(b"no module", 1), &options).map(drop).unwrap_err();
        assert!(error.to_string().contains("no WebAssembly"), "{error}");
    }
    let client = Client::new(lender.nic());
    let options = KernelOptions { opcode: Some(OPCODE), ..KernelOptions::default() };
    let bytes = &multiplier(1)[..];
    let module = KernelModule { bytes, lanes: 1024, memory: 8 << 20, loader: remora_sandbox::load };
    let error = client.domain.deploy_module(&module, &options).map(drop).unwrap_err();
    assert!(matches!(error, CreateError::Limit(_)), "{error}");
}
