//! The repository's files, as the rules see them.

use crate::layers;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that are built, fetched or kept by other tools, never written by hand.
const FOREIGN: [&str; 4] = ["target", "report", "node_modules", "corpus"];

/// One text file.
#[derive(Debug, Clone)]
pub struct File {
    /// Relative to the root, with `/` on every system.
    pub path: String,
    /// Its whole text.
    pub text: String,
}

impl File {
    /// A file that exists only in a test.
    pub fn sample(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The folder of its crate: below a folder that groups crates the second of its path, else the first.
    pub fn member(&self) -> &str {
        self.parts().next().unwrap_or("")
    }

    /// The parts of its path from its crate's folder on.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        let mut parts = self.path.split('/').peekable();
        parts.next_if(|first| layers::is_folder(first));
        parts
    }

    /// Is it Rust source?
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Does it lie in a crate's `src/`, or is it a test, an example or a benchmark?
    pub fn is_source(&self) -> bool {
        self.is_rust() && self.parts().nth(1) == Some("src")
    }

    /// The module this source file is: its stem, or its folder for `mod.rs`.
    pub fn module(&self) -> &str {
        let mut parts = self.path.rsplit('/');
        let name = parts.next().unwrap_or("");
        let stem = name.strip_suffix(".rs").unwrap_or(name);
        if stem == "mod" { parts.next().unwrap_or("") } else { stem }
    }
}

/// The root of the repository this crate was built in.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tidy lies in a folder of the root").to_path_buf()
}

/// Every text file under `root`, in the order of their paths; files that are not UTF-8 are data and left out.
pub fn read(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let hidden = name.starts_with('.') && name != ".ci";
            if hidden || FOREIGN.contains(&name.as_str()) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                files.push(File { path: relative(root, &entry.path()), text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// `path` seen from `root`, with `/` between its parts.
pub fn relative(root: &Path, path: &Path) -> String {
    let inner = path.strip_prefix(root).unwrap_or(path);
    inner.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}
