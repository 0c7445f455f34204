//! Output that appears on a terminal, and not in a file or pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::running::{Server, command, finish, remora};

/// Opens a terminal and returns the user's end and the program's end.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&near).and_then(|()| unlockpt(&near)).expect("a terminal");
    tcsetwinsize(&near, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal");
    let name = ptsname(&near, Vec::new()).expect("its name").into_string().expect("ASCII");
    (File::from(near), File::options().read(true).write(true).open(name).expect("its other end"))
}

/// Returns a channel with all output of the terminal, in pieces.
fn shown(mut near: File) -> Receiver<String> {
    let (sender, pieces) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = near.read(&mut buffer) {
            if sender.send(String::from_utf8_lossy(&buffer[..count]).into_owned()).is_err() {
                return;
            }
        }
    });
    pieces
}

/// Waits until the terminal shows these words.
#[track_caller]
fn until(pieces: &Receiver<String>, words: &str) {
    let mut all = String::new();
    while !all.contains(words) {
        let piece = pieces.recv_timeout(Duration::from_secs(60));
        all += &piece.unwrap_or_else(|_| panic!("{words:?} is not shown: {all:?}"));
    }
}

#[track_caller]
fn status(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code();
        }
        assert!(started.elapsed() < Duration::from_secs(60), "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Regression: `remora top` panicked without a terminal.
#[test]
fn top_without_a_terminal_says_so() {
    remora(&["top", "127.0.0.1:1"]).one_line("needs a terminal: use --once to print the counters as text");
}

/// Runs `remora top` on a terminal, ends it by `end`, and checks that the terminal's settings are restored.
#[track_caller]
fn top_ends(end: impl Fn(&mut File, &Child)) {
    let server = Server::start("farm", "shm", &["--metrics", "127.0.0.1:0"]);
    let (mut near, far) = terminal();
    let before = tcgetattr(far.as_fd()).expect("a terminal").local_modes;
    let end_of = || Stdio::from(far.try_clone().expect("a terminal"));
    let mut top = command(&["top", &server.metrics, "--interval", "3600"]);
    top.env("TERM", "xterm").stdin(end_of()).stdout(end_of()).stderr(end_of());
    let mut top = top.spawn().expect("the binary");
    let pieces = shown(near.try_clone().expect("a terminal"));
    // This is the last cell that `remora top` draws.
    until(&pieces, "┘");
    assert!(!tcgetattr(far.as_fd()).expect("a terminal").local_modes.contains(LocalModes::ICANON), "raw");
    end(&mut near, &top);
    assert_eq!(status(&mut top), Some(0));
    until(&pieces, "\x1b[?1049l");
    assert_eq!(tcgetattr(far.as_fd()).expect("a terminal").local_modes, before);
}

/// Regression: `remora top` ignored Ctrl-C.
#[test]
fn control_c_ends_top_and_the_terminal_is_as_before() {
    top_ends(|near, _| near.write_all(b"\x03").expect("a terminal"));
}

#[test]
fn q_ends_top_and_the_terminal_is_as_before() {
    top_ends(|near, _| near.write_all(b"q").expect("a terminal"));
}

#[test]
fn a_signal_ends_top_and_the_terminal_is_as_before() {
    use rustix::process::{Pid, Signal, kill_process};
    top_ends(|_, top| kill_process(Pid::from_child(top), Signal::TERM).expect("a child"));
}

/// Returns the terminal output of a command that logs.
fn logs_on_a_terminal(no_color: Option<&str>) -> String {
    let (near, far) = terminal();
    let mut devinfo = command(&["devinfo"]);
    devinfo.env("RUST_LOG", "info").env_remove("NO_COLOR").stdout(Stdio::null()).stderr(far);
    if let Some(set) = no_color {
        devinfo.env("NO_COLOR", set);
    }
    let mut child = devinfo.spawn().expect("the binary");
    drop(devinfo);
    let all: String = shown(near).iter().collect();
    assert_eq!(status(&mut child), Some(0));
    all
}

/// Regression: logs in files and pipes had colour escapes.
#[test]
fn logs_have_colours_on_a_terminal_alone_and_never_for_who_wants_none() {
    let piped = finish(command(&["devinfo"]).env("RUST_LOG", "info"));
    assert!(piped.err.contains("adapter open") && !piped.err.contains('\x1b'), "{:?}", piped.err);
    assert!(logs_on_a_terminal(None).contains('\x1b'));
    let plain = logs_on_a_terminal(Some("1"));
    assert!(plain.contains("adapter open") && !plain.contains('\x1b'), "{plain:?}");
    // https://no-color.org: the variable must be set and not empty.
    assert!(logs_on_a_terminal(Some("")).contains('\x1b'));
}

/// Regression: a server without descriptors logged a hundred lines a second.
#[test]
fn a_server_out_of_descriptors_says_so_now_and_then_and_not_a_hundred_times_a_second() {
    let program = crate::running::binary();
    let line = format!("ulimit -n 64 && exec {program} serve kv --listen 127.0.0.1:0 --capacity 1000");
    let mut server = Command::new("sh");
    server.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = server.spawn().expect("a shell");
    let mut messages = BufReader::new(server.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let serving = messages.find(|line| line.contains("serving ")).expect("it serves");
    let address = serving.split(" at ").nth(1).and_then(|rest| rest.split(';').next()).expect("an address");
    let held: Vec<TcpStream> = (0..100).map_while(|_| TcpStream::connect(address).ok()).collect();
    let counting = std::thread::spawn(move || messages.count());
    std::thread::sleep(Duration::from_secs(3));
    server.kill().expect("a child");
    server.wait().expect("a child");
    let lines = counting.join().expect("read");
    assert!(lines <= 40, "{lines} lines for {} connections", held.len());
}
