//! 1RMA between two devices of one process, over real ports.

use remora_verbs::rma::{
    Client, CongestionSettings, Grant, Portal, Rights, Rma, RmaError, RmaOptions, RmaRegion, Settings, Status,
};
use remora_verbs::{Access, Context, CreateError, Device, QpOptions, QueuePair};
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
    server: Rma,
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
        Bed::with(port, &RmaOptions::default())
    }

    fn with(port: &str, options: &RmaOptions) -> Bed {
        let contexts = devices(port);
        let link = (port == "shm").then(|| {
            let [a, b] = [&contexts[0], &contexts[1]].map(|context| {
                let cq = context.create_cq(4).unwrap();
                context.alloc_pd().unwrap().create_qp(&cq, &cq, &QpOptions::default()).unwrap()
            });
            QueuePair::connect_pair(a, b).expect("a link between the two")
        });
        let [server, client] = [0, 1].map(|side: usize| contexts[side].open_rma(options).unwrap());
        let memory = |context: &Context| {
            let domain = context.alloc_pd().unwrap();
            let memory = domain.allocate(LEN, Access::LOCAL_WRITE).unwrap();
            (domain, memory)
        };
        let (_, table) = memory(&contexts[0]);
        let bytes: Vec<u8> = (0..LEN).map(|index| (index / 64 + index) as u8).collect();
        table.write(0, &bytes).unwrap();
        let served = server.expose(table, Rights::READ | Rights::WRITE | Rights::REKEY, None).unwrap();
        let (domain, buffer) = memory(&contexts[1]);
        let local = client.expose(buffer, Rights::NONE, None).unwrap();
        let portal = client.create_portal(&domain, 32).unwrap();
        Bed { served, local, portal, _link: link, server, client, contexts }
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
        let bytes: Vec<u8> = (0..size).map(|index| (index * 31 + size) as u8).collect();
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

/// Checks reads and writes of every size, and rekeys.
#[test]
fn over_udp() {
    reads_writes_and_rekeys("127.0.0.1:0");
}

#[test]
fn over_udp_with_ipv6() {
    reads_writes_and_rekeys("[::1]:0");
}

/// Checks reads and writes of every size, and rekeys.
#[test]
fn over_shm() {
    reads_writes_and_rekeys("shm");
}

/// Returns the value of a counter in the text for Prometheus.
fn counter(context: &Context, name: &str) -> f64 {
    let text = remora_host::metrics::write(&context.metrics());
    let sample = text.lines().find_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
    sample.unwrap_or_else(|| panic!("no {name} in {text}")).1.parse().expect("a number")
}

#[test]
fn delays_and_a_full_window_are_told_to_prometheus() {
    let options = RmaOptions {
        settings: Settings { window: 8 << 10, ..Settings::software() },
        ..RmaOptions::default()
    };
    let mut bed = Bed::with("127.0.0.1:0", &options);
    let grant = bed.grant();
    bed.portal.read(&bed.local, 0, &grant, 0, LEN as u64, PATIENCE).unwrap();
    let client = &bed.contexts[1];
    let commands = (LEN / 4096) as f64;
    for delay in ["issue", "remote", "total"] {
        let name = format!("remora_rma_{delay}_delay_seconds");
        // Commands that are repeated on a busy machine are counted more than once.
        assert!(counter(client, &format!("{name}_count{{")) >= commands, "{delay}");
        assert!(counter(client, &format!("{name}_sum{{")) > 0.0, "{delay}");
    }
    let full = counter(client, "remora_rma_window_full_seconds_total{");
    assert!(full > 0.0 && full <= counter(client, "remora_rma_seconds_total{"), "{full}");
    assert_eq!(
        counter(&bed.contexts[0], "remora_rma_window_full_seconds_total{"),
        0.0,
        "the server's window was full"
    );
    let without = devices("shm");
    assert!(
        !remora_host::metrics::write(&without[0].metrics()).contains("delay_seconds"),
        "it speaks no 1RMA"
    );
}

/// Parses a quantity of the document, such as `64 KiB`, `2 GB/s` or `10 us (2 RTT)`, into bytes, nanoseconds
/// or a number.
fn quantity(text: &str) -> f64 {
    let mut words = text.split_whitespace();
    let number: f64 = words.next().unwrap_or_default().replace(',', "").parse().expect("a number");
    number
        * match words.next() {
            Some("us") => 1e3,
            Some("ms") => 1e6,
            Some("s") | Some("GB/s") => 1e9,
            Some("KiB") => 1024.0,
            Some(unit) => panic!("{unit} in {text}"),
            None => 1.0,
        }
}

/// Returns the values of this setting in the tables of docs/reference/rma.md, for both profiles.
fn documented(setting: &str) -> [Vec<f64>; 2] {
    let row = |line: &&str| {
        line.starts_with('|') && line.split('|').nth(1).is_some_and(|names| names.contains(setting))
    };
    let rows: Vec<&str> = include_str!("../../../../docs/reference/rma.md").lines().filter(row).collect();
    assert!(!rows.is_empty(), "{setting} has no row");
    let mut columns = [Vec::new(), Vec::new()];
    for line in rows {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let place = cells[1].split(", ").position(|name| name == setting).expect(line);
        for (column, values) in columns.iter_mut().enumerate() {
            let cell = if cells[column + 2] == "the same" { cells[2] } else { cells[column + 2] };
            // Commas within a number are not followed by a space, those between values are.
            values.extend(cell.split(", ").nth(place).filter(|cell| !cell.is_empty()).map(quantity));
        }
    }
    columns
}

#[test]
fn the_document_has_the_values_of_all_settings() {
    let [paper, usual] = [Settings::paper(), Settings::software()];
    let both = |setting: fn(&Settings) -> f64| [&paper, &usual].map(setting);
    for (name, values) in [
        ("`slots`", both(|all| all.slots.into())),
        ("`served`", both(|all| all.served.into())),
        ("`window`", both(|all| all.window.into())),
        ("`bulk_window`", both(|all| all.bulk_window.into())),
        ("`bulk_holdoff`", both(|all| all.bulk_holdoff as f64)),
        ("`rtt`", both(|all| all.rtt as f64)),
        ("`dispatch_timeout`", both(|all| all.dispatch_timeout as f64)),
        ("`timeout`", both(|all| all.timeout as f64)),
        ("`max_server_timeout`", both(|all| all.max_server_timeout as f64)),
        ("`guard`", both(|all| all.guard as f64)),
        ("`bandwidth`", both(|all| all.bandwidth as f64)),
        ("`failures_per_second`", both(|all| all.failures_per_second.into())),
    ] {
        let documented_values = documented(name).map(|values| values[0]);
        assert_eq!(documented_values, values, "{name}");
    }
    let RmaOptions { regions, keys, .. } = RmaOptions::default();
    assert_eq!(documented("`RmaOptions::regions`")[1], [f64::from(regions)]);
    assert_eq!(documented("`keys`")[1], [keys as f64]);
    let [paper, usual] = [CongestionSettings::paper(), CongestionSettings::software()];
    let both = |setting: fn(&CongestionSettings) -> f64| [&paper, &usual].map(setting);
    for (name, values) in [
        ("`increase`", both(|all| all.increase)),
        ("`max_decrease`", both(|all| all.max_decrease)),
        ("`beta`", both(|all| all.beta)),
        ("`failure_decrease`", both(|all| all.failure_decrease)),
        ("`burst`", both(|all| all.burst as f64)),
        ("`local_target`", both(|all| all.local_target as f64)),
        ("`remote_target`", both(|all| all.remote_target as f64)),
        ("`initial`", both(|all| all.initial)),
        ("`min`", both(|all| all.min)),
        ("`max`", both(|all| all.max)),
        ("`destinations`", both(|all| all.destinations as f64)),
    ] {
        assert_eq!(documented(name).map(|values| values[0]), values, "{name}");
    }
}

/// Regression: a second 1RMA on an engine replaced the first, whose portals then waited for ever;
/// regions and domains of another device named memory of the own one.
#[test]
fn objects_of_another_device_and_a_second_1rma_are_refused() {
    let mut bed = Bed::new("127.0.0.1:0");
    let grant = bed.grant();
    let foreign = bed.contexts[0].alloc_pd().unwrap();
    assert_eq!(bed.client.create_portal(&foreign, 1).unwrap_err(), CreateError::OtherContext);
    let memory = foreign.allocate(64, Access::LOCAL_WRITE).unwrap();
    assert_eq!(bed.client.expose(memory, Rights::NONE, None).unwrap_err(), CreateError::OtherContext);
    let refused = bed.portal.read(&bed.served, 0, &grant, 0, 64, PATIENCE);
    assert_eq!(refused, Err(RmaError::OtherContext), "its RegionId refers to another region in this context");
    let busy = CreateError::Nic(remora_nic::NicError::Busy);
    assert_eq!(bed.contexts[1].open_rma(&RmaOptions::default()).unwrap_err(), busy);
    bed.portal.read(&bed.local, 0, &grant, 0, 64, PATIENCE).unwrap();
    // When all objects of the first service are dropped, 1RMA can be opened once more.
    let Bed { served, local, portal, client, contexts, .. } = bed;
    drop((served, local, portal, client));
    contexts[1].open_rma(&RmaOptions::default()).unwrap();
    // An engine that served the same regions does not keep them alive.
    let two = Device::udp("127.0.0.1:0").unwrap().engines(2).open().unwrap();
    let both = two.open_rma(&RmaOptions::default()).unwrap();
    drop(both.on_engine(1).unwrap());
    drop(both);
    two.open_rma(&RmaOptions::default()).unwrap();
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
    // The grant claims more than the region has, so the server's NIC refuses.
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
    let Bed { served, server, contexts, .. } = &mut bed;
    let memory = contexts[0].alloc_pd().unwrap().allocate(64, Access::LOCAL_WRITE).unwrap();
    let other = server.expose(memory, Rights::READ, None).unwrap();
    drop(std::mem::replace(served, other));
    let refused = bed.portal.read(&bed.local, 0, &grant, 0, 64, PATIENCE);
    assert_eq!(refused, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
    let mut nobody = grant;
    nobody.server.udp_port = 1;
    let silent = bed.portal.read(&bed.local, 0, &nobody, 0, 64, Duration::ZERO);
    assert_eq!(silent, Err(RmaError::Failed(Status::Timeout)));
}
