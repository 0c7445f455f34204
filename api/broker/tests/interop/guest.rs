//! The guest: a QEMU process, and the commands that its first process runs (scripts/interop/guest-init).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use remora_host::wait_readable;
use remora_netns::Namespace;

use crate::network::{GUEST, TAP};

/// Time limit for the guest to start, with an emulated CPU.
const START: Duration = Duration::from_secs(300);

/// The result of a command.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// The exit status. `None` if the command was killed because it took too long.
    pub status: Option<i32>,
    pub printed: String,
}

/// A running guest, which is killed when this value is dropped.
pub(crate) struct Guest {
    qemu: Child,
    answers: BufReader<UnixStream>,
    folder: PathBuf,
    /// Results of commands that nobody has asked for yet.
    ended: BTreeMap<u32, Ended>,
    next: u32,
}

impl Guest {
    /// Starts the kernel of `image`, with its network card at the tap, and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(image: &Path, wire: &Namespace) -> Guest {
        let folder = std::env::temp_dir().join(format!("remora-guest-{}", wire.name()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("ctl");
        let listener = UnixListener::bind(&socket).unwrap();
        let file = |name: &str| folder.join(name).display().to_string();
        // The card neither computes checksums nor joins frames, so that a frame on the tap is a frame on the
        // wire.
        let plain = "csum=off,guest_csum=off,gso=off,host_tso4=off,host_tso6=off,host_ufo=off,\
                     guest_tso4=off,guest_tso6=off,guest_ufo=off";
        // If the machine has no time for QEMU, the kernel would miss its timer, and panic.
        let boot = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check guest.ip4={}/24 guest.ip6={}/64",
            GUEST[0], GUEST[1]
        );
        let mut command = wire.command("setpriv");
        // A test that is killed leaves no guest behind.
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-nodefaults", "-no-user-config"]);
        command
            .args(["-display", "none", "-no-reboot", "-machine", "q35", "-m", "512", "-smp", "1"])
            .args(accelerator());
        command.arg("-kernel").arg(image.join("vmlinuz")).arg("-initrd").arg(image.join("initramfs.cpio"));
        command.args(["-append", &boot, "-serial", &format!("file:{}", file("console"))]);
        command.args([
            "-device",
            "virtio-serial-pci",
            "-chardev",
            &format!("socket,id=ctl,path={}", file("ctl")),
        ]);
        command.args(["-device", "virtserialport,chardev=ctl,name=ctl"]);
        command.args(["-netdev", &format!("tap,id=net,ifname={TAP},script=no,downscript=no")]);
        command.args(["-device", &format!("virtio-net-pci,netdev=net,romfile=,{plain}")]);
        let log = std::fs::File::create(folder.join("qemu")).unwrap();
        let qemu = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        assert!(
            wait_readable(listener.as_fd(), Some(START)).unwrap(),
            "QEMU does not start: {}",
            file("qemu")
        );
        let (stream, _) = listener.accept().unwrap();
        let answers = BufReader::new(stream);
        let mut guest = Guest { qemu, answers, folder, ended: BTreeMap::new(), next: 0 };
        let ready = guest.line(Instant::now() + START);
        let console = std::fs::read_to_string(guest.folder.join("console")).unwrap_or_default();
        assert_eq!(ready.as_deref(), Some("ready"), "the guest does not start: {console}");
        guest
    }

    /// Starts a command, and returns its number.
    pub(crate) fn spawn(&mut self, command: &str) -> u32 {
        self.next += 1;
        writeln!(self.answers.get_mut(), "run {} {command}", self.next).unwrap();
        self.next
    }

    /// Waits until a command has ended. A command that takes longer than `limit` is killed.
    #[track_caller]
    pub(crate) fn wait(&mut self, number: u32, limit: Duration) -> Ended {
        let end = Instant::now() + limit;
        while !self.ended.contains_key(&number) {
            if !self.answer(end) {
                writeln!(self.answers.get_mut(), "kill {number}").unwrap();
                while !self.ended.contains_key(&number) {
                    assert!(self.answer(Instant::now() + START), "the guest does not answer");
                }
                let killed = self.ended.remove(&number).unwrap();
                return Ended { status: None, ..killed };
            }
        }
        self.ended.remove(&number).unwrap()
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn run(&mut self, command: &str) -> Ended {
        let number = self.spawn(command);
        self.wait(number, crate::LIMIT)
    }

    /// Runs a command, which must succeed. Returns its output.
    #[track_caller]
    pub(crate) fn done(&mut self, command: &str) -> String {
        let ended = self.run(command);
        assert_eq!(ended.status, Some(0), "{command}: {}", ended.printed);
        ended.printed
    }

    /// Returns whether this command has ended.
    #[track_caller]
    pub(crate) fn has_ended(&mut self, number: u32) -> bool {
        // Results arrive in order, so those of commands that ended before come before this one.
        self.done("true");
        self.ended.contains_key(&number)
    }

    /// Receives the next result. Returns false if none comes until `end`.
    fn answer(&mut self, end: Instant) -> bool {
        let Some(line) = self.line(end) else { return false };
        let mut words = line.split(' ').skip(1).map(|word| word.parse::<u32>().unwrap());
        let [number, status, len] = [(); 3].map(|()| words.next().unwrap());
        let mut printed = vec![0; len as usize];
        self.answers.read_exact(&mut printed).unwrap();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        self.ended.insert(number, Ended { status: Some(status as i32), printed });
        true
    }

    fn line(&mut self, end: Instant) -> Option<String> {
        let stream = self.answers.get_ref();
        if self.answers.buffer().is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if !wait_readable(stream.as_fd(), Some(left)).unwrap() {
                return None;
            }
        }
        // The guest writes short lines at once, so this does not block.
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        Some(line.trim_end().to_owned())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The machine's own virtualization if its CPU has it; otherwise QEMU emulates the CPU. Some machines have
/// `/dev/kvm` without the CPU's flag: they emulate in the kernel, and far slower.
fn accelerator() -> [&'static str; 4] {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpu.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let able = flags.split(' ').any(|flag| flag == "vmx" || flag == "svm");
    let kvm = std::fs::File::options().read(true).write(true).open("/dev/kvm");
    if able && kvm.is_ok() {
        ["-accel", "kvm", "-cpu", "host"]
    } else {
        ["-accel", "tcg,thread=multi", "-cpu", "max"]
    }
}
