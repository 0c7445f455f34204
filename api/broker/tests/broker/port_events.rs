//! Interfaces that go down and come up, addresses that are removed and added, and the programs that are
//! notified.

use remora_broker::client::{self, Paths, PortEvents, Range, Watch};
use remora_broker::{Broker, GidEntry, Options, PortState};
use remora_netns::{Error, Namespace};
use remora_verbs::Counters;
use std::sync::mpsc::{Receiver, channel};

use crate::{LONG, at, never, report, until};

/// A host with one interface that is up, and the host at the other end.
fn hosts(address: &str) -> Result<[Namespace; 2], Error> {
    let near = Namespace::new("near")?;
    let far = Namespace::new("far")?;
    near.add_veth("eth0", &far, "eth0", "")?;
    far.ip("link set eth0 up")?;
    near.ip(&format!("address add {address} dev eth0"))?;
    near.ip("link set eth0 up")?;
    near.wait_until_up("eth0")?;
    Ok([near, far])
}

/// A program that records how its port changes.
struct WatchingProgram {
    range: Range,
    first: PortState,
    changes: Receiver<PortState>,
    _watch: Watch,
}

impl WatchingProgram {
    fn start(address: &str) -> WatchingProgram {
        let range = client::open(at(address), &never()).unwrap();
        let events = PortEvents::open(&range).unwrap();
        let first = events.first().clone();
        let (change, changes) = channel();
        let events = events.on_change(move |state| change.send(state).unwrap());
        let watch = Watch::of(&range, None, Some(events), Counters::default, || {}).unwrap();
        WatchingProgram { range, first, changes, _watch: watch }
    }

    #[track_caller]
    fn sees(&self, active: bool, gids: &[Option<GidEntry>]) {
        let state = self.changes.recv_timeout(LONG).unwrap();
        assert_eq!((state.active, &state.gids[..]), (active, gids));
    }
}

/// Waits until a file of the port has this content.
#[track_caller]
fn shows(paths: &Paths, name: &str, words: &str) {
    let file = paths.folder().join("sys/class/infiniband/remora0/ports/1").join(name);
    let limit = std::time::Instant::now() + LONG;
    loop {
        let content = std::fs::read_to_string(&file).unwrap();
        if content.trim() == words {
            return;
        }
        assert!(std::time::Instant::now() < limit, "{name}: {content}");
        std::thread::yield_now();
    }
}

#[test]
fn a_program_is_told_of_its_interface_and_its_address_and_the_paths_show_them() {
    let [near, far] = remora_netns::require!(hosts("10.98.0.1/24"));
    near.inside(|| {
        let address = "10.98.0.1:0";
        let _broker = Broker::open(at(address), &Options::default()).unwrap();
        let paths = Paths::open(&[at(address)], &never()).unwrap();
        let both = Paths::open(&[at(address), at("127.0.0.9:0")], &never()).unwrap();
        let program = WatchingProgram::start(address);
        let own = program.first.gids[0].unwrap();
        assert_eq!((program.first.active, own.ip), (true, at(address).ip()));
        let shown = near.ip("-oneline link show eth0").unwrap();
        assert_eq!(shown.split(':').next(), Some(&*own.interface.to_string()), "{shown}");
        let ip = |words: &str| near.ip(words).unwrap();
        ip("link set eth0 down");
        program.sees(false, &[Some(own)]);
        shows(&paths, "state", "1: DOWN");
        shows(&paths, "phys_state", "3: Disabled");
        shows(&both, "state", "1: DOWN");
        ip("link set eth0 up");
        program.sees(true, &[Some(own)]);
        shows(&paths, "state", "4: ACTIVE");
        ip("address del 10.98.0.1/24 dev eth0");
        program.sees(true, &[None]);
        shows(&paths, "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
        shows(&both, "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
        shows(&both, "gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0009");
        ip("address add 10.98.0.1/24 dev eth0");
        program.sees(true, &[Some(own)]);
        shows(&paths, "gids/0", "0000:0000:0000:0000:0000:ffff:0a62:0001");
        // The carrier disappears with the other end.
        far.ip("link set eth0 down").unwrap();
        program.sees(false, &[Some(own)]);
        far.ip("link set eth0 up").unwrap();
        program.sees(true, &[Some(own)]);
        // A program that starts later sees the port's present state.
        ip("link set eth0 down");
        program.sees(false, &[Some(own)]);
        assert!(!WatchingProgram::start(address).first.active);
        assert!(PortEvents::open(&program.range).unwrap_err().to_string().contains("asks once"));
    })
    .unwrap();
}

/// Moves the calling thread into a mount namespace of its own, where the folders for temporary files are
/// empty and only `/dev/shm` is writable.
fn leave_the_folders() {
    // SAFETY: only the calling thread moves, and it mounts in its own namespace.
    let done = unsafe {
        let moved = libc::unshare(libc::CLONE_NEWNS);
        let none = std::ptr::null();
        let private = libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast());
        let mount = |place: &std::ffi::CStr, flags| {
            libc::mount(c"none".as_ptr(), place.as_ptr(), c"tmpfs".as_ptr(), flags, none.cast())
        };
        let temporary = std::ffi::CString::new(std::env::temp_dir().to_str().unwrap()).unwrap();
        moved
            + private
            + mount(&temporary, libc::MS_RDONLY)
            + mount(c"/tmp", libc::MS_RDONLY)
            + mount(c"/dev/shm", 0)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Regression: the second container of a pod had no device paths, because it cannot see the broker's
/// folder.
#[test]
fn a_program_of_another_mount_namespace_gets_paths_of_its_own_that_follow_the_port() {
    let [near, _far] = remora_netns::require!(hosts("10.98.0.1/24"));
    near.inside(|| {
        let address = "10.98.0.1:0";
        let _broker = Broker::open(at(address), &Options::default()).unwrap();
        let theirs = Paths::open(&[at(address)], &never()).unwrap().folder().to_owned();
        leave_the_folders();
        assert!(!theirs.exists());
        let paths = Paths::open(&[at(address)], &never()).unwrap();
        let own = paths.folder().to_owned();
        assert!(own.starts_with("/dev/shm"), "{}", own.display());
        shows(&paths, "gids/0", "0000:0000:0000:0000:0000:ffff:0a62:0001");
        shows(&paths, "gid_attrs/ndevs/0", "eth0");
        assert!(own.join("broker").is_symlink() && own.join("dev/infiniband/uverbs0").exists());
        near.ip("address del 10.98.0.1/24 dev eth0").unwrap();
        shows(&paths, "gids/0", "0000:0000:0000:0000:0000:0000:0000:0000");
        near.ip("link set eth0 down").unwrap();
        shows(&paths, "state", "1: DOWN");
        let gone = own.join("sys/class/infiniband/remora0/ports/1/gid_attrs/ndevs/0");
        assert!(!gone.exists(), "an empty entry has no interface");
        drop(paths);
        assert!(!own.exists());
    })
    .unwrap();
}

#[test]
fn a_broker_has_paths_for_sixteen_lists_of_addresses_at_once() {
    let address = "127.94.0.71:0";
    let _broker = Broker::open(at(address), &Options::default()).unwrap();
    let open = |last: u8| Paths::open(&[at(address), at(&format!("127.94.1.{last}:0"))], &never());
    let mut all: Vec<Paths> = (1..=16).map(|last| open(last).unwrap()).collect();
    assert_eq!(open(3).unwrap().folder(), all[2].folder(), "one tree for one list");
    let words = open(17).unwrap_err().to_string();
    assert!(words.contains("16 lists of addresses") && words.contains("--no-paths"), "{words}");
    let _other = Broker::open(at("127.94.0.72:0"), &Options::default()).unwrap();
    let words = Paths::open(&[at(address), at("127.94.0.72:0")], &never()).unwrap_err().to_string();
    assert!(words.contains("another broker has 127.94.0.72") && words.contains("first"), "{words}");
    // A tree that nobody reads is replaced.
    let gone = all.remove(7);
    let folder = gone.folder().to_owned();
    drop(gone);
    crate::until(at(address), |_| open(18).is_ok());
    assert!(!folder.exists() && all[0].folder().exists());
}

#[test]
fn an_interface_that_is_gone_takes_port_and_address_with_it() {
    let [near, _far] = remora_netns::require!(hosts("fd98::1/64 nodad"));
    near.inside(|| {
        let address = "[fd98::1]:0";
        let _broker = Broker::open(at(address), &Options::default()).unwrap();
        let program = WatchingProgram::start(address);
        near.ip("link delete eth0").unwrap();
        // The carrier, the address and the interface may disappear one after the other.
        loop {
            let state = program.changes.recv_timeout(LONG).unwrap();
            if state == (PortState { active: false, gids: vec![None] }) {
                break;
            }
        }
    })
    .unwrap();
}

#[test]
fn a_program_that_takes_no_events_is_told_no_more_and_keeps_its_range() {
    let [near, _far] = remora_netns::require!(hosts("10.98.0.2/24"));
    near.inside(|| {
        let address = "10.98.0.2:0";
        let _broker = Broker::open(at(address), &Options::default()).unwrap();
        let (closed, program) =
            (client::open(at(address), &never()).unwrap(), WatchingProgram::start(address));
        drop(PortEvents::open(&closed).unwrap());
        near.ip("link set eth0 down").unwrap();
        program.sees(false, &program.first.gids);
        until(at(address), |report| report.broker.tally.dropped == 1);
        assert_eq!(report(at(address)).programs.len(), 2);
        // A program that reads nothing until its socket is full.
        let deaf = client::open(at(address), &never()).unwrap();
        let _unread = PortEvents::open(&deaf).unwrap();
        let mut changes = 0;
        while report(at(address)).broker.tally.dropped == 1 {
            changes += 2;
            assert!(changes < 200, "the broker keeps changes without end");
            near.ip("link set eth0 up").unwrap();
            program.sees(true, &program.first.gids);
            near.ip("link set eth0 down").unwrap();
            program.sees(false, &program.first.gids);
        }
    })
    .unwrap();
}
