//! 1RMA between two devices of one process, over real ports.

use remora_verbs::rma::{Client, Grant, Portal, Rights, Rma, RmaError, RmaOptions, RmaRegion, Status};
use remora_verbs::{Access, Context, Device, QpOptions, QueuePair};
use std::net::SocketAddr;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);
const LEN: usize = 1 << 20;

/// A server with an exposed region, and a client with a portal.
struct Bed {
    served: RmaRegion,
    local: RmaRegion,
    portal: Portal,
    _link: Option<(QueuePair, QueuePair)>,
    client: Rma,
    contexts: [Context; 2],
}

fn devices(port: &str) -> [Context; 2] {
    let open = |device: Device| device.open().expect("a device");
    match port {
        "shm" => [open(Device::shm()), open(Device::shm())],
        _ => {
            let here: SocketAddr = port.parse().expect("an address");
            [(); 2].map(|()| open(Device::udp(here).expect("an address of this machine")))
        }
    }
}

impl Bed {
    fn new(port: &str) -> Bed {
        let contexts = devices(port);
        let link = (port == "shm").then(|| {
            let [a, b] = [&contexts[0], &contexts[1]].map(|context| {
                let cq = context.create_cq(4).unwrap();
                context.alloc_pd().unwrap().create_qp(&cq, &cq, &QpOptions::default()).unwrap()
            });
            QueuePair::connect_pair(a, b).expect("a link between the two")
        });
        let [server, client] =
            [0, 1].map(|side: usize| contexts[side].open_rma(&RmaOptions::default()).unwrap());
        let memory = |context: &Context| {
            let domain = context.alloc_pd().unwrap();
            let memory = domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
            (domain, memory)
        };
        let (_, table) = memory(&contexts[0]);
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 64 + at) as u8).collect();
        table.write(0, &bytes).unwrap();
        let served = server.expose(table, Rights::READ | Rights::WRITE | Rights::REKEY, None).unwrap();
        let (domain, buffer) = memory(&contexts[1]);
        let local = client.expose(buffer, Rights::NONE, None).unwrap();
        let portal = client.create_portal(&domain, 32).unwrap();
        Bed { served, local, portal, _link: link, client, contexts }
    }

    fn grant(&self) -> Grant {
        self.served.grant(&self.portal.identity())
    }
}

fn load(region: &RmaRegion, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.memory().read(offset, &mut bytes).unwrap();
    bytes
}

fn reads_writes_and_rekeys(port: &str) {
    let mut bed = Bed::new(port);
    let grant = Grant::from_bytes(&bed.grant().to_bytes()).unwrap();
    for (size, remote) in [(1, 5), (64, 64), (4096, 100), (4097, 4000), (300_000, 7)] {
        bed.portal.read(&bed.local, 0, &grant, remote, size, PATIENCE).unwrap();
        let size = size as usize;
        assert!(
            load(&bed.local, 0, size) == load(&bed.served, remote as usize, size),
            "{port}: read of {size}"
        );
    }
    for (size, remote) in [(1, 9), (64, 8192), (4096, 20_000), (100_000, 200_001)] {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + size) as u8).collect();
        bed.local.memory().write(400_000, &bytes).unwrap();
        bed.portal.write(&bed.local, 400_000, &grant, remote, size as u64, PATIENCE).unwrap();
        assert!(load(&bed.served, remote as usize, size) == bytes, "{port}: write of {size}");
    }
    let key = [0x5a; 16];
    bed.local.memory().write(0, &key).unwrap();
    bed.portal.rekey(&bed.local, 0, &grant).unwrap();
    let refused = bed.portal.read(&bed.local, 64, &grant, 0, 64, PATIENCE);
    assert_eq!(refused, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)), "{port}: the old key");
    let grant = bed.grant();
    bed.portal.read(&bed.local, 64, &grant, 0, 64, PATIENCE).unwrap();
    assert!(bed.client.endpoint() != grant.server);
    assert_eq!(bed.contexts[0].counters().rma_rekeys, 1);
}

#[test]
fn over_udp() {
    reads_writes_and_rekeys("127.0.0.1:0");
}

#[test]
fn over_udp_with_ipv6() {
    reads_writes_and_rekeys("[::1]:0");
}

#[test]
fn over_shm() {
    reads_writes_and_rekeys("shm");
}

#[test]
fn a_grant_is_good_for_one_client_and_prints_no_key() {
    let mut bed = Bed::new("127.0.0.1:0");
    let mine = bed.portal.identity();
    for client in [
        Client { pid: mine.pid + 1, ..mine },
        Client { incarnation: mine.incarnation ^ 1, ..mine },
        Client { address: std::net::Ipv4Addr::new(127, 0, 0, 2).into(), ..mine },
    ] {
        let grant = bed.served.grant(&client);
        let refused = bed.portal.read(&bed.local, 0, &grant, 0, 64, PATIENCE);
        assert_eq!(refused, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)), "{client:?}");
    }
    let grant = bed.grant();
    let printed = format!("{grant:?}");
    assert!(printed.contains("keys: ..") && printed.len() < 90, "{printed}");
    assert_eq!(Grant::from_bytes(&grant.to_bytes()), Some(grant));
    assert_eq!(Grant::from_bytes(&grant.to_bytes()[..Grant::LEN - 1]), None);
}

#[test]
fn what_lies_outside_is_refused_before_anything_leaves() {
    let mut bed = Bed::new("127.0.0.1:0");
    let grant = bed.grant();
    let sent = bed.contexts[1].counters().sent_pkts;
    let len = LEN as u64;
    for (local, remote, size) in
        [(len, 0, 1), (0, len, 1), (1, 0, len), (0, 1, len), (u64::MAX, 0, 2), (0, u64::MAX, 2)]
    {
        let refused = bed.portal.read(&bed.local, local, &grant, remote, size, PATIENCE);
        assert_eq!(refused, Err(RmaError::OutOfBounds), "{local} {remote} {size}");
    }
    assert!(matches!(bed.portal.read(&bed.local, 0, &grant, 0, 0, PATIENCE), Err(RmaError::Refused(_))));
    assert_eq!(bed.contexts[1].counters().sent_pkts, sent);
    // A grant that claims more than the region has: the server's NIC refuses.
    let mut claims = grant;
    claims.len = u64::MAX;
    let refused = bed.portal.read(&bed.local, 0, &claims, len - 1, 2, PATIENCE);
    assert_eq!(refused, Err(RmaError::Failed(Status::RemoteAccessError)));
}

#[test]
fn a_region_that_goes_and_a_server_that_goes_end_transfers() {
    let mut bed = Bed::new("127.0.0.1:0");
    let grant = bed.grant();
    bed.portal.read(&bed.local, 0, &grant, 0, 64, PATIENCE).unwrap();
    let Bed { served, contexts: [server, _client], .. } = &mut bed;
    let memory = server.alloc_pd().unwrap().allocate(64, Access::LOCAL_WRITE).unwrap();
    let other = server.open_rma(&RmaOptions::default()).unwrap().expose(memory, Rights::READ, None).unwrap();
    drop(std::mem::replace(served, other));
    let refused = bed.portal.read(&bed.local, 0, &grant, 0, 64, PATIENCE);
    assert_eq!(refused, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
    let mut nobody = grant;
    nobody.server.udp_port = 1;
    let silent = bed.portal.read(&bed.local, 0, &nobody, 0, 64, Duration::ZERO);
    assert_eq!(silent, Err(RmaError::Failed(Status::Timeout)));
}
