//! A file of `key value` lines that is read twice: to count the pairs, and to load them.

use std::fs::File;
use std::io::{BufReader, Read, Seek as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use remora_service::kv::Contents;
use remora_store::load::Pairs;

use remora_options::output;

/// A file of `key value` lines that can be read several times.
pub(crate) struct Lines {
    file: File,
    /// Name for error messages.
    pub name: String,
}

impl Lines {
    /// Opens a file. Standard input (`-`) and pipes cannot be read twice and are copied to a temporary
    /// file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or copied.
    pub(crate) fn open(path: &Path) -> Result<Lines> {
        let (mut input, name, _) = output::input(path)?;
        let is_file = path != Path::new("-") && path.metadata().is_ok_and(|about| about.is_file());
        let file = if is_file {
            File::open(path).with_context(|| format!("opening {name}"))?
        } else {
            let mut copy = tempfile::tempfile().context("creating a temporary file for the input")?;
            std::io::copy(&mut input, &mut copy).with_context(|| format!("reading {name}"))?;
            copy
        };
        Ok(Lines { file, name })
    }

    /// Returns the pairs from the beginning of the file. Longer keys or values than `max_key` and
    /// `max_value` bytes are invalid lines. `read` wraps the file, for example with a progress bar.
    ///
    /// # Errors
    /// Fails if the file cannot be read again.
    pub(crate) fn pairs<R: Read>(
        &self,
        max_key: u32,
        max_value: u32,
        read: impl FnOnce(File) -> R,
    ) -> Result<Pairs<BufReader<R>>> {
        let mut file = self.file.try_clone()?;
        file.rewind().with_context(|| format!("reading {} again", self.name))?;
        Ok(Pairs::new(BufReader::new(read(file))).limited(max_key as usize, max_value as usize))
    }

    /// Adds all valid pairs to `contents`.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn count(&self, max_key: u32, max_value: u32, contents: &mut Contents) -> Result<()> {
        let mut pairs = self.pairs(max_key, max_value, |file| file)?;
        while let Some(pair) = pairs.next_pair().with_context(|| format!("reading {}", self.name))? {
            if let Ok(pair) = pair {
                contents.add(pair.key.len() + pair.value.len(), 1);
            }
        }
        Ok(())
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |about| about.len())
    }
}
