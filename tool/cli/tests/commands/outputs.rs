//! The files that commands write, and the files that they must not change.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::running::{Server, command, finish, packets, remora};

/// A folder that is removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = tempfile::Builder::new().prefix(name).tempdir().expect("a folder").keep();
        Folder(path)
    }

    fn of(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a plain path").to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder").map(|entry| entry.expect("one").file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().expect("plain")).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `remora capture -o FILE` with a client of this server.
fn captured(server: &Server, file: &str) {
    let words = ["capture", "-o", file, "--", "remora"];
    assert_eq!(remora(&[&words[..], &server.words("get", &["key"])].concat()).good(), "value\n");
}

fn small_server() -> Server {
    let server = Server::start("farm", "shm", &[]);
    server.kv("put", &["key", "value"]).good();
    server
}

/// Regression: `remora capture -o FILE` deleted FILE before the command started.
#[test]
fn a_capture_leaves_the_file_that_is_there_until_there_is_another() {
    let folder = Folder::new("until");
    let file = folder.of("old.pcapng");
    fs::write(&file, b"precious").expect("written");
    remora(&["capture", "-o", &file, "/none/such"]).one_line("/none/such");
    remora(&["capture", "-o", &file, "true"]).one_line("opened no NIC");
    assert_eq!(fs::read(&file).expect("still there"), b"precious");
    assert_eq!(folder.names(), ["old.pcapng"], "and nothing beside it");
    captured(&small_server(), &file);
    assert!(packets(&file) >= 4);
    assert_eq!(folder.names(), ["old.pcapng"]);
}

/// Regression: a capture replaced pipes, links and devices by files.
#[test]
fn a_capture_follows_links_and_replaces_neither_pipe_nor_device() {
    let folder = Folder::new("kinds");
    let server = small_server();
    let link = folder.of("link");
    let pipe = folder.of("pipe");
    symlink("file.pcapng", &link).expect("a link");
    captured(&server, &link);
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert!(packets(&folder.of("file.pcapng")) >= 4);
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("coreutils").success());
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).expect("a pipe")
    });
    captured(&server, &pipe);
    let passed = reading.join().expect("read");
    assert_eq!(passed[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section header");
    assert!(fs::symlink_metadata(&pipe).expect("there").file_type().is_fifo());
    captured(&server, "/dev/null");
    assert!(fs::symlink_metadata("/dev/null").expect("there").file_type().is_char_device());
}

#[test]
fn a_capture_that_cannot_be_written_is_told_before_the_command_runs() {
    let folder = Folder::new("before");
    let mark = folder.of("mark");
    let words = ["capture", "-o", "/none/such/file", "--", "touch", &mark];
    remora(&words).one_line("there is no folder /none/such, make it first");
    remora(&["capture", "-o", &folder.of("."), "--", "touch", &mark]).one_line("is a folder: name a file");
    assert!(!Path::new(&mark).exists());
}

#[test]
fn a_capture_of_a_server_that_is_told_to_end_is_there() {
    let folder = Folder::new("ended");
    let file = folder.of("server.pcapng");
    let words = ["capture", "-o", &file, "--", "remora", "serve", "kv", "--listen", "127.0.0.1:0"];
    let mut capture = command(&words).stderr(std::process::Stdio::piped()).spawn().expect("the binary");
    let mut stderr = capture.stderr.take().expect("piped");
    let mut first = [0; 7];
    stderr.read_exact(&mut first).expect("that it serves");
    let own = rustix::process::Pid::from_child(&capture);
    rustix::process::kill_process(own, rustix::process::Signal::TERM).expect("a child");
    let started = Instant::now();
    while capture.try_wait().expect("a child").is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The file contains at least a header.
    packets(&file);
    assert_eq!(folder.names(), ["server.pcapng"]);
}

#[test]
fn two_nics_of_one_command_have_a_file_each() {
    let folder = Folder::new("two");
    let server = small_server();
    let file = folder.of("both.pcapng");
    let get = format!("{} {}", crate::running::binary(), server.words("get", &["key"]).join(" "));
    let words = ["capture", "-o", &file, "--", "sh", "-c", &format!("{get} && {get}")];
    remora(&words).good();
    assert_eq!(folder.names(), ["both.2.pcapng", "both.pcapng"]);
    assert!(packets(&file) >= 4 && packets(&folder.of("both.2.pcapng")) >= 4);
}

/// Regression: benchmarks overwrote the figures that the repository keeps.
#[test]
fn benchmarks_draw_where_nothing_is_kept_unless_they_are_told_where() {
    let folder = Folder::new("report");
    fs::create_dir(folder.of("report")).expect("a folder");
    fs::write(folder.of("report/redn-figure-10.svg"), b"kept").expect("written");
    let words = ["bench", "redn", "--only", "model:", "--rounds", "1"];
    let run = |words: &[&str]| finish(command(words).current_dir(&folder.0)).good();
    run(&words);
    run(&["bench", "strom", "--only", "model:", "--rounds", "1"]);
    assert_eq!(fs::read(folder.of("report/redn-figure-10.svg")).expect("there"), b"kept");
    let mut beside = fs::read_dir(folder.of("report")).expect("there");
    assert!(beside.all(|entry| {
        ["latest", "redn-figure-10.svg"].map(Into::into).contains(&entry.expect("one").file_name())
    }));
    assert!(Path::new(&folder.of("report/latest/redn-figure-10.svg")).exists());
    assert!(Path::new(&folder.of("report/latest/strom-figure-7.svg")).exists());
    run(&[&words[..], &["--report", "report"]].concat());
    assert_ne!(fs::read(folder.of("report/redn-figure-10.svg")).expect("there"), b"kept");
    let ignored = Command::new("git")
        .args(["check-ignore", "--quiet", "report/latest/redn-figure-10.svg"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .status();
    // Outside of a repository there is nothing that ignores the file.
    assert!(ignored.map_or(true, |status| status.code() != Some(1)), "git ignores what is drawn there");
}

#[test]
fn a_replay_leaves_the_file_that_is_there_if_its_trace_is_wrong() {
    let folder = Folder::new("replay");
    let trace = folder.of("trace");
    let out = folder.of("out");
    fs::write(&trace, b"2\n1 4 0\nnonsense\n").expect("written");
    fs::write(&out, b"precious").expect("written");
    remora(&["bench", "irn-receiver", &trace, "--out", &out]).one_line("line 3");
    assert_eq!(fs::read(&out).expect("there"), b"precious");
    remora(&["bench", "irn-receiver", &trace, "--out", "/none/such"]).one_line("there is no folder /none");
}
