//! PRISM by the API, over real ports: clients put and get values at a server whose program does nothing
//! meanwhile.

use remora_verbs::prism::{Address, Data, Mode, Operand, Operands, Operation, SCRATCH, Verdict, WorkRequest};
use remora_verbs::{
    Access, CompletionQueue, Context, Device, EMPTY, Flags, FreeList, FreeListOptions, MemoryRegion, Payload,
    ProtectionDomain, QpOptions, QueuePair, Remote, Status, WorkCompletion,
};
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
/// The server's buffers, which follow a page of slots.
const BUFFERS: u32 = 64;
const SIZE: u32 = 8192;

struct Party {
    _context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

fn party(device: &Device) -> Party {
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = domain.allocate(4096 + (BUFFERS * SIZE) as usize, rights).unwrap();
    Party { _context: context, domain, cq, memory }
}

struct Server {
    party: Party,
    list: FreeList,
}

fn server(device: &Device) -> Server {
    let party = party(device);
    let options = FreeListOptions { offset: 4096, size: SIZE, count: BUFFERS, engine: 0 };
    let mut list = party.domain.create_free_list(&party.memory, &options).unwrap();
    for index in 0..BUFFERS {
        list.post(index).unwrap();
    }
    Server { party, list }
}

struct Client {
    party: Party,
    pair: QueuePair,
    _peer: QueuePair,
}

fn client(server: &Server, device: &Device, ours: &QpOptions, theirs: &QpOptions) -> Client {
    let party = party(device);
    let first = party.domain.create_qp(&party.cq, &party.cq, ours).unwrap();
    let there = &server.party;
    let second = there.domain.create_qp(&there.cq, &there.cq, theirs).unwrap();
    let (pair, peer) = QueuePair::connect_pair(first, second).unwrap();
    Client { party, pair, _peer: peer }
}

fn prism() -> QpOptions {
    QpOptions { prism: true, ..QpOptions::default() }
}

fn devices() -> [Device; 2] {
    [Device::shm(), Device::udp("127.0.0.1:0").unwrap()]
}

impl Client {
    fn run(&mut self, requests: &[WorkRequest<'_>]) -> Vec<WorkCompletion> {
        let mut batch = self.pair.batch().unwrap();
        for request in requests {
            batch.post_prism(request).unwrap();
        }
        batch.ring();
        let mut done = vec![EMPTY; requests.len()];
        let mut came = 0;
        while came < done.len() {
            let more = self.party.cq.wait(&mut done[came..], LONG).unwrap();
            assert!(more > 0, "nothing completes");
            came += more;
        }
        done
    }

    /// Puts a value into a slot, if the slot holds `old`. Returns the address of the buffer that is not in
    /// the slot afterwards, if any.
    fn put(&mut self, server: &Server, slot: u64, old: u64, value: &[u8]) -> (Verdict, u64) {
        self.party.memory.write(0, value).unwrap();
        let rkey = server.party.memory.rkey();
        let scratch = |offset: u64| Address::direct(Remote { addr: SCRATCH + offset, rkey });
        let (len, list) = ((value.len() as u64).to_le_bytes(), [self.party.memory.sge(0, value.len())]);
        let local = self.party.memory.sge(SIZE as usize, 32);
        let request = |id, operation| WorkRequest {
            id,
            operation,
            conditional: false,
            redirect: None,
            result: None,
            flags: Flags { signaled: true, ..Flags::default() },
        };
        let bound = Operation::Write { to: scratch(8), data: Data::Local(Payload::Inline(&len)) };
        let data = Data::Local(Payload::Sges(&list));
        let new = Operation::Allocate { list: server.list.number(), rkey, data };
        let operands = Operands {
            mode: Mode::Equal,
            size: 16,
            compare_mask: [u64::MAX, 0, 0, 0],
            swap_mask: [u64::MAX, u64::MAX, 0, 0],
            compare: Operand::Immediate([old, 0, 0, 0]),
            swap_add: Operand::At(SCRATCH),
        };
        let target = Address::direct(server.party.memory.remote(slot));
        let swap = Operation::CompareSwap { at: target, operands };
        let sges = [self.party.memory.sge(SIZE as usize + 64, 8)];
        let result = Operation::Read { from: scratch(0), len: 8, into: &sges };
        let done = self.run(&[
            request(1, bound),
            WorkRequest { redirect: Some(SCRATCH), ..request(2, new) },
            WorkRequest { conditional: true, result: Some(local), ..request(3, swap) },
            request(4, result),
        ]);
        assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
        let outcome = done[2].outcome;
        let offset = if outcome == Verdict::Done { SIZE as usize } else { SIZE as usize + 64 };
        (outcome, self.party.memory.get::<u64>(offset).unwrap())
    }

    fn get(&mut self, server: &Server, slot: u64) -> Vec<u8> {
        let sges = [self.party.memory.sge(0, SIZE as usize)];
        let address = Address::bounded(server.party.memory.remote(slot));
        let done = self.run(&[WorkRequest {
            id: 5,
            operation: Operation::Read { from: address, len: SIZE, into: &sges },
            conditional: false,
            redirect: None,
            result: None,
            flags: Flags { signaled: true, ..Flags::default() },
        }]);
        assert_eq!(done[0].status, Status::Success);
        let mut value = vec![0; done[0].byte_len as usize];
        self.party.memory.read(0, &mut value).unwrap();
        value
    }
}

#[test]
fn two_clients_put_and_get_at_a_server_that_sleeps_and_every_losing_put_gives_its_buffer_back() {
    for device in devices() {
        let mut server = server(&device);
        let mut clients =
            [client(&server, &device, &prism(), &prism()), client(&server, &device, &prism(), &prism())];
        let mut current = 0u64;
        for round in 0..200u64 {
            let winner = (round % 2) as usize;
            let loser = (round + 1) as usize % 2;
            let value: Vec<u8> =
                (0..(round * 97 + 1) % u64::from(SIZE)).map(|index| (index ^ round) as u8).collect();
            let (outcome, before) = clients[winner].put(&server, 0, current, &value);
            assert_eq!((outcome, before), (Verdict::Done, current));
            let (outcome, mine) = clients[loser].put(&server, 0, current, b"too late");
            assert_eq!(outcome, Verdict::NotSwapped);
            assert_eq!(clients[loser].get(&server, 0), value);
            // The buffer of the value that was replaced, and the buffer of the value that was not stored.
            for address in [before, mine].into_iter().filter(|address| *address != 0) {
                let index = server.list.index(address).expect("a buffer");
                server.list.post(index).unwrap();
            }
            current = server.party.memory.get::<u64>(0).unwrap();
        }
        let facts = server.list.facts().unwrap();
        assert_eq!(
            (facts.free + facts.resting, facts.bad_posts),
            (BUFFERS - 1, 0),
            "one buffer is in the table"
        );
    }
}

#[test]
fn what_the_other_side_did_not_ask_for_fails_here() {
    let device = Device::shm();
    let server = server(&device);
    let mut lonely = client(&server, &device, &prism(), &QpOptions::default());
    assert!(!lonely.pair.agreement().unwrap().prism);
    let sges = [lonely.party.memory.sge(0, 64)];
    let done = lonely.run(&[WorkRequest {
        id: 1,
        operation: Operation::Read {
            from: Address::indirect(server.party.memory.remote(0)),
            len: 64,
            into: &sges,
        },
        conditional: false,
        redirect: None,
        result: None,
        flags: Flags { signaled: true, ..Flags::default() },
    }]);
    assert_eq!(done[0].status, Status::LocalQpOperation);
}

#[test]
fn prism_and_irn_are_agreed_on_one_beside_the_other() {
    let device = Device::shm();
    let server = server(&device);
    for irn in [true, false] {
        let [both, theirs] = [true, irn].map(|irn| QpOptions { irn, ..prism() });
        let mut client = client(&server, &device, &both, &theirs);
        let agreement = client.pair.agreement().unwrap();
        assert_eq!((agreement.prism, agreement.irn.is_some()), (true, irn));
        assert_eq!(client.put(&server, if irn { 0 } else { 16 }, 0, b"value").0, Verdict::Done);
        assert_eq!(client.get(&server, 0), b"value");
    }
}
