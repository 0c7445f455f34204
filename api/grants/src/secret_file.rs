//! Files that hold secrets and that only their owner may read.

use remora_verbs::rma::RegionKey;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use zeroize::Zeroizing;

use crate::hexadecimal::unhex;
use crate::{Error, Result};

/// The maximum size of a secret file in bytes.
const LONGEST: u64 = 64 << 10;

/// Reads a file that holds a secret. A regular file must not be accessible to group and others.
///
/// # Errors
/// `File` if the file cannot be read, other users have access to it, or it has more than 64 KiB.
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

/// Returns the text without a leading UTF-8 byte-order mark, which some editors write.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Creates a file with the given contents that only its owner can read and write.
///
/// # Errors
/// `File` if the file exists already or cannot be written.
pub fn make_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let refused = |error: std::io::Error| Error::File(format!("making {}: {error}", path.display()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(refused)?;
    file.write_all(bytes).map_err(refused)
}

/// Reads a region key from a file that holds 16 bytes or 32 hexadecimal digits.
///
/// # Errors
/// `File` if the file cannot be read, or holds no key; a key of zeros is not valid.
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
