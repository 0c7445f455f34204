//! Captures of 1RMA: tshark names each field, and another AES library decrypts each message and encrypts it
//! identically.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use remora_verbs::rma::{
    Grant, Portal, RegionKey, Rights, RmaError, RmaOptions, RmaRegion, Settings, Status,
};
use remora_verbs::{Access, Context, Device, QpOptions, QueuePair};
use remora_wire::rma::{Body, Kind, Message};

use crate::dissector::{Temporary, tshark};

const LONG: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 18;
/// Timeouts that no operation of a test reaches, even on a busy machine.
const PATIENT: Settings = Settings {
    dispatch_timeout: 1_500_000_000,
    timeout: 4_000_000_000,
    max_server_timeout: 4_000_000_000,
    ..Settings::software()
};
/// The successive keys of the region.
const KEYS: [[u8; 16]; 3] = [[1; 16], [2; 16], [3; 16]];

fn device(port: &str) -> Device {
    match port {
        "shm" => Device::shm(),
        _ => Device::udp(port).expect("an address of this machine"),
    }
}

/// Connects a queue pair, which gives both sides their link over `shm`.
fn link(contexts: [&Context; 2]) -> (QueuePair, QueuePair) {
    let [a, b] = contexts.map(|context| {
        let cq = context.create_cq(4).unwrap();
        context.alloc_pd().unwrap().create_qp(&cq, &cq, &QpOptions::default()).unwrap()
    });
    QueuePair::connect_pair(a, b).unwrap()
}

/// Starts 1RMA on a server, and exposes a region with this key.
fn serve(context: &Context, settings: Settings, key: [u8; 16]) -> RmaRegion {
    let memory = context.alloc_pd().unwrap().allocate(LEN, Access::LOCAL_WRITE).unwrap();
    let options = RmaOptions { settings, ..RmaOptions::default() };
    let rights = Rights::READ | Rights::WRITE | Rights::REKEY;
    context.open_rma(&options).unwrap().expose(memory, rights, RegionKey::new(key)).unwrap()
}

/// Exchanges all kinds of messages between a server and the client whose port is captured.
fn converse(portal: &mut Portal, local: &RmaRegion, server: &Context) -> Grant {
    let served = serve(server, PATIENT, KEYS[0]);
    let grant = served.grant(&portal.identity());
    portal.read(local, 0, &grant, 64, 64, LONG).unwrap();
    // Requests of equal length leave as trains, if the port has trains.
    portal.read(local, 0, &grant, 1, 200_001, LONG).unwrap();
    portal.write(local, 64, &grant, 128, 70_000, LONG).unwrap();
    let mut beyond = grant;
    beyond.len = u64::MAX;
    let refused = portal.read(local, 0, &beyond, LEN as u64, 1, LONG);
    assert_eq!(refused, Err(RmaError::Failed(Status::RemoteAccessError)));
    local.memory().write(0, &KEYS[1]).unwrap();
    portal.rekey(local, 0, &grant).unwrap();
    let refused = portal.read(local, 0, &grant, 0, 64, LONG);
    assert_eq!(refused, Err(RmaError::Failed(Status::RemoteAuthenticationFailure)));
    drop(served);
    let busy = serve(server, Settings { served: 0, ..PATIENT }, KEYS[2]);
    let grant = busy.grant(&portal.identity());
    let refused = portal.read(local, 0, &grant, 0, 64, Duration::ZERO);
    assert_eq!(refused, Err(RmaError::Failed(Status::Nack)));
    grant
}

/// Captures such a conversation. Returns the text of the keys file for `scripts/rma-check`.
fn captured(port: &str, file: &Path) -> String {
    let server = device(port).open().unwrap();
    let client = device(port).capture(file).open().unwrap();
    let _link = (port == "shm").then(|| link([&server, &client]));
    let rma = client.open_rma(&RmaOptions { settings: PATIENT, ..RmaOptions::default() }).unwrap();
    let domain = client.alloc_pd().unwrap();
    let local = rma.expose(domain.allocate(LEN, Access::LOCAL_WRITE).unwrap(), Rights::NONE, None).unwrap();
    let grant = converse(&mut rma.create_portal(&domain, 32).unwrap(), &local, &server);
    let mut keys = String::from("# address, port, RegionId, key\n\n");
    for key in KEYS {
        let ip = IpAddr::from(grant.server.address);
        let port = grant.server.udp_port;
        let region = grant.region;
        writeln!(keys, "{ip} {port} {region} {}", hex(&key)).unwrap();
    }
    keys
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the Ethernet frames of a pcapng file: the offset and the bytes of each.
fn frames(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let word = |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap()) as usize;
    let mut offset = 0;
    let mut frames = Vec::new();
    while offset < bytes.len() {
        if word(offset) == 6 {
            frames.push((offset + 28, &bytes[offset + 28..offset + 28 + word(offset + 20)]));
        }
        offset += word(offset + 4);
    }
    frames
}

/// Returns the traffic classes of 1RMA messages in sent IPv4 frames.
fn traffic_classes(bytes: &[u8]) -> BTreeSet<u8> {
    let message = |frame: &[u8]| frame.get(42).is_some_and(|byte| remora_wire::rma::begins(*byte));
    frames(bytes).iter().filter(|(_, frame)| message(frame)).map(|(_, frame)| frame[15]).collect()
}

/// Returns the Python interpreter that `make setup` prepares, unless the environment names another.
fn python() -> PathBuf {
    let prepared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/python/bin/python3");
    std::env::var_os("REMORA_PYTHON").map_or(prepared, PathBuf::from)
}

/// Runs `scripts/rma-check` on a capture with these keys.
fn check(file: &Path, keys: &str) -> Output {
    let named = file.with_extension("keys");
    std::fs::write(&named, keys).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/rma-check");
    let output = Command::new(python()).arg(script).arg(file).arg(&named).output();
    std::fs::remove_file(&named).unwrap();
    output.unwrap_or_else(|error| panic!("this test needs Python (`make setup`): {error}"))
}

/// Returns the numbers of messages by kind, and of messages that differ.
fn totals(output: &Output) -> BTreeMap<String, u32> {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().and_then(|line| line.strip_prefix("total "));
    let words: Vec<&str> = last
        .unwrap_or_else(|| panic!("{} {}", text, String::from_utf8_lossy(&output.stderr)))
        .split(' ')
        .collect();
    words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].parse().unwrap())).collect()
}

#[test]
fn another_aes_library_opens_each_message_and_seals_it_to_the_same_bytes() {
    for port in ["127.0.0.1:0", "[::1]:0", "shm"] {
        let file = Temporary::new(&format!("rma-{}", port.len()));
        let keys = captured(port, &file.0);
        let output = check(&file.0, &keys);
        let mut totals = totals(&output);
        assert_eq!(totals.remove("wrong"), Some(0), "{port}: {}", String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success(), "{port}");
        assert_eq!(totals.len(), Kind::ALL.len());
        assert!(totals.values().all(|count| *count > 0), "{port}: a kind is missing: {totals:?}");
        if port == "shm" {
            // This port writes IP headers, so that messages have a traffic class of their own.
            let classes = traffic_classes(&std::fs::read(&file.0).unwrap());
            assert_eq!(classes, BTreeSet::from([remora_wire::rma::DSCP << 2]));
        }
    }
}

/// Proves that the check can fail.
#[test]
fn the_check_finds_a_byte_that_changed_and_a_key_that_is_not_there() {
    let file = Temporary::new("rma-changed");
    let keys = captured("127.0.0.1:0", &file.0);
    let bytes = std::fs::read(&file.0).unwrap();
    let reads = |frame: &[u8]| frame.get(42) == Some(&(Kind::Read as u8));
    let (offset, frame) = *frames(&bytes).iter().find(|(_, frame)| reads(frame)).unwrap();
    let last = offset + frame.len() - 1;
    for changed in [last, offset + 42 + 2, offset + 42 + 31, offset + 42 + 32, offset + 42 + 43] {
        let mut other = bytes.clone();
        other[changed] ^= 1;
        std::fs::write(&file.0, other).unwrap();
        let output = check(&file.0, &keys);
        assert!(totals(&output)["wrong"] > 0 && output.status.code() == Some(1), "byte {}", changed - offset);
    }
    std::fs::write(&file.0, &bytes).unwrap();
    let others = keys.replace(&hex(&KEYS[1]), &hex(&[9; 16])).replace(&hex(&KEYS[2]), &hex(&[8; 16]));
    let output = check(&file.0, &others);
    // The request that was NACKed, and the NACK.
    assert_eq!((totals(&output)["wrong"], output.status.code()), (2, Some(1)));
    assert_eq!(check(&file.0, "here 1 2 3").status.code(), Some(2));
}

/// The fields of a message by the names that the dissector uses.
fn expected(bytes: &[u8]) -> BTreeMap<&'static str, String> {
    let message = Message::parse(bytes).unwrap();
    let header = message.header;
    let mut fields = BTreeMap::from([
        ("kind", format!("{:#04x}", header.kind as u8)),
        ("version", "0".to_owned()),
        ("class", (header.class as u8).to_string()),
        ("slot", format!("{:#06x}", header.slot)),
        ("region", header.region.to_string()),
        ("offset", header.offset.to_string()),
        ("length", header.length.to_string()),
        ("sender", format!("{:#010x}", header.nonce.sender)),
        ("counter", header.nonce.counter.to_string()),
        ("tag", hex(message.tag)),
    ]);
    match message.body {
        Body::Request(request) => fields.extend([
            ("pid", request.pid.to_string()),
            ("incarnation", format!("{:#010x}", request.incarnation)),
            ("max_payload", request.max_payload.to_string()),
            ("reserved", hex(&[0; 2])),
        ]),
        Body::Solicit(solicit) => fields.extend([
            ("server_slot", format!("{:#06x}", solicit.server_slot)),
            ("max_payload", solicit.max_payload.to_string()),
            ("timeout", solicit.timeout.to_string()),
        ]),
        Body::Completion(completion) => {
            fields.extend([("status", (completion.status as u8).to_string()), ("reserved", hex(&[0; 3]))])
        }
        Body::None => {}
    }
    if !message.sealed.is_empty() {
        fields.insert("sealed", hex(message.sealed));
    }
    fields
}

const FIELDS: [&str; 18] = [
    "kind",
    "version",
    "class",
    "slot",
    "region",
    "offset",
    "length",
    "sender",
    "counter",
    "pid",
    "incarnation",
    "max_payload",
    "reserved",
    "server_slot",
    "timeout",
    "status",
    "sealed",
    "tag",
];

#[test]
fn tshark_names_each_field_of_each_message() {
    let file = Temporary::new("rma-fields");
    captured("127.0.0.1:0", &file.0);
    let bytes = std::fs::read(&file.0).unwrap();
    let frames = frames(&bytes);
    let names: Vec<String> = FIELDS.iter().map(|name| format!("remora.rma.{name}")).collect();
    let mut arguments = vec!["-T", "fields"];
    names.iter().for_each(|name| arguments.extend(["-e", name]));
    let text = tshark(&file.0, true, &arguments);
    let mut kinds = BTreeSet::new();
    for ((_, frame), line) in frames.iter().zip(text.lines()) {
        let shown = FIELDS.into_iter().zip(line.split('\t').map(str::to_owned));
        let shown: BTreeMap<_, _> = shown.filter(|(_, value)| !value.is_empty()).collect();
        assert_eq!(shown, expected(&frame[42..]));
        kinds.insert(frame[42]);
    }
    assert_eq!((text.lines().count(), kinds.len()), (frames.len(), Kind::ALL.len()));
    let lines = tshark(&file.0, true, &["-Y", "remora.rma.kind == 0xe0 && remora.rma.length == 64"]);
    assert!(lines.lines().all(|line| line.contains("1RMA") && line.contains("Read slot=0x")), "{lines}");
    assert_eq!(lines.lines().count(), 3);
    let odd = tshark(&file.0, true, &["-Y", "remora.odd || remora.short"]);
    assert_eq!(odd, "", "the dissector reports a malformed message");
    let off = tshark(&file.0, true, &["-o", "remora.rma_auto:FALSE", "-Y", "remora.rma.kind"]);
    assert_eq!(off, "");
}
