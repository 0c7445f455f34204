//! Lost frames, and a capture of the frames that were not lost.

use std::path::{Path, PathBuf};
use std::process::Command;

use remora_wire::frame::{Start, dissect};
use remora_wire::icrc::{self, Flow};

use crate::connections::CmServer;
use crate::library::{address, done, program_at};
use crate::pairs::pair_of;

/// A file of this test, which is removed when the value is dropped.
struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> TestFile {
        TestFile(tempfile::tempdir().unwrap().keep().join(name))
    }
}

impl TestFile {
    /// Writes rules by which `percent` percent of the frames are lost.
    fn drops(&self, percent: u32, seed: u32) {
        let rule = format!("fault = 'drop'\nprobability = 0.{percent:02}\n");
        std::fs::write(&self.0, format!("seed = {seed}\n[[rule]]\n{rule}")).unwrap();
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

/// Runs a bandwidth test whose client loses `percent` percent of the frames that it sends and receives, and
/// captures the others.
#[track_caller]
fn loses(percent: u32, port: &str) {
    let here = address();
    let rules = TestFile::new(&format!("{port}-{percent}.toml"));
    let capture = TestFile::new(&format!("{port}-{percent}.pcapng"));
    rules.drops(percent, 1);
    let program = |words: &[&str]| {
        let mut command = program_at(&here, words);
        command.env("REMORA_PORT", port);
        // Only for the client, whose last word is the address.
        if words.last() == Some(&"127.0.0.1") {
            command.env("REMORA_FAULT", &rules.0).env("REMORA_CAPTURE", &capture.0);
        }
        command
    };
    let printed = pair_of(&program, &["ib_write_bw", "-F", "-x", "0", "-s", "4096", "-n", "300"], "-p");
    assert!(printed.contains(" 4096 "), "{printed}");
    let frames = tshark_reads(&capture.0);
    assert!(frames > 300, "{frames} frames");
}

/// Checks that tshark takes each frame of a capture for InfiniBand, and that each ICRC is right. Returns the
/// number of frames.
#[track_caller]
fn tshark_reads(capture: &Path) -> usize {
    // tshark is kept from guessing that payloads belong to other protocols.
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "--disable-protocol", "rpcordma", "-r"]).arg(capture);
    let broken = done(tshark.args(["-Y", "_ws.malformed || !infiniband"]));
    assert!(broken.is_empty(), "tshark does not understand {broken}");
    let copy = TestFile(capture.with_extension("pcap"));
    done(Command::new("tshark").args(["-r"]).arg(capture).args(["-F", "pcap", "-w"]).arg(&copy.0));
    let recorded = std::fs::read(&copy.0).unwrap();
    // A header of 24 bytes, then 16 bytes before each frame.
    let mut rest = &recorded[24..];
    let mut count = 0;
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let bytes = &rest[16..16 + len];
        count += 1;
        let frame = dissect(Start::Ethernet, bytes).unwrap_or_else(|error| panic!("frame {count}: {error}"));
        let (network, udp) = frame.network.expect("an IP packet");
        let covered = &bytes[bytes.len() - frame.packet.buffer_len()..bytes.len() - icrc::LEN];
        let right = Flow::of(&network, &udp).accepts(network.ip_id(), covered, frame.icrc);
        assert!(right, "frame {count}: its ICRC is wrong");
        rest = &rest[16 + len..];
    }
    count
}

#[test]
fn bandwidth_tests_end_though_frames_are_lost_and_each_icrc_of_their_capture_is_right() {
    for port in ["udp", "shm"] {
        for percent in [1, 5] {
            loses(percent, port);
        }
    }
}

/// Percent of frames that each side loses, and rounds of rping. A round has six messages. No later message
/// reveals a lost one, so it is retransmitted after half a second.
const LOSSES: [(u32, usize); 2] = [(1, 20), (5, 6)];

/// Runs rping while each side loses `percent` percent of the frames that it sends and receives.
#[track_caller]
fn rping_ends(port: &str, percent: u32, rounds: usize) {
    let here = address();
    let files = [1, 2].map(|seed| {
        let rules = TestFile::new(&format!("rping-{port}-{percent}-{seed}.toml"));
        rules.drops(percent, seed);
        rules
    });
    let program = |line: &str, rules: &TestFile| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = program_at(&here, &words);
        command.env("REMORA_PORT", port).env("REMORA_FAULT", &rules.0);
        command
    };
    let mut server = CmServer::start(program(&format!("rping -s -a {here}"), &files[0]));
    let printed = server.serves(program(&format!("rping -c -v -C {rounds} -a {here}"), &files[1]));
    assert_eq!(printed.matches("ping data: rdma-ping-").count(), rounds, "{port} {percent} %");
    server.succeeds();
}

/// Regression: 100 rounds of rping at 5 % loss took longer than two minutes, because a connection made
/// by rdma_cm waited 2.1 s for each lost packet that no later packet reveals.
#[test]
fn rping_ends_on_both_sides_though_each_loses_frames() {
    std::thread::scope(|scope| {
        for port in ["udp", "shm"] {
            for (percent, rounds) in LOSSES {
                scope.spawn(move || rping_ends(port, percent, rounds));
            }
        }
    });
}
