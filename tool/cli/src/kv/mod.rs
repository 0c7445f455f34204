//! `remora serve kv` and `remora kv`: the key-value designs over the NIC.

pub mod bench;
pub mod client;
mod client_bench;
pub mod command;
mod contest;
pub mod curves;
mod dump;
mod exercise;
pub mod failure;
mod flight;
#[cfg(test)]
mod growing;
mod listing;
mod load;
mod machine;
pub mod measure;
pub mod parts;
mod prism;
mod program;
pub mod rival;
mod rows;
pub mod serve;
mod shell;
mod work;
pub mod workload;

use std::rc::Rc;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use remora_memory::Key;
use remora_nic::Remote;
use remora_store::QueueNeeds;
use remora_store::kv::farm::{self, Farm, FarmTable};
use remora_store::kv::pilaf::{self, Pilaf, PilafTable};
use remora_store::kv::prism::{
    Client as PrismClient, ClientConfig as PrismConfig, Config, Grant as PrismGrant, HEADER,
};
use remora_store::kv::strom::{self, Strom, StromTable};
use remora_store::kv::two_sided::{self, TwoSided, TwoSidedTable};
use remora_store::kv::{
    Client, ClientConfig, Grant, Hello, Lookup, Registered, Server, ServerConfig, SessionError, Table,
};
use remora_verbs::kernel::{Get, Kernel};
use remora_verbs::{Access, KernelOptions};

use crate::serving::Speaks;
use crate::serving::program::Memory;
use client::Session;
use listing::Found;
use machine::Machine;
use prism::PrismServer;
use program::{Called, Loads};
use serve::{Contents, ServeArgs};
use work::{Kind, Work};

/// Which design.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum DesignName {
    /// Self-verifying cuckoo table: an entry READ, then a value READ (Pilaf).
    Pilaf,
    /// Hopscotch neighbourhood READ, then a value READ (FaRM).
    Farm,
    /// Every operation is a call.
    TwoSided,
    /// One indirect READ; PUTs by the client itself (PRISM).
    Prism,
    /// A kernel on the server's NIC looks keys up (StRoM).
    Strom,
}

impl DesignName {
    /// All of them.
    pub const ALL: [DesignName; 5] =
        [DesignName::Pilaf, DesignName::Farm, DesignName::TwoSided, DesignName::Prism, DesignName::Strom];

    /// As the command line says it.
    pub fn name(self) -> &'static str {
        match self {
            DesignName::Pilaf => "pilaf",
            DesignName::Farm => "farm",
            DesignName::TwoSided => "two-sided",
            DesignName::Prism => "prism",
            DesignName::Strom => "strom",
        }
    }
}

/// What a server is made for.
#[derive(Clone, Debug)]
pub struct Size {
    /// Keys.
    pub capacity: u32,
    /// Bytes for keys and values.
    pub bytes: usize,
    /// Seed of the hash.
    pub seed: u64,
    /// The memory has been kept, and holds the table of a server before.
    pub again: bool,
    /// What the table begins with.
    pub contents: Rc<Contents>,
}

/// Measures the CPU work of an operation, in nanoseconds.
pub type Measured = Box<dyn FnMut(Kind) -> Result<f64>>;

/// A design.
pub trait Design: Sized + 'static {
    /// Its clients.
    type Client: Machine;
    /// The program of its server.
    type Program: Loads;
    /// What its queue pairs speak beside the verbs.
    const SPEAKS: Speaks;

    /// What a client's queue pair must hold.
    fn needs(config: &ClientConfig) -> QueueNeeds;

    /// Bytes of a client's memory.
    fn arena_len(config: &ClientConfig) -> usize;

    /// What a client says to the server.
    fn hello(config: &ClientConfig, arena: &Registered) -> Hello;

    /// A client, with what the server said.
    ///
    /// # Errors
    /// That is nothing that a server of this design says, or they do not fit.
    fn client(config: ClientConfig, grant: &[u8], arena: Registered) -> Result<Self::Client, SessionError>;

    /// The server's program, with all its memory.
    ///
    /// # Errors
    /// There is no room.
    fn program(args: &ServeArgs, size: Size, memory: &mut Memory) -> Result<Self::Program>;

    /// Bytes for keys and values of what a table begins with, and of so many further keys.
    fn memory_for(args: &ServeArgs, contents: &Contents, further: u64) -> u64;

    /// Calls `found` with each key of the table, in no order. A key that is there throughout comes once at least.
    ///
    /// # Errors
    /// The connection's, or what `found` says.
    fn list(session: &mut Session<Self>, found: &mut Found<'_>) -> Result<()>;

    /// Bytes of the READs of a GET that finds its key: of each but the last, and of the last. None: it is a call.
    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)>;

    /// Bytes of the index for so many keys; 0 if clients read none.
    fn index_len(keys: u32, seed: u64) -> usize;

    /// What measures its CPU work; none where that cannot be told from the NIC's.
    ///
    /// # Errors
    /// There is no room.
    fn work(plan: &measure::Plan) -> Result<Option<Measured>>;
}

impl<D: Classical> Design for D {
    type Client = Client<D::Lookup>;
    type Program = Called<D::Table>;
    const SPEAKS: Speaks = Speaks { prism: false, strom: D::Lookup::ASKS };

    fn needs(config: &ClientConfig) -> QueueNeeds {
        config.needs()
    }

    fn arena_len(config: &ClientConfig) -> usize {
        config.arena_len::<D::Lookup>()
    }

    fn hello(config: &ClientConfig, arena: &Registered) -> Hello {
        config.hello::<D::Lookup>(arena)
    }

    fn client(config: ClientConfig, grant: &[u8], arena: Registered) -> Result<Self::Client, SessionError> {
        Client::new(config, &Grant::decode(grant)?, arena)
    }

    fn program(args: &ServeArgs, size: Size, memory: &mut Memory) -> Result<Called<D::Table>> {
        let ServeArgs { max_key, max_value, clients: connections, .. } = *args;
        let config = ServerConfig { connections, max_key, max_value, ..ServerConfig::default() };
        let readable = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let extents = memory.region("values", size.bytes, readable)?;
        let index_len = D::table_len(size.capacity, size.seed);
        let index = (index_len > 0).then(|| memory.region("the index", index_len, readable)).transpose()?;
        let local = memory.region("messages", config.local_len(), Access::LOCAL_WRITE)?;
        let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let staging = memory.region("long requests", config.staging_len(), writable)?;
        D::deploy(args, memory)?;
        let table = match size.again {
            false => D::table(size.capacity, size.seed, index, extents),
            true => D::table_again(size.capacity, size.seed, index, extents).context(
                "what was kept is no table of this design that can go on: choose the design that it was made for, farm, or another --keep",
            )?,
        };
        let (needs, clients) = (config.needs(), config.connections);
        Ok(Called { server: Server::new(table, config, local, staging)?, needs, clients })
    }

    fn memory_for(_: &ServeArgs, contents: &Contents, further: u64) -> u64 {
        contents.bytes() + further * FURTHER
    }

    fn list(session: &mut Session<D>, found: &mut Found<'_>) -> Result<()> {
        listing::by_calls(session, found)
    }

    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)> {
        D::Lookup::read_lens(key_len, value_len)
    }

    fn index_len(keys: u32, seed: u64) -> usize {
        D::table_len(keys, seed)
    }

    fn work(plan: &measure::Plan) -> Result<Option<Measured>> {
        if D::Lookup::ASKS {
            return Ok(None);
        }
        let mut work = Work::<D>::new(plan)?;
        Ok(Some(Box::new(move |kind| work.measure(kind))))
    }
}

/// Bytes of a further key and its value, in a table that is made for more keys than it begins with.
const FURTHER: u64 = 256;

/// PRISM-KV.
pub struct PrismDesign;

/// Slots that a client remembers.
const KNOWN: u32 = 1 << 16;
/// Bytes of a GET's first READ at most.
const FIRST_READ: u32 = 8192;

/// A client's size in PRISM's terms.
fn in_prism(config: &ClientConfig) -> PrismConfig {
    let ClientConfig { window, max_key, max_value, .. } = *config;
    let first_read = (HEADER as u32 + max_key + max_value).min(FIRST_READ);
    PrismConfig { window, max_key, max_value, first_read, known: KNOWN }
}

impl Design for PrismDesign {
    type Client = PrismClient;
    type Program = PrismServer;
    const SPEAKS: Speaks = Speaks { prism: true, strom: false };

    fn needs(config: &ClientConfig) -> QueueNeeds {
        in_prism(config).needs()
    }

    fn arena_len(config: &ClientConfig) -> usize {
        in_prism(config).arena_len()
    }

    fn hello(config: &ClientConfig, _: &Registered) -> Hello {
        let replies = Remote { addr: 0, rkey: Key::new(0) };
        let design = remora_store::kv::Design::Prism;
        Hello { design, window: config.window, eager: 0, replies, reply_stride: 0, reply_len: 0 }
    }

    fn client(config: ClientConfig, grant: &[u8], arena: Registered) -> Result<PrismClient, SessionError> {
        PrismClient::new(in_prism(&config), &PrismGrant::decode(grant)?, arena)
    }

    fn program(args: &ServeArgs, size: Size, memory: &mut Memory) -> Result<PrismServer> {
        prism::open(args, size, memory)
    }

    fn memory_for(args: &ServeArgs, contents: &Contents, further: u64) -> u64 {
        prism::bytes_for(args, contents, further)
    }

    fn list(session: &mut Session<PrismDesign>, found: &mut Found<'_>) -> Result<()> {
        listing::by_reads(session, found)
    }

    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)> {
        Some((HEADER + key_len + value_len, HEADER + key_len + value_len))
    }

    fn index_len(keys: u32, seed: u64) -> usize {
        Config::for_keys(keys, seed).table_len()
    }

    fn work(_: &measure::Plan) -> Result<Option<Measured>> {
        Ok(None)
    }
}

/// A classical design: how its clients look things up, and its table.
pub trait Classical: 'static {
    /// Client side.
    type Lookup: Lookup;
    /// Server side.
    type Table: Table;

    /// Bytes of the index for so many keys; 0 if clients read none.
    fn table_len(keys: u32, seed: u64) -> usize;

    /// A table for so many keys over its memory.
    fn table(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> Self::Table;

    /// The table of a server before, over the memory that it left. None: there is none, or the design cannot go on.
    fn table_again(
        keys: u32,
        seed: u64,
        index: Option<Registered>,
        extents: Registered,
    ) -> Option<Self::Table> {
        let _ = (keys, seed, index, extents);
        None
    }

    /// Deploys what looks keys up, once there is memory for values and index.
    ///
    /// # Errors
    /// The NIC's.
    fn deploy(args: &ServeArgs, memory: &mut Memory) -> Result<()> {
        let _ = (args, memory);
        Ok(())
    }
}

/// Pilaf.
pub struct PilafDesign;
/// FaRM.
pub struct FarmDesign;
/// Two-sided calls.
pub struct TwoSidedDesign;
/// A kernel that looks keys up.
pub struct StromDesign;

const INDEX: &str = "a design with an index is given its memory";

impl Classical for PilafDesign {
    type Lookup = Pilaf;
    type Table = PilafTable;

    fn table_len(keys: u32, seed: u64) -> usize {
        pilaf::Config::for_keys(keys, seed).index_len()
    }

    fn table(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> PilafTable {
        PilafTable::new(pilaf::Config::for_keys(keys, seed), index.expect(INDEX), extents)
    }
}

impl Classical for FarmDesign {
    type Lookup = Farm;
    type Table = FarmTable;

    fn table_len(keys: u32, seed: u64) -> usize {
        farm::Config::for_keys(keys, seed).index_len()
    }

    fn table(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> FarmTable {
        FarmTable::new(farm::Config::for_keys(keys, seed), index.expect(INDEX), extents)
    }

    fn table_again(
        keys: u32,
        seed: u64,
        index: Option<Registered>,
        extents: Registered,
    ) -> Option<FarmTable> {
        FarmTable::reopen(farm::Config::for_keys(keys, seed), index?, extents)
    }
}

impl Classical for TwoSidedDesign {
    type Lookup = TwoSided;
    type Table = TwoSidedTable;

    fn table_len(_: u32, _: u64) -> usize {
        0
    }

    fn table(keys: u32, hash_seed: u64, _: Option<Registered>, extents: Registered) -> TwoSidedTable {
        TwoSidedTable::new(two_sided::Config { keys, hash_seed }, extents)
    }
}

/// Queue pairs that a lookup may be under way for at a time.
const LANES: u32 = 64;
/// Memory for answers on their way, unless that is less than one for each lane.
const ANSWERS: usize = 16 << 20;

impl Classical for StromDesign {
    type Lookup = Strom;
    type Table = StromTable;

    fn table_len(keys: u32, seed: u64) -> usize {
        strom::Config::for_keys(keys, seed).index_len()
    }

    fn table(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> StromTable {
        StromTable::new(strom::Config::for_keys(keys, seed), index.expect(INDEX), extents)
    }

    fn deploy(args: &ServeArgs, memory: &mut Memory) -> Result<()> {
        let lanes = args.clients.min(LANES);
        let longest = Strom::landing_len(args.max_key as usize, args.max_value as usize);
        let options = KernelOptions {
            opcode: Some(strom::OPCODE),
            longest: longest as u32,
            answers: ((ANSWERS / longest) as u32).clamp(lanes, 1024),
            ..KernelOptions::default()
        };
        memory.kernel((0..lanes).map(|_| Box::new(Get::default()) as Box<dyn Kernel>).collect(), options)
    }
}

/// Calls a function that is generic over the design.
#[macro_export]
macro_rules! with_design {
    ($design:expr, $function:ident($($argument:expr),*)) => {
        match $design {
            $crate::kv::DesignName::Pilaf => $function::<$crate::kv::PilafDesign>($($argument),*),
            $crate::kv::DesignName::Farm => $function::<$crate::kv::FarmDesign>($($argument),*),
            $crate::kv::DesignName::TwoSided => $function::<$crate::kv::TwoSidedDesign>($($argument),*),
            $crate::kv::DesignName::Prism => $function::<$crate::kv::PrismDesign>($($argument),*),
            $crate::kv::DesignName::Strom => $function::<$crate::kv::StromDesign>($($argument),*),
        }
    };
}
