//! The designs of replicated blocks, as the test runs use them.

use remora_store::Registered;
use remora_store::block::{ClientConfig, Grant, Layout, Machine, Tag, abdlock, prism_rs};
use remora_store::heap::Class;

use crate::harness::{Host, Serves, Shape};

/// A block, as read from a quorum.
pub(crate) type Copied = (u64, Tag, Vec<u8>);

/// A client machine with its table.
pub(crate) trait Design: Machine {
    type Table: Serves;
    fn arena_len(config: &ClientConfig) -> usize;
    fn client(config: ClientConfig, arena: Registered) -> Self;
    fn shape(layout: Layout, clients: u32, window: u16) -> Shape;
    /// Creates the table of a replica that starts with these blocks; the others were never written.
    fn table(layout: Layout, memory: &Registered, blocks: &[Copied]) -> Self::Table;
    /// Opens the table of a replica that still has its memory.
    fn reopen(layout: Layout, memory: &Registered) -> Self::Table;
    fn grant(host: &mut Host<Self::Table>) -> Grant;
    /// Tells a replica that the connection with this grant has ended.
    fn ended(host: &mut Host<Self::Table>, grant: &Grant);
}

impl Design for prism_rs::Client {
    type Table = prism_rs::Table;

    fn arena_len(config: &ClientConfig) -> usize {
        prism_rs::Client::arena_len(config)
    }

    fn client(config: ClientConfig, arena: Registered) -> Self {
        prism_rs::Client::new(config, arena).expect("a sound configuration")
    }

    fn shape(layout: Layout, clients: u32, window: u16) -> Shape {
        let buffers = layout.buffers_for(clients, window);
        let classes = vec![(layout.buffer_len() as u32, buffers)];
        Shape { table_len: layout.table_len(), classes, peers: clients }
    }

    fn table(layout: Layout, memory: &Registered, blocks: &[Copied]) -> Self::Table {
        let mut table = prism_rs::Table::format(layout, memory.clone()).expect("memory for the table");
        let base = memory.addr + layout.table_len().next_multiple_of(64) as u64;
        let class = Class { list: 0, base, size: layout.buffer_len() as u32, count: layout.blocks as u32 };
        for (block, tag, value) in blocks {
            assert!(table.install(*block, *tag, value, &class, *block as u32));
        }
        table
    }

    fn reopen(layout: Layout, memory: &Registered) -> Self::Table {
        prism_rs::Table::open(layout, memory.clone()).expect("memory for the table")
    }

    fn grant(host: &mut Host<Self::Table>) -> Grant {
        host.table.grant(host.keeper.classes()).expect("buffers that hold a block")
    }

    fn ended(_: &mut Host<Self::Table>, _: &Grant) {}
}

impl Design for abdlock::Client {
    type Table = abdlock::Table;

    fn arena_len(config: &ClientConfig) -> usize {
        abdlock::Client::arena_len(config)
    }

    fn client(config: ClientConfig, arena: Registered) -> Self {
        let seed = config.id.get().into();
        abdlock::Client::new(config, arena, seed).expect("a sound configuration")
    }

    fn shape(layout: Layout, clients: u32, _: u16) -> Shape {
        // The harness's servers have buffers; no client uses this one.
        Shape { table_len: abdlock::Table::len(layout), classes: vec![(64, 1)], peers: clients }
    }

    fn table(layout: Layout, memory: &Registered, blocks: &[Copied]) -> Self::Table {
        let mut table = abdlock::Table::format(layout, memory.clone()).expect("memory for the table");
        for (block, tag, value) in blocks {
            assert!(table.install(*block, *tag, value));
        }
        table
    }

    fn reopen(layout: Layout, memory: &Registered) -> Self::Table {
        abdlock::Table::open(layout, memory.clone()).expect("memory for the table")
    }

    fn grant(host: &mut Host<Self::Table>) -> Grant {
        host.table.grant()
    }

    fn ended(host: &mut Host<Self::Table>, grant: &Grant) {
        host.table.break_locks(|lease| lease != grant.lease);
    }
}
