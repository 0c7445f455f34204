use crate::{says, text, warned};
use remora_fabric::engine::Picos;
use remora_fabric::topology::Tier;
use remora_import::htsim::options::{self, Options};
use remora_import::htsim::translation::scenario;
use remora_import::htsim::{connections, topology};
use remora_scenario::scenario::{Buffering, Charging, Counted, OutputFormat, TransportName};
use remora_scenario::units::{Size, Time};
use remora_scenario::{Read, Scenario, ScenarioError};

fn translated(words: &str, matrix: &str, topo: Option<&str>) -> Result<Read<Scenario>, ScenarioError> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let options: Options = options::parse(&words).unwrap();
    let matrix = connections::parse(text(matrix)).unwrap().value;
    let file = topo.map(|topo| topology::parse(text(topo)).unwrap().value);
    scenario(text(""), &options, &matrix, file.as_ref())
}

#[test]
fn a_matrix_runs_on_the_default_tree() {
    let words = "-linkspeed 100000 -mtu 1000 -q 10000 -pfc_thresholds 49 61 -end 100000 -seed 1";
    let read =
        translated(words, include_str!("../../../scenario/tests/data/inc_128_32_2000000.cm"), None).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    let scenario = read.value;
    assert_eq!(
        (scenario.charging, scenario.output.format, scenario.mtu),
        (Charging::Htsim, OutputFormat::Htsim, 1000)
    );
    assert_eq!((scenario.transport.name, scenario.switch.kind), (TransportName::RocePfc, Buffering::Fifo));
    let pfc = scenario.switch.pfc.unwrap();
    assert_eq!(
        (pfc.xoff, pfc.xon, pfc.counted, pfc.free),
        (Some(Size(61_000)), Some(Size(49_000)), Counted::Port, true)
    );
    assert_eq!(scenario.until, Some(Time(100_000_000_000)));
    let topology = scenario.topology().unwrap();
    assert_eq!((topology.nodes.len(), topology.links.len()), (208, 384));
    let flows = scenario.flows(&topology).unwrap();
    assert_eq!((flows.len(), flows[0].id, flows[0].src), (32, 1, 127));
}

/// In htsim, a lossless queue longer than `-q` prints a line and enqueues.
///
/// Regression: `-q` also limited lossless queues, so 15 of 15 flows never ended.
#[test]
fn the_queue_size_bounds_queues_that_lose_and_no_lossless_ones() {
    let matrix = "Nodes 16\nConnections 2\n0->15 start 0 size 200000\n1->15 start 0 size 200000";
    let buffer = |words| translated(words, matrix, None).unwrap().value.switch.buffer;
    assert_eq!(buffer("-queue_type random -mtu 1000 -q 5"), Size(5_000));
    let scenario = translated("-mtu 1000 -q 2", matrix, None).unwrap().value;
    assert!(scenario.switch.buffer >= Size(1 << 30));
    let mut run = remora_scenario::run::Run::new(&scenario).unwrap();
    while run.advance(Picos(100_000_000_000)).is_some() {}
    assert_eq!((run.unfinished().count(), run.totals().lost().packets), (0, 0));
    assert_eq!(run.findings(), (Vec::new(), 0));
}

#[test]
fn options_that_htsim_heeds_and_this_does_not_say_what_they_do() {
    let matrix = "Nodes 16\nConnections 1\n0->15 start 0 size 9";
    let read = translated("-queue_type lossless -start_delta 5 -paths 128", matrix, None).unwrap();
    assert_eq!(
        warned(&read),
        [
            "f: -start_delta delays flows at random in htsim; here they start at their times",
            "f: -paths draws htsim's path numbers from fewer; the path number comes from the seed here",
            "f: -queue_type lossless pauses at a share of -q in htsim; here -pfc_thresholds count",
        ]
    );
}

#[test]
fn packets_of_htsims_default_are_refused_with_the_option_that_makes_them_shorter() {
    let matrix = "Nodes 16\nConnections 1\n0->15 start 0 size 9";
    let scenario = translated("-q 100", matrix, None).unwrap().value;
    let topology = scenario.topology().unwrap();
    let why = remora_scenario::setup::simulation(&scenario, &topology).unwrap_err();
    assert!(why.starts_with("the MTU is 9000") && why.contains("-- -mtu 4096"), "{why}");
}

#[test]
fn a_matrix_runs_on_the_tree_of_a_file() {
    let matrix = "Nodes 32\nConnections 1\n0->31 start 0 size 9";
    let topo = include_str!("../../../scenario/tests/data/leaf_spine_tiny.topo");
    let slow = topo.replacen("Switch_Latency_ns 0", "Switch_Latency_ns 50", 1);
    let scenario = translated("", matrix, Some(&slow)).unwrap().value;
    assert_eq!(
        (scenario.switch.latency, scenario.switch.latency_by_tier),
        (Time(0), Some([Time(50_000), Time(0), Time(0)]))
    );
    assert_eq!(scenario.topology().unwrap().nodes.len(), 32 + 4 + 2);
    let other = matrix.replace("Nodes 32", "Nodes 33");
    assert_eq!(
        says(translated("", &other, Some(topo))),
        "f: Nodes is 33, and 32 in the topology: make them the same"
    );
    assert_eq!(
        says(translated("-nodes 16", matrix, Some(topo))),
        "f: Nodes is 32 and -nodes is 16: make them the same"
    );
}

#[test]
fn the_default_tree_has_a_cube_or_a_square_of_hosts() {
    let matrix = |nodes: u32| format!("Nodes {nodes}\nConnections 1\n0->1 start 0 size 9");
    let words = "f: no fat-tree of 3 tiers has 100 hosts: choose 54 or 128, or a topology file";
    assert_eq!(says(translated("", &matrix(100), None)), words);
    assert_eq!(
        translated("-tiers 2", &matrix(32), None).unwrap().value.topology().unwrap().nodes.len(),
        32 + 8 + 4
    );
}

#[test]
fn a_failure_is_of_the_link_that_is_wired() {
    let matrix = |failure: &str| {
        format!("Nodes 16\nConnections 1\nFailures 1\n0->1 start 0 size 9\nfailure {failure}")
    };
    let read = translated("", &matrix("switch_type AGG switch_id 3 link_id 1"), None).unwrap();
    let topology = read.value.topology().unwrap();
    // Agg 3 has position 1, and its cores are 1 and 3. htsim would use core 1 * 2 + 1 = 3 for link 0 as well.
    let ends = [topology.switch_at(Tier::Agg, 3).unwrap(), topology.switch_at(Tier::Core, 3).unwrap()];
    assert_eq!(read.value.failures[0].ends, ends);
    assert!(read.value.failures[0].link(&topology).is_some());
    assert_eq!(
        warned(&read),
        ["f: htsim fails another core's link than it has wired; the wired one fails here"]
    );
    for (failure, tier, far) in [
        ("switch_type TOR switch_id 2 link_id 1", Tier::Tor, (Tier::Agg, 3)),
        ("switch_type CORE switch_id 1 link_id 2", Tier::Core, (Tier::Agg, 5)),
    ] {
        let read = translated("", &matrix(failure), None).unwrap();
        assert_eq!(topology.place(read.value.failures[0].ends[0]).unwrap().tier, tier);
        assert_eq!(Some(read.value.failures[0].ends[1]), topology.switch_at(far.0, far.1));
        assert_eq!(warned(&read), ["f: htsim refuses failures of TOR and CORE; their link fails here"]);
    }
    let wrong = says(translated("", &matrix("switch_type AGG switch_id 3 link_id 2"), None));
    assert_eq!(
        wrong,
        "f: a failure names link 2 of agg switch 3, which does not exist: correct switch_id or link_id"
    );
}

#[test]
fn a_flow_that_nothing_starts_is_named() {
    let matrix = "Nodes 16\nConnections 1\nTriggers 1\n0->1 id 4 trigger 1 size 9\ntrigger id 1 oneshot";
    let read = translated("-log sink", matrix, None).unwrap();
    let expected = [
        "f: flow 4 waits for a trigger that too few flows fire; it is left out",
        "f: -log changes nothing here; it is skipped",
    ];
    assert_eq!(warned(&read), expected);
}
