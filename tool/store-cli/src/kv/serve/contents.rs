//! The initial contents of the table: YCSB records and a file.

use anyhow::{Result, anyhow, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use remora_service::kv::{Contents, KvDesign, Loads, Size};
use remora_store::kv::Refusal;
use remora_store::ycsb::record::{self, Values};

use super::args::ServeArgs;
use super::file::Lines;
use crate::kv::load::{Stored, store_all};

/// Opens the file and returns the size of the table for its initial contents.
pub(super) fn begins_with<D: KvDesign>(args: &ServeArgs) -> Result<(Size, Option<Lines>)> {
    let len = args.value_len;
    let most = args.max_value;
    ensure!(args.records == 0 || len <= most, "--value-len is {len}, more than --max-value allows: {most}");
    let file = args.file.as_deref().map(Lines::open).transpose()?;
    let mut contents = Contents::default();
    contents.add(record::KEY_LEN + len as usize, args.records);
    if let Some(file) = &file {
        file.count(args.max_key, most, &mut contents)?;
    }
    Ok((Size::fresh::<D>(&args.limits(), contents, args.capacity, args.memory)?, file))
}

/// Stores the initial contents.
pub(super) fn load(args: &ServeArgs, file: Option<&Lines>, program: &mut impl Loads) -> Result<()> {
    load_records(args, program)?;
    if let Some(file) = file {
        load_file(args, file, program)?;
    }
    Ok(())
}

pub(super) fn bar(len: u64, message: &str) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {eta}")?;
    Ok(ProgressBar::new(len).with_style(style).with_message(message.to_owned()))
}

pub(super) fn load_records(args: &ServeArgs, program: &mut impl Loads) -> Result<()> {
    let values = Values::fixed(args.value_len);
    let mut value = vec![0; args.value_len as usize];
    let bar = bar(args.records, "loading records")?;
    for record in 0..args.records {
        let len = values.fill(record, 0, &mut value);
        program.load(&record::key(record), &value[..len]).map_err(|refusal| {
            anyhow::anyhow!("cannot store record {record}: {refusal}; increase --capacity or --memory")
        })?;
        if record % 8192 == 0 {
            bar.set_position(record);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

pub(super) fn load_file(args: &ServeArgs, file: &Lines, program: &mut impl Loads) -> Result<()> {
    let bar = bar(file.len(), "loading the file")?;
    let pairs = file.pairs(args.max_key, args.max_value, |file| bar.wrap_read(file))?;
    let (loaded, bad) =
        store_all(pairs, &file.name, &bar, |pair| match program.load(pair.key, pair.value) {
            Ok(()) => Ok(Stored::Yes),
            Err(Refusal::TooLong) => Ok(Stored::No(Refusal::TooLong.to_string())),
            Err(refusal) => Err(anyhow!("{refusal}; increase --capacity or --memory")),
        })?;
    if bad > 0 {
        eprintln!("{}: {bad} lines were left out, {loaded} loaded", file.name);
    }
    Ok(())
}
