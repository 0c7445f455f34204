//! `remora run`: runs an unmodified verbs program with Remora's libraries in place of the system's.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;

use remora_broker::GIDS;
use remora_broker::client::{self, ADDRESS, ALONE, COMMAND, FAULT, LIBRARY_PATH, PORT};
use remora_broker::paths::{PATHS, PrivateFolder};
use remora_options::device::{
    CAPTURE, CAPTURE_LIMIT, FAULT_LOG, KEEP, NICD, OwnAddress, RECORD, RECORD_LIMIT,
};
use remora_options::ending;
use remora_verbs::{Device, PortKind};

use crate::{broker, capture, unreplaced};

/// Arguments of `remora run`.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  remora run -- ib_write_bw 127.0.0.1\n  remora run --address 10.0.0.1 -- rping -s -a 10.0.0.1\n  remora run --fault loss.toml --capture run.pcapng -- python3 my_pyverbs.py\n  remora run --fault chaos.toml --fault-log faults.jsonl -- pytest\n  remora run --record run.rec -- ib_send_bw 127.0.0.1\n  remora run --nicd /run/remora/nic.sock -- ib_read_lat\n\nThe program ends as it would without Remora: signals and exit status are passed on. The variables that are set are listed in docs/reference/environment.md."
)]
pub(crate) struct Args {
    /// Port of the device: auto uses shared-memory links to programs of this host and UDP to all others;
    /// udp and shm use only that one; xdp:IF uses the interface IF alone.
    #[arg(long, default_value = "auto", value_name = "auto|udp|shm|xdp:IF")]
    port: PortChoice,
    /// Addresses of the device in the order of its GIDs, separated by commas or given several times
    /// [default: all addresses of this network namespace, beginning with the source address of the default
    /// route].
    #[arg(long, value_delimiter = ',')]
    address: Vec<OwnAddress>,
    /// Drop, duplicate, delay, reorder or corrupt frames by the rules in this TOML file; let calls,
    /// completions and registrations fail; let the port go down, or the device die [default: none].
    #[arg(long, value_name = "FILE")]
    fault: Option<PathBuf>,
    /// Append a line of JSON to this file for each fault of verbs, without times: equal runs have equal logs
    /// [default: no log].
    #[arg(long, value_name = "FILE", requires = "fault")]
    fault_log: Option<PathBuf>,
    /// Record all packets of the device in this pcapng file [default: no recording].
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Maximum size of the capture file in bytes, or with suffix k, m or g (multiples of 1024). Later
    /// frames are counted and not recorded [default: 1g].
    #[arg(long, value_name = "SIZE", requires = "capture", value_parser = remora_host::parse_bytes)]
    capture_limit: Option<u64>,
    /// Record the commands, work requests, frames and completions of the device in this file, for `remora
    /// replay`. Payloads and the keys of 1RMA are left out [default: no recording].
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Maximum size of the recording in bytes, or with suffix k, m or g (multiples of 1024). The recording
    /// ends there, and the program goes on [default: 1g].
    #[arg(long, value_name = "SIZE", requires = "record", value_parser = remora_host::parse_bytes)]
    record_limit: Option<u64>,
    /// Give the program its address alone: no broker is started, and no other program can use the address.
    #[arg(long)]
    alone: bool,
    /// Use the NIC that the daemon at this socket lends, instead of one of the program's own (`remora serve
    /// nic`). The daemon's port must be udp or xdp; rdma_cm programs need a daemon with --share.
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["port", "address", "fault", "capture", "record", "alone"]
    )]
    nicd: Option<PathBuf>,
    /// Let the daemon keep the program's queue pairs and memory under this name when the program ends, even
    /// if it is killed. `remora nic end NAME` ends them.
    #[arg(long, value_name = "NAME", requires = "nicd")]
    keep: Option<String>,
    /// Leave /sys, /dev and the search path as they are: no library is preloaded.
    #[arg(long)]
    no_paths: bool,
    /// Program to run, with its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The UDP port of RoCE v2, which verbs programs cannot change.
const ROCE_PORT: u16 = 4791;
/// Name of the link to the libraries in a private folder.
const LINK: &str = "lib";
/// File name of the library that shows the device's paths in /sys and /dev to programs.
const PRELOAD: &str = "libremora-paths.so";

/// A choice of port, in the form of the environment variable [`PORT`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct PortChoice(String);

impl std::str::FromStr for PortChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<PortChoice, String> {
        match text.split_once(':') {
            None if matches!(text, "auto" | "udp" | "shm") => Ok(PortChoice(text.to_owned())),
            Some(("xdp", interface)) if !interface.is_empty() => Ok(PortChoice(text.to_owned())),
            _ if text.starts_with("xdp") => {
                Err("port xdp needs an interface, for example xdp:eth0".to_owned())
            }
            _ => Err("choose auto, udp, shm, or xdp with an interface, for example xdp:eth0".to_owned()),
        }
    }
}

impl PortChoice {
    /// Returns whether this kind of port always belongs to one program.
    fn is_alone(&self) -> bool {
        self.0.starts_with("xdp:")
    }
}

/// Reads a file of fault rules. Wrong ones end the command, as wrong arguments do, before anything is
/// started.
fn check_rules(path: &Path) -> Result<()> {
    let rules = std::fs::read_to_string(path).with_context(|| format!("opening {}", path.display()))?;
    if let Err(error) = remora_host::Rules::parse(&rules) {
        eprintln!("error: {}: {}", path.display(), error.to_string().replace('\n', " "));
        std::process::exit(2);
    }
    Ok(())
}

/// Runs `remora run`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Some((program, words)) = args.program.split_first() else {
        bail!("no program given; usage: remora run [OPTIONS] -- PROGRAM [ARGS]")
    };
    args.fault.as_deref().map_or(Ok(()), check_rules)?;
    let count = args.address.len();
    ensure!(count <= GIDS, "a device has at most {GIDS} addresses, but --address gives {count}");
    check_file_limit()?;
    let installed = libraries()?;
    let link = listable(&installed)?;
    let libraries = link.as_ref().map_or_else(|| installed.clone(), |link| link.path().join(LINK));
    if let Some(words) = unreplaced::reason(program) {
        eprintln!("remora: {words}");
    }
    let alone = args.alone || args.port.is_alone() || args.nicd.is_some();
    let address = match &args.nicd {
        Some(daemon) => address_of(daemon)?,
        None => broker::address(args.address.first().copied()),
    };
    let own = std::env::current_exe().context("finding the path of this executable")?;
    let start = if alone { client::Start::Alone } else { client::Start::Command(own.clone()) };
    let every_address = args.address.is_empty() && args.nicd.is_none();
    let options = client::Options { start, every_address, ..client::Options::from_environment() };
    if !alone {
        client::start(address, &options)?;
    }
    let preload = Some(libraries.join(PRELOAD)).filter(|preload| !args.no_paths && preload.exists());
    // Both folders must exist while the program runs.
    let chosen: Vec<SocketAddr> = args.address.iter().map(|own| own.at(0)).collect();
    let shown = if chosen.is_empty() { &[address][..] } else { &chosen };
    let paths = preload.as_ref().map(|_| client::Paths::open(shown, &options)).transpose()?;
    let mut command = Command::new(program);
    command.env_remove(PATHS);
    if let (Some(preload), Some(paths)) = (preload, &paths) {
        command.env(PATHS, paths.folder()).env("LD_PRELOAD", before("LD_PRELOAD", &preload));
        // This folder has replacements of programs that ask the kernel for devices.
        command.env("PATH", before("PATH", &libraries.join("bin")));
    }
    command.args(words).env(PORT, &args.port.0).env(COMMAND, own);
    command.env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &libraries));
    match args.address.is_empty() {
        true => command.env_remove(ADDRESS),
        false => command.env(ADDRESS, list(&args.address)),
    };
    borrow(&mut command, args)?;
    if let Some(path) = &args.fault {
        command.env(FAULT, std::path::absolute(path)?);
    }
    if let Some(log) = &args.fault_log {
        command.env(FAULT_LOG, std::path::absolute(log)?);
    }
    observe(&mut command, args)?;
    match alone && args.nicd.is_none() {
        true => command.env(ALONE, "1"),
        false => command.env_remove(ALONE),
    };
    let status =
        ending::pass_on(&mut command).with_context(|| format!("running {}", Path::new(program).display()))?;
    // process::exit does not run destructors, and both values remove their folders when dropped.
    drop(paths);
    drop(link);
    if !status.success() {
        std::process::exit(capture::code(status));
    }
    Ok(())
}

/// Returns the address of the NIC that the daemon at `path` lends, from which a program would get it.
fn address_of(path: &Path) -> Result<SocketAddr> {
    let context = Device::nicd(path).open()?;
    let port = context.port();
    ensure!(
        port.kind != PortKind::Shm,
        "the NIC daemon at {} has port shm, whose NIC verbs programs cannot address: start it with --port udp --share",
        path.display()
    );
    ensure!(
        port.endpoint.udp_port == ROCE_PORT,
        "the NIC daemon at {} has UDP port {}, and verbs programs address only {ROCE_PORT}: start it with --share",
        path.display(),
        port.endpoint.udp_port
    );
    Ok(SocketAddr::new(port.endpoint.address.into(), port.endpoint.udp_port))
}

/// Sets the variables of a NIC that a daemon lends.
fn borrow(command: &mut Command, args: &Args) -> Result<()> {
    command.env_remove(NICD).env_remove(KEEP);
    if let Some(path) = &args.nicd {
        // An abstract name begins with `@` and is no path.
        let is_name = path.as_os_str().as_bytes().first() == Some(&b'@');
        command.env(NICD, if is_name { path.clone() } else { std::path::absolute(path)? });
    }
    if let Some(name) = &args.keep {
        command.env(KEEP, name);
    }
    Ok(())
}

/// Sets the variables of a capture and of a recording.
fn observe(command: &mut Command, args: &Args) -> Result<()> {
    if let Some(path) = &args.capture {
        command.env(CAPTURE, std::path::absolute(path)?);
    }
    if let Some(bytes) = args.capture_limit {
        command.env(CAPTURE_LIMIT, bytes.to_string());
    }
    if let Some(path) = &args.record {
        command.env(RECORD, std::path::absolute(path)?);
    }
    if let Some(bytes) = args.record_limit {
        command.env(RECORD_LIMIT, bytes.to_string());
    }
    Ok(())
}

/// Minimum size in bytes of the shared-memory files that a program's queues need.
const LEAST_FILE: u64 = 16 << 20;

/// Fails if `ulimit -f` is so low that SIGXFSZ would kill the program at its first region or queue.
fn check_file_limit() -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    if let Some(bytes) = limit.filter(|bytes| *bytes < LEAST_FILE) {
        bail!(
            "files are limited to {bytes} bytes (`ulimit -f`), and queues and links are shared memory, which counts as files: run \
             `ulimit -f unlimited` first"
        );
    }
    Ok(())
}

/// Returns the addresses in the form of the environment variable [`ADDRESS`].
fn list(addresses: &[OwnAddress]) -> String {
    let texts: Vec<String> = addresses.iter().map(|own| client::text(own.at(0))).collect();
    texts.join(",")
}

/// Returns the folder of Remora's libraries: the one that [`LIBRARY_PATH`] names or, if it is unset, a
/// folder beside this executable.
fn libraries() -> Result<PathBuf> {
    const LIBRARY: &str = "libibverbs.so.1";
    if let Some(named) = std::env::var_os(LIBRARY_PATH).filter(|named| !named.is_empty()) {
        let folder = PathBuf::from(named);
        // Without this check the dynamic linker would load the system's library, and the program would find
        // no device.
        ensure!(
            folder.join(LIBRARY).exists(),
            "{LIBRARY_PATH} names {}, which has no {LIBRARY}: run `make dropin`, or unset the variable",
            folder.display()
        );
        return Ok(std::path::absolute(folder)?);
    }
    let own = std::env::current_exe().context("finding the path of this executable")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = ["", "lib", "../lib/remora", "../dropin/lib"].map(|place| folder.join(place));
    let library_folder = places.into_iter().find(|place| place.join(LIBRARY).exists());
    library_folder.with_context(|| {
        format!(
            "{LIBRARY} is not beside {}: run `make dropin`, or set {LIBRARY_PATH} to its folder",
            own.display()
        )
    })
}

/// Returns whether the dynamic linker would split the path. LD_PRELOAD is split at white space and colons,
/// LD_LIBRARY_PATH also at semicolons.
fn has_separator(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, b':' | b';'))
}

/// Returns a private folder with a link to the folder of the libraries, or `None` if the libraries' path
/// can stand in a list of paths itself. The private folder must exist while the program runs.
fn listable(libraries: &Path) -> Result<Option<PrivateFolder>> {
    if !has_separator(libraries) {
        return Ok(None);
    }
    let make = || {
        let folder = PrivateFolder::new(|place| !has_separator(place))?;
        symlink(libraries, folder.path().join(LINK))?;
        Ok(folder)
    };
    let made: std::io::Result<PrivateFolder> = make();
    made.map(Some).with_context(|| {
        format!(
            "{}: the dynamic linker takes no such name (blanks, colons, semicolons), and no folder for temporary files takes a \
             link to it: install Remora elsewhere, or set TMPDIR",
            libraries.display()
        )
    })
}

/// Returns the value of a path-list variable with `first` put before its present paths.
fn before(variable: &str, first: &Path) -> OsString {
    let mut path = first.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(variable).filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_one_of_four_and_xdp_has_an_interface() {
        for good in ["auto", "udp", "shm", "xdp:eth0"] {
            assert_eq!(good.parse::<PortChoice>(), Ok(PortChoice(good.to_owned())));
        }
        for (bad, words) in
            [("xdp", "xdp:eth0"), ("xdp:", "xdp:eth0"), ("tcp", "choose auto"), ("udp:1", "choose auto")]
        {
            assert!(bad.parse::<PortChoice>().unwrap_err().contains(words), "{bad}");
        }
        assert!(PortChoice("xdp:eth0".to_owned()).is_alone() && !PortChoice("udp".to_owned()).is_alone());
    }
}
