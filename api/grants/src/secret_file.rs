//! Files that hold secrets: nobody but their owner may read them.

use remora_verbs::rma::RegionKey;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use zeroize::Zeroizing;

use crate::hexadecimal::unhex;
use crate::{Error, Result};

/// Bytes of such a file at most.
const LONGEST: u64 = 64 << 10;

/// What a file holds that only its owner may read.
///
/// # Errors
/// `File`: it cannot be read, others can read it, or it is too long.
pub fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let shown = path.display();
    let refused = |error: std::io::Error| Error::File(format!("opening {shown}: {error}"));
    let file = File::open(path).map_err(refused)?;
    let about = file.metadata().map_err(refused)?;
    if about.is_file() && about.mode() & 0o077 != 0 {
        return Err(Error::File(format!("others can read the secret in {shown}: run `chmod 600 {shown}`")));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > LONGEST {
        return Err(Error::File(format!("{shown} is longer than {LONGEST} bytes: it holds no secret")));
    }
    Ok(bytes)
}

/// A text without the byte-order mark with which some editors begin it.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Makes such a file.
///
/// # Errors
/// `File`: it is there already, or cannot be made.
pub fn make_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let refused = |error: std::io::Error| Error::File(format!("making {}: {error}", path.display()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(refused)?;
    file.write_all(bytes).map_err(refused)
}

/// The region key in a file: 16 bytes, or 32 hexadecimal digits.
///
/// # Errors
/// `File`.
pub fn key_of_file(path: &Path) -> Result<RegionKey> {
    let bytes = read_secret(path)?;
    let plain = <[u8; 16]>::try_from(&bytes[..]).ok();
    let text = || std::str::from_utf8(without_mark(&bytes)).ok().and_then(|text| unhex(text.trim()));
    plain.or_else(text).and_then(RegionKey::new).ok_or_else(|| {
        let shown = path.display();
        Error::File(format!("{shown} holds no key: it takes 16 bytes or 32 hexadecimal digits, not all zero"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_bytes_or_digits_and_nobody_else_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let holds = |bytes: &[u8]| {
            let _ = std::fs::remove_file(&path);
            make_secret(&path, bytes).unwrap();
            key_of_file(&path)
        };
        assert!(holds(&[7; 16]).unwrap() == RegionKey::new([7; 16]).unwrap());
        assert!(holds(b"07070707070707070707070707070707\n").unwrap() == RegionKey::new([7; 16]).unwrap());
        let marked = "\u{feff}07070707070707070707070707070707\n".as_bytes();
        assert!(holds(marked).unwrap() == RegionKey::new([7; 16]).unwrap());
        for bad in [&[0; 16][..], b"", &[7; 17], b"00000000000000000000000000000000"] {
            assert!(holds(bad).unwrap_err().to_string().contains("holds no key"), "{bad:?}");
        }
        holds(&[7; 16]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(key_of_file(&path).unwrap_err().to_string().contains("chmod 600"));
    }
}
