//! The files of the repository as the rules use them.

use crate::layers;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folders that other tools build or fetch.
const FOREIGN: [&str; 4] = ["target", "report", "node_modules", "corpus"];

/// A text file of the repository.
#[derive(Debug, Clone)]
pub struct File {
    /// The path relative to the root, with `/` on every system.
    pub path: String,
    /// The whole text of the file.
    pub text: String,
}

impl File {
    /// Creates a file that exists only in a test.
    pub fn sample(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// Returns the folder of the crate: the second part of the path in a folder that groups crates, otherwise
    /// the first.
    pub fn member(&self) -> &str {
        self.parts().next().unwrap_or("")
    }

    /// Returns the parts of the path, beginning with the crate's folder.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        let mut parts = self.path.split('/').peekable();
        parts.next_if(|first| layers::is_folder(first));
        parts
    }

    /// Returns true for a Rust file.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns true if the file is in the `src/` folder of a crate, and so is no test, example or benchmark.
    pub fn is_source(&self) -> bool {
        self.is_rust() && self.parts().nth(1) == Some("src")
    }

    /// Returns the name of the file's module: its stem, or its folder for `mod.rs`.
    pub fn module(&self) -> &str {
        let mut parts = self.path.rsplit('/');
        let name = parts.next().unwrap_or("");
        let stem = name.strip_suffix(".rs").unwrap_or(name);
        if stem == "mod" { parts.next().unwrap_or("") } else { stem }
    }
}

/// Returns the root of the repository in which this crate was built.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tidy lies in a folder of the root").to_path_buf()
}

/// Reads every text file under `root`, in the order of the paths. Files that are not UTF-8 are left out.
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

/// Returns `path` relative to `root`, with `/` between its parts.
pub fn relative(root: &Path, path: &Path) -> String {
    let inner = path.strip_prefix(root).unwrap_or(path);
    inner.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}
