//! `remora sim --capture`: captures of simulated ports, read by tshark.

use std::path::Path;
use std::process::Command;

use remora_wire::frame::{Start, dissect};
use remora_wire::icrc::{self, Flow};

use crate::running::{packets, remora};
use crate::sim::{Folder, own};

/// Returns these fields of every frame in the file, as tshark decodes them.
fn tshark(file: &str, more: &[&str], fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", file, "--disable-protocol", "rpcordma"]).args(more).args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().unwrap_or_else(|error| panic!("this test needs tshark: {error}"));
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Returns the Ethernet frames in a pcapng file.
fn frames(file: &str) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).expect("a capture");
    let word =
        |offset: usize| u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("4 bytes")) as usize;
    let mut offset = 0;
    let mut frames = Vec::new();
    while offset < bytes.len() {
        if word(offset) == 6 {
            frames.push(bytes[offset + 28..offset + 28 + word(offset + 20)].to_vec());
        }
        offset += word(offset + 4);
    }
    frames
}

/// Returns the number of RoCE frames in the file, and checks the ICRC of each.
fn sealed(file: &str) -> usize {
    let is_roce = |frame: &&Vec<u8>| frame[12..14] == [8, 0];
    let check = |bytes: &Vec<u8>| {
        let frame = dissect(Start::Ethernet, bytes).expect("a RoCE frame");
        let (network, udp) = frame.network.expect("IP and UDP");
        let covered = &bytes[bytes.len() - usize::from(udp.payload_len)..bytes.len() - icrc::LEN];
        assert!(Flow::of(&network, &udp).accepts(network.ip_id(), covered, frame.icrc));
    };
    frames(file).iter().filter(is_roce).map(check).count()
}

/// Returns a scenario with an incast of three senders over a switch that marks and pauses early.
fn scenario(transport: &str, payload: &str) -> String {
    format!(
        "payload = \"{payload}\"\nnetwork = {{ kind = \"leaf-spine\", leaves = 2, spines = 1, hosts-per-leaf = 4, \
         rate = \"100Gbps\", uplink-rate = \"100Gbps\", delay = \"1us\" }}\n\
         [switch]\nkind = \"fifo\"\nbuffer = \"1MB\"\npfc = {{ xoff = \"9KB\", xon = \"6KB\" }}\n\
         ecn = {{ red = [{{ kmin = \"2KB\", kmax = \"4KB\", pmax = 0.5 }}] }}\n\
         [transport]\nname = \"{transport}\"\n[control]\nname = \"dcqcn\"\n\
         [[workload]]\ntraffic = {{ kind = \"incast\", senders = 3, size = \"60KB\", to = 4 }}\n"
    )
}

#[test]
fn tshark_decodes_roce_notifications_and_pauses_with_the_times_of_the_simulation() {
    let folder = Folder::new("capture");
    for payload in ["whole", "blank"] {
        std::fs::write(folder.path("incast.toml"), scenario("roce+pfc", payload)).unwrap();
        // The captured ports are the first switch's uplink, which carries the incast's victims, and host 4.
        let words = ["sim", &folder.path("incast.toml"), "--out", &folder.path("out")];
        let ended = remora(&[&words[..], &["--capture", "9:5", "--capture", "4:1"]].concat());
        assert!(ended.err.contains(" frames of 9:5 in "), "{}", ended.err);
        ended.good();
        let host = Path::new(&folder.path("out")).join("4-1.pcapng").to_str().unwrap().to_owned();
        let switch = host.replace("4-1", "9-5");
        assert_eq!(packets(&host), tshark(&host, &[], &["frame.number"]).len());
        let opcodes: Vec<String> = tshark(&host, &["-Y", "infiniband"], &["infiniband.bth.opcode"]).concat();
        let count = |code: &str| opcodes.iter().filter(|opcode| *opcode == code).count();
        // These are WRITEs, ACKs and CNPs.
        assert!(count("6") + count("7") + count("8") >= 3 * 60, "{opcodes:?}");
        assert!(count("17") > 0 && count("129") > 0, "{opcodes:?}");
        let pauses = tshark(&switch, &["-Y", "macc"], &["eth.type", "macc.opcode", "eth.dst"]);
        assert!(!pauses.is_empty());
        let is_pause = |fields: &Vec<String>| fields[..] == ["0x8808", "0x0101", "01:80:c2:00:00:01"];
        assert!(pauses.iter().all(is_pause), "{pauses:?}");
        let times = tshark(&switch, &[], &["frame.time_epoch"]).concat();
        let ns = |text: &String| text.replace('.', "").parse::<u64>().unwrap();
        assert!(ns(&times[0]) > 1_000 && times.iter().map(ns).is_sorted() && times[0].starts_with("0.0000"));
        assert_eq!(sealed(&host), opcodes.len());
        assert!(sealed(&switch) > 0);
    }
}

#[test]
fn additions_of_irn_are_shown_by_the_dissector() {
    let folder = Folder::new("capture-irn");
    std::fs::write(folder.path("incast.toml"), scenario("irn", "whole")).unwrap();
    let file = folder.path("irn.pcapng");
    remora(&["sim", &folder.path("incast.toml"), "--capture", &format!("4:1={file}")]).good();
    let script = format!("lua_script:{}", own("wireshark/remora.lua"));
    let more = ["-X", &script, "-o", "remora.irn_qps:1-0xffffff", "-Y", "remora.irn.len"];
    let shown = tshark(&file, &more, &["infiniband.bth.opcode"]).concat();
    let data = shown.iter().filter(|code| ["6", "7", "8"].contains(&code.as_str())).count();
    // The first packet of a WRITE has no headers besides RoCE's.
    assert!(data >= 3 * 59, "{shown:?}");
    assert!(sealed(&file) >= data);
}

#[test]
fn a_full_capture_says_so_once_and_the_run_goes_on() {
    let folder = Folder::new("capture-full");
    std::fs::write(folder.path("incast.toml"), scenario("roce+pfc", "blank")).unwrap();
    let file = folder.path("some.pcapng");
    let words = ["sim", &folder.path("incast.toml"), "--capture-limit", "10KB"];
    let ended = remora(&[&words[..], &["--capture", &format!("4:1={file}")]].concat());
    assert_eq!(ended.err.matches("the capture of 4:1 is full at ").count(), 1, "{}", ended.err);
    ended.good();
    let len = std::fs::metadata(&file).unwrap().len();
    assert!((9_000..=10_100).contains(&len), "{len}");
    // These are nine data packets and their acknowledgements.
    assert!((16..24).contains(&packets(&file)), "{}", packets(&file));
}

#[test]
fn a_port_that_is_not_there_is_refused_with_those_that_are() {
    let folder = Folder::new("capture-port");
    std::fs::write(folder.path("incast.toml"), scenario("irn", "blank")).unwrap();
    let sim = |words: &[&str]| remora(&[&["sim", &folder.path("incast.toml")], words].concat());
    sim(&["--capture", "8:6"]).one_line("node 8 has the ports 1 to 5");
    sim(&["--capture", "99:1"]).one_line("the last one is 10");
    let twice = format!("4:1={}", folder.path("a"));
    sim(&["--capture", &twice, "--capture", &twice]).one_line("two captures have the same file");
    sim(&["--capture", "4:1=/none/such"]).one_line("the capture /none/such cannot be written");
    sim(&["--capture", "4"]).bad_arguments("is not a port: write its node and its number");
    sim(&["--capture", "4:0"]).bad_arguments("is not a port");
}
