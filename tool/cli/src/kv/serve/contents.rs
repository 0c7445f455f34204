//! What a table begins with, counted before there is memory for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use remora_store::load::Pairs;

use crate::output;

/// Objects by their bytes of key and value: so much memory is taken in each design, whose buffers or lines
/// have sizes of their own.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Bytes, up to the next multiple of [`STEP`], and how many have so many.
    lens: BTreeMap<u32, u64>,
}

/// Bytes that make no difference: headers and buffers of all designs are multiples of it. So a count of any
/// file is small.
const STEP: usize = 8;

/// Bytes of an object beside key and value, and of those the payload of a line of 64 bytes, where that is
/// least.
const HEADER: u64 = 64;
const PAYLOAD: u64 = 56;
/// For the longest object, wherever it comes to lie.
const SPARE: u64 = 4 << 20;

impl Contents {
    /// So many more objects with so many bytes of key and value.
    pub fn add(&mut self, bytes: usize, count: u64) {
        if count > 0 {
            *self.lens.entry(bytes.next_multiple_of(STEP) as u32).or_default() += count;
        }
    }

    /// All objects.
    pub fn count(&self) -> u64 {
        self.lens.values().sum()
    }

    /// Bytes of key and value, and how many objects have so many.
    pub fn lens(&self) -> impl Iterator<Item = (u32, u64)> {
        self.lens.iter().map(|(bytes, count)| (*bytes, *count))
    }

    /// Bytes that they take at most in any of the designs whose objects lie in runs of lines: runs may be an
    /// eighth longer, and an eighth is for the gaps between them and to overwrite.
    pub fn bytes(&self) -> u64 {
        let lines = |(bytes, count): (u32, u64)| (u64::from(bytes) + HEADER).div_ceil(PAYLOAD) * count;
        let lines: u64 = self.lens().map(lines).sum();
        lines * 64 * 81 / 64 + SPARE
    }
}

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
        (max_key, max_value): (u32, u32),
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
    pub fn count(&self, limits: (u32, u32), contents: &mut Contents) -> Result<()> {
        let mut pairs = self.pairs(limits, |file| file)?;
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
