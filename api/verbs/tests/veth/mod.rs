//! Two network namespaces with a veth pair between them, which take root. A test that gets none says so and ends.
#![allow(dead_code, reason = "each test uses its part")]

use remora_verbs::{Context, Device};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Addresses of the two ends, MTU 1500.
pub const V4: [&str; 2] = ["10.213.7.1", "10.213.7.2"];
/// The same of IPv6.
pub const V6: [&str; 2] = ["fd00:7::1", "fd00:7::2"];

/// The namespaces; they go away with this value.
pub struct Veth {
    names: [String; 2],
    interfaces: [String; 2],
}

fn ip(arguments: &str) -> Option<Output> {
    Command::new("ip").args(arguments.split(' ')).output().ok()
}

/// Moves the calling thread into a network namespace.
fn enter(name: &str) {
    let space = File::open(format!("/run/netns/{name}")).unwrap();
    // SAFETY: only the calling thread's network changes, and no memory is passed.
    let moved = unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(moved, 0, "setns: {}", std::io::Error::last_os_error());
}

impl Veth {
    /// Makes them. None: this process may not, and that has been said.
    pub fn new() -> Option<Veth> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let names = ["a", "b"].map(|end| format!("remora-{id}-{end}"));
        let interfaces = ["a", "b"].map(|end| format!("rv{id}{end}"));
        let made = Veth { names, interfaces };
        let ([a, b], [near, far]) = (&made.names, &made.interfaces);
        let works = |step: &String| ip(step).is_some_and(|output| output.status.success());
        let spaces = [format!("netns add {a}"), format!("netns add {b}")];
        let mut steps = vec![format!("link add {near} netns {a} type veth peer name {far} netns {b}")];
        for (space, interface, v4, v6) in [(a, near, V4[0], V6[0]), (b, far, V4[1], V6[1])] {
            steps.extend([
                format!("-n {space} address add {v4}/24 dev {interface}"),
                format!("-n {space} address add {v6}/64 dev {interface} nodad"),
                format!("-n {space} link set lo up"),
                format!("-n {space} link set {interface} up"),
            ]);
        }
        if spaces.iter().all(works) && made.checks_no_addresses() && steps.iter().all(works) {
            made.wait_until_up();
            return Some(made);
        }
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        // Past the test harness, which keeps what tests print.
        let _ = writeln!(
            std::io::stderr(),
            "{test}: not run between network namespaces, because making them needs CAP_SYS_ADMIN and iproute2"
        );
        None
    }

    /// New interfaces do not look for other machines that have their addresses (duplicate address detection), the link-local one
    /// among them: neighbours are not asked for as long as they do.
    fn checks_no_addresses(&self) -> bool {
        let (zero, one) = ("net/ipv6/conf/default/accept_dad", "net/ipv6/conf/default/dad_transmits");
        [0, 1].into_iter().all(|which| {
            self.inside(which, move || {
                [zero, one].iter().all(|name| std::fs::write(format!("/proc/sys/{name}"), "0").is_ok())
            })
        })
    }

    /// Frames sent before the kernel has noticed that the link is up are lost.
    fn wait_until_up(&self) {
        for which in [0, 1] {
            let show = format!("-n {} -brief link show {}", self.names[which], self.interfaces[which]);
            let up = || {
                let shown = ip(&show).map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
                shown.is_some_and(|shown| shown.split_whitespace().nth(1) == Some("UP"))
            };
            while !up() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }

    /// Runs `body` in a thread that is in namespace `which`.
    fn inside<T: Send + 'static>(&self, which: usize, body: impl FnOnce() -> T + Send + 'static) -> T {
        let name = self.names[which].clone();
        std::thread::spawn(move || {
            enter(&name);
            body()
        })
        .join()
        .expect("no panic")
    }

    /// Runs `ip` in namespace `which`.
    pub fn ip(&self, which: usize, arguments: &str) {
        let done = ip(&format!("-n {} {arguments}", self.names[which])).expect("iproute2");
        assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// From now on the interface in namespace `which` looks for other machines that have its addresses.
    pub fn checks_addresses(&self, which: usize) {
        let conf = format!("/proc/sys/net/ipv6/conf/{}", self.interfaces[which]);
        self.inside(which, move || {
            for name in ["accept_dad", "dad_transmits"] {
                std::fs::write(format!("{conf}/{name}"), "1").unwrap();
            }
        });
    }

    /// The interface's name in namespace `which`.
    pub fn interface(&self, which: usize) -> &str {
        &self.interfaces[which]
    }

    /// This binary, as `role` in namespace `which`: its test `acts_its_role` finds the role in the variable `variable`.
    pub fn run(&self, which: usize, variable: &str, role: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[which]]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "acts_its_role", "--nocapture"]).env(variable, role);
        command.stdout(Stdio::piped());
        command
    }

    /// Opens a device in namespace `which`. The calling thread stays there; what it opened can be used from anywhere.
    pub fn open(&self, which: usize, device: &Device) -> Context {
        enter(&self.names[which]);
        device.open().unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns delete {name}"));
        }
    }
}
