//! Tests that compile C programs against the files that `scripts/install-c` installs, and run them.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A folder with the installed library, which is removed when the test is over.
struct Installed(PathBuf);

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?} (`make setup`): {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

impl Installed {
    fn new(name: &str) -> Installed {
        let folder = tempfile::Builder::new().prefix(name).tempdir().expect("a folder").keep();
        std::fs::create_dir_all(&folder).unwrap();
        // The libraries are in the folder of this test program.
        let test = std::env::current_exe().unwrap();
        let built = test.parent().unwrap();
        run(Command::new(format!("{HERE}/../../scripts/install-c")).arg(&folder).arg(built));
        Installed(folder)
    }

    fn pkg_config(&self, options: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.0.join("lib/pkgconfig")).args(options).arg("remora");
        run(&mut command).split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a source file and links it with the shared library. Returns the program's path.
    fn program(&self, source: &str) -> PathBuf {
        let program = self.0.join(Path::new(source).file_stem().unwrap());
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        cc.arg(format!("{HERE}/{source}")).args(self.pkg_config(&["--cflags", "--libs"]));
        run(cc.arg(format!("-Wl,-rpath,{}/lib", self.0.display())));
        program
    }

    /// Compiles a source file and links it with the static library. Returns the program's path.
    fn alone(&self, source: &str) -> PathBuf {
        let program = self.0.join("alone");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-o"]).arg(&program).arg(format!("{HERE}/{source}"));
        cc.args(self.pkg_config(&["--cflags"])).arg(self.0.join("lib/libremora.a"));
        let libraries = self.pkg_config(&["--libs", "--static"]);
        run(cc.args(libraries.iter().filter(|word| !word.contains("remora"))));
        program
    }
}

/// A process that is killed when the test is over.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a command that runs the program under Valgrind, which `make setup` installs. The exit status is 9
/// if Valgrind finds an error.
fn valgrind(program: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    // Fair scheduling, because the library's threads poll and would keep other threads from running.
    valgrind.args(["--error-exitcode=9", "--quiet", "--fair-sched=try"]).arg(program);
    valgrind
}

/// Returns a command like [`valgrind`] that checks only accesses, for programs of 1RMA. Valgrind takes the
/// ciphertext and tags that ring's assembler writes for uninitialized bytes.
fn valgrind_accesses(program: &Path) -> Command {
    let mut valgrind = valgrind(program);
    let words: Vec<_> = valgrind.get_args().map(ToOwned::to_owned).collect();
    valgrind = Command::new("valgrind");
    valgrind.arg("--undef-value-errors=no").args(words);
    valgrind
}

/// Runs server and client of `rma_read`, which exchange the grant over a Unix socket, and returns their
/// output.
fn rma_conversation(
    installed: &Installed,
    mut server: Command,
    mut client: Command,
    port: &str,
) -> [String; 2] {
    let socket = installed.0.join("socket");
    server.args(["serve", port]).arg(&socket).stdout(Stdio::piped());
    let mut server = Server(server.spawn().unwrap());
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    let mut listens = String::new();
    output.read_line(&mut listens).unwrap();
    assert_eq!(listens, "listens\n");
    let client = run(client.args(["client", port]).arg(&socket));
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(server.0.wait().unwrap().success());
    [client, rest]
}

/// Runs client and server and returns their output.
fn conversation(server: &mut Command, client: &Path, port: &str) -> (String, String) {
    server.args(["serve", port, "127.0.0.1:0"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut server = Server(server.spawn().unwrap());
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    let mut listens = String::new();
    output.read_line(&mut listens).unwrap();
    let address = format!("127.0.0.1:{}", listens.trim());
    let client = run(Command::new(client).args(["client", port, &address]));
    drop(server.0.stdin.take());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(server.0.wait().unwrap().success());
    (client, rest)
}

/// Returns the expected output of a client: four rounds of a put, a put with an old version, and a get.
fn wanted() -> String {
    (1..=4).map(|round| format!("put 0, late put 1, got {} bytes\n", round * 1999)).collect()
}

#[test]
fn prism_kv_in_c_puts_and_gets_between_processes_and_every_buffer_comes_back() {
    let installed = Installed::new("kv");
    let shared = installed.program("examples/prism_kv.c");
    let alone = installed.alone("examples/prism_kv.c");
    for (port, server, client) in
        [("shm", &shared, &shared), ("udp", &shared, &alone), ("shm", &alone, &shared)]
    {
        let (client, server) = conversation(&mut Command::new(server), client, port);
        assert_eq!((client, server), (wanted(), "7 of 8 free\n".to_owned()), "{port}");
    }
}

#[test]
fn kernels_answer_a_c_program_between_processes() {
    let installed = Installed::new("strom");
    let program = installed.program("examples/strom_get.c");
    // Four requests by key (1000, 6, 3 and 0), a check of a whole object, and a count of two different
    // values.
    let wanted = "1: \n0: ggggggg\n0: dddd\n0: a\n0: 1000 bytes of o\n0: about 2\n";
    for port in ["shm", "udp"] {
        let output = conversation(&mut Command::new(&program), &program, port);
        assert_eq!(output, (wanted.to_owned(), "served\n".to_owned()), "{port}");
    }
}

/// The expected output of client and server of `rma_read`.
const RMA: [&str; 2] = [
    "read 1048576 bytes by 4 transfers\nwrite 0\nrekey 0\nread under the old key 1\nread under the new key 0: HELLO\n",
    "HELLO\n",
];

#[test]
fn a_c_program_reads_writes_and_rekeys_another_by_1rma() {
    let installed = Installed::new("rma");
    let shared = installed.program("examples/rma_read.c");
    let alone = installed.alone("examples/rma_read.c");
    for (port, client) in [("shm", &shared), ("udp", &shared), ("udp", &alone)] {
        let done = rma_conversation(&installed, Command::new(&shared), Command::new(client), port);
        assert_eq!(done, RMA, "{port}");
    }
}

#[test]
fn valgrind_finds_nothing_in_a_c_program_of_1rma() {
    let installed = Installed::new("rma-valgrind");
    let program = installed.program("examples/rma_read.c");
    for port in ["shm", "udp"] {
        let [server, client] = [(); 2].map(|()| valgrind_accesses(&program));
        assert_eq!(rma_conversation(&installed, server, client, port), RMA, "{port}");
    }
}

#[test]
fn every_mistake_with_1rma_is_an_errno_or_a_status() {
    let installed = Installed::new("rma-arguments");
    let program = installed.program("tests/rma_arguments.c");
    // This takes half a minute under Valgrind, so only `make nightly` runs it there.
    let whole = std::env::var_os("REMORA_WHOLE").is_some();
    let checked = whole.then(|| valgrind_accesses(&program)).into_iter();
    for mut command in checked.chain([Command::new(&program)]) {
        assert_eq!(run(&mut command), "every mistake was an errno\n");
    }
}

/// Regression: an empty region was EINVAL with the words "no memory" in C, and had other words in Rust.
#[test]
fn every_mistake_of_a_c_program_is_an_errno() {
    let installed = Installed::new("arguments");
    let program = installed.program("tests/arguments.c");
    assert_eq!(run(&mut Command::new(&program)), "every mistake was an errno\n");
    // Valgrind must find no wrong access with good or bad arguments.
    run(&mut valgrind(&program));
}

#[test]
fn a_forked_child_is_refused_its_parents_handles_and_ends_them_without_harm() {
    let installed = Installed::new("forks");
    let program = installed.program("tests/forks.c");
    assert_eq!(run(&mut Command::new(&program)), "the child had none of its parent's\n");
}
