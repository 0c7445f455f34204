//! Queue pair 1, which receives the datagrams of connection managers, between two NICs.

use remora_verbs::{
    Access, CompletionQueue, Context, CreateError, DatagramQueuePair, Device, EMPTY, GRH, GSI_QKEY,
    MemoryRegion, NicError, ProtectionDomain, QpOptions, ReceiveRequest, Status, WorkCompletion, work,
};
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);

struct Manager {
    qp: DatagramQueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
    domain: ProtectionDomain,
    context: Context,
}

fn manager(device: &Device) -> Manager {
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let memory = domain.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let qp = domain.create_gsi_qp(&cq, &cq, &QpOptions::default()).unwrap();
    Manager { qp, cq, memory, domain, context }
}

impl Manager {
    fn receive(&mut self, id: u64) {
        let list = [self.memory.sge(id as usize * 512, 512)];
        self.qp.post_recv(&ReceiveRequest { id, sges: &list }).unwrap();
    }

    fn wait(&mut self) -> WorkCompletion {
        let mut done = [EMPTY; 1];
        assert_eq!(self.cq.wait(&mut done, LONG), Ok(1));
        assert_eq!(done[0].status, Status::Success);
        done[0]
    }
}

/// Sends 256 bytes, the size of a MAD, there and back. The answer goes to the source of the datagram.
fn a_mad_and_its_answer(device: &Device) {
    let mut here = manager(device);
    let mut there = manager(device);
    assert_eq!((here.qp.number(), here.qp.qkey()), (1, GSI_QKEY));
    let again = here.domain.create_gsi_qp(&here.cq, &here.cq, &QpOptions::default());
    assert_eq!(again.err(), Some(CreateError::Nic(NicError::Busy)));
    let handle = |source: &Manager, destination: &Manager| {
        source.domain.create_address_handle(0, destination.context.port().endpoint).unwrap()
    };
    let to_there = handle(&here, &there);
    let to_here = handle(&there, &here);
    there.receive(1);
    here.receive(2);
    here.qp.post_send_to(&work::send_inline(3, &[0x5a; 256]), &to_there.queue(1, GSI_QKEY)).unwrap();
    assert_eq!(here.wait().id, 3);
    let came = there.wait();
    assert_eq!((came.id, came.src_qp, came.byte_len as usize), (1, 1, GRH + 256));
    there
        .qp
        .post_send_to(&work::send_inline(4, &[0xa5; 256]), &to_here.queue(came.src_qp, GSI_QKEY))
        .unwrap();
    assert_eq!(there.wait().id, 4);
    assert_eq!((here.wait().id, here.memory.get::<[u8; 256]>(1024 + GRH).unwrap()), (2, [0xa5; 256]));
    // An ordinary datagram queue pair does not have the GSI's Q_Key, so its datagrams are dropped.
    let mut stranger = here.domain.create_datagram_qp(&here.cq, &here.cq, &QpOptions::default()).unwrap();
    there.receive(5);
    stranger.post_send_to(&work::send_inline(6, b"no"), &to_there.queue(1, GSI_QKEY)).unwrap();
    stranger.post_send_to(&work::send_inline(7, b"no"), &to_there.queue(1, 1)).unwrap();
    assert_eq!([here.wait().id, here.wait().id], [6, 7]);
    here.qp.post_send_to(&work::send_inline(8, b"yes"), &to_there.queue(1, GSI_QKEY)).unwrap();
    assert_eq!((there.wait().byte_len as usize, here.wait().id), (GRH + 3, 8));
    assert_eq!(there.context.counters().qkey_viol_cntr, 2);
}

#[test]
fn a_mad_and_its_answer_over_udp() {
    a_mad_and_its_answer(&Device::udp("127.0.0.1:0").unwrap());
    a_mad_and_its_answer(&Device::udp("[::1]:0").unwrap());
}

#[test]
fn queue_pair_1_of_a_nic_with_a_qpn_range_keeps_its_number() {
    let limits = remora_nic::Config { qpn_range: Some(3), ..remora_nic::Config::default() };
    let device = Device::udp("127.0.0.1:0").unwrap().nic_limits(limits);
    a_mad_and_its_answer(&device);
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(16).unwrap();
    let other = domain.create_datagram_qp(&cq, &cq, &QpOptions::default()).unwrap();
    assert_eq!(other.number() >> 17, 3);
}
