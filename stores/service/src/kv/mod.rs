//! The key-value store over a NIC: servers and clients of five designs.

mod client;
mod contents;
mod designs;
#[cfg(test)]
mod growing;
mod listing;
pub mod persist;
mod prism;
mod program;
pub mod rma;
mod session;
mod size;

pub use client::{KvDesign, Session};
pub use contents::Contents;
pub use designs::{Classical, FarmDesign, PilafDesign, PrismDesign, StromDesign, TwoSidedDesign};
pub use prism::{PrismServer, PrismTableProgram};
pub use program::{Called, Loads};
pub use session::{Driver, Found, KvSession, PATIENCE, bad_end, why_not};
pub use size::{Limits, Size};

use std::rc::Rc;

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
use remora_store::kv::{Client, Grant, Hello, Lookup, Registered, Server, ServerConfig, SessionError};
pub use remora_store::kv::{ClientConfig, Design};
use remora_verbs::kernel::{Get, Kernel};
use remora_verbs::{Access, Context, KernelOptions};

use crate::error::need;
use crate::server::{Extensions, Memory, Service};
use crate::{Error, Result};

impl Limits {
    /// Returns the protocol extensions of this design's queue pairs.
    fn extensions<D: KvDesign>(&self) -> Extensions {
        Extensions { irn: self.irn, ..D::EXTENSIONS }
    }
}

impl Size {
    /// Returns the size of a new table for the counted contents and further keys.
    ///
    /// `keys` is the total number of keys, by default twice the counted number and at least 100,000. `bytes`
    /// is the memory for all keys and values, by default what the design needs for them.
    ///
    /// # Errors
    /// `Config`: a table does not take this number of keys.
    pub fn fresh<D: KvDesign>(
        limits: &Limits,
        contents: Contents,
        keys: Option<u32>,
        bytes: Option<usize>,
    ) -> Result<Size> {
        let known = contents.count();
        let capacity = keys.map_or((known * 2).max(100_000), |keys| known.max(keys.into()));
        let keys = u32::try_from(capacity).ok().filter(|keys| *keys < 1 << 31);
        let keys = need!(keys, Config, "a table takes at most 2147483647 keys");
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                let bytes = usize::try_from(D::memory_for(limits, &contents, capacity - known)).ok();
                need!(bytes, Config, "so many keys take more memory than this machine can address")
            }
        };
        let seed = crate::seed::fresh();
        let contents = Rc::new(contents);
        Ok(Size { capacity: keys, bytes, seed, reopened: false, contents })
    }
}

/// Opens a server with an empty table: registers its memory and creates its program.
///
/// # Errors
/// The NIC has not enough memory, or the size is invalid.
pub fn open<D: KvDesign>(context: Context, limits: &Limits, size: Size) -> Result<Service<D::Program>> {
    open_with::<D, Error>(context, limits, size, |_| Ok(()))
}

/// Opens a server with a table that `load` fills before there are clients.
///
/// # Errors
/// The errors of [`open`], and those of `load`.
pub fn open_with<D: KvDesign, E: From<Error>>(
    context: Context,
    limits: &Limits,
    size: Size,
    load: impl FnOnce(&mut D::Program) -> Result<(), E>,
) -> Result<Service<D::Program>, E> {
    let mut memory = Memory::of(context.alloc_pd().map_err(Error::from)?);
    let mut program = D::program(limits, size, &mut memory)?;
    load(&mut program)?;
    program.loaded()?;
    Ok(Service::new(context, program, memory, limits.clients, limits.extensions::<D>())?)
}

impl<D: Classical> KvDesign for D {
    type Client = Client<D::Lookup>;
    type Program = Called<D::Table>;
    const EXTENSIONS: Extensions = Extensions { prism: false, strom: D::Lookup::ASKS, irn: false };

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

    fn program(limits: &Limits, size: Size, memory: &mut Memory) -> Result<Called<D::Table>> {
        let Limits { max_key, max_value, clients: connections, .. } = *limits;
        let config = ServerConfig { connections, max_key, max_value, ..ServerConfig::default() };
        let readable = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let extents = memory.region("values", size.bytes, readable)?;
        let index_len = D::table_len(size.capacity, size.seed);
        let index = (index_len > 0).then(|| memory.region("the index", index_len, readable)).transpose()?;
        let local = memory.region("messages", config.local_len(), Access::LOCAL_WRITE)?;
        let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let staging = memory.region("long requests", config.staging_len(), writable)?;
        D::deploy(limits, memory)?;
        let table = match size.reopened {
            false => D::table(size.capacity, size.seed, index, extents),
            true => need!(
                D::reopen(size.capacity, size.seed, index, extents),
                Config,
                "what was kept is no table of this design that can go on: choose the design that it was made for, farm, or another --keep"
            ),
        };
        let needs = config.needs();
        let clients = config.connections;
        Ok(Called { server: Server::new(table, config, local, staging)?, needs, clients })
    }

    fn memory_for(_: &Limits, contents: &Contents, further: u64) -> u64 {
        contents.bytes() + further * FURTHER
    }

    fn list(session: &mut Session<D>, report: &mut Found<'_>) -> Result<()> {
        listing::by_calls(session, report)
    }

    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)> {
        D::Lookup::read_lens(key_len, value_len)
    }

    fn index_len(keys: u32, seed: u64) -> usize {
        D::table_len(keys, seed)
    }
}

/// Bytes for each further key and its value, in a table that is created for more keys than its initial
/// contents.
const FURTHER: u64 = 256;

/// Number of slots that a client remembers.
const KNOWN: u32 = 1 << 16;
/// Maximum length in bytes of a GET's first READ.
const FIRST_READ: u32 = 8192;

/// Converts a client's configuration to that of a PRISM-KV client.
fn in_prism(config: &ClientConfig) -> PrismConfig {
    let ClientConfig { window, max_key, max_value, .. } = *config;
    let first_read = (HEADER as u32 + max_key + max_value).min(FIRST_READ);
    PrismConfig { window, max_key, max_value, first_read, known: KNOWN }
}

impl KvDesign for PrismDesign {
    type Client = PrismClient;
    type Program = PrismServer;
    const EXTENSIONS: Extensions = Extensions { prism: true, strom: false, irn: false };

    fn needs(config: &ClientConfig) -> QueueNeeds {
        in_prism(config).needs()
    }

    fn arena_len(config: &ClientConfig) -> usize {
        in_prism(config).arena_len()
    }

    fn hello(config: &ClientConfig, _: &Registered) -> Hello {
        let replies = Remote { addr: 0, rkey: Key::new(0) };
        let design = Design::Prism;
        Hello { design, window: config.window, eager: 0, replies, reply_stride: 0, reply_len: 0 }
    }

    fn client(config: ClientConfig, grant: &[u8], arena: Registered) -> Result<PrismClient, SessionError> {
        PrismClient::new(in_prism(&config), &PrismGrant::decode(grant)?, arena)
    }

    fn program(limits: &Limits, size: Size, memory: &mut Memory) -> Result<PrismServer> {
        prism::open(limits, size, memory)
    }

    fn memory_for(limits: &Limits, contents: &Contents, further: u64) -> u64 {
        prism::bytes_for(limits, contents, further)
    }

    fn list(session: &mut Session<PrismDesign>, report: &mut Found<'_>) -> Result<()> {
        listing::by_reads(session, report)
    }

    fn read_lens(key_len: usize, value_len: usize) -> Option<(usize, usize)> {
        Some((HEADER + key_len + value_len, HEADER + key_len + value_len))
    }

    fn index_len(keys: u32, seed: u64) -> usize {
        Config::for_keys(keys, seed).table_len()
    }
}

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

    fn reopen(keys: u32, seed: u64, index: Option<Registered>, extents: Registered) -> Option<FarmTable> {
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

/// Maximum number of queue pairs for which a kernel's lookup may be under way at the same time.
const LANES: u32 = 64;
/// Bytes of memory for the kernel's answers, unless that is less than one answer per lane.
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

    fn deploy(limits: &Limits, memory: &mut Memory) -> Result<()> {
        let lanes = limits.clients.min(LANES);
        let longest = Strom::landing_len(limits.max_key as usize, limits.max_value as usize);
        let options = KernelOptions {
            opcode: Some(strom::OPCODE),
            longest: longest as u32,
            answers: ((ANSWERS / longest) as u32).clamp(lanes, 1024),
            ..KernelOptions::default()
        };
        memory.kernel((0..lanes).map(|_| Box::new(Get::default()) as Box<dyn Kernel>).collect(), options)
    }
}

/// Calls a function that is generic over the design of a [`Design`](crate::kv::Design).
#[macro_export]
macro_rules! with_design {
    ($design:expr, $function:ident($($argument:expr),*)) => {
        match $design {
            $crate::kv::Design::Pilaf => $function::<$crate::kv::PilafDesign>($($argument),*),
            $crate::kv::Design::Farm => $function::<$crate::kv::FarmDesign>($($argument),*),
            $crate::kv::Design::TwoSided => $function::<$crate::kv::TwoSidedDesign>($($argument),*),
            $crate::kv::Design::Prism => $function::<$crate::kv::PrismDesign>($($argument),*),
            $crate::kv::Design::Strom => $function::<$crate::kv::StromDesign>($($argument),*),
        }
    };
}
