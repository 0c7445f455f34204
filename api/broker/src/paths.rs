//! The paths of `/sys` and `/dev` by which programs see the device, as a tree of files in a folder of its
//! own.
//!
//! The kernel's own paths cannot be written to. A preload library (`api/paths`) reads this tree in their
//! place. Its files are those of a device of Soft-RoCE: a virtual one, without a `device` link.

mod counter;
mod sweep;

use std::ffi::{CString, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::interface::Interfaces;
use crate::{GIDS, PortState};
pub(crate) use counter::file;

/// The variable that has the folder of the tree.
pub const PATHS: &str = "REMORA_PATHS";
/// The folder of the device in the tree.
const DEVICE: &str = "sys/class/infiniband/remora0";
/// The folder of its character device's entry.
const UVERBS: &str = "sys/class/infiniband_verbs/uverbs0";
/// A link in the tree whose target is the abstract name of the broker, for whoever asks it for a counter.
const BROKER: &str = "broker";

/// The node's GUID, in network order: locally administered, and another one for each boot of each machine.
pub fn node_guid() -> u64 {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // FNV-1a.
    let hash = boot.trim().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, d, e, ..] = hash.to_ne_bytes();
    u64::from_ne_bytes([0x02, a, b, 0xff, 0xfe, c, d, e])
}

/// A tree. Dropping it removes its folder.
#[derive(Debug)]
pub(crate) struct Tree {
    folder: PathBuf,
    /// Locked while the tree is in use: a broker that was killed leaves a folder without an owner.
    _lock: File,
}

/// A tree for all programs that have chosen the same addresses.
#[derive(Debug)]
pub(crate) struct ShownTree {
    /// The addresses of its GID table, in their order; none: all of the broker.
    pub addresses: Vec<SocketAddr>,
    pub tree: Tree,
}

impl Tree {
    /// Writes the tree of a device whose port is so into a folder of the temporary ones. `broker`: the
    /// abstract name of the broker. `all`: other users may read it, too.
    ///
    /// # Errors
    /// The system refuses a folder or a file.
    pub fn write(state: &PortState, broker: &str, all: bool) -> io::Result<Tree> {
        sweep::sweep();
        let folder = fresh_folder()?;
        let written = sweep::lock(&folder).and_then(|lock| {
            fs::set_permissions(&folder, Permissions::from_mode(if all { 0o755 } else { 0o700 }))?;
            symlink(broker, folder.join(BROKER))?;
            write_verbs(&folder)?;
            write_device(&folder.join(DEVICE))?;
            write_port(&folder.join(DEVICE).join("ports/1"))?;
            show(&folder, state, &Interfaces::now())?;
            Ok(lock)
        });
        match written {
            Ok(lock) => Ok(Tree { folder, _lock: lock }),
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// Shows another state of the port, and other GIDs. A reader sees a file as it was or as it is.
    ///
    /// # Errors
    /// The system refuses a file.
    pub fn show(&self, state: &PortState, interfaces: &Interfaces) -> io::Result<()> {
        show(&self.folder, state, interfaces)
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Shows the port's state and GIDs in a tree. As the kernel's, an empty entry has zeros, no type and no
/// interface.
fn show(folder: &Path, state: &PortState, interfaces: &Interfaces) -> io::Result<()> {
    let port = folder.join(DEVICE).join("ports/1");
    for (name, words) in states(state.active) {
        replace(&port, name, words)?;
    }
    for index in 0..GIDS {
        let (gid, name) = (state.gids.get(index).copied().flatten(), index.to_string());
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

/// Folders for trees, of which the first that takes one is used: that of temporary files, that of the
/// user's session, and two that exist where the root of a container is read-only.
fn folders() -> Vec<PathBuf> {
    let session =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let mut folders = vec![std::env::temp_dir()];
    folders.extend(session.into_iter().chain(["/dev/shm", "/var/tmp"].map(PathBuf::from)));
    folders
}

/// A folder that nobody else can have made. The error is that of the folder of temporary files.
fn fresh_folder() -> io::Result<PathBuf> {
    fresh_folder_in(&folders())
}

fn fresh_folder_in(folders: &[PathBuf]) -> io::Result<PathBuf> {
    let mut first = None;
    for folder in folders {
        match make_folder(folder) {
            Ok(made) => return Ok(made),
            Err(error) => drop(first.get_or_insert((folder, error))),
        }
    }
    Err(first.map_or_else(
        || io::ErrorKind::NotFound.into(),
        |(folder, error)| io::Error::new(error.kind(), format!("{}: {error}", folder.display())),
    ))
}

fn make_folder(folder: &Path) -> io::Result<PathBuf> {
    let pattern = folder.join(format!("{}XXXXXX", sweep::BEGIN));
    let mut bytes = CString::new(pattern.as_os_str().as_bytes())?.into_bytes_with_nul();
    // SAFETY: a C string, whose last six characters are changed.
    if unsafe { libc::mkdtemp(bytes.as_mut_ptr().cast()) }.is_null() {
        return Err(io::Error::last_os_error());
    }
    bytes.pop();
    Ok(OsString::from_vec(bytes).into())
}

/// One line in a file, as sysfs has it.
fn line(folder: &Path, name: &str, words: &str) -> io::Result<()> {
    fs::write(folder.join(name), format!("{words}\n"))
}

/// As [`line`], for a file that is there and may be read at this moment.
fn replace(folder: &Path, name: &str, words: &str) -> io::Result<()> {
    let new = folder.join(".new");
    fs::write(&new, format!("{words}\n"))?;
    fs::rename(new, folder.join(name))
}

/// What the files of a port's state say, as `ibv_query_port` does (`api/ibverbs/src/port.rs`).
fn states(active: bool) -> [(&'static str, &'static str); 2] {
    match active {
        true => [("state", "4: ACTIVE"), ("phys_state", "5: LinkUp")],
        false => [("state", "1: DOWN"), ("phys_state", "3: Disabled")],
    }
}

/// A GID; an entry without one has zeros.
fn gid_text(gid: Option<IpAddr>) -> String {
    let octets = match gid {
        Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(ip)) => ip.octets(),
        None => [0; 16],
    };
    groups(&octets)
}

fn write_verbs(root: &Path) -> io::Result<()> {
    let (entry, devices) = (root.join(UVERBS), root.join("dev/infiniband"));
    fs::create_dir_all(&entry)?;
    fs::create_dir_all(&devices)?;
    line(&root.join("sys/class/infiniband_verbs"), "abi_version", "6")?;
    line(&entry, "ibdev", "remora0")?;
    line(&entry, "abi_version", "1")?;
    line(&entry, "dev", "1:3")?;
    // Programs look for a readable character device, and open it at most. There is no `rdma_cm`: Debian's
    // librdmacm would take it for the kernel's, and crash on its answers.
    symlink("/dev/null", devices.join("uverbs0"))
}

/// Four groups of 16 bits of a GUID in network order.
fn guid_text(guid: u64) -> String {
    groups(&guid.to_ne_bytes())
}

/// Groups of 16 bits with colons between them.
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
    // What is read is what the broker says; here are the names.
    for (name, value) in counter::all(&[]) {
        line(port, &name, &value.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_goes_where_a_folder_takes_it_and_the_error_is_that_of_the_first() {
        let none = [PathBuf::from("/proc/no-folder"), PathBuf::from("/proc")];
        let words = fresh_folder_in(&none).unwrap_err().to_string();
        assert!(words.starts_with("/proc/no-folder: "), "{words}");
        let made = fresh_folder_in(&[none[0].clone(), std::env::temp_dir()]).unwrap();
        assert!(made.starts_with(std::env::temp_dir()));
        fs::remove_dir(made).unwrap();
    }

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
        assert!(!folder.join("dev/infiniband/rdma_cm").exists(), "the kernel's connection manager");
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700, "nobody else's");
        drop(tree);
        assert!(!folder.exists());
    }
}
