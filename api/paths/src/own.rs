//! Detection of the paths that belong to the device, by comparison of bytes alone.

/// A folder that belongs to the device.
#[derive(Debug, PartialEq, Eq)]
struct Folder {
    path: &'static [u8],
    /// The kernel's folder that contains this folder.
    parent: &'static [u8],
    /// The name of the entry that is a symbolic link, and the index in [`FOLDERS`] of the folder that the
    /// link leads to. The kernel's class folders have such links.
    link: Option<(&'static [u8], usize)>,
}

/// Indices in the list of folders.
const INFINIBAND: usize = 1;
const VIRTUAL: usize = 3;
/// The folders of the device, as in the tree. The folders of virtual devices have the places that the kernel
/// uses for Soft-RoCE.
const FOLDERS: [Folder; 5] = [
    Folder { path: b"/sys/class/infiniband_verbs", parent: b"/sys/class", link: Some((b"uverbs0", 2)) },
    Folder { path: b"/sys/class/infiniband", parent: b"/sys/class", link: Some((b"remora0", VIRTUAL)) },
    Folder { path: b"/sys/devices/virtual/infiniband_verbs", parent: b"/sys/devices/virtual", link: None },
    Folder { path: b"/sys/devices/virtual/infiniband", parent: b"/sys/devices/virtual", link: None },
    Folder { path: b"/dev/infiniband", parent: b"/dev", link: None },
];
/// The prefixes of relative paths that can lead into one of these folders.
const RELATIVE: [&[u8]; 7] = [
    b"sys/class/infiniband",
    b"sys/devices/virtual/infiniband",
    b"class/infiniband",
    b"devices/virtual/infiniband",
    b"virtual/infiniband",
    b"infiniband",
    b"dev/infiniband",
];
/// The names of the folders with counters, below the folder of a port.
const COUNTERS: [&[u8]; 2] = [b"counters", b"hw_counters"];
/// The part of a device path before these names.
const PORT: &[u8] = b"/remora0/ports/1/";

/// A path of the device: one of its folders, and the rest of the path.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own<'a> {
    folder: &'static Folder,
    rest: &'a [u8],
}

/// A path that begins in a device folder and leads out of it, such as `/sys/class/infiniband/remora0/../..`.
/// The equivalent path is `folder` followed by `rest`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outside<'a> {
    pub folder: &'static [u8],
    pub rest: &'a [u8],
}

/// Returns the part of `path` after `folder`, or `None` if the path begins differently. Repeated slashes
/// count as one.
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

/// Splits an absolute path into a device folder and the rest. Returns `None` if the path begins elsewhere.
pub(crate) fn own(path: &[u8]) -> Option<Own<'_>> {
    FOLDERS.iter().find_map(|folder| Some(Own { folder, rest: behind(path, folder.path)? }))
}

impl<'a> Own<'a> {
    /// Returns the path outside the device's folders to which this path leads, or `None` if it stays inside.
    pub(crate) fn outside(&self) -> Option<Outside<'a>> {
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

/// Returns true if the relative path can belong to the device, depending on the folder it starts from.
pub(crate) fn may_be_own(path: &[u8]) -> bool {
    let mut path = path;
    while let [b'.', b'/', rest @ ..] = path {
        path = rest;
    }
    RELATIVE.iter().any(|begin| path.starts_with(begin))
}

/// Returns the counter that the path names, as its path below the port's folder.
pub(crate) fn counter<'a>(own: &Own<'a>) -> Option<&'a [u8]> {
    let is_device = own.folder == &FOLDERS[INFINIBAND] || own.folder == &FOLDERS[VIRTUAL];
    let name = own.rest.strip_prefix(PORT).filter(|_| is_device)?;
    let slash = name.iter().position(|byte| *byte == b'/')?;
    let folder = &name[..slash];
    let file = &name[slash + 1..];
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
            // The device is a symbolic link, and `..` continues from the target of the link.
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
        let counter_of = |path: &'static str| own(path.as_bytes()).and_then(|own| counter(&own));
        let port = "/sys/class/infiniband/remora0/ports/1/counters/port_xmit_data";
        assert_eq!(counter_of(port), Some(&b"counters/port_xmit_data"[..]));
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
            assert_eq!(counter_of(other), None, "{other}");
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
