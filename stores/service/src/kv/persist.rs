//! A server whose NIC and memory are kept by a NIC daemon, so that the next server process continues where
//! this one ended.

use std::path::Path;
use std::rc::Rc;

use remora_verbs::{Access, Context, Device};

use super::{Contents, KvDesign, Limits, Loads, Size};
use crate::error::{Context as _, need};
use crate::server::{Left, Memory, Service};
use crate::{Error, Result};

/// Name of the region that stores the size of the table. It is written after the table was loaded.
const SIZE: &str = "the size of the table";
/// Bytes of that region: validity word, number of keys, bytes for keys and values, seed.
const LEN: usize = 32;
/// The validity word of a loaded table.
const LOADED: u64 = u64::from_le_bytes(*b"loaded01");

/// The state that a daemon keeps for a server, before it is used.
pub struct Kept {
    context: Context,
    memory: Memory,
    left: Left,
    size: Option<Size>,
}

impl Kept {
    /// Attaches to the daemon at `socket`, which keeps NIC and memory under `name`. Unless
    /// [`resume`](Kept::resume) or [`begin`](Kept::begin) succeeds, the daemon keeps everything unchanged.
    ///
    /// # Errors
    /// No daemon listens there, or the NIC refuses.
    pub fn open(socket: &Path, name: &str) -> Result<Kept> {
        let context = Device::nicd(socket).keep(name).open().context("attaching to a NIC")?;
        // The kept state stays until the server serves, so that wrong arguments do not destroy a table.
        context.leave();
        let (memory, left) = Memory::kept(&context)?;
        let size = size(&memory);
        Ok(Kept { context, memory, left, size })
    }

    /// Returns true if the previous server left a table.
    pub fn has_table(&self) -> bool {
        self.size.is_some()
    }

    /// Continues with the table and the clients of the previous server. Returns the number of clients.
    ///
    /// # Errors
    /// `Config`: there is no table, or it is of another design or size.
    pub fn resume<D: KvDesign>(self, limits: &Limits) -> Result<(Service<D::Program>, usize)> {
        let Kept { context, mut memory, left, size } = self;
        let size = need!(size, Config, "no server has left a table there");
        let program = D::program(limits, size, &mut memory)?;
        context.stay();
        // Regions that are no longer used are freed; the one with the size of the table is kept.
        let known = memory.kept.iter().position(|(name, _)| name == SIZE);
        memory.regions.extend(known.map(|index| memory.kept.swap_remove(index).1));
        memory.kept.clear();
        let mut service =
            Service::over(context, program, memory, left.queue, limits.clients, limits.extensions::<D>())?;
        let clients = service.adopt(left.pairs)?;
        Ok((service, clients))
    }

    /// Creates a new table, which `load` fills.
    ///
    /// # Errors
    /// There is not enough memory, or `load` returns an error.
    pub fn begin<D: KvDesign, E: From<Error>>(
        self,
        limits: &Limits,
        size: &Size,
        load: impl FnOnce(&mut D::Program) -> Result<(), E>,
    ) -> Result<Service<D::Program>, E> {
        let Kept { context, mut memory, left, .. } = self;
        // A server that died while it loaded left nothing usable.
        context.stay();
        drop(left);
        memory.kept.clear();
        let mut program = D::program(limits, size.clone(), &mut memory)?;
        load(&mut program)?;
        program.loaded()?;
        note(&mut memory, size)?;
        Ok(Service::new(context, program, memory, limits.clients, limits.extensions::<D>())?)
    }
}

/// Returns the size of the kept table.
fn size(memory: &Memory) -> Option<Size> {
    let (_, region) = memory.kept.iter().find(|(name, _)| name == SIZE)?;
    let word = |offset: usize| region.get::<u64>(offset).ok();
    if word(0)? != LOADED {
        return None;
    }
    let capacity = u32::try_from(word(8)?).ok()?;
    let bytes = usize::try_from(word(16)?).ok()?;
    Some(Size { capacity, bytes, seed: word(24)?, reopened: true, contents: Rc::new(Contents::default()) })
}

/// Stores the size of the table, after everything else is complete.
fn note(memory: &mut Memory, size: &Size) -> Result<()> {
    memory.region(SIZE, LEN, Access::LOCAL_WRITE)?;
    let region = need!(memory.regions.last(), Config, "the region");
    region.put(8, &u64::from(size.capacity))?;
    region.put(16, &(size.bytes as u64))?;
    region.put(24, &size.seed)?;
    region.put(0, &LOADED)?;
    Ok(())
}
