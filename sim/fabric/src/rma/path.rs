//! The network of the 1RMA paper's experiments: a client and servers around a switch.
//!
//! All links of a node share the node's port, and the switch has one port for each node. So the data that
//! several servers send to a client competes for the client's port.

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

/// A function that creates the cipher of an engine.
pub type MakeCipher<'a> = &'a dyn Fn() -> Box<dyn Cipher>;

/// Rate of each port, in bit/s.
pub const LINE: u64 = 100_000_000_000;
/// Size of a region in bytes: one transfer of the paper.
pub const REGION: usize = 4 << 20;
/// Node of the client. Servers have the following numbers.
pub const CLIENT: usize = 0;

/// Returns the nanoseconds that a message takes on a line.
fn transmission_ns(message: usize) -> u64 {
    ((FrameStart::Ip.overhead(true) + message) as u64 * 8_000_000_000) / LINE
}

/// Returns the nanoseconds that 4 KB of data take on a line.
pub fn chunk_ns() -> u64 {
    transmission_ns(MAX_OPERATION as usize + DATA_OVERHEAD)
}

/// Returns the payload rate of a line with messages of 4 KB, in bit/s.
pub fn line_goodput() -> f64 {
    f64::from(MAX_OPERATION) * 8e9 / chunk_ns() as f64
}

/// The parameters of the network and its engines.
#[derive(Clone, Debug)]
pub struct Path {
    /// Latency of a read of 4 KB in an idle network, in nanoseconds.
    pub rtt_ns: u64,
    /// Number of servers.
    pub servers: usize,
    /// Fault rules of the path.
    pub rules: Rules,
    /// Settings of all engines.
    pub settings: Settings,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Path {
    /// Returns the network of the paper's simulations (§7.4, §7.5), with a round trip of 5 µs, the only one
    /// that the paper states.
    pub fn simulation(seed: u64) -> Path {
        Path { rtt_ns: 5_000, servers: 1, rules: Rules::default(), settings: Settings::paper(), seed }
    }

    /// Returns the settings of the executor's congestion control. Its window is limited to the commands of a
    /// solicitation window, because more are never in service.
    pub fn congestion(&self) -> CongestionSettings {
        let max = f64::from(self.settings.window) / f64::from(MAX_OPERATION);
        CongestionSettings { max, ..CongestionSettings::paper() }
    }

    /// Creates the world of this network. Ports queue only two frames, so that the NIC decides what is sent
    /// next.
    pub fn world(&self) -> World {
        let crossed = 2 * (transmission_ns(REQUEST_LEN) + chunk_ns());
        // Four equal latencies: link and switch, in both directions.
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

/// The nodes of the network: a client with a portal, and servers with a region each.
pub(super) struct Nodes {
    pub world: World,
    pub portal: Portal,
    pub local: Exposed,
    pub served: Vec<Exposed>,
    /// Slots without a command, numbered from 0.
    pub free: VecDeque<u16>,
    /// For each server: K_d of the client for reads and for writes.
    keys: Vec<[[u8; 16]; 2]>,
    cipher: Box<dyn Cipher>,
}

/// A command of the client without a slot.
#[derive(Copy, Clone, Debug)]
pub(super) struct Wanted {
    pub server: usize,
    pub kind: Kind,
    pub class: Class,
    pub size: u32,
    /// Offset of the first byte in both regions, modulo their size.
    pub offset: u64,
}

/// Returns a region key that repeats one byte.
pub(super) fn key(byte: u8) -> RegionKey {
    RegionKey::new([byte; 16]).expect("a key that is not zero")
}

impl Nodes {
    pub(crate) fn new(path: &Path, slots: u16, make: MakeCipher<'_>) -> Nodes {
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

    /// Derives K_d of the client.
    fn derive(&mut self, key: &RegionKey, kind: Kind) -> [u8; 16] {
        self.world.derive(&mut *self.cipher, &self.portal, key, kind)
    }

    /// Derives K_d of another portal.
    pub(crate) fn derive_for(&mut self, portal: &Portal, key: &RegionKey, kind: Kind) -> [u8; 16] {
        self.world.derive(&mut *self.cipher, portal, key, kind)
    }

    /// Derives the client's keys for a server's region from the region key K_r.
    pub(crate) fn replace_key(&mut self, server: usize, key: &RegionKey) {
        self.keys[server] = [Kind::Read, Kind::Write].map(|kind| self.derive(key, kind));
    }

    /// Issues a command in this slot.
    pub(crate) fn issue(&mut self, slot: u16, wanted: &Wanted) {
        let Wanted { server, kind, class, size, offset } = *wanted;
        let offset = offset % REGION as u64;
        let key = self.keys[server][usize::from(kind == Kind::Write)];
        let local = Operand { region: self.local.id, offset };
        let remote = Operand { region: self.served[server].id, offset };
        let endpoint = self.world.endpoint(server + 1);
        let command = command(&self.portal, slot, kind, size, local, remote, endpoint, key);
        self.world.issue(&mut self.portal, &Command { class, ..command });
    }

    /// Issues a command in any free slot. Returns false if there is none.
    pub(crate) fn issue_any(&mut self, wanted: &Wanted) -> bool {
        let Some(slot) = self.free.pop_front() else { return false };
        self.issue(slot, wanted);
        true
    }

    /// Returns the next completion, with its slot numbered from 0.
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        let completion = self.world.poll_rma(self.portal.cq)?;
        Some(Completion { slot: completion.slot - self.portal.first, ..completion })
    }
}
