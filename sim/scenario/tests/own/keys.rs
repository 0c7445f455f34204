use crate::text;
use remora_import::{Need, files, supply};
use remora_scenario::format::own::{parse, to_toml};
use remora_scenario::scenario::{
    Balance, Buffering, Charging, ControlName, Failure, Network, Payload, QueuePairs, Red, TransportName,
};
use remora_scenario::units::{Rate, Size, Time};
use remora_scenario::workload::{NamedSizes, Repeat, Sizes, Traffic};
use remora_scenario::{Scenario, Source, Verb};

const ALL: &str = r#"
seed = 7
until = "20ms"
mtu = 1000
payload = "whole"
charging = "ideal"
loss = 0.001

[network]
kind = "fat-tree"
k = 6
rate = "40Gbps"
delay = "2us"

[switch]
kind = "voq"
buffer = "240KB"
balance = { kind = "flowlet", gap = "50us" }
pfc = { xoff = "220KB", headroom = "20KB" }

[[switch.ecn.red]]
kmin = "5KB"
kmax = "200KB"
pmax = 0.01

[host]
queue-pairs = "kept"
ack-class = 0

[transport]
name = "irn+pfc"
rto-low = "100us"
rto-high = "320us"
few-packets = 3
cap = 110

[control]
name = "dcqcn"
rate-ai = "40Mbps"
gain = 0.00390625

[[workload]]
verb = "read"
class = 2
start = "1ms"
traffic = { kind = "poisson", sizes = "irn", load = 0.7, duration = "10ms" }

[[workload]]
hosts = [0, 1, 2, 3]
traffic = { kind = "incast", senders = 2, size = "2MB", to = 0, repeat = { load = 0.1, duration = "1ms" } }

[[workload]]
traffic = { kind = "flows", flows = ["0: 1->2 1KB at 5us send", "1: 2->1 1KB after 0r delay 1us"] }

[[failure]]
ends = [54, 72]
at = "3ms"
until = "4ms"

[output]
format = "conweave"
trace = [54]
"#;

#[test]
fn every_part_of_a_scenario_is_read() {
    let read = parse(text(ALL)).unwrap();
    let scenario = read.value;
    assert_eq!((scenario.seed, scenario.until, scenario.loss), (7, Some(Time(20_000_000_000)), 0.001));
    assert_eq!((scenario.payload, scenario.charging), (Payload::Whole, Charging::Ideal));
    let network =
        Network::FatTree { k: 6, oversubscription: 1, rate: Rate(40_000_000_000), delay: Time(2_000_000) };
    assert_eq!(scenario.network, network);
    assert_eq!((scenario.switch.kind, scenario.switch.buffer), (Buffering::Voq, Size(240_000)));
    assert_eq!(scenario.switch.balance, Balance::Flowlet { gap: Time(50_000_000) });
    assert_eq!(scenario.switch.pfc.unwrap().headroom, Some(Size(20_000)));
    let red = Red { rate: None, kmin: Size(5000), kmax: Size(200_000), pmax: 0.01 };
    assert_eq!(scenario.switch.ecn.as_ref().unwrap().red, [red]);
    assert_eq!((scenario.host.queue_pairs, scenario.host.ack_class), (QueuePairs::Kept, Some(0)));
    assert_eq!((scenario.transport.name, scenario.transport.cap), (TransportName::IrnPfc, Some(110)));
    assert_eq!(
        (scenario.control.name, scenario.control.rate_ai),
        (ControlName::Dcqcn, Some(Rate(40_000_000)))
    );
    let [poisson, incast, _] = &scenario.workloads[..] else { panic!("three workloads") };
    assert_eq!((poisson.verb, poisson.class, poisson.start), (Verb::Read, 2, Time(1_000_000_000)));
    let traffic =
        Traffic::Poisson { sizes: Sizes::Named(NamedSizes::Irn), load: 0.7, duration: Time(10_000_000_000) };
    assert_eq!(poisson.traffic, traffic);
    let repeat = Some(Repeat { load: 0.1, duration: Time(1_000_000_000) });
    assert_eq!(incast.traffic, Traffic::Incast { senders: 2, size: Size(2_000_000), to: Some(0), repeat });
    let failure =
        Failure { ends: [54, 72], nth: 0, at: Time(3_000_000_000), until: Some(Time(4_000_000_000)) };
    assert_eq!(scenario.failures, [failure]);
    let topology = scenario.topology().unwrap();
    assert_eq!((topology.hosts().count(), topology.links[0].loss), (54, 0.001));
    assert!(failure.link(&topology).is_some());
    assert!(scenario.flows(&topology).unwrap().len() > 3);
    assert_eq!(parse(text(&to_toml(&scenario).unwrap())).unwrap().value, scenario);
}

#[test]
fn ten_lines_are_a_scenario() {
    let short = "[network]\nkind = 'dumbbell'\nleft = 2\nright = 1\nrate = '100Gbps'\nmiddle-rate = '40Gbps'\n\
                 delay = '1us'\n[[workload]]\ntraffic = { kind = 'permutation', size = '1MB' }\n";
    let scenario = parse(text(short)).unwrap().value;
    assert_eq!((scenario.transport.name, scenario.control.name), (TransportName::Irn, ControlName::None));
    let topology = scenario.topology().unwrap();
    assert_eq!(scenario.flows(&topology).unwrap().len(), 3);
}

#[test]
fn each_mistake_has_its_line_and_words_in_one_line() {
    for (old, new, words) in [
        ("seed = 7", "seed = -7", "f.toml:2: "),
        ("seed = 7", "sed = 7", "f.toml:2: unknown field `sed`, expected one of"),
        ("seed = 7", "seed = ", "f.toml:2: "),
        ("mtu = 1000", "mtu = 10000", "f.toml: the MTU is 10000: choose 1 to 9000 bytes"),
        ("loss = 0.001", "loss = 1.5", "f.toml: the loss is 1.5: choose a probability from 0 to 1"),
        ("loss = 0.001", "loss = nan", "f.toml: the loss is NaN: choose a probability from 0 to 1"),
        ("\"20ms\"", "\"20\"", "f.toml:3: `20` is not a time: write one like \"2us\""),
        ("\"40Gbps\"", "\"fast\"", "f.toml:9: `fast` is not a rate: write one like \"100Gbps\""),
        ("\"fat-tree\"", "\"torus\"", "f.toml:10: unknown variant `torus`, expected one of"),
        ("k = 6\n", "", "f.toml:9: missing field `k`: correct this line"),
        ("k = 6", "k = 6\nks = 7", "f.toml:9: unknown field `ks`, expected one of"),
        (
            "\"irn+pfc\"",
            "\"swift\"",
            "f.toml:31: unknown variant `swift`, expected one of `roce`, `roce+pfc`",
        ),
        ("buffer = \"240KB\"", "buffer = \"0B\"", "f.toml: switch.buffer is 0: choose a size"),
        ("class = 2", "class = 9", "f.toml: the class of a workload is 9: choose 0 to 7"),
        ("load = 0.7", "load = 0.0", "f.toml: the load is 0: choose a share above 0, such as 0.7"),
        ("sizes = \"irn\"", "sizes = \"big\"", "f.toml:46: no sizes are called `big`: choose a size,"),
        (
            "0: 1->2 1KB at 5us",
            "0: 1>2 1KB at 5us",
            "f.toml:53: `0: 1>2 1KB at 5us send` is not a flow: write one like",
        ),
        ("gain = 0.00390625", "gain = 2.0", "f.toml: control.gain is 2: choose a number from 0 to 1"),
        ("pmax = 0.01", "pmax = 1.01", "f.toml: an entry of switch.ecn.red is invalid: choose kmin <= kmax"),
    ] {
        assert!(ALL.contains(old), "{old}");
        let says = parse(text(&ALL.replacen(old, new, 1))).unwrap_err().to_string();
        assert!(says.starts_with(words) && !says.contains('\n'), "{old} -> {new}: {says}");
    }
}

#[test]
fn files_that_a_scenario_names_are_supplied_by_the_caller() {
    let named =
        "[network]\nkind = 'file'\npath = 'net'\n[[workload]]\ntraffic = { kind = 'file', path = 'flows' }";
    let mut scenario = parse(text(named)).unwrap().value;
    assert_eq!(files(&scenario), [(Need::Topology, "net".to_owned()), (Need::Flows, "flows".to_owned())]);
    let says = scenario.topology().unwrap_err().to_string();
    assert_eq!(says, "the network is in a file: supply its text first");
    let mut other = scenario.clone();
    let leaf = include_str!("../data/leaf_spine_128_100G_OS2.txt");
    assert_eq!(supply(&mut scenario, Source::new("net", leaf)), Ok(vec![]));
    let cut = include_str!("../data/T2ms-first-200.txt");
    let warnings = supply(&mut scenario, Source::new("flows", cut)).unwrap();
    assert_eq!(
        warnings[0].to_string(),
        "flows:1: the count is 19352, and the file has 200 flows; all of them are read"
    );
    assert!(files(&scenario).is_empty());
    let topology = scenario.topology().unwrap();
    assert_eq!((topology.nodes.len(), scenario.flows(&topology).unwrap().len()), (144, 200));
    // The same names, with the contents of htsim's files.
    let topo =
        include_str!("../data/fat_tree_1024.topo").replacen("Switch_Latency_ns 0", "Switch_Latency_ns 9", 1);
    assert_eq!(supply(&mut other, Source::new("net", &topo)), Ok(vec![]));
    let cm = "Nodes 1024\nConnections 1\nFailures 1\n0->1 start 0 size 9\nfailure switch_type AGG switch_id 1 link_id 2";
    assert_eq!(supply(&mut other, Source::new("flows", cm)), Ok(vec![]));
    let topology = other.topology().unwrap();
    assert_eq!((topology.nodes.len(), other.flows(&topology).unwrap().len()), (1024 + 320, 1));
    assert_eq!(other.switch.latency_by_tier, Some([Time(9000), Time(0), Time(0)]));
    // ToRs are nodes 1024 to 1151, aggs 1152 to 1279; agg 1 is linked to the cores 1, 9, 17.
    assert_eq!(other.failures[0].ends, [1153, 1280 + 17]);
    let bad = Source::new("flows", "1\n0 500 3 9 2");
    let mut third = parse(text(named)).unwrap().value;
    supply(&mut third, Source::new("net", leaf)).unwrap();
    let says = supply(&mut third, bad).unwrap_err().to_string();
    assert_eq!(says, "flows:2: node 500 is not a host of the topology: name a host");
}

#[test]
fn a_number_that_toml_cannot_hold_is_refused() {
    let network = Network::Ring { switches: 3, hosts_per_switch: 1, rate: Rate(1000), delay: Time(0) };
    let scenario = Scenario { seed: 1 << 63, ..Scenario::on(network) };
    let says = to_toml(&scenario).unwrap_err();
    assert_eq!(says, "the seed is 9223372036854775808: choose at most 9223372036854775807");
}
