//! Outputs of `remora sim` besides the flows: their names, and that they are complete.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::running::remora;
use crate::sim::{Folder, own};

/// A topology in which three hosts send to the fourth over one switch.
const TOPOLOGY: &str =
    "5 1 4\n4\n0 4 100Gbps 1000ns 0\n1 4 100Gbps 1000ns 0\n2 4 100Gbps 1000ns 0\n3 4 100Gbps 1000ns 0\n";
const FLOWS: &str = "3\n0 3 3 100 400000 2.0\n1 3 3 100 400000 2.0\n2 3 3 100 400000 2.0\n";
const CONFIG: &str = "TOPOLOGY_FILE topology.txt\nFLOW_FILE flow.txt\nTRACE_FILE trace.txt\nCC_MODE 1\nHAS_WIN 0\n\
    PACKET_PAYLOAD_SIZE 1000\nBUFFER_SIZE 1\nKMAX_MAP 1 100000000000 400\nKMIN_MAP 1 100000000000 100\n\
    PMAX_MAP 1 100000000000 0.2\nQLEN_MON_FILE qlen.txt\nQLEN_MON_START 2000000000\nQLEN_MON_END 2100000000\n";

fn outputs(folder: &Folder, config: &str, out: &str, names: &[&str]) -> Vec<Vec<u8>> {
    let ended = remora(&["sim", &folder.path(config), "--out", &folder.path(out)]);
    assert!(!ended.err.contains("not modelled") && !ended.err.contains("sampled"), "{}", ended.err);
    ended.good();
    let read = |name: &&str| std::fs::read(Path::new(&folder.path(out)).join(name)).expect("an output");
    names.iter().map(read).collect()
}

#[test]
fn a_configuration_of_ns3_gets_the_outputs_of_its_program_twice_the_same() {
    let folder = Folder::new("outputs");
    std::fs::write(folder.path("topology.txt"), TOPOLOGY).unwrap();
    std::fs::write(folder.path("flow.txt"), FLOWS).unwrap();
    std::fs::write(folder.path("trace.txt"), "2\n0 4\n").unwrap();
    std::fs::write(folder.path("hpcc.txt"), CONFIG).unwrap();
    let names = ["fct.txt", "pfc.txt", "qlen.txt", "trace.tr"];
    let first = outputs(&folder, "hpcc.txt", "a", &names);
    assert_eq!(first, outputs(&folder, "hpcc.txt", "b", &names));
    assert!(first.iter().all(|bytes| !bytes.is_empty()), "{:?}", first.iter().map(Vec::len));
    assert_eq!((first[3].len() - 4 - 8 * 11 - 4) % 56, 0);
    let lines = String::from_utf8(first[2].clone()).unwrap();
    assert!(lines.starts_with("time: 2000000000\n4 1 1\n4 2 1\n4 3 1\n4 4 1\ntime: "), "{lines}");
    let conweave = format!("{CONFIG}ENABLE_PFC 1\nSW_MONITORING_INTERVAL 10000\n");
    std::fs::write(folder.path("flow.txt"), FLOWS.replace(" 100 ", " ")).unwrap();
    std::fs::write(folder.path("conweave.txt"), conweave).unwrap();
    let names = ["fct.txt", "pfc.txt", "cnp.txt", "conn.txt"];
    let first = outputs(&folder, "conweave.txt", "c", &names);
    assert_eq!(first, outputs(&folder, "conweave.txt", "d", &names));
    assert!(String::from_utf8_lossy(&first[3]).starts_with("2000000000,0,1,1\n2000000000,1,1,1\n"));
}

#[test]
fn outputs_are_whole_when_a_run_is_interrupted() {
    let folder = Folder::new("interrupted");
    let text = std::fs::read_to_string(own("examples/irn.toml")).unwrap().replace("\"2ms\"", "\"90ms\"");
    let output = "[output]\nsampling = \"10us\"\ntrace = [0]\nqueues = [\"0s\", \"1s\"]\n";
    std::fs::write(folder.path("long.toml"), format!("{text}{output}")).unwrap();
    let out = folder.path("out");
    let mut child = Command::new(crate::running::binary())
        .args(["sim", &folder.path("long.toml"), "--out", &out, "--capture", "0:1"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the command");
    let flows = Path::new(&out).join("flows.csv");
    let lines = || std::fs::read_to_string(&flows).map_or(0, |text| text.lines().count());
    while lines() < 100 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    for name in ["flows.csv", "queues.csv", "uplinks.csv", "connections.csv", "trace.csv", "unfinished.csv"] {
        let text = std::fs::read_to_string(Path::new(&out).join(name)).expect("an output");
        let columns = |line: &str| line.split(',').count();
        let head = columns(text.lines().next().expect("a head"));
        assert!(text.ends_with('\n') && text.lines().all(|line| columns(line) == head), "{name}");
        assert!(text.lines().count() > 1, "{name}");
    }
    crate::running::packets(Path::new(&out).join("0-1.pcapng").to_str().unwrap());
}
