//! This binary as another process, which serves or sends requests; and memory that both map.

use remora_netns::Process;
use remora_verbs::rma::{Client, Grant, RegionKey, Rma, RmaOptions, RmaRegion, Settings};
use remora_verbs::{Access, Context, Device};
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

/// Environment variable with the role of the other process.
pub(crate) const ROLE: &str = "REMORA_TEST_RMA_ROLE";
/// The key of the region that any other process serves. Tests derive grants from it on both sides.
const KEY: [u8; 16] = [0x77; 16];

pub(crate) fn key() -> RegionKey {
    RegionKey::new(KEY).unwrap()
}

/// A command that runs the test `acts_its_role` of `module` in a process of its own.
pub(crate) fn command(module: &str, role: &str) -> Command {
    let (_, inner) = module.split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", &format!("{inner}::acts_its_role"), "--nocapture"]).env(ROLE, role);
    command
}

/// Sends a signal to a process.
pub(crate) fn signal(process: &Process, signal: libc::c_int) {
    let pid = libc::pid_t::try_from(process.id()).unwrap();
    // SAFETY: the process is a child of this one that nobody has waited for.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

/// Waits until a process is stopped. A signal takes effect some time after it was sent.
pub(crate) fn wait_until_stopped(process: &Process) {
    let file = format!("/proc/{}/stat", process.id());
    let state = || std::fs::read_to_string(&file).unwrap().rsplit(')').next().unwrap().trim().to_owned();
    while !state().starts_with('T') {
        std::thread::yield_now();
    }
}

/// Waits until a process ends by itself. Returns the rest, behind `word`, of its line with that.
pub(crate) fn last_words(mut process: Process, word: &str) -> String {
    drop(process.stdin.take());
    let says = process.line_with(word);
    process.end();
    says
}

/// Waits until the parent process closes the standard input, or is gone.
pub(crate) fn until_told() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A file that several processes map.
pub(crate) struct Mapped {
    pub path: PathBuf,
    pub bytes: &'static [std::sync::atomic::AtomicU8],
}

impl Mapped {
    /// Creates a file of zeros and maps it.
    pub(crate) fn create(name: &str, len: usize) -> Mapped {
        let path = std::env::temp_dir().join(format!("remora-{name}-{}", std::process::id()));
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap()
            .set_len(len as u64)
            .unwrap();
        Mapped::open(path, len)
    }

    pub(crate) fn open(path: PathBuf, len: usize) -> Mapped {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: a new mapping, which is never unmapped: its bytes live as long as the process.
        let bytes = unsafe {
            let flags = libc::PROT_READ | libc::PROT_WRITE;
            let place = libc::mmap(std::ptr::null_mut(), len, flags, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(place, libc::MAP_FAILED);
            std::slice::from_raw_parts(place.cast(), len)
        };
        Mapped { path, bytes }
    }

    pub(crate) fn load(&self) -> Vec<u8> {
        self.bytes.iter().map(|byte| byte.load(std::sync::atomic::Ordering::Relaxed)).collect()
    }
}

/// Serves the bytes of a file, and prints `serving ENDPOINT ID LEN`.
pub(crate) fn serve(
    device: &Device,
    path: PathBuf,
    len: usize,
    settings: Settings,
) -> (Context, Rma, RmaRegion) {
    let context = device.open().unwrap();
    let mapped = Mapped::open(path, len);
    let domain = context.alloc_pd().unwrap();
    // SAFETY: the mapping lives as long as the process.
    let memory = unsafe {
        domain.register_raw(mapped.bytes.as_ptr().cast_mut().cast(), len, Access::LOCAL_WRITE).unwrap()
    };
    let rma = context.open_rma(&RmaOptions { settings, ..RmaOptions::default() }).unwrap();
    let region = rma.expose(memory, crate::bed::ALL, Some(key())).unwrap();
    println!("serving {} {} {len}", rma.endpoint(), region.id());
    (context, rma, region)
}

/// Derives a client's grant for the region that a server has printed as `words`. `any` is any region, used
/// for the derivation.
pub(crate) fn grant(words: &str, client: &Client, any: &RmaRegion) -> Grant {
    let mut words = words.split(' ');
    let mut next = || words.next().unwrap();
    let address: SocketAddr = next().parse().unwrap();
    let mut grant = any.grant_under(client, &key());
    grant.server.address = address.ip().into();
    grant.server.udp_port = address.port();
    grant.region = next().parse().unwrap();
    grant.len = next().parse().unwrap();
    grant
}
