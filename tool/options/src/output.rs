//! Files that a command writes. An existing file is replaced only when the new content is complete.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::{Builder, NamedTempFile};

/// A file that a command will write, with all symbolic links followed.
#[derive(Clone, Debug)]
pub struct Output {
    /// Path as given on the command line.
    name: PathBuf,
    /// Path after following all links.
    path: PathBuf,
    /// Metadata of the existing file, or `None` if there is none.
    old: Option<Metadata>,
}

/// Largest number of symbolic links that are followed, as in Linux.
const LINKS: usize = 40;

impl Output {
    /// Resolves the name and checks that it can be written. Changes nothing.
    ///
    /// # Errors
    /// Fails if the name is a folder, its folder does not exist, or its metadata cannot be read.
    pub fn find(name: &Path) -> Result<Output> {
        let mut path = name.to_owned();
        for _ in 0..LINKS {
            let Ok(next) = fs::read_link(&path) else { break };
            path = folder_of(&path).join(next);
        }
        let shown = name.display();
        let old = match fs::metadata(&path) {
            Ok(old) if old.is_dir() => bail!("{shown} is a folder: name a file"),
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("{shown} cannot be written")),
        };
        let folder = folder_of(&path);
        if !folder.is_dir() {
            bail!("{shown} cannot be written: there is no folder {}, make it first", folder.display());
        }
        Ok(Output { name: name.to_owned(), path, old })
    }

    /// Returns the path of the file after following links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the file after following links.
    pub fn folder(&self) -> &Path {
        folder_of(&self.path)
    }

    /// Returns whether the output is a pipe, a device or a socket. A stream is written to and never
    /// replaced.
    pub fn is_stream(&self) -> bool {
        self.old.as_ref().is_some_and(|old| !old.is_file())
    }

    /// Writes the bytes: replaces a regular file as a whole, or writes to a stream.
    ///
    /// # Errors
    /// Fails if the system cannot write the output.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        self.put(bytes).with_context(|| format!("writing {}", self.name.display()))
    }

    fn put(&self, bytes: &[u8]) -> Result<()> {
        if self.is_stream() {
            return Ok(OpenOptions::new().write(true).open(&self.path)?.write_all(bytes)?);
        }
        let mut new = self.temporary(&Builder::new())?;
        new.write_all(bytes)?;
        self.take(new)
    }

    /// Moves the content of `file` to this output. `file` no longer exists afterwards.
    ///
    /// # Errors
    /// Fails if the system cannot write the output.
    pub fn take_file(&self, file: &Path) -> Result<()> {
        let taken = if self.is_stream() {
            let copy = || -> io::Result<()> {
                io::copy(&mut File::open(file)?, &mut OpenOptions::new().write(true).open(&self.path)?)?;
                fs::remove_file(file)
            };
            copy().map_err(anyhow::Error::from)
        } else {
            self.keep_mode(file).and_then(|()| fs::rename(file, &self.path)).map_err(anyhow::Error::from)
        };
        taken.with_context(|| format!("writing {}", self.name.display()))
    }

    /// Creates a temporary file in the same folder.
    fn temporary(&self, builder: &Builder<'_, '_>) -> io::Result<NamedTempFile> {
        builder.tempfile_in(self.folder())
    }

    fn take(&self, new: NamedTempFile) -> Result<()> {
        self.keep_mode(new.path())?;
        new.persist(&self.path)?;
        Ok(())
    }

    /// Gives the new file the mode of the old one, or the default mode if there is no old file.
    fn keep_mode(&self, file: &Path) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = match &self.old {
            Some(old) => old.permissions(),
            None => fs::Permissions::from_mode(0o666 & !mask()),
        };
        fs::set_permissions(file, mode)
    }
}

/// Returns the file mode creation mask. It is read from `/proc`, since umask(2) can only return it by
/// changing it.
fn mask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}

/// Returns the folder of a path.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Writes the bytes to a path: replaces a regular file as a whole, or writes to a pipe or device.
///
/// # Errors
/// Fails if the system cannot write the file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Output::find(path)?.write(bytes)
}

/// Creates a folder, and its parents, for the output of a command.
///
/// # Errors
/// Fails if the folder cannot be created.
pub fn folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("creating the folder {}", path.display()))
}

/// Default folder for plots and pages. Git ignores it; the figures that the repository keeps change only with
/// `--report report`.
pub const REPORT: &str = "report/latest";

/// Opens standard input for `-`, otherwise the file. Also returns the name of the input for error messages,
/// and its length in bytes (0 for standard input).
///
/// # Errors
/// Fails if the file cannot be opened.
pub fn input(path: &Path) -> Result<(Box<dyn Read>, String, u64)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), "standard input".to_owned(), 0));
    }
    let shown = path.display().to_string();
    let file = File::open(path).with_context(|| format!("opening {shown}"))?;
    let about = file.metadata().with_context(|| format!("opening {shown}"))?;
    if about.is_dir() {
        bail!("{shown} is a folder: name a file");
    }
    Ok((Box::new(file), shown, about.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};

    fn names(folder: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let mut reader = File::open(&path).unwrap();
        write(&path, b"new").unwrap();
        let mut old = String::new();
        reader.read_to_string(&mut old).unwrap();
        assert_eq!((old.as_str(), fs::read(&path).unwrap().as_slice()), ("old", &b"new"[..]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(folder.path()), ["file"], "nothing is left beside it");
    }

    #[test]
    fn a_new_file_may_be_read_by_whom_the_mask_lets() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("ours");
        let theirs = folder.path().join("theirs");
        write(&ours, b"").unwrap();
        File::create(&theirs).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&theirs));
    }

    #[test]
    fn links_are_followed_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = |name: &str| folder.path().join(name);
        symlink("second", path_of("first")).unwrap();
        symlink("file", path_of("second")).unwrap();
        write(&path_of("first"), b"new").unwrap();
        fs::write(path_of("made"), b"more").unwrap();
        Output::find(&path_of("first")).unwrap().take_file(&path_of("made")).unwrap();
        assert_eq!(fs::read(path_of("file")).unwrap(), b"more");
        assert_eq!(names(folder.path()), ["file", "first", "second"]);
        assert!(fs::symlink_metadata(path_of("first")).unwrap().is_symlink());
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        let null = Path::new("/dev/null");
        write(null, b"nothing").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        fs::write(&made, b"more").unwrap();
        Output::find(null).unwrap().take_file(&made).unwrap();
        assert!(fs::metadata(null).unwrap().file_type().is_char_device() && !made.exists());
    }

    #[test]
    fn what_cannot_be_written_is_told_in_words() {
        let error_text = |path: &str| format!("{:#}", Output::find(Path::new(path)).unwrap_err());
        assert!(error_text("/none/such/file").contains("there is no folder /none/such, make it first"));
        assert!(error_text("/tmp").contains("is a folder"));
    }
}
