//! Temporary folders that one process owns.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use super::sweep;
use crate::environment;

/// The folders in which a temporary folder is tried, in order: `TMPDIR`, the folder of the user's session,
/// and three more. In a container with a read-only root, `/dev/shm` is writable.
fn places() -> Vec<PathBuf> {
    let session =
        environment::variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|place| place.is_absolute());
    let mut places = vec![environment::temporary_folder()];
    places.extend(session.into_iter().chain(["/tmp", "/dev/shm", "/var/tmp"].map(PathBuf::from)));
    places
}

/// A fresh folder that no other user can have created. Dropping it removes it. If this process is killed,
/// the next process of its user that creates such a folder removes it.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    /// A file in the folder, locked while the folder is in use.
    _lock: File,
}

impl PrivateFolder {
    /// Creates a folder below `TMPDIR`, `XDG_RUNTIME_DIR`, `/tmp`, `/dev/shm` or `/var/tmp`: the first of
    /// them that `accepts` takes and that is writable.
    ///
    /// # Errors
    /// The error of the first place, if no folder can be created.
    pub fn new(accepts: impl Fn(&Path) -> bool) -> io::Result<PrivateFolder> {
        let places: Vec<PathBuf> = places().into_iter().filter(|place| accepts(place)).collect();
        PrivateFolder::in_one_of(&places)
    }

    fn in_one_of(places: &[PathBuf]) -> io::Result<PrivateFolder> {
        let mut first = None;
        for place in places {
            match PrivateFolder::below(place) {
                Ok(folder) => return Ok(folder),
                Err(error) => drop(first.get_or_insert((place, error))),
            }
        }
        Err(first.map_or_else(
            || io::ErrorKind::NotFound.into(),
            |(place, error)| io::Error::new(error.kind(), format!("{}: {error}", place.display())),
        ))
    }

    fn below(place: &Path) -> io::Result<PrivateFolder> {
        // Resolved, because paths that the system has resolved are compared with it.
        let place = fs::canonicalize(place)?;
        sweep::sweep_in(&place);
        let path = fresh(&place)?;
        match sweep::lock(&path) {
            Ok(lock) => Ok(PrivateFolder { path, _lock: lock }),
            Err(error) => {
                let _ = fs::remove_dir_all(&path);
                Err(error)
            }
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn fresh(place: &Path) -> io::Result<PathBuf> {
    let pattern = place.join(format!("{}XXXXXX", sweep::BEGIN));
    let mut bytes = CString::new(pattern.as_os_str().as_bytes())?.into_bytes_with_nul();
    // SAFETY: a C string, whose last six characters are changed.
    if unsafe { libc::mkdtemp(bytes.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    bytes.pop();
    Ok(OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_goes_where_a_folder_takes_it_and_the_error_is_that_of_the_first() {
        let none = ["/no/such/folder", "/proc"].map(PathBuf::from);
        let words = PrivateFolder::in_one_of(&none).unwrap_err().to_string();
        assert!(words.starts_with("/no/such/folder: "), "{words}");
        let made = PrivateFolder::in_one_of(&[none[0].clone(), std::env::temp_dir()]).unwrap();
        assert!(made.path().starts_with(std::fs::canonicalize(std::env::temp_dir()).unwrap()));
    }

    /// Regression: where `/tmp` cannot be written to, no program had device paths.
    #[test]
    fn a_folder_is_in_the_first_place_that_is_accepted_and_can_be_written_to() {
        let folder = PrivateFolder::new(|place| place.starts_with("/dev/shm")).unwrap();
        let path = folder.path().to_owned();
        assert!(path.starts_with("/dev/shm") && path.is_dir());
        drop(folder);
        assert!(!path.exists());
        assert!(PrivateFolder::new(|_| false).is_err());
        assert!(PrivateFolder::below(Path::new("/proc")).is_err(), "/proc is not writable");
    }
}
