//! Which paths are the device's. All of it is arithmetic on bytes.

/// The folders that the device has, as the tree has them.
const FOLDERS: [&[u8]; 3] = [b"/sys/class/infiniband_verbs", b"/sys/class/infiniband", b"/dev/infiniband"];
/// What a path begins with that may be one of them, relative to `/`, `/sys`, `/sys/class` or `/dev`.
const RELATIVE: [&[u8]; 4] = [b"sys/class/infiniband", b"class/infiniband", b"infiniband", b"dev/infiniband"];
/// The folders of counters, below one of the device's.
const COUNTERS: [&[u8]; 2] = [b"counters", b"hw_counters"];
/// What stands before them in a path of the device's.
const PORT: &[u8] = b"/remora0/ports/1/";

/// A path of the device's: one of its folders, and what follows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Own<'a> {
    pub folder: &'static [u8],
    pub rest: &'a [u8],
}

/// What is left of `path` behind `folder`. Any number of slashes counts as one.
fn behind<'a>(mut path: &'a [u8], folder: &[u8]) -> Option<&'a [u8]> {
    for byte in folder {
        path = path.strip_prefix(std::slice::from_ref(byte))?;
        if *byte == b'/' {
            while let [b'/', rest @ ..] = path {
                path = rest;
            }
        }
    }
    (path.is_empty() || path[0] == b'/').then_some(path)
}

/// Does a path stay below where it begins?
fn stays_below(rest: &[u8]) -> bool {
    let mut depth = 0i32;
    rest.split(|byte| *byte == b'/').all(|component| {
        depth += match component {
            b"" | b"." => 0,
            b".." => -1,
            _ => 1,
        };
        depth >= 0
    })
}

/// The device's part of an absolute path; `None`: it is somebody else's.
pub fn own(path: &[u8]) -> Option<Own<'_>> {
    let found = FOLDERS.iter().find_map(|folder| Some(Own { folder, rest: behind(path, folder)? }))?;
    stays_below(found.rest).then_some(found)
}

/// May this relative path be one of the device's, seen from the right folder?
pub fn may_be_own(path: &[u8]) -> bool {
    let mut path = path;
    while let [b'.', b'/', rest @ ..] = path {
        path = rest;
    }
    RELATIVE.iter().any(|begin| path.starts_with(begin))
}

/// The counter that a path names: its file below the port's folder.
pub fn counter<'a>(own: &Own<'a>) -> Option<&'a [u8]> {
    let name = own.rest.strip_prefix(PORT).filter(|_| own.folder == FOLDERS[1])?;
    let slash = name.iter().position(|byte| *byte == b'/')?;
    let (folder, file) = (&name[..slash], &name[slash + 1..]);
    let is_file = !file.is_empty() && !file.contains(&b'/') && file != b"." && file != b"..";
    (COUNTERS.contains(&folder) && is_file).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(path: &str) -> Option<(&'static [u8], &[u8])> {
        own(path.as_bytes()).map(|own| (own.folder, own.rest))
    }

    #[test]
    fn the_devices_folders_are_its_own_and_their_neighbours_are_not() {
        assert_eq!(rest("/sys/class/infiniband"), Some((FOLDERS[1], &b""[..])));
        assert_eq!(rest("//sys//class/infiniband//remora0"), Some((FOLDERS[1], &b"//remora0"[..])));
        assert_eq!(rest("/sys/class/infiniband_verbs/uverbs0"), Some((FOLDERS[0], &b"/uverbs0"[..])));
        assert_eq!(rest("/dev/infiniband/uverbs0"), Some((FOLDERS[2], &b"/uverbs0"[..])));
        for other in
            ["/sys/class/infiniband_mad", "/sys/class/infinibandx", "/sys/class", "/dev", "", "/", "x"]
        {
            assert_eq!(rest(other), None, "{other}");
        }
    }

    #[test]
    fn a_path_that_leaves_the_devices_folder_is_not_its_own() {
        assert!(rest("/sys/class/infiniband/remora0/../remora0/ports").is_some());
        assert!(rest("/sys/class/infiniband/../net/lo").is_none());
        assert!(rest("/sys/class/infiniband/remora0/../..").is_none());
    }

    #[test]
    fn a_counter_is_a_file_in_a_folder_of_counters() {
        let of = |path: &'static str| own(path.as_bytes()).and_then(|own| counter(&own));
        let port = "/sys/class/infiniband/remora0/ports/1/counters/port_xmit_data";
        assert_eq!(of(port), Some(&b"counters/port_xmit_data"[..]));
        assert_eq!(
            of("/sys/class/infiniband/remora0/ports/1/hw_counters/sent_pkts"),
            Some(&b"hw_counters/sent_pkts"[..])
        );
        for other in [
            "/sys/class/infiniband/remora0/ports/1/counters",
            "/sys/class/infiniband/remora0/ports/1/counters/",
            "/sys/class/infiniband/remora0/ports/1/counters/.",
            "/sys/class/infiniband/remora0/ports/1/gids/0",
            "/sys/class/infiniband/remora0/ports/2/counters/port_xmit_data",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_relative_path_is_looked_at_only_where_it_begins_as_the_devices_do() {
        for path in
            ["sys/class/infiniband", "./infiniband/remora0", "dev/infiniband", "class/infiniband_verbs"]
        {
            assert!(may_be_own(path.as_bytes()), "{path}");
        }
        for path in ["", ".", "x", "port_xmit_data", "../sys/class/infiniband", "class/net"] {
            assert!(!may_be_own(path.as_bytes()), "{path}");
        }
    }
}
