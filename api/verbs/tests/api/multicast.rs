//! Multicast over `udp`: groups on one host, and across a veth pair between two network namespaces. The
//! latter needs root; without root that test prints a line and ends.

use remora_verbs::{
    Access, CompletionQueue, Context, CreateError, DatagramQueuePair, Device, EMPTY, Endpoint, GRH,
    MemoryRegion, NetworkType, ProtectionDomain, QpOptions, QueueError, ReceiveRequest, Status,
    WorkCompletion, work,
};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
const ROLE: &str = "REMORA_TEST_MULTICAST_ROLE";

/// A program with a datagram queue pair.
struct Party {
    context: Context,
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    qp: DatagramQueuePair,
}

fn party(device: &Device) -> Party {
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let memory = domain.allocate(1 << 16, Access::LOCAL_WRITE).unwrap();
    let qp = domain.create_datagram_qp(&cq, &cq, &QpOptions::default()).unwrap();
    Party { context, domain, cq, memory, qp }
}

impl Party {
    fn receive(&mut self, id: u64) {
        let list = [self.memory.sge(id as usize * 4096, 4096)];
        self.qp.post_recv(&ReceiveRequest { id, sges: &list }).unwrap();
    }

    fn wait(&mut self) -> WorkCompletion {
        let mut done = [EMPTY; 1];
        assert_eq!(self.cq.wait(&mut done, LONG), Ok(1));
        assert_eq!(done[0].status, Status::Success);
        done[0]
    }

    fn idle(&mut self) -> bool {
        (0..1000).all(|_| self.cq.poll(&mut [EMPTY; 1]) == Ok(0))
    }

    fn send(&mut self, group: Endpoint, words: &[u8]) {
        let all = self.domain.create_address_handle(0, group).unwrap().group(self.qp.qkey());
        self.qp.post_send_to(&work::send_inline(99, words), &all).unwrap();
    }

    /// Returns the payload of receive `id` and the last four bytes of its header, which hold the destination
    /// address.
    fn got(&self, wc: &WorkCompletion) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = vec![0; wc.byte_len as usize];
        self.memory.read(wc.id as usize * 4096, &mut bytes).unwrap();
        (bytes[GRH..].to_vec(), bytes[GRH - 4..GRH].to_vec())
    }
}

fn group(text: &str) -> Endpoint {
    let address: std::net::SocketAddr = text.parse().unwrap();
    Endpoint { address: address.ip().into(), udp_port: address.port() }
}

fn udp() -> Device {
    Device::udp("127.0.0.1:0").unwrap()
}

#[test]
fn every_program_of_the_host_that_is_attached_gets_it() {
    let (mut sender, mut one, mut two, mut other) =
        (party(&udp()), party(&udp()), party(&udp()), party(&udp()));
    let here = group("239.255.71.2:47912");
    let there = group("239.255.71.3:47912");
    one.qp.attach(here).unwrap();
    two.qp.attach(here).unwrap();
    other.qp.attach(there).unwrap();
    for party in [&mut one, &mut two, &mut other] {
        party.receive(1);
        party.receive(2);
    }
    sender.send(here, b"to two of three");
    assert_eq!(sender.wait().id, 99);
    for party in [&mut one, &mut two] {
        let wc = party.wait();
        assert_eq!((wc.id, wc.src_qp, wc.grh), (1, sender.qp.number(), Some(NetworkType::Ipv4)));
        assert_eq!(party.got(&wc), (b"to two of three".to_vec(), vec![239, 255, 71, 2]));
    }
    assert!(other.idle() && sender.idle());
    // A member may send to the group itself. A queue pair that has left receives nothing.
    one.qp.detach(here).unwrap();
    assert!(matches!(one.qp.detach(here), Err(CreateError::Nic(_))));
    two.send(here, b"to itself");
    let mut done = [two.wait(), two.wait()];
    done.sort_unstable_by_key(|wc| wc.id);
    assert_eq!((done[0].id, done[1].id, two.got(&done[0]).0), (2, 99, b"to itself".to_vec()));
    assert!(one.idle());
    assert_eq!(two.context.counters().rx_icrc_encapsulated, 0);
}

#[test]
fn two_queue_pairs_of_one_program_share_a_group_and_leave_it_one_by_one() {
    let mut both = party(&udp());
    let here = group("239.255.71.4:47912");
    let mut second = both.domain.create_datagram_qp(&both.cq, &both.cq, &QpOptions::default()).unwrap();
    both.qp.attach(here).unwrap();
    second.attach(here).unwrap();
    assert!(matches!(second.attach(here), Err(CreateError::Nic(_))), "once");
    let mut sender = party(&udp());
    for turn in 0..2 {
        both.receive(turn);
        if turn == 0 {
            let list = [both.memory.sge(5 * 4096, 4096)];
            second.post_recv(&ReceiveRequest { id: 5, sges: &list }).unwrap();
        }
        sender.send(here, b"to all");
        sender.wait();
        let mut ids: Vec<u64> = (0..2 - turn).map(|_| both.wait().id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [vec![0, 5], vec![1]][turn as usize]);
        if turn == 0 {
            // Dropped while attached.
            let spare = both.domain.create_datagram_qp(&both.cq, &both.cq, &QpOptions::default()).unwrap();
            drop(std::mem::replace(&mut second, spare));
        }
    }
    assert!(both.idle());
}

#[test]
fn over_shared_memory_it_reaches_whoever_is_linked_and_attached() {
    let shm = Device::shm();
    let [mut sender, mut one, mut two, mut deaf, mut stranger] = [0; 5].map(|_| party(&shm));
    let here = group("239.255.71.7:4791");
    for linked in [&one, &two, &deaf] {
        DatagramQueuePair::resolve_pair(&sender.qp, &linked.qp).unwrap();
    }
    for member in [&mut one, &mut two, &mut stranger] {
        member.qp.attach(here).unwrap();
    }
    for party in [&mut sender, &mut one, &mut two, &mut deaf, &mut stranger] {
        (1..4).for_each(|id| party.receive(id));
    }
    sender.send(here, b"to the linked");
    assert_eq!(sender.wait().id, 99);
    for member in [&mut one, &mut two] {
        let wc = member.wait();
        assert_eq!((wc.id, wc.src_qp), (1, sender.qp.number()));
        assert_eq!(member.got(&wc), (b"to the linked".to_vec(), vec![239, 255, 71, 7]));
    }
    assert!(deaf.idle() && stranger.idle() && sender.idle());
    // An attached sender receives its own messages, even before it has a link to itself.
    sender.qp.attach(here).unwrap();
    sender.send(here, b"and to itself");
    let mut done = [sender.wait(), sender.wait()];
    done.sort_unstable_by_key(|wc| wc.id);
    assert_eq!((done[0].id, done[1].id, sender.got(&done[0]).0), (1, 99, b"and to itself".to_vec()));
    assert_eq!((one.wait().id, two.wait().id), (2, 2));
    // A member that is gone does not delay the others.
    drop(two);
    one.qp.detach(here).unwrap();
    (0..2000).for_each(|_| {
        sender.send(here, b"again");
        sender.receive(2);
        assert!([sender.wait().id, sender.wait().id].contains(&99));
    });
    assert!(one.idle());
}

#[test]
fn what_is_no_group_is_refused_in_words() {
    let mut over_udp = party(&udp());
    let words = |error: CreateError| error.to_string();
    assert!(matches!(over_udp.qp.attach(group("10.0.0.1:4791")), Err(CreateError::Nic(_))));
    let v6 = words(over_udp.qp.attach(group("[ff12::1]:4791")).unwrap_err());
    assert!(v6.contains("ff12::1"), "{v6}");
    // An attach that the port refused leaves nothing behind.
    assert!(matches!(over_udp.qp.attach(group("[ff12::1]:4791")), Err(CreateError::Group(_))));
    let too_many = (0..=64).find_map(|number| {
        over_udp.qp.attach(group(&format!("239.255.72.{number}:4791"))).err().map(|error| (number, error))
    });
    let (number, error) = too_many.unwrap();
    assert!(number == 64 && words(error).contains("leave one"));
    let list = [over_udp.memory.sge(0, 1); 31];
    let long = over_udp.qp.post_recv(&ReceiveRequest { id: 1, sges: &list });
    assert_eq!(long, Err(remora_verbs::PostError::Queue(QueueError::TooManySges)));
}

/// The entry point of the other processes. A member receives two messages.
/// The sender sends until its input ends, because joining a group takes effect only after a while.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn acts_its_role() {
    let role = std::env::var(ROLE).expect("set by the test that starts this process");
    let [act, own, name] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let mut party = party(&Device::udp(own).unwrap());
    if act == "hear" {
        party.qp.attach(group(name)).unwrap();
        (0..2).for_each(|id| party.receive(id));
        println!("attached");
        for _ in 0..2 {
            let wc = party.wait();
            let (words, address) = party.got(&wc);
            assert_eq!((&words[..], &address[..]), (&b"across"[..], &group(name).address.0[12..]));
        }
        let counters = party.context.counters();
        assert_eq!((counters.malformed_pkts, counters.rx_icrc_encapsulated), (0, 0));
        println!("heard");
        return;
    }
    let input = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    while !input.is_finished() {
        party.send(group(name), b"across");
        party.wait();
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_group_reaches_across_a_veth_pair() {
    let veth = remora_netns::require!(crate::veth::Veth::new());
    for (member, sender, name) in [
        ("10.213.7.1:4791", "10.213.7.2:0", "239.255.71.6:4791"),
        ("[fd00:7::1]:4791", "[fd00:7::2]:0", "[ff12::4791]:4791"),
    ] {
        let mut hearing =
            veth.run(0, module_path!(), ROLE, &format!("hear {member} {name}")).spawn().unwrap();
        let mut output = BufReader::new(hearing.stdout.take().unwrap()).lines();
        assert!(output.any(|line| line.unwrap().contains("attached")), "the member ended before it attached");
        let mut sending = veth.run(1, module_path!(), ROLE, &format!("send {sender} {name}"));
        let mut sending = sending.stdin(Stdio::piped()).spawn().unwrap();
        assert!(output.any(|line| line.unwrap().contains("heard")), "nothing came across");
        assert!(hearing.wait().unwrap().success());
        sending.stdin.take().unwrap().write_all(b"enough\n").unwrap();
        assert!(sending.wait().unwrap().success());
    }
}
