//! Tests of the preload library, linked like `scripts/dropin` does, in programs that `remora run` starts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The path of the repository's root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The path of the device's port.
const PORT: &str = "/sys/class/infiniband/remora0/ports/1";

/// Returns the folder of this test program.
fn built() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Returns the folder that contains the preload library.
fn folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        let archives =
            std::fs::read_dir(built()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with("libremora_paths") && name.ends_with(".a")
            });
        let made = |path: &PathBuf| path.metadata().unwrap().modified().unwrap();
        let newest = archives.max_by_key(made).expect("cargo has built the static library");
        let folder = built().join("paths");
        let mut script = Command::new(format!("{ROOT}/scripts/dropin"));
        let status = script.arg("--archive").arg(newest).arg(&folder).status().unwrap();
        assert!(status.success());
        // `remora run` recognizes the folder by this file; no program of the tests loads it.
        std::fs::write(folder.join("libibverbs.so.1"), b"").unwrap();
        folder
    });
    &FOLDER
}

/// Runs a program under `remora run` with the given address. Returns its standard output; the standard error
/// must be empty.
#[track_caller]
fn run(address: &str, words: &[&str]) -> String {
    let (out, err) = both(address, words);
    assert_eq!(err, "", "{words:?}");
    out
}

/// Runs a program, which must succeed, and returns its standard output and standard error.
#[track_caller]
fn both(address: &str, words: &[&str]) -> (String, String) {
    let remora = built().parent().unwrap().join("remora");
    assert!(remora.exists(), "{} is missing: cargo build -p remora-cli", remora.display());
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(remora).args(["run", "--address", address, "--"]).args(words);
    let output = command.env("REMORA_LIBRARY_PATH", folder()).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {}\n{out}\n{err}", output.status);
    (out.into_owned(), err.into_owned())
}

#[test]
fn programs_see_one_device_below_sys_and_dev() {
    let address = "127.94.0.1";
    assert_eq!(run(address, &["ls", "/sys/class/infiniband"]), "remora0\n");
    assert_eq!(run(address, &["cat", &format!("{PORT}/state")]), "4: ACTIVE\n");
    assert_eq!(run(address, &["cat", "/sys/class/infiniband_verbs/uverbs0/ibdev"]), "remora0\n");
    assert!(run(address, &["ls", "-lR", "/sys/class/infiniband/remora0/"]).contains("port_xmit_data"));
    let gid = run(address, &["cat", &format!("{PORT}/gids/0")]);
    assert_eq!(gid, "0000:0000:0000:0000:0000:ffff:7f5e:0001\n");
    let resolved = "/sys/devices/virtual/infiniband/remora0/ports/1\n";
    assert_eq!(run(address, &["readlink", "-f", PORT]), resolved, "no path of the tree is shown");
    let character = "test -c /dev/infiniband/uverbs0 && test -r /dev/infiniband/uverbs0 && echo readable";
    assert_eq!(run(address, &["sh", "-c", character]), "readable\n");
    // A program that chooses its addresses sees exactly those, in its order.
    let gids = [&format!("{PORT}/gids/0"), &format!("{PORT}/gids/1"), &format!("{PORT}/gids/2")];
    let listed = run("127.94.0.9,127.94.0.10", &["cat", gids[0], gids[1], gids[2]]);
    let prefix = "0000:0000:0000:0000:0000:";
    assert_eq!(listed, format!("{prefix}ffff:7f5e:0009\n{prefix}ffff:7f5e:000a\n{prefix}0000:0000:0000\n"));
    // Other folders of the kernel stay visible.
    assert_eq!(run(address, &["cat", "/sys/class/net/lo/ifindex"]), "1\n");
}

/// Regression: Mooncake resolves `/sys/class/infiniband/remora0/../..`; the path was left to the kernel,
/// so it found no device and used TCP without a message.
#[test]
fn a_device_is_a_link_and_paths_above_it_are_the_kernels() {
    let address = "127.94.0.5";
    let device = "/sys/class/infiniband/remora0";
    assert_eq!(run(address, &["readlink", device]), "../../devices/virtual/infiniband/remora0\n");
    assert_eq!(run(address, &["realpath", &format!("{device}/../..")]), "/sys/devices/virtual\n");
    assert!(run(address, &["ls", "-la", "/sys/class/infiniband"]).contains(" ..\n"));
    let class = run(address, &["ls", "/sys/class"]);
    assert_eq!(run(address, &["ls", "/sys/class/infiniband/.."]), class);
    // A program that works in the device's folder, with the C library's `realpath` and relative paths.
    let script = format!(
        "import os, ctypes\n\
         libc = ctypes.CDLL(None)\n\
         libc.realpath.restype = ctypes.c_char_p\n\
         print(libc.realpath(b'{device}/../..', None))\n\
         os.chdir('{device}')\n\
         print(os.listdir('..'), os.path.exists('../../net/lo/ifindex'), open('../remora0/node_type').read())\n\
         print(os.open('/sys/devices/virtual/infiniband/remora0/ports/1/counters/symbol_error', 0) > 0)\n"
    );
    let printed = "b'/sys/devices/virtual'\n['remora0'] True 1: CA\n\nTrue\n";
    assert_eq!(run(address, &["python3", "-c", &script]), printed);
}

/// Regression: a wheel that brings its own libibverbs under another name found no device, and nothing
/// reported why.
#[test]
fn a_library_of_the_programs_own_that_was_not_replaced_is_named_in_one_line() {
    let own = built().join("libibverbs-1de1263b.so.1");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&own);
    assert!(cc.status().unwrap().success());
    let stderr_of = |script: String| {
        let (out, err) = both("127.94.0.6", &["python3", "-c", &script]);
        assert_eq!(out, "done\n", "{err}");
        err
    };
    let line = format!("remora: {} is this program's own and was not replaced: ", own.display());
    let load = format!("import ctypes, socket; ctypes.CDLL('{}')", own.display());
    let err = stderr_of(format!("{load}; print('done')"));
    assert!(err.starts_with(&line) && err.lines().count() == 1, "{err}");
    // The line appears when the library asks for devices, and only once.
    let asks = "try: socket.socket(16, 3, 20)\nexcept OSError: print('asked', file=__import__('sys').stderr)";
    let err = stderr_of(format!("{load}\n{asks}\nprint('done')"));
    assert!(err.starts_with(&line) && err.ends_with("\nasked\n") && err.lines().count() == 2, "{err}");
    assert_eq!(stderr_of("import ctypes; ctypes.CDLL('libpthread.so.0'); print('done')".to_owned()), "");
}

#[test]
fn a_counter_is_a_file_of_the_broker_by_each_way_to_open_it() {
    let script = format!(
        "import os\n\
         port = '{PORT}'\n\
         def told(fd):\n\
         \x20   return os.readlink(f'/proc/self/fd/{{fd}}').startswith('/memfd:remora-counter'), os.read(fd, 9)\n\
         dir = os.open(port + '/counters', os.O_RDONLY)\n\
         root = os.open('/', os.O_RDONLY)\n\
         os.chdir(port)\n\
         ways = [os.open(port + '/hw_counters/sent_pkts', os.O_RDONLY),\n\
         \x20   os.open('port_xmit_data', os.O_RDONLY, dir_fd=dir),\n\
         \x20   os.open(port[1:] + '/counters/port_rcv_data', os.O_RDONLY, dir_fd=root),\n\
         \x20   os.open('counters/port_rcv_packets', os.O_RDONLY)]\n\
         print([told(fd) for fd in ways])\n"
    );
    let printed = run("127.94.0.2", &["python3", "-c", &script]);
    assert_eq!(printed, "[(True, b'0\\n'), (True, b'0\\n'), (True, b'0\\n'), (True, b'0\\n')]\n");
}

#[test]
fn programs_without_rdma_do_as_they_would_alone() {
    let address = "127.94.0.3";
    let script = "cd $(mktemp -d) && echo 'int main(void) { return 0; }' >x.c && cc x.c && ./a.out && cat x.c && \
                  cat missing 2>&1; rm -r \"$PWD\"";
    let printed = run(address, &["bash", "-c", script]);
    assert_eq!(printed, "int main(void) { return 0; }\ncat: missing: No such file or directory\n");
    let forks = "import os, subprocess; pid = os.fork(); pid or os._exit(len(os.listdir('/sys/class/infiniband'))); \
                 print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), subprocess.check_output(['echo', 'x']))";
    assert_eq!(run(address, &["python3", "-c", forks]), "1 b'x\\n'\n");
}

#[test]
fn the_kernels_rdma_netlink_is_refused_and_its_command_is_stood_in_for() {
    let address = "127.94.0.4";
    let script = "import socket, errno\n\
                  try: socket.socket(16, 3, 20)\n\
                  except OSError as error: print(errno.errorcode[error.errno])\n\
                  socket.socket(16, 3, 0).close()";
    assert_eq!(run(address, &["python3", "-c", script]), "EPROTONOSUPPORT\n");
    let shown = run(address, &["rdma", "link", "show", "-j"]);
    assert!(
        shown.starts_with("[{\"ifindex\":0,\"ifname\":\"remora0\",\"port\":1,\"state\":\"ACTIVE\""),
        "{shown}"
    );
    assert!(shown.contains("\"netdev\":\"lo\",\"netdev_index\":1"), "{shown}");
}
