//! The Wireshark dissector, on captures of a real port. tshark shows the posted PRISM operations with their
//! outcomes, and requests to kernels. Standard packets look the same with and without the dissector.

use remora_verbs::kernel::{self, Get, HyperLogLog, Kernel, Lookup};
use remora_verbs::prism::{Address, Data, Mode, Operand, Operands, Operation, SCRATCH, Verdict, WorkRequest};
use remora_verbs::{
    Access, CompletionQueue, Device, EMPTY, Flags, FreeList, FreeListOptions, KernelOptions, MemoryRegion,
    Payload, ProtectionDomain, QpOptions, QueuePair, ReceiveRequest, Remote, Status, work,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time limit of a test: longer means that it hangs.
const LONG: Duration = Duration::from_secs(60);
/// Size of a buffer, and of a value stored in one. A value takes three packets.
const SIZE: u32 = 4096;
const VALUE: usize = 2500;

/// A file that is removed when the value is dropped.
pub(crate) struct Temporary(pub PathBuf);

impl Temporary {
    pub(crate) fn new(name: &str) -> Temporary {
        Temporary(tempfile::tempdir().unwrap().keep().join(format!("{name}.pcapng")))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

/// Runs tshark on `file` with these arguments, with or without the dissector, and returns its output.
pub(crate) fn tshark(file: &Path, dissector: bool, arguments: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["--disable-protocol", "rpcordma"]);
    // tshark recognises RoCE v2 by UDP port 4791, and the tests use other ports.
    command.args(["-d", "udp.port==1-65535,infiniband"]);
    if dissector {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wireshark/remora.lua");
        command.args(["-X", &format!("lua_script:{script}")]);
    }
    let output = command
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("this test needs tshark (`make setup`): {error}"));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !words.contains("remora"), "tshark: {words}");
    String::from_utf8(output.stdout).unwrap()
}

/// The fields that one packet has, with their values.
type Fields = BTreeMap<String, String>;

/// The names of the dissector's fields, without the prefix `remora.`.
const FIELDS: [&str; 48] = [
    "prism.flags",
    "prism.flags.addr_indirect",
    "prism.flags.addr_bounded",
    "prism.flags.data_indirect",
    "prism.flags.conditional",
    "prism.flags.redirect",
    "prism.flags.allocate",
    "prism.flags.extended",
    "prism.free_list",
    "prism.redirect",
    "prism.source",
    "prism.mode",
    "prism.size",
    "prism.compare_at",
    "prism.swap_at",
    "prism.compare_mask",
    "prism.field_ends",
    "prism.swap_mask",
    "prism.compare",
    "prism.compare_address",
    "prism.swap",
    "prism.swap_address",
    "prism.verdict",
    "prism.old",
    "prism.buffer",
    "prism.written",
    "prism.redirected",
    "prism.result",
    "prism.request_in",
    "list.opcode",
    "list.count",
    "list.len",
    "bundle.opcode",
    "bundle.psn",
    "bundle.len",
    "irn.wqe",
    "irn.offset",
    "irn.va",
    "irn.rkey",
    "irn.len",
    "irn.fetch",
    "strom.opcode",
    "strom.tag",
    "strom.len",
    "strom.answer",
    "strom.rkey",
    "strom.capacity",
    "strom.params",
];

/// Returns all packets with their fields `remora.*`, their numbers and their directions.
fn packets(file: &Path, preferences: &[&str]) -> Vec<Fields> {
    let mut names: Vec<String> = FIELDS.iter().map(|name| format!("remora.{name}")).collect();
    names.extend(["frame.number", "frame.packet_flags_direction"].map(str::to_owned));
    let mut arguments = vec!["-T", "fields"];
    for preference in preferences {
        arguments.extend(["-o", *preference]);
    }
    for name in &names {
        arguments.extend(["-e", name.as_str()]);
    }
    let text = tshark(file, true, &arguments);
    let row = |line: &str| -> Fields {
        let values = names.iter().cloned().zip(line.split('\t').map(str::to_owned));
        values.filter(|(_, value)| !value.is_empty()).collect()
    };
    text.lines().map(row).collect()
}

struct World {
    domain: ProtectionDomain,
    cq: CompletionQueue,
    memory: MemoryRegion,
    list: FreeList,
    pair: QueuePair,
    peer: QueuePair,
}

fn world(device: &Device, options: &QpOptions) -> World {
    let context = device.open().unwrap();
    let domain = context.alloc_pd().unwrap();
    let cq = context.create_cq(64).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = domain.allocate(1 << 16, rights).unwrap();
    let free = FreeListOptions { offset: 8192, size: SIZE, count: 1, engine: 0 };
    let mut list = domain.create_free_list(&memory, &free).unwrap();
    list.post(0).unwrap();
    let make = || domain.create_qp(&cq, &cq, options).unwrap();
    let (pair, peer) = QueuePair::connect_pair(make(), make()).unwrap();
    World { domain, cq, memory, list, pair, peer }
}

fn options() -> QpOptions {
    QpOptions { prism: true, path_mtu: 1024, ..QpOptions::default() }
}

/// The condition, redirection and result address of a request.
#[derive(Clone, Copy, Default)]
struct How {
    conditional: bool,
    redirect: Option<u64>,
}

impl World {
    fn run(&mut self, operation: Operation<'_>, modifiers: How, outcome: Verdict) {
        let result = !matches!(operation, Operation::Read { .. });
        let request = WorkRequest {
            id: 1,
            operation,
            conditional: modifiers.conditional,
            redirect: modifiers.redirect,
            result: result.then(|| self.memory.sge(0, 32)),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        self.pair.post_prism(&request).unwrap();
        let mut done = [EMPTY; 1];
        self.cq.wait(&mut done, LONG).unwrap();
        assert_eq!((done[0].status, done[0].outcome), (Status::Success, outcome));
    }

    fn at(&self, offset: u64) -> Remote {
        self.memory.remote(offset)
    }
}

/// Posts one operation for each field. Returns the expected packets in order.
fn conversation(world: &mut World) -> Vec<Fields> {
    let mut wanted = allocations(world);
    wanted.extend(reads_and_writes(world));
    wanted.extend(atomics(world));
    wanted
}

fn fields(values: &[Named<'_>]) -> Fields {
    let named = |(name, value): &(&str, String)| (format!("remora.prism.{name}"), value.clone());
    values.iter().map(named).collect()
}

fn hex(number: u64) -> String {
    format!("{number:#018x}")
}

/// Formats numbers as bytes in network order.
fn wide(limbs: &[u64]) -> String {
    limbs.iter().rev().map(|limb| format!("{limb:016x}")).collect()
}

/// Returns the fields of a request packet with these flags.
fn flagged(flags: u8, more: &[Named<'_>]) -> Fields {
    let all =
        ["addr_indirect", "addr_bounded", "data_indirect", "conditional", "redirect", "allocate", "extended"];
    let mut expected = fields(more);
    expected.extend(fields(&[("flags", format!("{flags:#04x}"))]));
    for (bit, name) in all.iter().enumerate() {
        let set = u8::from(flags & 0x40 >> bit != 0);
        expected.extend(fields(&[(&format!("flags.{name}"), set.to_string())]));
    }
    expected
}

fn answer(verdict: u8, more: &[Named<'_>]) -> Fields {
    let mut expected = fields(more);
    expected.extend(fields(&[("verdict", verdict.to_string())]));
    expected
}

fn allocations(world: &mut World) -> Vec<Fields> {
    let list = world.list.number();
    let rkey = world.memory.rkey();
    let value = [world.memory.sge(16384, VALUE)];
    let data = Data::Local(Payload::Sges(&value));
    let redirected = How { redirect: Some(SCRATCH), ..How::default() };
    world.run(Operation::Allocate { list, rkey, data }, redirected, Verdict::Done);
    world.run(Operation::Allocate { list, rkey, data }, How::default(), Verdict::NoBuffer);
    let long = [world.memory.sge(16384, SIZE as usize + 1)];
    world.run(
        Operation::Allocate { list, rkey, data: Data::Local(Payload::Sges(&long)) },
        How::default(),
        Verdict::TooLong,
    );
    world.list.post(0).unwrap();
    world.run(Operation::Allocate { list, rkey, data }, How::default(), Verdict::Done);

    let first = |flags, more: &[Named<'_>]| {
        let mut more = more.to_vec();
        more.push(("free_list", list.to_string()));
        flagged(flags, &more)
    };
    let rest = |flags, packets| std::iter::repeat_n(flagged(flags, &[]), packets);
    let mut wanted = vec![first(0x06, &[("redirect", hex(SCRATCH))])];
    wanted.extend(rest(0x06, 2));
    wanted.push(answer(0x1f, &[("buffer", hex(world.list.address(0)))]));
    wanted.push(first(0x02, &[]));
    wanted.extend(rest(0x02, 2));
    wanted.push(answer(3, &[("result", wide(&[0]))]));
    wanted.push(first(0x02, &[]));
    wanted.extend(rest(0x02, 4));
    wanted.push(answer(4, &[("result", wide(&[0]))]));
    wanted.push(first(0x02, &[]));
    wanted.extend(rest(0x02, 2));
    wanted.push(answer(0x1f, &[("buffer", hex(world.list.address(0)))]));
    wanted
}

fn reads_and_writes(world: &mut World) -> Vec<Fields> {
    let sges = [world.memory.sge(1024, VALUE)];
    let buffer = world.list.address(0);
    world.memory.put(512, &buffer).unwrap();
    world.memory.put(520, &1500u64).unwrap();
    let address = Address::bounded(world.at(512));
    world.run(
        Operation::Read { from: address, len: VALUE as u32, into: &sges },
        How::default(),
        Verdict::Done,
    );
    let redirected = How { redirect: Some(world.at(640).addr), ..How::default() };
    let address = Address::indirect(world.at(512));
    world.run(Operation::Read { from: address, len: 24, into: &[] }, redirected, Verdict::Done);
    let source = world.at(648).addr;
    let data = Data::There { addr: source, len: 16 };
    world.run(Operation::Write { to: address, data }, How::default(), Verdict::Done);
    vec![
        flagged(0x60, &[]),
        answer(0x1f, &[]),
        answer(0x1f, &[]),
        flagged(0x44, &[("redirect", hex(world.at(640).addr))]),
        answer(0x1f, &[("redirected", "24".into())]),
        flagged(0x50, &[("source", hex(source))]),
        answer(0x1f, &[("written", "16".into())]),
    ]
}

type Named<'a> = (&'a str, String);

/// Returns the masks of a swap with `limbs` limbs, and the fields in `more`.
fn swap<'a>(limbs: usize, more: &[Named<'a>]) -> Vec<Named<'a>> {
    let compare = [0, u64::MAX, 0, 0];
    let swap = [u64::MAX, u64::MAX, 0, 0];
    let masks = [("compare_mask", wide(&compare[..limbs])), ("swap_mask", wide(&swap[..limbs]))];
    [&masks[..], more].concat()
}

fn atomics(world: &mut World) -> Vec<Fields> {
    let old = [3, 7, 11, 13];
    world.memory.put(768, &old).unwrap();
    world.memory.put(896, &[21u64, 22, 23, 24]).unwrap();
    let address = Address::direct(world.at(768));
    let mut operands = Operands {
        mode: Mode::Greater,
        size: 32,
        compare_mask: [0, u64::MAX, 0, 0],
        swap_mask: [u64::MAX, u64::MAX, 0, 0],
        compare: Operand::Immediate([1, 8, 2, 9]),
        swap_add: Operand::At(world.at(896).addr),
    };
    world.run(Operation::CompareSwap { at: address, operands }, How::default(), Verdict::Done);
    operands = Operands { size: 16, mode: Mode::Equal, ..operands };
    operands.compare = Operand::Immediate([1, 8, 0, 0]);
    operands.swap_add = Operand::Immediate([5, 6, 0, 0]);
    world.run(Operation::CompareSwap { at: address, operands }, How::default(), Verdict::NotSwapped);
    operands = Operands { size: 8, compare_mask: [1 << 31, 0, 0, 0], ..operands };
    (operands.swap_mask, operands.compare) = ([0; 4], Operand::default());
    operands.swap_add = Operand::Immediate([1, 0, 0, 0]);
    let conditional = How { conditional: true, ..How::default() };
    world.run(Operation::FetchAdd { at: address, operands }, conditional, Verdict::Skipped);
    world.run(Operation::FetchAdd { at: address, operands }, How::default(), Verdict::Done);
    let add = [
        ("size", "8".into()),
        ("swap_at", "0".into()),
        ("field_ends", wide(&[1 << 31])),
        ("swap", wide(&[1])),
    ];
    vec![
        flagged(
            0x11,
            &swap(
                4,
                &[
                    ("mode", "4".into()),
                    ("size", "32".into()),
                    ("compare_at", "0".into()),
                    ("swap_at", "1".into()),
                    ("compare", wide(&[1, 8, 2, 9])),
                    ("swap_address", hex(world.at(896).addr)),
                ],
            ),
        ),
        answer(0x1f, &[("old", wide(&old))]),
        flagged(
            0x01,
            &swap(
                2,
                &[
                    ("mode", "0".into()),
                    ("size", "16".into()),
                    ("compare_at", "0".into()),
                    ("swap_at", "0".into()),
                    ("compare", wide(&[1, 8])),
                    ("swap", wide(&[5, 6])),
                ],
            ),
        ),
        answer(1, &[("old", wide(&[21, 22]))]),
        flagged(0x09, &add),
        answer(2, &[("result", wide(&[0]))]),
        flagged(0x01, &add),
        answer(0x1f, &[("old", wide(&[21]))]),
    ]
}

/// Removes from each answer the number of its request's frame, after checking that it is the latest request.
fn requests_are_named(seen: &mut [Fields]) {
    let mut last = None;
    for packet in seen {
        let number = packet["frame.number"].clone();
        if packet.contains_key("remora.prism.flags") {
            last = Some(number);
        } else if packet.contains_key("remora.prism.verdict") {
            assert_eq!(packet.remove("remora.prism.request_in"), last, "frame {number}");
        }
    }
}

/// Returns the sent packets that the dissector describes, without the fields of other dissectors.
fn of_prism(seen: Vec<Fields>) -> Vec<Fields> {
    let mut left = seen;
    left.retain(|packet| packet["frame.packet_flags_direction"] == "0x00000002");
    left.iter_mut().for_each(|packet| packet.retain(|name, _| name.starts_with("remora.")));
    left.retain(|packet| !packet.is_empty());
    left
}

/// Captures every PRISM operation once. Returns the expected packets and the numbers of both queue pairs.
fn captured(file: &Path) -> (Vec<Fields>, [u32; 2]) {
    let device = Device::udp("127.0.0.1:0").unwrap().capture(file);
    let mut world = world(&device, &options());
    assert!(world.pair.agreement().unwrap().prism);
    (conversation(&mut world), [world.pair.number(), world.peer.number()])
}

#[test]
fn tshark_shows_of_prism_what_was_posted_and_what_came_of_it() {
    let file = Temporary::new("dissector");
    let (wanted, _) = captured(&file.0);
    let mut seen = packets(&file.0, &[]);
    requests_are_named(&mut seen);
    let seen = of_prism(seen);
    for (index, (seen, wanted)) in seen.iter().zip(&wanted).enumerate() {
        assert_eq!(seen, wanted, "packet {index}");
    }
    assert_eq!(seen.len(), wanted.len());
}

/// Captures a WRITE and an ALLOCATE in one frame, followed by a READ of `reads` bytes, if any. Returns
/// tshark's fields, the number of the free list and the address of the buffer.
fn together(reads: Option<usize>) -> (Vec<Fields>, u64, u64) {
    let file = Temporary::new(&format!("together-{reads:?}"));
    let (list, buffer) = {
        let device = Device::udp("127.0.0.1:0").unwrap().capture(&file.0);
        let mut world = world(&device, &options());
        let list = world.list.number();
        let rkey = world.memory.rkey();
        let request = |id, operation| WorkRequest {
            id,
            operation,
            conditional: true,
            redirect: None,
            result: Some(world.memory.sge(32 * id as usize, 32)),
            flags: Flags { signaled: true, ..Flags::default() },
        };
        let data = Data::Local(Payload::Inline(&[5; 20]));
        let scratch = Address::direct(Remote { addr: SCRATCH + 8, rkey });
        let new = request(1, Operation::Allocate { list, rkey, data });
        let sges = [world.memory.sge(256, reads.unwrap_or(0))];
        let address = Address::direct(world.memory.remote(0));
        let read = Operation::Read { from: address, len: sges[0].len, into: &sges };
        let read = WorkRequest { result: None, ..request(2, read) };
        let mut batch = world.pair.batch().unwrap();
        batch.post_prism(&request(0, Operation::Write { to: scratch, data })).unwrap();
        batch.post_prism(&WorkRequest { redirect: Some(SCRATCH), ..new }).unwrap();
        if reads.is_some() {
            batch.post_prism(&read).unwrap();
        }
        batch.ring();
        let mut done = [EMPTY; 3];
        let mut ended = 0;
        while ended < 2 + usize::from(reads.is_some()) {
            ended += world.cq.wait(&mut done, LONG).unwrap();
        }
        (list, world.list.address(0))
    };
    (of_prism(packets(&file.0, &[])), list, buffer)
}

fn fields_of<const N: usize>(packet: &Fields, names: [&str; N]) -> [String; N] {
    names.map(|name| packet[&format!("remora.{name}")].clone())
}

/// A chain of requests in one frame, with its answers in another.
#[test]
fn tshark_shows_each_packet_of_a_bundle() {
    let (seen, list, buffer) = together(Some(40));
    let [asked, answered] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(
        fields_of(asked, ["bundle.opcode", "prism.flags", "prism.free_list", "prism.redirect"]),
        ["0x0a,0x0a,0x0c".to_owned(), "0x08,0x0e,0x08".to_owned(), list.to_string(), hex(SCRATCH)],
    );
    assert_eq!(
        fields_of(answered, ["bundle.opcode", "prism.verdict", "prism.written", "prism.buffer"]),
        ["0x12,0x12,0x10".to_owned(), "31,31,31".to_owned(), "20".to_owned(), hex(buffer)],
    );
    assert_eq!(asked["remora.bundle.psn"], answered["remora.bundle.psn"]);
}

/// A chain as one packet, and its answer as one packet.
#[test]
fn tshark_shows_each_operation_of_a_chain_and_what_came_of_it() {
    let (seen, list, buffer) = together(Some(20));
    let [asked, answered] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(
        fields_of(asked, ["list.opcode", "list.count", "prism.flags", "prism.free_list", "prism.redirect"]),
        ["0x0a,0x0a,0x0c", "3", "0x08,0x0e,0x08", &list.to_string(), &hex(SCRATCH)].map(str::to_owned),
    );
    assert_eq!(
        fields_of(answered, ["list.count", "list.len", "prism.verdict", "prism.written", "prism.buffer"]),
        ["3", "8,8,20", "31,31,31", "20", &hex(buffer)].map(str::to_owned),
    );
    assert_eq!(answered["remora.prism.result"].len(), 40, "{answered:?}");
}

#[test]
fn what_the_dissector_shows_is_a_matter_of_preferences() {
    let file = Temporary::new("preferences");
    let (wanted, [client, server]) = captured(&file.0);
    let off = packets(&file.0, &["remora.prism_auto:FALSE"]);
    assert_eq!(of_prism(off), []);
    let by_number = format!("remora.prism_qps:{client},{server}");
    let mut named = packets(&file.0, &["remora.prism_auto:FALSE", &by_number]);
    requests_are_named(&mut named);
    assert_eq!(of_prism(named), wanted);
    // Without their requests, answers are recognised only by their queue pair.
    let mut answers = packets(&file.0, &["remora.prism_auto:FALSE", &format!("remora.prism_qps:{client}")]);
    answers.retain(|packet| packet.contains_key("remora.prism.verdict"));
    assert!(answers.iter().all(|packet| !packet.contains_key("remora.prism.request_in")));
    let verdicts = |packets: &[Fields]| -> Vec<String> {
        packets.iter().filter_map(|packet| packet.get("remora.prism.verdict").cloned()).collect()
    };
    assert_eq!(verdicts(&of_prism(answers)), verdicts(&wanted));
}

#[test]
fn standard_packets_are_shown_as_without_the_dissector() {
    let file = Temporary::new("standard");
    {
        let device = Device::udp("127.0.0.1:0").unwrap().capture(&file.0);
        let mut world = world(&device, &options());
        let local = [world.memory.sge(16384, VALUE)];
        let there = world.at(1024);
        let word = [world.memory.sge(0, 8)];
        let plain = [
            work::write(1, &local, there),
            work::read(2, &local, there),
            work::compare_swap(3, &word, world.at(512), 0, 1),
            work::fetch_add(4, &word, world.at(512), 2),
        ];
        for request in &plain {
            world.pair.post_send(request).unwrap();
            let mut done = [EMPTY; 1];
            world.cq.wait(&mut done, LONG).unwrap();
            assert_eq!(done[0].status, Status::Success);
        }
    }
    let [without, with] = [false, true].map(|dissector| tshark(&file.0, dissector, &["-V"]));
    let same = |line: &&str| !line.contains("[Protocols in frame: ");
    assert!(without.contains("Opcode: Reliable Connection (RC) - FetchAdd"));
    assert!(without.lines().filter(same).eq(with.lines().filter(same)));
    // If the packets are declared to be PRISM's, the answer to an atomic is taken for a PRISM answer with
    // verdict "done".
    let all = packets(&file.0, &["remora.prism_qps:0-16777215"]);
    let verdicts = all.iter().filter(|packet| packet.contains_key("remora.prism.verdict"));
    assert!(verdicts.clone().count() > 0);
    assert!(verdicts.into_iter().all(|packet| packet["remora.prism.verdict"] == "31"));
}

#[test]
fn additions_of_irn_are_shown_for_the_queue_pairs_that_are_named() {
    let file = Temporary::new("irn");
    let (key, target);
    {
        let device = Device::udp("127.0.0.1:0").unwrap().capture(&file.0);
        let irn = QpOptions { prism: false, irn: true, ..options() };
        let mut world = world(&device, &irn);
        assert!(world.pair.agreement().unwrap().irn.is_some());
        let local = [world.memory.sge(16384, VALUE)];
        let place = [world.memory.sge(4096, 4096)];
        (key, target) = (world.memory.rkey().get(), world.at(1024));
        let mut done = [EMPTY; 1];
        for _ in 0..2 {
            world.peer.post_recv(&ReceiveRequest { id: 0, sges: &place }).unwrap();
            world.pair.post_send(&work::send(1, &local)).unwrap();
            for _ in 0..2 {
                world.cq.wait(&mut done, LONG).unwrap();
            }
        }
        for request in [work::write(2, &local, target), work::read(3, &local, target)] {
            world.pair.post_send(&request).unwrap();
            world.cq.wait(&mut done, LONG).unwrap();
        }
    }
    assert_eq!(of_prism(packets(&file.0, &[])), [], "nothing in a packet says that it is IRN's");
    let irn = |values: &[Named<'_>]| -> Fields {
        values.iter().map(|(name, value)| (format!("remora.irn.{name}"), value.clone())).collect()
    };
    let mut wanted = Vec::new();
    for wqe in 0..2 {
        for offset in [0, 1024, 2048] {
            wanted.push(irn(&[("wqe", wqe.to_string()), ("offset", offset.to_string())]));
        }
    }
    for offset in [1024, 2048] {
        let va = hex(target.addr + offset);
        let len = (VALUE as u64 - offset).to_string();
        wanted.push(irn(&[("va", va), ("rkey", format!("{key:#010x}")), ("len", len)]));
    }
    wanted.push(irn(&[("fetch", "0".into())]));
    assert_eq!(of_prism(packets(&file.0, &["remora.irn_qps:0-16777215"])), wanted);
}

/// Requests of a GET without a result, and of values in three packets and in one.
fn requests_to_kernels(file: &Path) -> Vec<Fields> {
    let device = Device::udp("127.0.0.1:0").unwrap().capture(file);
    let strom = QpOptions { prism: false, strom: true, ..options() };
    let mut world = world(&device, &strom);
    assert!(world.pair.agreement().unwrap().strom);
    let domain = world.domain.clone();
    let deploy = |opcode, kernel: Box<dyn Kernel>| {
        let grants = [&world.memory];
        let options = KernelOptions { opcode: Some(opcode), grants: &grants, ..KernelOptions::default() };
        domain.deploy_kernel(vec![kernel], &options).unwrap()
    };
    let _get = deploy(0x6e7, Box::<Get>::default());
    let _count = deploy(0x411, Box::<HyperLogLog>::default());
    let mut answers = domain.create_answers(4, 512).unwrap();
    let lookup = Lookup { slot: world.memory.remote(0).addr, key: 0x1234_5678_9abc_def0 }.emit();
    let mut wanted = Vec::new();
    let named = |values: &[Named<'_>]| -> Fields {
        values.iter().map(|(name, value)| (format!("remora.strom.{name}"), value.clone())).collect()
    };
    let head = |opcode, tag: u32, len: usize| {
        [("opcode", hex(opcode)), ("tag", tag.to_string()), ("len", len.to_string())]
    };
    let tag = answers.ask(&mut world.pair, 0x6e7, &lookup).unwrap();
    assert_eq!(answers.wait(&mut world.cq, tag, LONG).unwrap().status, kernel::Status::MISS);
    let place = answers.place(tag);
    let rest = [
        ("answer", hex(place.addr)),
        ("rkey", format!("{:#010x}", place.rkey)),
        ("capacity", "512".into()),
        ("params", lookup.iter().map(|byte| format!("{byte:02x}")).collect()),
    ];
    wanted.push(named(&[&head(0x6e7, tag, 32)[..], &rest].concat()));
    for len in [VALUE, 64] {
        let tag = answers.give(&mut world.pair, 0x411, &[world.memory.sge(16384, len)]).unwrap();
        assert_eq!(answers.wait(&mut world.cq, tag, LONG).unwrap().status, kernel::Status::DONE);
        wanted.push(named(&head(0x411, tag, len)));
    }
    wanted
}

#[test]
fn tshark_shows_of_requests_to_kernels_what_was_asked() {
    let file = Temporary::new("strom");
    let wanted = requests_to_kernels(&file.0);
    assert_eq!(of_prism(packets(&file.0, &[])), wanted);
    let lines = tshark(&file.0, true, &["-Y", "frame.packet_flags_direction == 2"]);
    let names: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.split_once("[StRoM ")?.1.split_once(']').map(|(name, _)| name))
        .collect();
    let writes = ["RPC WRITE First", "RPC WRITE Middle", "RPC WRITE Last", "RPC WRITE Only"];
    assert_eq!(names, [&["RPC Params"][..], &writes].concat());
    assert_eq!(of_prism(packets(&file.0, &["remora.strom_auto:FALSE"])), []);
}
