//! Maps that change, in a file and in a real etcd.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use remora_members::{Follower, Map, Source, SourceError};
use remora_netns::Process;

/// Upper bound of a wait; only a test that hangs reaches it.
const LONG: Duration = Duration::from_secs(60);

fn text(addresses: &[&str]) -> String {
    let server = |(shard, address): (usize, &&str)| {
        format!("[[server]]\nname = \"s{shard}\"\naddress = \"{address}\"\nshard = {shard}\n")
    };
    addresses.iter().enumerate().map(server).collect()
}

fn addresses(map: &Map) -> Vec<String> {
    map.servers().iter().map(|server| server.address.to_string()).collect()
}

fn follow(name: &str) -> Result<Follower, SourceError> {
    name.parse::<Source>().expect("a source").follow()
}

/// Returns the next change.
fn next(follower: &mut Follower) -> Result<Vec<String>, SourceError> {
    let end = Instant::now() + LONG;
    loop {
        if let Some(news) = follower.changed() {
            return news.map(addresses);
        }
        assert!(Instant::now() < end, "no change comes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_file_is_followed_through_changes_mistakes_and_its_absence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("servers.toml");
    let name = path.to_str().unwrap();
    assert!(matches!(follow(name), Err(SourceError::Missing(_))));
    fs::write(&path, text(&["10.0.0.1:1"])).unwrap();
    let mut follower = follow(name).unwrap();
    assert_eq!(addresses(follower.map()), ["10.0.0.1:1"]);
    fs::write(&path, text(&["10.0.0.1:1", "10.0.0.2:1"])).unwrap();
    assert_eq!(next(&mut follower).unwrap(), ["10.0.0.1:1", "10.0.0.2:1"]);
    fs::write(&path, "no map").unwrap();
    assert!(matches!(next(&mut follower), Err(SourceError::Map(..))));
    assert_eq!(follower.map().shards(), 2, "a mistake takes nothing away");
    fs::remove_file(&path).unwrap();
    assert!(matches!(next(&mut follower), Err(SourceError::Missing(_))));
    // Editors and careful scripts replace a file by renaming a new one.
    let new = folder.path().join("new");
    fs::write(&new, text(&["10.0.0.3:1"])).unwrap();
    fs::rename(&new, &path).unwrap();
    assert_eq!(next(&mut follower).unwrap(), ["10.0.0.3:1"]);
}

/// A real etcd cluster of one server.
struct Etcd {
    _process: Process,
    client: u16,
    peer: u16,
}

fn free_port() -> u16 {
    remora_netns::free_port().unwrap()
}

impl Etcd {
    fn start(data: &Path, client: u16, peer: u16) -> Etcd {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(data).args(["--name", "one", "--log-level", "error"]);
        etcd.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        etcd.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        etcd.args(["--initial-cluster", &format!("one={}", url(peer))]);
        let _process = Process::start(etcd.stdout(Stdio::null()).stderr(Stdio::null()));
        let etcd = Etcd { _process, client, peer };
        let end = Instant::now() + LONG;
        while !etcd.ctl(&["endpoint", "health"]) {
            assert!(Instant::now() < end, "etcd does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
        etcd
    }

    fn ctl(&self, arguments: &[&str]) -> bool {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl.env("ETCDCTL_API", "3").args(["--endpoints", &format!("127.0.0.1:{}", self.client)]);
        let status = etcdctl.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.expect("etcdctl is installed: run scripts/setup test").success()
    }

    fn put(&self, text: &str) {
        assert!(self.ctl(&["put", "remora/blocks", text]));
    }
}

#[test]
fn a_key_of_etcd_is_followed_through_changes_a_crash_and_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let client = free_port();
    let peer = free_port();
    let etcd = Etcd::start(folder.path(), client, peer);
    let dead = free_port();
    // The first endpoint does not answer; the second does.
    let name = format!("etcd://127.0.0.1:{dead},127.0.0.1:{client}/remora/blocks");
    assert!(matches!(follow(&name), Err(SourceError::Missing(_))));
    etcd.put(&text(&["10.0.0.1:1"]));
    let mut follower = follow(&name).unwrap();
    assert_eq!(addresses(follower.map()), ["10.0.0.1:1"]);
    for last in ["10.0.0.2:1", "10.0.0.3:1"] {
        etcd.put(&text(&["10.0.0.1:1", last]));
        assert_eq!(next(&mut follower).unwrap(), ["10.0.0.1:1", last]);
    }
    etcd.put("[[server]]\nname = 1");
    assert!(matches!(next(&mut follower), Err(SourceError::Map(..))));
    assert!(etcd.ctl(&["del", "remora/blocks"]));
    assert!(matches!(next(&mut follower), Err(SourceError::Missing(_))));
    assert_eq!(follower.map().shards(), 2, "what is gone takes nothing away");
    etcd.put(&text(&["10.0.0.4:1"]));
    assert_eq!(next(&mut follower).unwrap(), ["10.0.0.4:1"]);

    // The server is killed and returns with its data. The next request finds changes whose revisions were
    // compacted in the meantime.
    let peer = etcd.peer;
    drop(etcd);
    assert!(matches!(next(&mut follower), Err(SourceError::Reach(_))));
    let etcd = Etcd::start(folder.path(), client, peer);
    for last in 5..9 {
        etcd.put(&text(&[&format!("10.0.0.{last}:1")]));
    }
    assert!(etcd.ctl(&["compaction", "6"]) || etcd.ctl(&["compaction", "3"]));
    while next(&mut follower).unwrap() != ["10.0.0.8:1"] {}
}

#[test]
fn an_etcd_that_is_not_there_is_one_clear_line() {
    let error = follow(&format!("etcd://127.0.0.1:{}/k", free_port())).unwrap_err();
    let says = error.to_string();
    assert!(says.starts_with("no etcd answers at 127.0.0.1:") && !says.contains('\n'), "{says}");
}
