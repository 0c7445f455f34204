//! Chains that a daemon executes for a program.

use remora_verbs::chain::offload::{BUCKET, OFFLOADS, ask, bucket, places};
use remora_verbs::{
    Access, Call, CompletionKind, EMPTY, Listener, Loader, MemoryRegion, Offload, PollError, QpOptions,
    QueuePair, ReceiveRequest, RemoteMemory, Status, chain, nicd, work,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Client, LEN, LONG, Lender, Program, Reads, input_ended, open};

/// Keys 1 to `KEYS` in a table of `BUCKETS` buckets, which is followed by values of 64 bytes.
const KEYS: u64 = 40;
const BUCKETS: u64 = 1 << 12;
const VALUE: usize = 64;

fn value(key: u64) -> [u8; VALUE] {
    std::array::from_fn(|index| ((key as usize * 31) ^ (index * 7)) as u8)
}

fn fill(table: &MemoryRegion) {
    for key in 1..=KEYS {
        let offset = BUCKETS * BUCKET + key * VALUE as u64;
        let entry = bucket(key, table.address() + offset, VALUE as u64);
        table.write((places(key, BUCKETS)[0] * BUCKET) as usize, &entry).unwrap();
        table.write(offset as usize, &value(key)).unwrap();
    }
}

/// Loads the shipped GET for each client and does nothing else. Takes over the objects that a daemon has
/// kept, and ends when its standard input is closed.
pub(crate) fn serve(nic: &str) {
    let context = open(nic);
    let mut kept = if nic.contains('=') { context.kept().unwrap() } else { nicd::Kept::default() };
    let domain = kept.domains.pop().unwrap_or_else(|| context.alloc_pd().unwrap());
    let table = kept.region("table").unwrap_or_else(|| {
        let table = domain.allocate_named("table", LEN, Access::REMOTE_READ).unwrap();
        fill(&table);
        table
    });
    let text = OFFLOADS.iter().find(|(name, _)| *name == "get").expect("it ships").1;
    let program = chain::assemble(text).unwrap();
    let mut loaded: Vec<Offload> = Vec::new();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    println!("says {} {}", listener.address(), kept.pairs.len());
    let over = input_ended();
    while !over.load(Ordering::Acquire) {
        if let Some(request) = listener.accept(Some(Duration::from_millis(1))).unwrap() {
            let call = Call::from_bytes(request.private_data()).unwrap();
            let private_data = table.remote_memory().to_bytes().to_vec();
            let options = QpOptions { private_data, ..QpOptions::default() };
            let port = domain.create_port(&program, "port", &options).unwrap();
            let loader = Loader::new(&program).connection("port", request.accept(port).unwrap());
            let loader = loader.region("table", table.remote_memory()).region("reply", call.reply);
            loaded.push(loader.load(&domain).unwrap());
        }
    }
}

/// The server's address, and the number of queue pairs that it has taken over.
fn server_facts(server: &Program) -> (SocketAddr, usize) {
    let (address, pairs) = server.first_line.split_once(' ').unwrap();
    (address.parse().unwrap(), pairs.parse().unwrap())
}

/// A client that GETs by a chain. The first 64 bytes of its memory receive the value.
struct Asker {
    client: Client,
    pair: QueuePair,
    table: RemoteMemory,
}

impl Asker {
    fn connect(address: SocketAddr) -> Asker {
        let client = Client::new("shm");
        let call = Call { program: "get".to_owned(), reply: client.memory.remote_memory() };
        let options = QpOptions { private_data: call.to_bytes(), ..QpOptions::default() };
        let pair = client.domain.create_qp(&client.cq, &client.cq, &options).unwrap();
        let pair = pair.connect(address).unwrap();
        let table = RemoteMemory::from_bytes(pair.peer_private_data()).unwrap();
        Asker { client, pair, table }
    }

    /// Performs one GET and returns its status. A returned value is checked against the key.
    fn get(&mut self, key: u64) -> Status {
        self.get_within(key, LONG).expect("an answered GET")
    }

    /// Performs one GET and returns its status, or `None` if no completion comes for the time `patience`.
    fn get_within(&mut self, key: u64, patience: Duration) -> Option<Status> {
        let memory = &self.client.memory;
        memory.write(0, &[0; VALUE]).unwrap();
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &[] }).unwrap();
        let place = self.table.addr + places(key, BUCKETS)[0] * BUCKET;
        self.pair.post_send(&work::send_inline(2, &ask(place, key))).unwrap();
        let mut done = [EMPTY; 1];
        loop {
            match self.client.cq.wait(&mut done, patience) {
                Err(PollError::Timeout) => return None,
                waited => assert_eq!(waited, Ok(1)),
            }
            if done[0].status != Status::Success {
                return Some(done[0].status);
            }
            if done[0].kind == CompletionKind::ReceiveWriteImm {
                assert_eq!(done[0].byte_len as usize, VALUE);
                assert_eq!(self.client.memory.get(0), Ok(value(key)));
                return Some(Status::Success);
            }
        }
    }
}

/// Performs GETs until `over`, and checks that none fails. Returns their number.
fn get_on(asker: &mut Asker, reads: &Reads, over: &AtomicBool) -> u64 {
    let mut count = 0;
    while !over.load(Ordering::Acquire) {
        assert_eq!(asker.get(1 + count % KEYS), Status::Success);
        count += 1;
        reads.made(count);
    }
    count
}

#[test]
fn a_chain_answers_while_its_server_is_stopped_dead_and_started_again() {
    let lender = Lender::start("shm", "chain");
    let nic = format!("{}=chains", lender.nic());
    let mut server = Program::start(&["chains", &nic]);
    assert_eq!(server_facts(&server).1, 0);
    let mut asker = Asker::connect(server_facts(&server).0);
    let made = Reads::default();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let gets = scope.spawn(|| get_on(&mut asker, &made, &over));
        made.some_more();
        server.signal("-STOP");
        made.some_more();
        server.signal("-CONT");
        for dead in 1..3 {
            server.kill();
            made.some_more();
            server = Program::start(&["chains", &nic]);
            // The port and two loopback queues of each client.
            assert_eq!(server_facts(&server).1, 3 * dead);
            made.some_more();
            let mut late = Asker::connect(server_facts(&server).0);
            assert_eq!(late.get(7), Status::Success);
            // The late client's chain stays at the daemon.
        }
        over.store(true, Ordering::Release);
        assert!(gets.join().unwrap() > 500);
    });
}

#[test]
fn a_chain_ends_with_its_program_if_that_is_not_kept() {
    let lender = Lender::start("shm", "chain-passing");
    let mut server = Program::start(&["chains", lender.nic()]);
    let mut asker = Asker::connect(server_facts(&server).0);
    (1..=KEYS).for_each(|key| assert_eq!(asker.get(key), Status::Success));
    server.kill();
    // The program may end between the acknowledgement of a request and its answer. Such a GET has no
    // answer, and the next one fails.
    let status = loop {
        match asker.get_within(1, Duration::from_secs(1)) {
            None | Some(Status::Success) => {}
            Some(status) => break status,
        }
    };
    assert_eq!(status, Status::RetryExceeded);
}

#[test]
fn a_program_sees_a_lent_chain_run_as_on_a_nic_of_its_own() {
    let lender = Lender::start("shm", "chain-seen");
    for nic in ["shm", lender.nic()] {
        let context = open(nic);
        let domain = context.alloc_pd().unwrap();
        let mut cq = context.create_cq(16).unwrap();
        let mut program =
            chain::assemble(include_str!("../../../../program/chain/programs/while.chain")).unwrap();
        let turns = program.queue("loop").unwrap();
        // Load the program without starting it, and let it begin at another value.
        let first = std::mem::take(&mut program.queues[turns].enabled);
        let offload = Loader::new(&program).load(&domain).unwrap();
        let begun = offload.word("i").unwrap();
        assert!(offload.set_word("i", begun + (990 << 16)));
        offload.queue("loop").unwrap().enable(first).unwrap();
        while offload.word("i") != Some(begun + (1000 << 16)) {
            cq.poll(&mut [EMPTY; 1]).unwrap();
        }
    }
}
