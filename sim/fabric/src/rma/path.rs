//! The network of the 1RMA paper's experiments: a client and its servers around one switch.
//!
//! All links of a node share its port, and the switch has one port for each node. So what several servers
//! send to one client meets at the client's port, and what one server sends leaves through its own.

use std::collections::VecDeque;

use remora_fault::Rules;
use remora_memory::Access;
use remora_nic::rma::{Cipher, Command, Completion, Operand, RegionKey, Rights};
use remora_transport::rma::Settings;
use remora_transport::rma::executor::CongestionSettings;
use remora_wire::frame::Start as FrameStart;
use remora_wire::rma::{Class, DATA_OVERHEAD, Kind, MAX_OPERATION, REQUEST_LEN};

use super::{Exposed, Portal, Start, command};
use crate::world::{Config, LinkConfig, SwitchConfig, World};

/// Makes the cipher of an engine.
pub type MakeCipher<'a> = &'a dyn Fn() -> Box<dyn Cipher>;

/// Rate of each port, bits per second.
pub const LINE: u64 = 100_000_000_000;
/// Bytes of a region: one transfer of the paper's.
pub const REGION: usize = 4 << 20;
/// The client's node; servers follow.
pub const CLIENT: usize = 0;

/// Nanoseconds of a message on a line.
fn transmission_ns(message: usize) -> u64 {
    ((FrameStart::Ip.overhead(true) + message) as u64 * 8_000_000_000) / LINE
}

/// Nanoseconds of 4 KB of data on a line.
pub fn chunk_ns() -> u64 {
    transmission_ns(MAX_OPERATION as usize + DATA_OVERHEAD)
}

/// Payload that a line carries in messages of 4 KB, bits per second.
pub fn line_goodput() -> f64 {
    f64::from(MAX_OPERATION) * 8e9 / chunk_ns() as f64
}

/// A network, and the settings of its engines.
#[derive(Clone, Debug)]
pub struct Path {
    /// A read of 4 KB while nothing else is under way, nanoseconds.
    pub rtt_ns: u64,
    /// How many servers there are.
    pub servers: usize,
    /// What happens to frames.
    pub rules: Rules,
    /// Of all engines.
    pub settings: Settings,
    /// Seed of everything random.
    pub seed: u64,
}

impl Path {
    /// The paper's simulation (§7.4, §7.5): a round trip of 5 us, the only one that it gives.
    pub fn simulation(seed: u64) -> Path {
        Path { rtt_ns: 5_000, servers: 1, rules: Rules::default(), settings: Settings::paper(), seed }
    }

    /// The executor's congestion control. A window holds no more commands than the solicitation window, as
    /// more are never in service.
    pub fn congestion(&self) -> CongestionSettings {
        let max = f64::from(self.settings.window) / f64::from(MAX_OPERATION);
        CongestionSettings { max, ..CongestionSettings::paper() }
    }

    /// The world of this network. Ports hold two frames, so that it is the NIC who decides what is next.
    pub fn world(&self) -> World {
        let crossed = 2 * (transmission_ns(REQUEST_LEN) + chunk_ns());
        // A link and the switch on the way there, and on the way back.
        let latency_ns = self.rtt_ns.saturating_sub(crossed) / 4;
        let nic = remora_nic::Config { mtu: MAX_OPERATION, ..Config::default().nic };
        World::new(&Config {
            seed: self.seed,
            nodes: self.servers + 1,
            link: LinkConfig { latency_ns, rate: LINE, queue: 2 },
            shared_ports: true,
            switch: Some(SwitchConfig { latency_ns, rate: LINE, buffer: 8 << 20, marks: None }),
            rules: self.rules.clone(),
            nic,
            ..Config::default()
        })
    }
}

/// The nodes of a network that speak 1RMA: a client with a portal, and servers with a region each.
pub(super) struct Nodes {
    pub world: World,
    pub portal: Portal,
    pub local: Exposed,
    pub served: Vec<Exposed>,
    /// Slots without a command, from 0 on.
    pub free: VecDeque<u16>,
    /// K_d for reads and writes of each server.
    keys: Vec<[[u8; 16]; 2]>,
    cipher: Box<dyn Cipher>,
}

/// A command of a client, but for its slot.
#[derive(Copy, Clone, Debug)]
pub(super) struct Wanted {
    pub server: usize,
    pub kind: Kind,
    pub class: Class,
    pub size: u32,
    /// First byte, in both regions; whole regions more do not matter.
    pub offset: u64,
}

/// A key of one byte.
pub(super) fn key(byte: u8) -> RegionKey {
    RegionKey::new([byte; 16]).expect("a key that is not zero")
}

impl Nodes {
    pub fn new(path: &Path, slots: u16, make: MakeCipher<'_>) -> Nodes {
        let mut world = path.world();
        for node in 0..=path.servers {
            let start = Start { sender: (node as u32) << 26, first_nonce: 1, regions: 16 };
            world.enable_rma(node, &path.settings, start, make());
        }
        let served = (1..=path.servers).map(|node| {
            let memory = world.register(node, REGION, Access::LOCAL_WRITE);
            world.expose(&memory, Rights(7), key(node as u8)).expect("space for a region")
        });
        let served: Vec<Exposed> = served.collect();
        let memory = world.register(CLIENT, REGION, Access::LOCAL_WRITE);
        let local = world.expose(&memory, Rights::NONE, key(0xff)).expect("space for a region");
        let cq = world.create_cq(CLIENT, 2 * u32::from(slots));
        let portal = world.create_portal(cq, slots, 1, 1).expect("space for a portal");
        let free = (0..slots).collect();
        let keys = vec![[[0; 16]; 2]; path.servers];
        let mut nodes = Nodes { world, portal, local, served, free, keys, cipher: make() };
        for server in 0..path.servers {
            let key = nodes.served[server].key.clone();
            nodes.replace_key(server, &key);
        }
        nodes
    }

    /// K_d of the client.
    fn derive(&mut self, key: &RegionKey, kind: Kind) -> [u8; 16] {
        self.world.derive(&mut *self.cipher, &self.portal, key, kind)
    }

    /// K_d of another portal.
    pub fn derive_for(&mut self, portal: &Portal, key: &RegionKey, kind: Kind) -> [u8; 16] {
        self.world.derive(&mut *self.cipher, portal, key, kind)
    }

    /// The client has the keys of a server's region from its K_r.
    pub fn replace_key(&mut self, server: usize, key: &RegionKey) {
        self.keys[server] = [Kind::Read, Kind::Write].map(|kind| self.derive(key, kind));
    }

    /// Issues a command of this slot.
    pub fn issue(&mut self, slot: u16, wanted: &Wanted) {
        let Wanted { server, kind, class, size, offset } = *wanted;
        let offset = offset % REGION as u64;
        let key = self.keys[server][usize::from(kind == Kind::Write)];
        let local = Operand { region: self.local.id, offset };
        let remote = Operand { region: self.served[server].id, offset };
        let endpoint = self.world.endpoint(server + 1);
        let command = command(&self.portal, slot, kind, size, local, remote, endpoint, key);
        self.world.issue(&mut self.portal, &Command { class, ..command });
    }

    /// Issues a command of any free slot. False: there is none.
    pub fn issue_any(&mut self, wanted: &Wanted) -> bool {
        let Some(slot) = self.free.pop_front() else { return false };
        self.issue(slot, wanted);
        true
    }

    /// The next completion; its slot counts from 0.
    pub fn poll(&mut self) -> Option<Completion> {
        let completion = self.world.poll_rma(self.portal.cq)?;
        Some(Completion { slot: completion.slot - self.portal.first, ..completion })
    }
}
