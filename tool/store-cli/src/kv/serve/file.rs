//! A file of `key value` lines that is read twice: counted, then loaded.

use std::fs::File;
use std::io::{BufReader, Read, Seek as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use remora_service::kv::Contents;
use remora_store::load::Pairs;

use remora_options::output;

/// A file that is read twice.
pub struct Lines {
    file: File,
    /// As errors call it.
    pub name: String,
}

impl Lines {
    /// Of a file; of standard input for `-`, and of a pipe, by a copy, since neither can be read again.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> Result<Lines> {
        let (mut input, name, _) = output::input(path)?;
        let is_file = path != Path::new("-") && path.metadata().is_ok_and(|about| about.is_file());
        let file = if is_file {
            File::open(path).with_context(|| format!("opening {name}"))?
        } else {
            let mut copy = tempfile::tempfile().context("a file for a copy of what is read")?;
            std::io::copy(&mut input, &mut copy).with_context(|| format!("reading {name}"))?;
            copy
        };
        Ok(Lines { file, name })
    }

    /// The pairs of a store that takes keys and values of so many bytes, from the beginning; `read` stands
    /// between it and the file.
    ///
    /// # Errors
    /// The system's.
    pub fn pairs<R: Read>(
        &self,
        max_key: u32,
        max_value: u32,
        read: impl FnOnce(File) -> R,
    ) -> Result<Pairs<BufReader<R>>> {
        let mut file = self.file.try_clone()?;
        file.rewind().with_context(|| format!("reading {} again", self.name))?;
        Ok(Pairs::new(BufReader::new(read(file))).limited(max_key as usize, max_value as usize))
    }

    /// Counts them.
    ///
    /// # Errors
    /// Those of reading.
    pub fn count(&self, max_key: u32, max_value: u32, contents: &mut Contents) -> Result<()> {
        let mut pairs = self.pairs(max_key, max_value, |file| file)?;
        while let Some(pair) = pairs.next_pair().with_context(|| format!("reading {}", self.name))? {
            if let Ok(pair) = pair {
                contents.add(pair.key.len() + pair.value.len(), 1);
            }
        }
        Ok(())
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |about| about.len())
    }
}
