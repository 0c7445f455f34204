//! The simulated network of one input, and the model of its correct behaviour.

use remora_cipher::Aes;
use remora_fabric::rma::{Portal, Start, command};
use remora_fabric::{CompletionQueue, Config, World};
use remora_memory::{Access, Bytes, Key, Range};
use remora_nic::rma;
use remora_nic::rma::{Command, Identity, Operand, RegionKey, RegionMemory, Rights};
use remora_transport::rma::{Settings, Status, WriteDebit};
use remora_wire::frame::Start as FrameStart;
use remora_wire::rma::{
    Body, Class, Kind, MAX_OPERATION, Message, Nonce, TagSequence, UNIT, completion, header, request, solicit,
};

use super::action::{Action, Setup, Size, class, kind};
use super::forger::{Forger, Wrong};
use crate::node_memory::SECRET;

/// The node with the NIC, and the node of the hostile peer.
const NIC: usize = 0;
const PEER: usize = 1;
/// The length in bytes of each region, and of each guard.
const LEN: usize = 8 << 10;
const GUARD: usize = 64;
const PLAIN: u8 = 0x11;
const SLOTS: u16 = 8;
/// The bytes of local memory for each command slot.
const STRIPE: usize = MAX_OPERATION as usize;

/// The NIC's regions: their rights, if the peer has the key, and if the bytes are secret.
const REGIONS: [(Rights, bool, bool); 5] = [
    (Rights(7), true, false),
    (Rights::READ, true, false),
    (Rights::WRITE, true, true),
    (Rights::NONE, true, true),
    (Rights(7), false, true),
];

struct Served {
    id: u32,
    bytes: Bytes,
    image: Vec<u8>,
    /// The current key. The peer has it if it had the first one.
    key: [u8; 16],
    known: bool,
    rights: Rights,
    lives: bool,
}

/// A request of the peer.
struct Asked {
    kind: Kind,
    region: usize,
    offset: u64,
    len: u32,
    nonce: Nonce,
    key: [u8; 16],
    /// True if the NIC may serve the request, because it is authentic and within the rights.
    valid: bool,
    /// The slot and nonce of the NIC's solicitation.
    solicited: Option<(u16, Nonce)>,
}

/// A command of the NIC's program.
struct Running {
    command: Command,
    /// The nonce of the request, after the NIC has sent it.
    nonce: Option<Nonce>,
    /// The nonce of the valid solicitation that the peer has sent for the command.
    solicited: Option<Nonce>,
    /// A bit map of the units for which the peer has sent a valid piece.
    units: u64,
    next: u32,
}

pub struct Model {
    world: World,
    forger: Forger,
    settings: Settings,
    served: Vec<Served>,
    local: u32,
    local_bytes: Bytes,
    /// The expected contents of the local region.
    image: Vec<u8>,
    cq: CompletionQueue,
    portal: Portal,
    asked: Vec<Asked>,
    running: Vec<Option<Running>>,
    /// The requests of commands in progress, with their sizes, in the order in which they were sent.
    outstanding: Vec<(u16, u32)>,
    /// The messages that were on the wire: the receiver and the bytes.
    wire: Vec<(usize, Vec<u8>)>,
    valid_requests: u64,
    /// True after commands of arbitrary bytes were written. The model does not cover their effects.
    wild: bool,
}

impl Model {
    pub fn new(setup: &Setup) -> Model {
        let mut config = Config { start: FrameStart::Ip, ..crate::testbed::small() };
        config.nic.mtu = [4096, 1024, 256, 64][usize::from(setup.mtu) % 4];
        let settings = Settings {
            slots: SLOTS,
            served: [2, 8][usize::from(setup.tables) % 2],
            window: [8 << 10, 16 << 10][usize::from(setup.window) % 2],
            write_debit: if setup.shape & 1 == 0 { WriteDebit::Both } else { WriteDebit::ServerOnly },
            ..Settings::paper()
        };
        let mut world = World::new(&config);
        let start = Start { sender: 1, first_nonce: 1 << 40, regions: 8 };
        world.enable_rma(NIC, &settings, start, Box::new(Aes::new(8)));
        let served = REGIONS.iter().enumerate().map(|(number, (rights, known, secret))| {
            let fill = if *secret { SECRET } else { PLAIN };
            let (memory, bytes, image) = guarded(&world, number as u64 + 1, LEN, fill, *rights);
            let key = [number as u8 + 1; 16];
            let region_key = RegionKey::new(key).expect("a key");
            let id = world.regions(NIC).register(&memory, &region_key).expect("space");
            Served { id, bytes, image, key, known: *known, rights: *rights, lives: true }
        });
        let served: Vec<Served> = served.collect();
        let (memory, local_bytes, image) =
            guarded(&world, 9, STRIPE * usize::from(SLOTS), SECRET, Rights::NONE);
        let local_key = RegionKey::new([99; 16]).expect("a key");
        let local = world.regions(NIC).register(&memory, &local_key).expect("space");
        let cq = world.create_cq(NIC, 256);
        let portal = world.create_portal(cq, SLOTS, 5, 6).expect("slots");
        world.tap();
        Model {
            world,
            forger: Forger::new(),
            settings,
            served,
            local,
            local_bytes,
            image,
            cq,
            portal,
            asked: Vec::new(),
            running: (0..SLOTS).map(|_| None).collect(),
            outstanding: Vec::new(),
            wire: Vec::new(),
            valid_requests: 0,
            wild: false,
        }
    }

    pub fn act(&mut self, action: &Action) {
        match *action {
            Action::Request { kind: number, region, offset, size, wrong } => {
                let offset = offset.of(LEN as u64 - u64::from(size.of()));
                self.request(kind(number), usize::from(region) % REGIONS.len(), offset, size, wrong);
            }
            Action::Written { which, offset, size, wrong } => {
                self.written(which, offset.of(u64::from(size.of())), size.of(), wrong);
            }
            Action::Answer { which, kind: number, offset, size, timeout, wrong } => {
                self.answer(which, number, offset.of(0), size.of(), timeout, wrong);
            }
            Action::Piece { which, again } => self.piece(which, again),
            Action::Replay { which, bit, flips } => self.replay(which, bit, flips),
            Action::Bytes { kind, seed, len } => self.bytes(kind, seed, len),
            Action::Command { kind: number, slot, size, offset, bulk } => {
                self.command(kind(number), slot, size, offset.of(LEN as u64), class(bulk));
            }
            Action::Slot { seed, like } => self.slot(seed, like),
            Action::Owner { region, ends } => self.owner(region, ends),
            Action::Wait(ns) => self.world.run_for(u64::from(ns)),
        }
    }

    /// Reads local bytes of the NIC's program.
    fn load(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.local_bytes.read(GUARD + offset, &mut bytes).expect("the range is within the region");
        bytes
    }

    fn identity(&self, kind: Kind) -> Identity {
        Identity { address: self.world.endpoint(PEER).address, pid: 7, incarnation: 8, kind }
    }

    fn inject(&mut self, bytes: &[u8]) {
        let route = self.world.route(PEER, NIC);
        let mut frame = vec![0; FrameStart::Ip.overhead(true)];
        route.emit(FrameStart::Ip, 0, bytes.len() as u16, &mut frame);
        frame.extend_from_slice(bytes);
        self.world.inject(PEER, NIC, &frame);
        self.world.run_for(2);
    }

    fn request(&mut self, kind: Kind, region: usize, offset: u64, size: Size, wrong: Wrong) {
        let served = &self.served[region];
        let len = if kind == Kind::Rekey { size.of().min(16) } else { size.of() };
        let offset = if kind == Kind::Rekey { offset % 2 } else { offset };
        let id = served.id;
        let region_key = served.key;
        let rights = served.rights;
        let knows = served.known && served.lives;
        let key = self.forger.derive(&region_key, &self.identity(kind));
        let key = if served.known { key } else { [0xee; 16] };
        let slot = self.asked.len() as u16;
        let plain = header::Repr {
            kind,
            class: Class::Latency,
            slot,
            region: id,
            offset,
            length: len,
            nonce: Nonce::default(),
        };
        let body = Body::Request(request::Repr { pid: 7, incarnation: 8, max_payload: 1024 });
        let (bytes, nonce) = self.forger.seal(plain, body, &TagSequence::EMPTY, &key, &[], wrong);
        let right = match kind {
            Kind::Read => Rights::READ,
            Kind::Write => Rights::WRITE,
            _ => Rights::REKEY,
        };
        let sized = match kind {
            Kind::Rekey => len == 16 && offset == 0,
            _ => (1..=MAX_OPERATION).contains(&len),
        };
        let inside = offset.checked_add(u64::from(len)).is_some_and(|end| end <= LEN as u64);
        let sound = sized && rights.contains(right) && inside;
        let valid = sound && knows && (wrong.is_nothing() || wrong == Wrong::TagSequence && false);
        self.valid_requests += u64::from(valid);
        self.asked.push(Asked { kind, region, offset, len, nonce, key, valid, solicited: None });
        self.inject(&bytes);
    }

    /// Sends data for the `which`-th solicited request.
    fn written(&mut self, which: u8, offset: u64, len: u32, wrong: Wrong) {
        let open: Vec<usize> =
            (0..self.asked.len()).filter(|index| self.asked[*index].solicited.is_some()).collect();
        let Some(index) = open.get(usize::from(which) % open.len().max(1)).copied() else { return };
        let asked = &self.asked[index];
        let Some((slot, second)) = asked.solicited else { return };
        let len = if asked.kind == Kind::Rekey && len > 64 { 16 } else { len };
        let text: Vec<u8> = (0..len).map(|at| 0x40 | (at as u8 & 0x1f)).collect();
        let tags = TagSequence::new(asked.nonce).then(second);
        let id = self.served[asked.region].id;
        let plain = header::Repr {
            kind: Kind::Data,
            class: Class::Latency,
            slot,
            region: id,
            offset,
            length: len,
            nonce: Nonce::default(),
        };
        let key = asked.key;
        let region = asked.region;
        let base = asked.offset;
        let kind = asked.kind;
        let size = asked.len;
        let fits = offset.is_multiple_of(64)
            && offset.checked_add(u64::from(len)).is_some_and(|end| end <= u64::from(size))
            && (len.is_multiple_of(UNIT) || offset + u64::from(len) == u64::from(size));
        let (bytes, _) = self.forger.seal(plain, Body::None, &tags, &key, &text, wrong);
        if fits && wrong.is_nothing() && len > 0 {
            if kind == Kind::Rekey {
                let mut new = [0; 16];
                new.copy_from_slice(&text);
                // The model learns from the region if the rekey has taken effect.
                self.inject(&bytes);
                let now = self.world.regions(NIC).get(id).map(|region| *region.region_key.bytes());
                if now == Some(new) {
                    self.served[region].key = new;
                }
                return;
            }
            let from = GUARD + (base + offset) as usize;
            self.inject(&bytes);
            let mut now = vec![0; len as usize];
            self.served[region].bytes.read(from, &mut now).expect("the range is within the region");
            if now == text {
                self.served[region].image[from..from + len as usize].copy_from_slice(&text);
            }
            return;
        }
        self.inject(&bytes);
    }

    /// Returns the slot of the command that an answer is for.
    fn target(&self, which: u8) -> Option<usize> {
        let sent: Vec<usize> = (0..self.running.len())
            .filter(|slot| self.running[*slot].as_ref().is_some_and(|running| running.nonce.is_some()))
            .collect();
        sent.get(usize::from(which) % sent.len().max(1)).copied()
    }

    fn answer(&mut self, which: u8, number: u8, offset: u64, len: u32, timeout: u16, wrong: Wrong) {
        let Some(slot) = self.target(which) else { return };
        let Some(running) = &self.running[slot] else { return };
        let Some(nonce) = running.nonce else { return };
        let kind = Kind::ALL[3 + usize::from(number) % 5];
        let first = TagSequence::new(nonce);
        let tags = match (kind, running.solicited) {
            (Kind::Completion, Some(second)) if number & 0x80 == 0 => first.then(second),
            _ => first,
        };
        let key = match kind {
            Kind::AuthenticationFailure => remora_nic::rma::RESERVED_KEY,
            _ => running.command.key,
        };
        let body = match kind {
            Kind::Solicit => Body::Solicit(solicit::Repr {
                server_slot: 0x8000 | u16::from(which),
                max_payload: [64, 1024, 4096][usize::from(number) % 3],
                timeout: u32::from(timeout),
            }),
            Kind::Completion => {
                let status =
                    if number & 0x40 == 0 { completion::Status::Ok } else { completion::Status::AccessError };
                Body::Completion(completion::Repr { status })
            }
            _ => Body::None,
        };
        let text = if kind == Kind::Data { vec![0x22; len as usize] } else { Vec::new() };
        let plain = header::Repr {
            kind,
            class: Class::Latency,
            slot: self.portal.first + slot as u16,
            region: u32::from(which),
            offset,
            length: len,
            nonce: Nonce::default(),
        };
        let size = running.command.size;
        let is_read = running.command.kind == Kind::Read;
        let (bytes, second) = self.forger.seal(plain, body, &tags, &key, &text, wrong);
        if wrong.is_nothing()
            && let Some(running) = &mut self.running[slot]
        {
            match kind {
                Kind::Solicit if running.solicited.is_none() && !is_read => running.solicited = Some(second),
                Kind::Data if is_read => running.units |= units(size, offset, len).unwrap_or(0),
                _ => {}
            }
        }
        self.inject(&bytes);
    }

    /// Sends a valid piece of a read.
    fn piece(&mut self, which: u8, again: bool) {
        let Some(slot) = self.target(which) else { return };
        let Some(running) = &mut self.running[slot] else { return };
        let Some(nonce) = running.nonce.filter(|_| running.command.kind == Kind::Read) else { return };
        let size = running.command.size;
        let offset = if again { running.next.saturating_sub(1024) } else { running.next };
        let len = size.saturating_sub(offset).min(1024);
        if len == 0 {
            return;
        }
        running.next = running.next.max(offset + len);
        running.units |= units(size, u64::from(offset), len).unwrap_or(0);
        let key = running.command.key;
        let slot = self.portal.first + slot as u16;
        let plain = header::Repr {
            kind: Kind::Data,
            class: Class::Latency,
            slot,
            region: 1,
            offset: offset.into(),
            length: len,
            nonce: Nonce::default(),
        };
        let text = vec![0x22; len as usize];
        let (bytes, _) =
            self.forger.seal(plain, Body::None, &TagSequence::new(nonce), &key, &text, Wrong::Nothing);
        self.inject(&bytes);
    }

    fn replay(&mut self, which: u8, bit: u16, flips: bool) {
        let Some((_, bytes)) = self.wire.get(usize::from(which) % self.wire.len().max(1)) else { return };
        let mut bytes = bytes.clone();
        if flips {
            let at = usize::from(bit) / 8 % bytes.len();
            bytes[at] ^= 1 << (bit % 8);
        }
        self.inject(&bytes);
    }

    fn bytes(&mut self, kind: u8, seed: u64, len: u8) {
        let mut random = remora_fault::Random::new(seed);
        let mut bytes = vec![0; usize::from(len)];
        random.fill(&mut bytes);
        if let [first, second, ..] = &mut bytes[..] {
            (*first, *second) = (0xe0 | kind & 7, *second & 1);
        }
        self.inject(&bytes);
    }

    fn command(&mut self, kind: Kind, slot: u8, size: Size, offset: u64, class: Class) {
        let slot = u16::from(slot) % SLOTS;
        let size = if kind == Kind::Rekey { 16 } else { size.of().clamp(1, MAX_OPERATION) };
        if self.running[usize::from(slot)].is_some() || self.wild {
            return;
        }
        let offset = u64::from(slot) * STRIPE as u64 + offset % (STRIPE as u64 - u64::from(size) + 1);
        let server = self.world.endpoint(PEER);
        let local = Operand { region: self.local, offset };
        let remote = Operand { region: 1, offset: 0 };
        if kind == Kind::Read {
            let target = vec![PLAIN; size as usize];
            self.local_bytes.write(GUARD + offset as usize, &target).expect("the range is within the region");
            self.image[GUARD + offset as usize..][..size as usize].copy_from_slice(&target);
        }
        let key = [0x70 | slot as u8; 16];
        let command =
            Command { class, ..command(&self.portal, slot, kind, size, local, remote, server, key) };
        self.running[usize::from(slot)] =
            Some(Running { command: command.clone(), nonce: None, solicited: None, units: 0, next: 0 });
        self.world.issue(&mut self.portal, &command);
        self.world.run_for(1);
    }

    /// Writes a command of arbitrary bytes, or a running command with a change. From then on the model
    /// ignores commands.
    fn slot(&mut self, seed: u64, like: u8) {
        let mut random = remora_fault::Random::new(seed);
        let mut bytes = [0; 64];
        random.fill(&mut bytes);
        if let Some(Some(running)) = self.running.get(usize::from(like)) {
            let at = random.below(64) as usize;
            let value = bytes[at];
            bytes = running.command.bytes();
            bytes[at] = value;
        }
        // The command can name local bytes of any other command.
        self.wild = true;
        self.world.issue_bytes(&mut self.portal, &bytes);
        self.world.run_for(1);
    }

    fn owner(&mut self, region: u8, ends: bool) {
        let served = &mut self.served[usize::from(region) % REGIONS.len()];
        if !served.lives {
            return;
        }
        let regions = self.world.regions(NIC);
        if ends {
            regions.deregister(served.id).expect("the region exists");
            served.lives = false;
        } else {
            served.key[15] = served.key[15].wrapping_add(1) | 1;
            // The peer learns the new key if it had the old one.
            regions.rekey(served.id, &RegionKey::new(served.key).expect("a key")).expect("the region exists");
        }
    }

    /// Checks the messages sent, the completions, and the contents of memory.
    pub fn look(&mut self) {
        let below = FrameStart::Ip.overhead(true);
        let completions: Vec<_> = std::iter::from_fn(|| self.world.poll_rma(self.cq)).collect();
        // A command that has completed since the last look may have done so before other messages were sent.
        let completed: Vec<u16> = completions.iter().map(|completion| completion.slot).collect();
        self.outstanding.retain(|(slot, _)| !completed.contains(slot));
        for sent in self.world.sent() {
            if sent.from == NIC {
                self.left(&sent.bytes[below..]);
            }
            self.wire.push((sent.to, sent.bytes[below..].to_vec()));
        }
        for completion in completions {
            let slot = usize::from(completion.slot.wrapping_sub(self.portal.first));
            let Some(place) = self.running.get_mut(slot) else {
                assert!(self.wild, "a completion of a slot that is not the portal's");
                continue;
            };
            let ended = place.take();
            self.outstanding.retain(|(other, _)| *other != completion.slot);
            match ended {
                Some(running) => self.ended(&running, completion.status),
                None => assert!(self.wild, "slot {slot} ended twice"),
            }
        }
        self.check_memory();
    }

    /// Checks a message that the NIC has sent.
    fn left(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes).expect("the NIC's message parses");
        let header = message.header;
        match header.kind {
            kind if kind.is_request() => self.request_left(&header),
            Kind::Solicit => {
                let Body::Solicit(solicit) = message.body else {
                    unreachable!("the kind of the message is Solicit")
                };
                if let Some(asked) = self.asked.get_mut(usize::from(header.slot)) {
                    assert!(asked.valid, "a request without key or right is solicited");
                    asked.solicited = Some((solicit.server_slot, header.nonce));
                }
            }
            Kind::Data if header.slot & 0x8000 == 0 => self.read_left(&message),
            Kind::Data => self.answer_left(&message),
            _ => {}
        }
    }

    fn request_left(&mut self, header: &header::Repr) {
        let slot = usize::from(header.slot.wrapping_sub(self.portal.first));
        let Some(Some(running)) = self.running.get_mut(slot) else { return };
        running.nonce = Some(header.nonce);
        let debits = running.command.kind == Kind::Read || self.settings.write_debit == WriteDebit::Both;
        if !debits || self.wild {
            return;
        }
        let debited: u32 = self.outstanding.iter().map(|(_, size)| size).sum();
        assert!(debited + MAX_OPERATION <= self.settings.window, "{debited} bytes were debited already");
        self.outstanding.push((header.slot, running.command.size));
    }

    /// Checks the data of a read of the peer, which must have asked for it with the required right.
    fn read_left(&mut self, message: &Message<'_>) {
        let Some(asked) = self.asked.get(usize::from(message.header.slot)) else { return };
        assert!(asked.valid && asked.kind == Kind::Read, "data was sent without a key or right");
        let text = self.forger.open(message, &TagSequence::new(asked.nonce), &asked.key);
        let text = text.expect("the data decrypts with the key of its request");
        let served = &self.served[asked.region];
        let from = GUARD + (asked.offset + message.header.offset) as usize;
        assert!(
            message.header.offset + text.len() as u64 <= u64::from(asked.len),
            "the NIC sent more than was requested"
        );
        assert!(served.image[from..from + text.len()] == text, "the data differs from the region's");
        assert!(!crate::node_memory::leaks(&text), "the NIC sent secret bytes");
    }

    /// Checks the data of a write or rekey, which must be the command's own bytes.
    fn answer_left(&mut self, message: &Message<'_>) {
        if self.wild {
            return;
        }
        for running in self.running.iter().flatten() {
            let (Some(first), Some(second)) = (running.nonce, running.solicited) else { continue };
            let tags = TagSequence::new(first).then(second);
            let Some(text) = self.forger.open(message, &tags, &running.command.key) else { continue };
            let from = (running.command.local.offset + message.header.offset) as usize;
            let size = u64::from(running.command.size);
            assert!(
                message.header.offset + text.len() as u64 <= size,
                "the NIC sent more than the command's bytes"
            );
            assert!(self.load(from, text.len()) == text, "the data differs from the command's bytes");
            return;
        }
        panic!("data was sent without a valid solicitation");
    }

    fn ended(&mut self, running: &Running, status: Status) {
        if running.command.kind != Kind::Read || self.wild {
            return;
        }
        let Operand { offset, .. } = running.command.local;
        let now = self.load(offset as usize, running.command.size as usize);
        for (unit, bytes) in now.chunks(UNIT as usize).enumerate() {
            let came = running.units >> unit & 1 == 1;
            assert!(
                came || bytes.iter().all(|byte| *byte == PLAIN),
                "unit {unit} changed without a valid piece"
            );
            assert!(
                status != Status::Ok || bytes.iter().all(|byte| *byte == 0x22),
                "unit {unit} of a successful read is missing"
            );
        }
        self.image[GUARD + offset as usize..][..now.len()].copy_from_slice(&now);
    }

    fn check_memory(&mut self) {
        for (number, served) in self.served.iter().enumerate() {
            let mut now = vec![0; served.image.len()];
            served.bytes.read(0, &mut now).expect("the whole buffer is accessible");
            assert!(now == served.image, "region {number} changed without a valid piece of a write");
        }
        if self.wild {
            return;
        }
        let mut now = vec![0; self.image.len()];
        self.local_bytes.read(0, &mut now).expect("the whole buffer is accessible");
        for running in self.running.iter().flatten().filter(|running| running.command.kind == Kind::Read) {
            let from = GUARD + running.command.local.offset as usize;
            let range = from..from + running.command.size as usize;
            now[range.clone()].copy_from_slice(&self.image[range]);
        }
        assert!(now == self.image, "local bytes outside of reads have changed");
    }

    /// Lets everything end and checks that the solicitation window is complete.
    pub fn end(mut self) {
        self.world.run_for(200_000);
        self.look();
        assert!(self.running.iter().all(Option::is_none) || self.wild, "a command has not ended");
        let facts = self
            .world
            .ask::<Option<rma::Facts>>(NIC, remora_nic::Command::QueryRma)
            .expect("a query is never refused")
            .expect("the NIC has 1RMA");
        assert_eq!(
            (facts.free, facts.waiting, facts.serving),
            (facts.window, 0, 0),
            "the window is not complete at the end"
        );
        let taken = self.world.counters(NIC).rma_served;
        let replayed = self.wire.len() as u64;
        assert!(
            taken <= self.valid_requests + replayed,
            "{taken} served, {} were valid",
            self.valid_requests
        );
    }
}

fn units(size: u32, offset: u64, len: u32) -> Option<u64> {
    let end = offset.checked_add(u64::from(len)).filter(|end| *end <= u64::from(size))?;
    let first = |units: u64| if units >= 64 { u64::MAX } else { (1 << units) - 1 };
    Some(first(end.div_ceil(64)) & !first(offset / 64))
}

/// Creates a region between two guards, and returns it with its memory and its contents.
fn guarded(
    world: &World,
    number: u64,
    len: usize,
    fill: u8,
    rights: Rights,
) -> (RegionMemory, Bytes, Vec<u8>) {
    let bytes = Bytes::heap(len + 2 * GUARD).expect("memory");
    let mut image = vec![SECRET; len + 2 * GUARD];
    image[GUARD..GUARD + len].fill(fill);
    bytes.write(0, &image).expect("the whole buffer is accessible");
    let base = number << 36;
    let range = Range { bytes: bytes.clone(), offset: GUARD, len, iova: base };
    let key: Key = world.table(NIC).register(world.pd(NIC), &[range], Access::LOCAL_WRITE).expect("space");
    (RegionMemory { key, base, len: len as u64, rights }, bytes, image)
}
