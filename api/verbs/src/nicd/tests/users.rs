//! Programs of several users at one daemon, and the requests that list and end kept tenants. The kernel
//! takes the credentials of a connection from the thread that connects, so a thread can act as a program of
//! another user.
//! another user.

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use super::super::{end, tenants};
use super::*;
use remora_host::packet::own_uid;

const HOG: u32 = 1001;
const OTHER: u32 = 1002;

/// A daemon in a folder that every user may enter, for its own user, `HOG` and `OTHER`.
struct SharedLender {
    daemon: Daemon,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn shared(options: Options) -> SharedLender {
    let folder = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode).unwrap();
    let path = folder.path().join("nic.sock");
    let options = Options { allow: vec![HOG, OTHER], ..options };
    SharedLender { daemon: Daemon::open(&Device::shm(), &path, &options).unwrap(), path, _folder: folder }
}

impl SharedLender {
    /// Runs `program` with this user's credentials.
    fn run<T: Send>(&self, uid: u32, program: impl FnOnce() -> T + Send) -> T {
        assert_eq!(own_uid(), 0, "this test needs root to run threads of other users");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let user = Uid::from_raw(uid);
                let group = Gid::from_raw(uid);
                set_thread_res_gid(group, group, group).unwrap();
                set_thread_res_uid(user, user, user).unwrap();
                program()
            });
            thread.join().unwrap()
        })
    }

    fn raw(&self, name: &str) -> (Raw, Reply) {
        let raw = Raw(PacketSocket::connect(&self.path, LONG).unwrap());
        let kept = !name.is_empty();
        let reply = raw.ask(&Request::Attach { version: VERSION, name: name.to_owned(), kept });
        (raw, reply)
    }

    /// Attaches until the daemon refuses. Returns the attached programs and the text of the refusal.
    fn attach_all(&self) -> (Vec<Raw>, String) {
        let mut programs = Vec::new();
        loop {
            match self.raw("") {
                (raw, Reply::Attached { .. }) => programs.push(raw),
                (_, Reply::AtLimit(words)) => return (programs, words),
                (_, reply) => panic!("{reply:?}"),
            }
        }
    }

    /// Keeps tenants with one protection domain each until the daemon refuses. Returns their number and the
    /// text of the refusal.
    fn keep_all(&self) -> (usize, String) {
        for number in 0.. {
            match self.raw(&format!("hog{number}")) {
                (raw, Reply::Attached { .. }) => drop(raw.domain()),
                (_, Reply::AtLimit(words)) => return (number, words),
                (_, reply) => panic!("{reply:?}"),
            }
        }
        unreachable!()
    }
}

/// What one user holds when the daemon has given all that it gives.
struct Taken {
    names: usize,
    attached: Vec<Raw>,
    bytes: u64,
    refusals: [String; 3],
}

impl SharedLender {
    /// Takes all names, attachments and memory that the daemon gives to the user of this thread.
    fn take_all(&self) -> Taken {
        let (names, name_refusal) = self.keep_all();
        let (attached, refusal) = self.attach_all();
        let mut bytes = 0;
        // The memory limit is the sum over all programs of the user.
        let domains = [0, 1].map(|number: usize| attached[number].domain());
        let mut turns = [0, 1].into_iter().cycle();
        let memory_refusal = loop {
            let turn = turns.next().unwrap();
            match attached[turn].register(domains[turn], 4 << 20) {
                Reply::AtLimit(words) => break words,
                _ => bytes += 4 << 20,
            }
        };
        Taken { names, attached, bytes, refusals: [name_refusal, refusal, memory_refusal] }
    }
}

/// Sets the number of descriptors that this process may open.
fn limit_descriptors(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum }).unwrap();
}

/// Each region and each queue has a descriptor in the daemon. A user that takes all that it gets leaves
/// enough for another.
#[test]
fn one_user_does_not_take_the_descriptors_of_another() {
    limit_descriptors(1024);
    let lender = shared(Options::default());
    let take_all = || {
        let (raw, _) = lender.raw("");
        let domain = raw.domain();
        let mut count = 0;
        loop {
            match raw.register(domain, 64) {
                Reply::AtLimit(words) => return (raw, count, words),
                reply => drop(number(reply)),
            }
            count += 1;
        }
    };
    let (_hog, most, words) = lender.run(HOG, take_all);
    assert!(words.contains("descriptors of the daemon") && words.contains("ulimit -n"), "{words}");
    let (_other, left, _) = lender.run(OTHER, take_all);
    assert!(most > left && left > 100, "{most} and {left}");
}

/// Regression: 64 kept names of one user locked all other users of a NIC daemon out, and memory was limited
/// by attachment instead of by user.
///
/// Regression: places for names and attachments were shared by all users, so a second user had 10 of 64 left
/// when the first had taken all that it got.
#[test]
fn the_second_user_is_served_as_if_the_first_were_not_there() {
    limit_descriptors(8192);
    // The limit of memory is smaller than by default, because regions are populated.
    let limits = Limits { bytes: 16 << 20, ..Limits::default() };
    let lender = shared(Options { limits, ..Options::default() });
    let users = [HOG, OTHER].map(|uid| {
        let taken = lender.run(uid, || lender.take_all());
        assert_eq!((taken.names, taken.attached.len(), taken.bytes), (64, 64, 16 << 20), "user {uid}");
        let options = ["--tenants", "--attachments", "--memory"];
        for (words, option) in taken.refusals.iter().zip(options) {
            assert!(words.contains(&format!("user {uid} may have")) && words.contains(option), "{words}");
        }
        taken
    });
    let listed = tenants(&lender.path).unwrap();
    for uid in [HOG, OTHER] {
        let own = listed.iter().filter(|facts| facts.uid == uid);
        assert_eq!(own.clone().count(), 128);
        assert_eq!(own.map(|facts| facts.bytes).sum::<u64>(), 16 << 20);
    }
    let kept = listed.iter().filter(|facts| facts.uid == HOG && !facts.name.is_empty());
    kept.for_each(|facts| end(&lender.path, HOG, &facts.name).unwrap());
    drop(users);
    let left = || tenants(&lender.path).unwrap();
    let until = Instant::now() + LONG;
    while left().len() > 64 {
        assert!(Instant::now() < until, "programs that have ended are still attached");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(left().iter().all(|facts| facts.uid == OTHER && facts.bytes == 0), "{:?}", left());
    // What has ended no longer counts.
    assert_eq!(lender.run(HOG, || lender.keep_all()).0, 64);
}

/// Regression: the oldest silent connection gave way, even if it belonged to another user than the
/// newcomer.
#[test]
fn connections_of_one_user_that_say_nothing_do_not_displace_another_user() {
    let lender = shared(Options { attachments: 6, ..Options::default() });
    let connect = || PacketSocket::connect(&lender.path, LONG).unwrap();
    let waiting = lender.run(OTHER, connect);
    let silent: Vec<PacketSocket> = lender.run(HOG, || (0..50).map(|_| connect()).collect());
    let raw = Raw(waiting);
    let reply = raw.ask(&Request::Attach { version: VERSION, name: String::new(), kept: false });
    assert!(matches!(reply, Reply::Attached { .. }), "{reply:?}");
    drop(silent);
}

#[test]
fn owner_and_root_list_and_end_what_is_kept_and_other_users_their_own() {
    let lender = shared(Options::default());
    let keep = |name: &str| {
        let (raw, reply) = lender.raw(name);
        assert!(matches!(reply, Reply::Attached { .. }), "{reply:?}");
        raw.domain();
        raw
    };
    let attached = lender.run(HOG, || {
        drop(keep("gone"));
        keep("\u{1b}[2Jhere")
    });
    lender.run(OTHER, || drop(keep("mine")));
    let names = |uid: u32| {
        lender.run(uid, || tenants(&lender.path)).unwrap().into_iter().map(|facts| (facts.uid, facts.name))
    };
    let of_hog = [(HOG, "\u{1b}[2Jhere".to_owned()), (HOG, "gone".to_owned())];
    let of_other = [(OTHER, "mine".to_owned())];
    assert_eq!(names(HOG).collect::<Vec<_>>(), of_hog);
    assert_eq!(names(OTHER).collect::<Vec<_>>(), of_other);
    assert_eq!(names(own_uid()).collect::<Vec<_>>(), [&of_hog[..], &of_other].concat());
    let words = lender.run(OTHER, || end(&lender.path, HOG, "gone")).unwrap_err().to_string();
    assert!(words.contains("user 1002 may not end tenants of user 1001"), "{words}");
    let words = end(&lender.path, HOG, "nothing").unwrap_err().to_string();
    assert!(words.contains("user 1001 has no kept tenant `nothing`"), "{words}");
    lender.run(HOG, || end(&lender.path, HOG, "gone")).unwrap();
    // The attached program is disconnected.
    end(&lender.path, HOG, "\u{1b}[2Jhere").unwrap();
    attached.0.wait_for_end();
    assert_eq!(names(own_uid()).collect::<Vec<_>>(), of_other);
    assert_eq!(lender.daemon.tenants().len(), 1);
    let words = lender.run(1003, || tenants(&lender.path)).unwrap_err().to_string();
    assert!(words.contains("does not admit uid 1003"), "{words}");
}

#[test]
fn a_name_in_use_is_reported_with_its_user_and_process() {
    let lender = shared(Options::default());
    let (first, _) = lender.raw("store");
    let (_, reply) = lender.raw("store");
    let Reply::Refused(words) = reply else { panic!("{reply:?}") };
    let pid = std::process::id();
    assert!(words.contains(&format!("process {pid} of user 0 is attached as `store`")), "{words}");
    // The same name used by two users stands for two tenants.
    let other = lender.run(OTHER, || lender.raw("store").1);
    assert!(matches!(other, Reply::Attached { .. }), "{other:?}");
    drop(first);
}
