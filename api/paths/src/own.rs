//! Which paths are the device's. All of it is arithmetic on bytes.

/// A folder that the device has.
#[derive(Debug, PartialEq, Eq)]
struct Folder {
    path: &'static [u8],
    /// The folder that has it, of the kernel's own.
    parent: &'static [u8],
    /// The entry that is a symbolic link, and the folder of this list that it leads into, as the kernel's
    /// class folders have them.
    link: Option<(&'static [u8], usize)>,
}

/// Places in the list of folders.
const INFINIBAND: usize = 1;
const VIRTUAL: usize = 3;
/// The folders that the device has, as the tree has them. Those of its virtual devices lie where the kernel
/// puts those of Soft-RoCE.
const FOLDERS: [Folder; 5] = [
    Folder { path: b"/sys/class/infiniband_verbs", parent: b"/sys/class", link: Some((b"uverbs0", 2)) },
    Folder { path: b"/sys/class/infiniband", parent: b"/sys/class", link: Some((b"remora0", VIRTUAL)) },
    Folder { path: b"/sys/devices/virtual/infiniband_verbs", parent: b"/sys/devices/virtual", link: None },
    Folder { path: b"/sys/devices/virtual/infiniband", parent: b"/sys/devices/virtual", link: None },
    Folder { path: b"/dev/infiniband", parent: b"/dev", link: None },
];
/// The start of a path that may lie in one of them, relative to a folder above it.
const RELATIVE: [&[u8]; 7] = [
    b"sys/class/infiniband",
    b"sys/devices/virtual/infiniband",
    b"class/infiniband",
    b"devices/virtual/infiniband",
    b"virtual/infiniband",
    b"infiniband",
    b"dev/infiniband",
];
/// The folders of counters, below one of the device's.
const COUNTERS: [&[u8]; 2] = [b"counters", b"hw_counters"];
/// What stands before them in a path of the device's.
const PORT: &[u8] = b"/remora0/ports/1/";

/// A path of the device's: one of its folders, and what follows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Own<'a> {
    folder: &'static Folder,
    rest: &'a [u8],
}

/// A path that begins as the device's and leads out of its folders, as `/sys/class/infiniband/remora0/../..`
/// does: it is the same as `folder` and `rest`, one behind the other.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Outside<'a> {
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

/// The device's part of an absolute path; `None`: it begins elsewhere.
pub fn own(path: &[u8]) -> Option<Own<'_>> {
    FOLDERS.iter().find_map(|folder| Some(Own { folder, rest: behind(path, folder.path)? }))
}

impl<'a> Own<'a> {
    /// Where the path leads out of the device's folders; `None`: it does not.
    pub fn outside(&self) -> Option<Outside<'a>> {
        let mut folder = self.folder;
        let mut rest = self.rest;
        let mut depth = 0u32;
        loop {
            while let [b'/', behind @ ..] = rest {
                rest = behind;
            }
            if rest.is_empty() {
                return None;
            }
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (component, behind) = rest.split_at(end);
            match component {
                b"." => {}
                b".." if depth == 0 => return Some(Outside { folder: folder.parent, rest: behind }),
                b".." => depth -= 1,
                _ => {
                    depth += 1;
                    if let Some((name, place)) = folder.link.filter(|_| depth == 1)
                        && name == component
                    {
                        folder = &FOLDERS[place];
                    }
                }
            }
            rest = behind;
        }
    }
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
    let is_device = own.folder == &FOLDERS[INFINIBAND] || own.folder == &FOLDERS[VIRTUAL];
    let name = own.rest.strip_prefix(PORT).filter(|_| is_device)?;
    let slash = name.iter().position(|byte| *byte == b'/')?;
    let (folder, file) = (&name[..slash], &name[slash + 1..]);
    let is_file = !file.is_empty() && !file.contains(&b'/') && file != b"." && file != b"..";
    (COUNTERS.contains(&folder) && is_file).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(path: &str) -> Option<(&'static [u8], &[u8])> {
        own(path.as_bytes()).map(|own| (own.folder.path, own.rest))
    }

    #[test]
    fn the_devices_folders_are_its_own_and_their_neighbours_are_not() {
        let class: &[u8] = b"/sys/class/infiniband";
        assert_eq!(rest("/sys/class/infiniband"), Some((class, &b""[..])));
        assert_eq!(rest("//sys//class/infiniband//remora0"), Some((class, &b"//remora0"[..])));
        for folder in FOLDERS {
            let path = [folder.path, b"/uverbs0"].concat();
            assert_eq!(rest(str::from_utf8(&path).unwrap()), Some((folder.path, &b"/uverbs0"[..])));
        }
        for other in [
            "/sys/class/infiniband_mad",
            "/sys/class/infinibandx",
            "/sys/class",
            "/sys/devices/virtual",
            "/dev",
            "",
            "/",
            "x",
        ] {
            assert_eq!(rest(other), None, "{other}");
        }
    }

    #[test]
    fn a_path_that_leads_out_of_the_devices_folders_is_one_of_the_kernels() {
        let outside = |path: &str| {
            let outside = own(path.as_bytes()).unwrap().outside()?;
            Some(String::from_utf8([outside.folder, outside.rest].concat()).unwrap())
        };
        for (path, leads) in [
            ("/sys/class/infiniband/..", "/sys/class"),
            ("/sys/class/infiniband/../net/lo", "/sys/class/net/lo"),
            // The device is a symbolic link, and a path leads on from where it points to.
            ("/sys/class/infiniband/remora0/../..", "/sys/devices/virtual"),
            ("/sys/class/infiniband/remora0/ports/1/../../../../numa_node", "/sys/devices/virtual/numa_node"),
            ("/sys/class/infiniband_verbs/uverbs0/..//../", "/sys/devices/virtual/"),
            ("/sys/devices/virtual/infiniband/../net", "/sys/devices/virtual/net"),
            ("/dev/infiniband/./../null", "/dev/null"),
        ] {
            assert_eq!(outside(path).as_deref(), Some(leads), "{path}");
        }
        for path in
            ["/sys/class/infiniband/remora0/../remora0/ports", "/dev/infiniband/uverbs0", "/dev/infiniband/"]
        {
            assert_eq!(outside(path), None, "{path}");
        }
    }

    #[test]
    fn a_counter_is_a_file_in_a_folder_of_counters() {
        let of = |path: &'static str| own(path.as_bytes()).and_then(|own| counter(&own));
        let port = "/sys/class/infiniband/remora0/ports/1/counters/port_xmit_data";
        assert_eq!(of(port), Some(&b"counters/port_xmit_data"[..]));
        for folder in ["/sys/class/infiniband", "/sys/devices/virtual/infiniband"] {
            let path = format!("{folder}/remora0/ports/1/hw_counters/sent_pkts");
            let own = own(path.as_bytes()).unwrap();
            assert_eq!(counter(&own), Some(&b"hw_counters/sent_pkts"[..]));
        }
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
        for path in ["", ".", "x", "port_xmit_data", "../sys/class/infiniband", "class/net", "virtual/net"] {
            assert!(!may_be_own(path.as_bytes()), "{path}");
        }
    }
}
