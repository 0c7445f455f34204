//! Given paths, and their tables.

use super::*;
use remora_import::paths::parse;
use remora_scenario::Source;
use remora_scenario::scenario::{Balance, GivenPath, Transport, TransportName};

/// Runs two flows from one rack to another pod over these switches above their ToR. Returns their slowdowns.
fn slowdowns(above: [&[u32]; 2]) -> Vec<f64> {
    let paths = (0..).zip(above).map(|(flow, above)| GivenPath { flow, above: above.to_vec() }).collect();
    let mut scenario = scenario(fat_tree(4), &[(0, 12, 500_000), (1, 14, 500_000)]);
    scenario.transport = Transport { name: TransportName::RocePfc, ..Transport::default() };
    scenario.switch.balance = Balance::Replay { paths };
    run(&scenario).iter().map(Row::slowdown).collect()
}

/// A fat-tree with k = 4: hosts 0 to 15, ToRs 16 to 23, aggregation switches 24 to 31, cores 32 to 35.
#[test]
fn flows_take_the_paths_that_are_given() {
    assert!(slowdowns([&[24, 32], &[25, 33]]).iter().all(|slowdown| *slowdown < 1.01), "no link is shared");
    assert!(slowdowns([&[24, 32], &[24, 32]]).iter().all(|slowdown| *slowdown > 1.5), "all links are shared");
}

#[test]
fn a_path_that_is_none_is_refused_with_its_flow() {
    let mut scenario = scenario(fat_tree(4), &[(0, 12, 500_000)]);
    for (flow, above) in [(0, vec![26]), (0, vec![24, 33]), (7, vec![])] {
        scenario.switch.balance = Balance::Replay { paths: vec![GivenPath { flow, above }] };
        let says = Run::new(&scenario).err().expect("a refusal");
        assert!(says.contains(&format!("flow {flow}")), "{says}");
    }
}

#[test]
fn tables_of_both_programs_are_read() {
    let mut scenario = scenario(fat_tree(4), &[(0, 12, 500_000), (1, 14, 500_000)]);
    let topology = scenario.topology().unwrap();
    let mut flows = scenario.flows(&topology).unwrap();
    flows.iter_mut().for_each(|flow| flow.ports = [10_000, 100]);
    let read = |text: &str, run| parse(Source::new("paths.csv", text), run, &flows, &topology);
    let ns3 =
        "src,dst,sport,dport,size_B,hop1,hop2\n0,12,10000,100,500000,24,32\n1,14,10000,100,500000,25,-1\n";
    let given = |flow, above: &[u32]| GivenPath { flow, above: above.to_vec() };
    assert_eq!(read(ns3, 1), Ok(vec![given(0, &[24, 32]), given(1, &[25])]));
    let head = "set,run,seed,path_id,flow_id,src,dst,size_B,fct_us,agg,core\n";
    let htsim = format!("{head}A,1,1,9,0,0,12,500000,1.5,0,3\nA,2,1,9,0,0,12,500000,1.5,1,-1\n");
    assert_eq!(read(&htsim, 1), Ok(vec![given(0, &[24, 35])]));
    assert_eq!(read(&htsim, 2), Ok(vec![given(0, &[25])]));
    for (text, line) in [
        ("a,b\n", 1),
        ("src,dst,sport,dport,size_B,hop1,hop2\n0,12,10000\n", 2),
        ("src,dst,sport,dport,size_B,hop1,hop2\n0,13,10000,100,1,24,32\n", 2),
        ("src,dst,sport,dport,size_B,hop1,hop2\n0,x,10000,100,1,24,32\n", 2),
    ] {
        assert_eq!(read(text, 1).unwrap_err().line, line, "{text}");
    }
    scenario.seed = 1;
    assert!(read(&htsim.replace(",0,3", ",99,3"), 1).is_err(), "no such switch");
}
