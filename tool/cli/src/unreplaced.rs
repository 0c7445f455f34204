//! Recognises programs into which the dynamic linker does not load Remora's libraries, by their executable
//! file.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Number of bytes read from a file. They include the ELF header and the program headers that common
/// linkers write.
const BEGIN: u64 = 4096;
/// `PT_INTERP`: the segment that names the dynamic linker.
const INTERPRETER: u32 = 3;
/// Mode bits set-user-ID and set-group-ID.
const OTHER_RIGHTS: u32 = 0o6000;

/// Returns the reason why the program will find no Remora device, or `None` if no reason is known.
pub(crate) fn reason(program: &OsStr) -> Option<String> {
    let path = found(program, &std::env::var_os("PATH").unwrap_or_default())?;
    let file = File::open(&path).ok()?;
    let metadata = file.metadata().ok()?;
    let mut begin = Vec::new();
    file.take(BEGIN).read_to_end(&mut begin).ok()?;
    let words = if has_other_rights(&metadata) {
        "runs with the rights of another user (set-user-ID), so that the dynamic linker loads no library of Remora's into it; run \
         `remora run` with those rights"
    } else if is_static(&begin)? {
        "is linked statically, so that no library of Remora's is loaded into it"
    } else {
        return None;
    };
    Some(format!(
        "{} {words}: it finds no device (docs/guides/drop-in.md, What it cannot reach)",
        path.display()
    ))
}

/// Returns the file that the shell would execute for this name.
fn found(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

fn has_other_rights(metadata: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    metadata.mode() & OTHER_RIGHTS != 0 && metadata.uid() != own
}

/// Returns whether a 64-bit ELF file names no dynamic linker. `None` for any other kind of file, such as a
/// script, and if the program headers lie beyond `file`.
fn is_static(file: &[u8]) -> Option<bool> {
    let is_elf = file.starts_with(b"\x7fELF\x02\x01");
    let number = |offset: usize| Some(u16::from_le_bytes(file.get(offset..offset + 2)?.try_into().ok()?));
    let headers = usize::try_from(u64::from_le_bytes(file.get(32..40)?.try_into().ok()?)).ok()?;
    let size = usize::from(number(54).filter(|size| is_elf && *size > 0)?);
    let mut all = (0..usize::from(number(56)?)).map(|index| {
        let offset = headers.checked_add(index * size)?;
        Some(u32::from_le_bytes(file.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
    });
    // An unread program header could name the dynamic linker, so the result is then `None`.
    all.try_fold(true, |none, kind| Some(none && kind? != INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_program_is_known_by_its_headers_and_no_bytes_are_a_fault() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let begin = &own[..BEGIN as usize];
        assert_eq!(is_static(begin), Some(false));
        let mut none = begin.to_vec();
        let headers = usize::from(none[32]);
        let size = usize::from(none[54]);
        for index in 0..usize::from(none[56]) {
            if none[headers + index * size] == INTERPRETER as u8 {
                none[headers + index * size] = 4;
            }
        }
        assert_eq!(is_static(&none), Some(true));
        assert_eq!(is_static(b"#!/bin/sh\n"), None);
        for len in 0..begin.len() {
            assert_ne!(is_static(&begin[..len]), Some(true), "{len} bytes of it");
        }
        none[32..40].copy_from_slice(&[0xff; 8]);
        assert_eq!(is_static(&none), None);
    }

    #[test]
    fn a_name_without_a_slash_is_looked_for_in_path() {
        let shell = found(OsStr::new("sh"), OsStr::new("/no/such:/bin:/usr/bin"));
        assert_eq!(shell.as_deref(), Some(Path::new("/bin/sh")));
        assert_eq!(found(OsStr::new("./sh"), OsStr::new("/bin")), Some("./sh".into()));
        assert_eq!(found(OsStr::new("no-such-program"), OsStr::new("/bin")), None);
    }
}
