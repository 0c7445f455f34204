//! One daemon that shares an address and lends a NIC at it.

use remora_broker::client::{self, socket_name};
use remora_broker::{Broker, NicServer};
use remora_host::packet::{PacketSocket, own_uid};
use remora_verbs::{Access, Context, Device, EMPTY, Listener, QpOptions, QueuePair, Status, nicd, work};
use std::net::SocketAddr;

use crate::{LONG, at, never, report};

/// Connects a queue pair of each NIC, and writes from one to the memory of the other.
fn writes(from: &Context, to: &Context) {
    let domains = [from, to].map(|context| context.alloc_pd().unwrap());
    let mut queues = [from, to].map(|context| context.create_cq(16).unwrap());
    let pair =
        |side: usize| domains[side].create_qp(&queues[side], &queues[side], &QpOptions::default()).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address();
    let (mut ours, _theirs): (QueuePair, QueuePair) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| pair(0).connect(address).unwrap());
        let accepted = listener.accept(Some(LONG)).unwrap().unwrap().accept(pair(1)).unwrap();
        (connecting.join().unwrap(), accepted)
    });
    let memory = domains[1].allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    ours.post_send(&work::write_inline(1, b"lent", memory.remote(100))).unwrap();
    let mut done = [EMPTY; 1];
    assert_eq!(queues[0].wait(&mut done, LONG), Ok(1));
    assert_eq!((done[0].status, memory.get::<[u8; 4]>(100)), (Status::Success, Ok(*b"lent")));
}

fn server(address: SocketAddr, folder: &tempfile::TempDir) -> NicServer {
    let options = nicd::Options { allow: vec![61_001], ..nicd::Options::default() };
    NicServer::open(address, &folder.path().join("nic.sock"), &options, Ok).unwrap()
}

#[test]
fn programs_with_a_range_and_with_the_lent_nic_are_at_one_address() {
    let address = at("127.93.6.1:0");
    let folder = tempfile::tempdir().unwrap();
    let server = server(address, &folder);
    let path = folder.path().join("nic.sock");
    // The lent NIC has a QPN range of the address, and is found at the path and at the address's own name.
    assert_eq!(report(address).broker.programs, 1);
    let lent = Device::nicd(&path).keep("kept").open().unwrap();
    let named = Device::nicd(socket_name(address)).open().unwrap();
    let own = client::open_device(address, &never(), |device| device).unwrap();
    assert_eq!(report(address).broker.programs, 2);
    assert_eq!(lent.port().endpoint, own.context().port().endpoint);
    writes(own.context(), &lent);
    writes(&lent, own.context());
    writes(&lent, &named);
    assert_eq!(server.daemon().tenants().len(), 2);
    assert_eq!(nicd::tenants(&socket_name(address)).unwrap(), nicd::tenants(&path).unwrap());
    // The path leads to the broker, too: the first message says which service a program wants.
    let socket = PacketSocket::connect(&path, LONG).unwrap();
    socket.send(b"neither", &[]).unwrap();
    let mut refusal = [0; 2048];
    let len = socket.receive(&mut refusal).unwrap().len;
    assert!(String::from_utf8_lossy(&refusal[..len]).contains("makes no sense"));
    drop((lent, named, own));
    drop(server);
    assert!(!path.exists());
    // Nothing is left that would keep another broker from the address.
    Broker::open(address, &remora_broker::Options::default()).unwrap();
}

#[test]
fn one_ledger_counts_a_user_over_both_services() {
    let address = at("127.93.6.2:0");
    let folder = tempfile::tempdir().unwrap();
    let server = server(address, &folder);
    let users = server.users();
    let lent = Device::nicd(folder.path().join("nic.sock")).open().unwrap();
    let range = client::open(address, &never()).unwrap();
    let domain = lent.alloc_pd().unwrap();
    let _memory = domain.allocate(8192, Access::LOCAL_WRITE).unwrap();
    use remora_host::users::Resource;
    let held = users.held(own_uid());
    let kinds =
        [Resource::Attachment, Resource::Domain, Resource::Byte, Resource::Range, Resource::Connection];
    assert_eq!(kinds.map(|kind| held.get(kind)), [1, 1, 8192, 2, 2]);
    drop(range);
}
