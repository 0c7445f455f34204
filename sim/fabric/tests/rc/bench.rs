//! The test bed of these tests: two connected queue pairs and a region at each end.

use remora_fabric::{ALL, CompletionQueue, Config, QueuePair, Region, Sent, Settings, World, forge};
use remora_nic::{
    Flags, Operation, Payload, PostError, ReceiveRequest, Sge, Status, WorkCompletion, WorkRequest,
};
use remora_wire::{Opcode, Packet};

pub(crate) struct Bench {
    pub world: World,
    pub left: QueuePair,
    pub left_cq: CompletionQueue,
    pub right: QueuePair,
    pub right_cq: CompletionQueue,
    pub here: Region,
    pub there: Region,
}

pub(crate) const SIGNALED: Flags = Flags { signaled: true, fence: false, solicited: false };
pub(crate) const SILENT: Flags = Flags { signaled: false, fence: false, solicited: false };

impl Bench {
    pub(crate) fn new(settings: &Settings) -> Bench {
        Bench::over(&Config::default(), settings)
    }

    pub(crate) fn over(config: &Config, settings: &Settings) -> Bench {
        let mut world = World::new(config);
        let [(left, left_cq), (right, right_cq)] = world.pair(0, 1, settings);
        let here = world.register(0, 4 << 20, ALL);
        let there = world.register(1, 4 << 20, ALL);
        let pattern: Vec<u8> =
            (0..1 << 20).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        here.store(0, &pattern);
        world.tap();
        Bench { world, left, left_cq, right, right_cq, here, there }
    }

    /// Posts on the left without ringing the doorbell.
    pub(crate) fn put(
        &mut self,
        id: u64,
        operation: Operation,
        list: &[Sge],
        flags: Flags,
    ) -> Result<(), PostError> {
        let request = WorkRequest { id, operation, payload: Payload::Sges(list), flags };
        self.world.post_quietly(self.left, &request)
    }

    /// Posts on the left and rings the doorbell.
    pub(crate) fn post(&mut self, id: u64, operation: Operation, list: &[Sge]) {
        self.put(id, operation, list, SIGNALED).unwrap();
        self.world.ring(self.left);
    }

    /// Posts a WRITE of `len` bytes between the starts of the regions.
    pub(crate) fn write(&mut self, id: u64, len: usize) {
        let remote = self.there.remote(0);
        let list = [self.here.sge(0, len)];
        self.post(id, Operation::Write(remote), &list);
    }

    /// Posts a READ of `len` bytes into the second MiB of the left region.
    pub(crate) fn read(&mut self, id: u64, len: usize) {
        let remote = self.there.remote(0);
        let list = [self.here.sge(1 << 20, len)];
        self.post(id, Operation::Read(remote), &list);
    }

    /// Posts a SEND of the first `len` bytes.
    pub(crate) fn send(&mut self, id: u64, len: usize) {
        let list = [self.here.sge(0, len)];
        self.post(id, Operation::Send, &list);
    }

    /// Posts a receive of `len` bytes on the right, into its third MiB.
    pub(crate) fn receive(&mut self, id: u64, len: usize) {
        let list = [self.there.sge(2 << 20, len)];
        self.world.post_receive(self.right, &ReceiveRequest { id, sges: &list }).unwrap();
    }

    /// Runs the world until no event is left. Returns id and status of the completions on the left.
    pub(crate) fn settle(&mut self) -> Vec<(u64, Status)> {
        assert!(self.world.settle(1_000_000), "the world never comes to rest");
        ends(&self.world.drain(self.left_cq))
    }

    /// Returns id and status of the completions on the right.
    pub(crate) fn right_ends(&mut self) -> Vec<(u64, Status)> {
        ends(&self.world.drain(self.right_cq))
    }

    /// Returns the frames that a side has sent since the last call.
    pub(crate) fn frames(&mut self, sender: usize) -> Vec<Sent> {
        self.world.sent().into_iter().filter(|sent| sent.from == sender).collect()
    }

    /// Returns the opcodes sent since the last call by the left and by the right.
    pub(crate) fn opcodes(&mut self) -> [Vec<Opcode>; 2] {
        let start = self.world.start();
        let sent = self.world.sent();
        [0, 1].map(|sender| {
            let frames = sent.iter().filter(|sent| sent.from == sender);
            frames
                .filter_map(|sent| forge::transport(start, &sent.bytes))
                .map(|packet| packet.bth.opcode)
                .collect()
        })
    }

    /// Parses the packet of a frame.
    pub(crate) fn packet<'a>(&self, sent: &'a Sent) -> Packet<'a> {
        forge::transport(self.world.start(), &sent.bytes).expect("NICs send whole packets")
    }
}

pub(crate) fn ends(completions: &[WorkCompletion]) -> Vec<(u64, Status)> {
    completions.iter().map(|wc| (wc.id, wc.status)).collect()
}

/// Returns the expected completions if all of these succeed in this order.
pub(crate) fn good(ids: impl IntoIterator<Item = u64>) -> Vec<(u64, Status)> {
    ids.into_iter().map(|id| (id, Status::Success)).collect()
}
