//! The server's part in the growth of PRISM-KV's tables: a mover, and its connection to the server itself.

use remora_fabric::{Settings, World};
use remora_store::kv::prism::{MovePolicy, Mover, PrismTable};

use crate::harness::{Endpoint, Host, Link, arena, end};

/// A mover with its queue pair.
pub(crate) struct Growth {
    pub mover: Mover,
    link: Link,
}

impl Growth {
    pub(crate) fn new(world: &mut World, host: &Host<PrismTable>, care: MovePolicy) -> Growth {
        let settings = Settings { prism: true, send_slots: Mover::needs().send, ..Settings::default() };
        let [(qp, cq), (far, _)] = world.pair(host.node, host.node, &settings);
        let arena = arena(world, host.node, Mover::arena_len());
        let mover = Mover::new(host.table.clone(), arena, care).expect("memory for it");
        Growth { mover, link: Link { qp, cq, far } }
    }

    /// Gives the mover a turn. Returns false if it waits for nothing.
    pub(crate) fn turn(&mut self, world: &mut World) -> bool {
        while let Some(completion) = self.link.poll(world) {
            self.mover
                .complete(&completion, &mut Endpoint { world, qp: self.link.qp })
                .expect("a way to itself");
        }
        self.mover.work(&mut Endpoint { world, qp: self.link.qp }).expect("a way to itself")
    }

    /// Ends the mover when its server crashes.
    pub(crate) fn end(&self, world: &mut World) {
        self.link.end(world);
        end(world, self.link.far);
    }
}
