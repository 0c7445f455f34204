//! The option `--workload`: a letter of YCSB's core workloads, or a file in YCSB's format.

use std::path::Path;

use anyhow::{Context as _, Result};
use remora_store::ycsb::{Mix, Properties};

/// A workload and the size of the table, as its file states it.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The shares of the operations and the distribution of the keys.
    pub mix: Mix,
    /// The letter, or the name of the file without its folder.
    pub name: String,
    /// Number of records; `None` if the file does not state it.
    pub records: Option<u64>,
    /// Number of operations; `None` if the file does not state it.
    pub operations: Option<u64>,
    /// The length of a value in bytes; `None` without a file.
    pub value_len: Option<u32>,
}

impl From<Mix> for Chosen {
    fn from(mix: Mix) -> Chosen {
        let name = mix.name.to_ascii_lowercase().to_string();
        Chosen { mix, name, records: None, operations: None, value_len: None }
    }
}

/// Parses the option without reading a file.
///
/// # Errors
/// Fails if a single letter names no workload.
pub fn option(text: &str) -> Result<String, String> {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if Mix::named(letter).is_none() => {
            Err("YCSB's workloads are A to F; a file has a longer name, such as ./g".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

/// Returns the workload of the option: a letter from A to F, otherwise the path of a file.
///
/// # Errors
/// Fails if the file does not exist or is not a workload; the error names the line and the fault.
pub fn choose(text: &str) -> Result<Chosen> {
    let mut letters = text.chars();
    if let (Some(letter), None) = (letters.next(), letters.next())
        && let Some(mix) = Mix::named(letter)
    {
        return Ok(mix.into());
    }
    let path = Path::new(text);
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("a workload is a letter from A to F, or a file: {}", path.display()))?;
    let properties = Properties::parse(&text).with_context(|| path.display().to_string())?;
    if !properties.ignored.is_empty() {
        tracing::info!(file = %path.display(), ignored = properties.ignored.join(" "), "properties without meaning here");
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Properties { mix, records, operations, value_len, .. } = properties;
    Ok(Chosen { mix, name, records, operations, value_len: Some(value_len) })
}
