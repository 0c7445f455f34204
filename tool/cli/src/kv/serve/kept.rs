//! A server whose NIC and memory are a daemon's: the next one goes on where it ended.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result};
use remora_verbs::{Access, Context, Device};

use super::{Contents, Plan, ServeArgs};
use crate::kv::{KvDesign, Size};
use crate::serving::Service;
use crate::serving::again::Left;
use crate::serving::program::Memory;

/// The region that says how large the table is; written when the table is loaded.
const SIZE: &str = "the size of the table";
/// Its bytes: whether the rest holds, keys, bytes for keys and values, seed.
const LEN: usize = 32;
/// The table is loaded.
const LOADED: u64 = u64::from_le_bytes(*b"loaded01");

/// Opens the table that the server before left, with its clients; or a new one, which `load` fills.
pub fn open<D: KvDesign>(
    args: &ServeArgs,
    (socket, name): (&Path, &str),
    plan: &Plan,
) -> Result<Service<D::Program>> {
    let context = Device::nicd(socket).keep(name).open().context("attaching to a NIC")?;
    // Until it serves: words that do not fit shall cost nobody a table.
    context.leave();
    let (mut memory, left) = Memory::kept(&context)?;
    match size(&memory) {
        Some(size) => {
            let unheeded = [
                (args.records > 0, "--records"),
                (args.file.is_some(), "--file"),
                (args.capacity.is_some(), "--capacity"),
                (args.memory.is_some(), "--memory"),
            ];
            for (_, option) in unheeded.iter().filter(|(given, _)| *given) {
                eprintln!("{option} is left out: the table of the server before is kept");
            }
            let program = D::program(args, size, &mut memory)?;
            context.stay();
            resume(args, context, program, memory, left, D::SPEAKS)
        }
        None => {
            // A server that died while it loaded left nothing of use.
            context.stay();
            drop(left);
            memory.kept.clear();
            let mut program = D::program(args, plan.size.clone(), &mut memory)?;
            plan.load(args, &mut program)?;
            note(&mut memory, &plan.size)?;
            Service::new(context, program, memory, args.clients, D::SPEAKS)
        }
    }
}

fn resume<P: crate::serving::program::Program>(
    args: &ServeArgs,
    context: Context,
    program: P,
    mut memory: Memory,
    left: Left,
    speaks: crate::serving::Speaks,
) -> Result<Service<P>> {
    // What is not used any more goes; how large the table is stays.
    let known = memory.kept.iter().position(|(name, _)| name == SIZE);
    memory.regions.extend(known.map(|at| memory.kept.swap_remove(at).1));
    memory.kept.clear();
    let mut service = Service::over(context, program, (memory, left.queue), args.clients, speaks)?;
    let clients = service.adopt(left.pairs)?;
    eprintln!("goes on where the server before it ended, with {clients} of its clients");
    Ok(service)
}

/// How large the table is that was kept.
fn size(memory: &Memory) -> Option<Size> {
    let (_, region) = memory.kept.iter().find(|(name, _)| name == SIZE)?;
    let word = |at: usize| region.get::<u64>(at).ok();
    if word(0)? != LOADED {
        return None;
    }
    let (capacity, bytes) = (u32::try_from(word(8)?).ok()?, usize::try_from(word(16)?).ok()?);
    Some(Size { capacity, bytes, seed: word(24)?, again: true, contents: Rc::new(Contents::default()) })
}

/// Notes it, when all else is there.
fn note(memory: &mut Memory, size: &Size) -> Result<()> {
    memory.region(SIZE, LEN, Access::LOCAL_WRITE)?;
    let region = memory.regions.last().context("the region")?;
    region.put(8, &u64::from(size.capacity))?;
    region.put(16, &(size.bytes as u64))?;
    region.put(24, &size.seed)?;
    region.put(0, &LOADED)?;
    Ok(())
}
