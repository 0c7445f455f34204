//! The paths of `/sys` and `/dev` by which programs find the device, as a tree of files in a folder.
//!
//! The kernel's own paths cannot be written to. A preloaded library (`api/paths`) reads this tree instead.
//! Its files are those of a Soft-RoCE device: a virtual device below `/sys/devices/virtual`, without a
//! `device` link. The entries of the class folders are symbolic links to the device, as in the kernel's
//! tree.

mod copied;
mod counter;
mod private_folder;
mod sweep;

use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::interface::Interfaces;
use crate::{GIDS, PortState};
pub(crate) use copied::CopiedTree;
pub(crate) use counter::file;
pub use private_folder::PrivateFolder;

/// The environment variable with the folder of the tree.
pub const PATHS: &str = "REMORA_PATHS";
/// The folder of the device in the tree.
const DEVICE: &str = "sys/devices/virtual/infiniband/remora0";
/// The folder of the entry of the device's character device.
const UVERBS: &str = "sys/devices/virtual/infiniband_verbs/uverbs0";
/// The class folders, which contain symbolic links to the two folders above.
const CLASS: &str = "sys/class/infiniband";
const VERBS_CLASS: &str = "sys/class/infiniband_verbs";
/// A symbolic link in the tree whose target is the broker's abstract socket name, for readers of counters.
const BROKER: &str = "broker";

/// The node's GUID in network order: locally administered, and different for each boot of each machine.
pub fn node_guid() -> u64 {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // FNV-1a.
    let hash = boot.trim().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, d, e, ..] = hash.to_ne_bytes();
    u64::from_ne_bytes([0x02, a, b, 0xff, 0xfe, c, d, e])
}

/// A tree in a folder of its own.
#[derive(Debug)]
pub(crate) struct Tree {
    home: PrivateFolder,
}

/// A tree for all programs that have chosen the same addresses.
#[derive(Debug)]
pub(crate) struct ShownTree {
    /// The addresses of the GID table in order; empty for all addresses of the broker.
    pub addresses: Vec<SocketAddr>,
    pub tree: Tree,
}

impl Tree {
    /// Writes the tree of a device with this port state into a temporary folder. `broker` is the broker's
    /// abstract socket name. With `all`, other users may read the tree, too.
    ///
    /// # Errors
    /// The operating system refuses a folder or a file.
    pub(crate) fn write(state: &PortState, broker: &str, all: bool) -> io::Result<Tree> {
        let home = PrivateFolder::new(|_| true)?;
        let folder = home.path();
        fs::set_permissions(folder, Permissions::from_mode(if all { 0o755 } else { 0o700 }))?;
        symlink(broker, folder.join(BROKER))?;
        write_verbs(folder)?;
        write_device(&folder.join(DEVICE))?;
        fs::create_dir_all(folder.join(CLASS))?;
        symlink("../../devices/virtual/infiniband/remora0", folder.join(CLASS).join("remora0"))?;
        write_port(&folder.join(DEVICE).join("ports/1"))?;
        show(folder, state, &Interfaces::now())?;
        Ok(Tree { home })
    }

    /// Shows another state of the port and other GIDs. A reader sees the old or the new content of a file.
    ///
    /// # Errors
    /// The operating system refuses a file.
    pub(crate) fn show(&self, state: &PortState, interfaces: &Interfaces) -> io::Result<()> {
        show(self.folder(), state, interfaces)
    }

    /// The folder of the tree.
    pub(crate) fn folder(&self) -> &Path {
        self.home.path()
    }

    /// Opens the folder, for a program in whose mount namespace the folder has no name.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        Ok(File::open(self.folder())?.into())
    }
}

/// Shows the port's state and GIDs in a tree. As in the kernel's tree, an empty entry has zeros, no type and
/// no interface.
fn show(folder: &Path, state: &PortState, interfaces: &Interfaces) -> io::Result<()> {
    let port = folder.join(DEVICE).join("ports/1");
    for (name, words) in states(state.active) {
        replace(&port, name, words)?;
    }
    for index in 0..GIDS {
        let gid = state.gids.get(index).copied().flatten();
        let name = index.to_string();
        replace(&port.join("gids"), &name, &gid_text(gid.map(|gid| gid.ip)))?;
        let interface = gid.and_then(|gid| interfaces.name(gid.interface));
        for (folder, words) in [("types", gid.map(|_| "RoCE v2")), ("ndevs", interface)] {
            let folder = port.join("gid_attrs").join(folder);
            match words {
                Some(words) => replace(&folder, &name, words)?,
                None => match fs::remove_file(folder.join(&name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                },
            }
        }
    }
    Ok(())
}

/// Writes one line to a file, in the form of sysfs.
fn line(folder: &Path, name: &str, words: &str) -> io::Result<()> {
    fs::write(folder.join(name), format!("{words}\n"))
}

/// Like [`line`], for an existing file that may be read at the same time.
fn replace(folder: &Path, name: &str, words: &str) -> io::Result<()> {
    let new = folder.join(".new");
    fs::write(&new, format!("{words}\n"))?;
    fs::rename(new, folder.join(name))
}

/// The contents of the files of a port's state, which agree with `ibv_query_port`
/// (`api/ibverbs/src/port.rs`).
fn states(active: bool) -> [(&'static str, &'static str); 2] {
    match active {
        true => [("state", "4: ACTIVE"), ("phys_state", "5: LinkUp")],
        false => [("state", "1: DOWN"), ("phys_state", "3: Disabled")],
    }
}

/// Formats a GID; an empty entry has zeros.
fn gid_text(gid: Option<IpAddr>) -> String {
    let octets = match gid {
        Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(ip)) => ip.octets(),
        None => [0; 16],
    };
    groups(&octets)
}

fn write_verbs(root: &Path) -> io::Result<()> {
    let entry = root.join(UVERBS);
    let devices = root.join("dev/infiniband");
    fs::create_dir_all(&entry)?;
    fs::create_dir_all(&devices)?;
    let class = root.join(VERBS_CLASS);
    fs::create_dir_all(&class)?;
    line(&class, "abi_version", "6")?;
    symlink("../../devices/virtual/infiniband_verbs/uverbs0", class.join("uverbs0"))?;
    line(&entry, "ibdev", "remora0")?;
    line(&entry, "abi_version", "1")?;
    line(&entry, "dev", "1:3")?;
    // Programs look for a readable character device, and at most open it. The tree has no `rdma_cm`: Debian's
    // librdmacm would take it for the kernel's, and crash on the answers.
    symlink("/dev/null", devices.join("uverbs0"))
}

/// Formats a GUID in network order as four groups of 16 bits.
fn guid_text(guid: u64) -> String {
    groups(&guid.to_ne_bytes())
}

/// Formats bytes as groups of 16 bits separated by colons.
fn groups(bytes: &[u8]) -> String {
    let groups: Vec<String> =
        bytes.chunks(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    groups.join(":")
}

fn write_device(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let guid = guid_text(node_guid());
    line(folder, "node_type", "1: CA")?;
    line(folder, "node_guid", &guid)?;
    line(folder, "sys_image_guid", &guid)?;
    line(folder, "node_desc", "remora0")?;
    line(folder, "fw_ver", env!("CARGO_PKG_VERSION"))?;
    line(folder, "hca_type", "remora")?;
    line(folder, "hw_rev", "0x0")?;
    line(folder, "uevent", "NAME=remora0")
}

fn write_port(port: &Path) -> io::Result<()> {
    for folder in ["gids", "gid_attrs/types", "gid_attrs/ndevs", "pkeys", "counters", "hw_counters"] {
        fs::create_dir_all(port.join(folder))?;
    }
    line(port, "rate", "100 Gb/sec (4X EDR)")?;
    line(port, "link_layer", "Ethernet")?;
    line(port, "lid", "0x0")?;
    line(port, "lid_mask_count", "0")?;
    line(port, "sm_lid", "0x0")?;
    line(port, "sm_sl", "0")?;
    line(port, "cap_mask", "0x04010000")?;
    line(&port.join("pkeys"), "0", "0xffff")?;
    // The files contain zeros and give the counters their names. Their values are read from the broker.
    for (name, value) in counter::all(&[]) {
        line(port, &name, &value.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the tree of paths had a `/dev/infiniband/rdma_cm`, which Debian's librdmacm took for
    /// the kernel's, and crashed.
    #[test]
    fn a_tree_has_the_device_and_its_gids_and_goes_when_it_is_dropped() {
        let interfaces = Interfaces::now();
        let gid = |text: &str, name: &str| {
            Some(crate::GidEntry { ip: text.parse().unwrap(), interface: interfaces.index(name) })
        };
        let gids = vec![gid("127.0.0.1", "lo"), gid("fd00::1", "")];
        let tree = Tree::write(&PortState { active: true, gids }, "remora-broker/x", false).unwrap();
        let folder = tree.folder().to_owned();
        let read = |name: &str| fs::read_to_string(folder.join(DEVICE).join(name)).unwrap();
        assert_eq!(read("ports/1/gids/0"), "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
        assert_eq!(read("ports/1/gids/1"), "fd00:0000:0000:0000:0000:0000:0000:0001\n");
        assert_eq!(read("ports/1/gid_attrs/types/1"), "RoCE v2\n");
        assert_eq!(read("ports/1/gid_attrs/ndevs/0"), "lo\n");
        assert_eq!(read("ports/1/hw_counters/duplicate_request"), "0\n");
        assert_eq!(read("ports/1/state"), "4: ACTIVE\n");
        assert_eq!(read("ports/1/gids/31"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        let gids = vec![None, gid("fd00::2", "lo")];
        tree.show(&PortState { active: false, gids }, &interfaces).unwrap();
        assert_eq!(read("ports/1/gid_attrs/ndevs/1"), "lo\n");
        let gone = folder.join(DEVICE).join("ports/1/gid_attrs/types/0");
        assert!(!gone.exists(), "an empty entry has no type");
        assert_eq!(read("ports/1/state") + &read("ports/1/phys_state"), "1: DOWN\n3: Disabled\n");
        assert_eq!(read("ports/1/gids/0"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        assert_eq!(read("ports/1/gids/1"), "fd00:0000:0000:0000:0000:0000:0000:0002\n");
        assert_eq!(read("node_guid"), format!("{}\n", guid_text(node_guid())));
        assert_eq!(fs::read_link(folder.join(BROKER)).unwrap(), Path::new("remora-broker/x"));
        assert_eq!(fs::read_link(folder.join("dev/infiniband/uverbs0")).unwrap(), Path::new("/dev/null"));
        assert!(
            !folder.join("dev/infiniband/rdma_cm").exists(),
            "the tree has no file of the kernel's connection manager"
        );
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700,
            "only the owner may read the folder"
        );
        drop(tree);
        assert!(!folder.exists());
    }
}
