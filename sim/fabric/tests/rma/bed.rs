//! A server and a client with 1RMA, and the requests of the tests.

use remora_cipher::{Aes, Record};
use remora_fabric::program::Region;
use remora_fabric::rma::{Exposed, Portal, Start, command};
use remora_fabric::{CompletionQueue, Config, World};
use remora_memory::{Access, Pd};
use remora_nic::rma::{Command, Completion, Operand, PortalInit, RegionKey, Rights};
use remora_nic::{PartNumber, rma};
use remora_transport::rma::{Settings, Status};
use remora_wire::rma::Kind;

/// Size of each region.
pub(crate) const LEN: usize = 64 << 10;

/// Nodes of the server and of the client.
pub(crate) const SERVER: usize = 0;
pub(crate) const CLIENT: usize = 1;

/// Set of all rights.
pub(crate) const ALL: Rights = Rights(7);

/// Two or more nodes; node 0 has a region that is accessible with its key.
pub(crate) struct Bed {
    pub world: World,
    pub record: Record,
    pub served: Exposed,
    pub local: Exposed,
    pub cq: CompletionQueue,
    pub portal: Portal,
    /// Derives keys as the server's software does.
    pub issuer: Aes,
}

/// Returns a key that repeats one byte.
pub(crate) fn key(byte: u8) -> RegionKey {
    RegionKey::new([byte; 16]).expect("a key that is not zero")
}

/// Returns a region of a node whose bytes depend on their offset.
pub(crate) fn region(world: &mut World, node: usize, len: usize) -> Region {
    let region = world.register(node, len, Access::LOCAL_WRITE);
    let bytes: Vec<u8> = (0..len).map(|index| (index * 7 + index / 256 + node * 101) as u8).collect();
    region.store(0, &bytes);
    region
}

/// Returns the initial values of an engine: a sender word for each node and start.
pub(crate) fn start(node: usize, starts: u32) -> Start {
    Start { sender: (node as u32) << 26 | starts, first_nonce: 1_000_000 * u64::from(starts), regions: 64 }
}

impl Bed {
    pub(crate) fn new(settings: &Settings) -> Bed {
        Bed::with(&Config::default(), settings)
    }

    pub(crate) fn with(config: &Config, settings: &Settings) -> Bed {
        let mut world = World::new(config);
        let record = Record::new();
        for node in 0..config.nodes {
            world.enable_rma(node, settings, start(node, 0), Box::new(record.wrap(Aes::new(64))));
        }
        let memory = region(&mut world, SERVER, LEN);
        let served = world.expose(&memory, ALL, key(1)).expect("space for a region");
        let memory = region(&mut world, CLIENT, LEN);
        let local = world.expose(&memory, Rights::NONE, key(2)).expect("space for a region");
        let cq = world.create_cq(CLIENT, 1024);
        let slots = settings.slots.min(64);
        let portal = world.create_portal(cq, slots, 17, 0x1234_5678).expect("space for a portal");
        Bed { world, record, served, local, cq, portal, issuer: Aes::new(2) }
    }

    /// Returns the attributes of a portal with one slot of the same program.
    pub(crate) fn portal_init(&self, pd: Pd, bulk_only: bool) -> PortalInit {
        let ring = PartNumber::NONE;
        let cq = self.cq.number;
        PortalInit { ring, slots: 1, pd, cq, pid: 17, incarnation: 0x1234_5678, bulk_only }
    }

    /// Returns a command in slot `slot`: `size` bytes between these offsets.
    pub(crate) fn command(&mut self, slot: u16, kind: Kind, size: u32, offsets: [u64; 2]) -> Command {
        let key = self.world.derive(&mut self.issuer, &self.portal, &self.served.key, kind);
        let [local, remote] = offsets;
        let local = Operand { region: self.local.id, offset: local };
        let remote = Operand { region: self.served.id, offset: remote };
        let server = self.world.endpoint(self.served.memory.node);
        command(&self.portal, slot, kind, size, local, remote, server, key)
    }

    /// Issues a command and waits for its completion.
    pub(crate) fn run(&mut self, command: &Command) -> Completion {
        self.world.issue(&mut self.portal, command);
        self.wait()
    }

    /// Waits for the next completion.
    pub(crate) fn wait(&mut self) -> Completion {
        for _ in 0..1_000_000 {
            if let Some(completion) = self.world.poll_rma(self.cq) {
                return completion;
            }
            assert!(self.world.step(), "nothing happens any more, and the command has not ended");
        }
        panic!("the command does not end")
    }

    /// Issues an operation in slot 0 and returns its status.
    pub(crate) fn status(&mut self, kind: Kind, size: u32, offsets: [u64; 2]) -> Status {
        let command = self.command(0, kind, size, offsets);
        self.run(&command).status
    }

    /// Changes the served region's key to 16 times `byte`, by a Rekey from the start of the local region.
    pub(crate) fn rekey(&mut self, byte: u8) -> Completion {
        self.local.memory.store(0, &[byte; 16]);
        let command = self.command(0, Kind::Rekey, 16, [0, 0]);
        let completion = self.run(&command);
        if completion.status == Status::Ok {
            self.served.key = key(byte);
        }
        completion
    }

    /// Checks that both ends are idle: windows are free, and nothing is served or queued.
    pub(crate) fn assert_idle(&mut self, settings: &Settings) {
        self.world.run_for(10 * settings.timeout + settings.max_server_timeout + settings.guard);
        for node in [SERVER, CLIENT] {
            let facts = self
                .world
                .ask::<Option<rma::Facts>>(node, remora_nic::Command::QueryRma)
                .unwrap()
                .expect("it speaks 1RMA");
            assert_eq!((facts.free, facts.waiting, facts.serving), (facts.window, 0, 0), "node {node}");
        }
    }
}
