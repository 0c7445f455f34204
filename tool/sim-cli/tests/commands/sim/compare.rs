//! `remora sim compare`: results within and outside their bounds, and folders without comparisons.

use serde_json::Value;

use super::{CONFIG, Folder, TOPOLOGY, sim};

/// Completion times of three single flows of 2 MB, measured by csg-htsim.
const HTSIM: &str = "set,run,seed,path_id,flow_id,src,dst,size_B,fct_us,agg,core\n\
    interpod,1,1,10,1,0,64,2000000,182.696,3,7\nintrapod,1,1,10,1,0,4,2000000,178.516,3,-1\n\
    intrarack,1,1,-,1,0,1,2000000,174.335,-1,-1\n";

fn single_flows(folder: &Folder) {
    std::fs::write(folder.path("htsim-one.csv"), HTSIM).unwrap();
    for (set, destination) in [("interpod", 64), ("intrapod", 4), ("intrarack", 1)] {
        let matrix = format!("Nodes 128\nConnections 1\n0->{destination} id 1 start 0 size 2000000\n");
        std::fs::write(folder.path(&format!("one_{set}.cm")), matrix).unwrap();
    }
}

fn rows(printed: &str) -> Vec<Value> {
    printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn single_flows_take_what_htsim_gave_and_a_row_outside_its_bound_ends_with_3() {
    let folder = Folder::new("compare");
    single_flows(&folder);
    let rows = rows(&sim(&["compare", &folder.path(""), "--json"]).good());
    assert_eq!(rows.len(), 3);
    for (row, theirs) in rows.iter().zip([182.696, 178.516, 174.335]) {
        assert_eq!(
            (&row["theirs"], &row["holds"], &row["within"]),
            (&theirs.into(), &true.into(), &0.01.into())
        );
        assert!((row["ours"].as_f64().unwrap() / theirs - 1.0).abs() < 0.01, "{row}");
    }
    std::fs::write(folder.path("htsim-one.csv"), HTSIM.replace("182.696", "185.0")).unwrap();
    let outside = sim(&["compare", &folder.path(""), "--out", &folder.path("out")]);
    assert_eq!(outside.status, 3, "{}", outside.err);
    assert_eq!(outside.out.matches("within 1 %").count(), 3, "{}", outside.out);
    assert_eq!(
        (outside.out.matches(" yes").count(), outside.out.matches(" NO").count()),
        (2, 1),
        "{}",
        outside.out
    );
    let table = std::fs::read_to_string(folder.path("out/comparison.csv")).unwrap();
    assert_eq!((table.lines().count(), table.matches(",false").count()), (4, 1), "{table}");
    assert_eq!(std::fs::read_to_string(folder.path("out/flows.csv")).unwrap().lines().count(), 4);
    // A longer link makes a difference that the comparison detects.
    std::fs::write(folder.path("htsim-one.csv"), HTSIM).unwrap();
    let far = sim(&["compare", &folder.path(""), "--set", "host.latency=10us"]);
    assert_eq!((far.status, far.out.matches(" NO").count()), (3, 3), "{}", far.out);
}

#[test]
fn a_load_is_judged_by_its_slowdowns_and_flows_that_are_missing_are_a_row() {
    let folder = Folder::new("compare-load");
    std::fs::write(folder.path("topology.txt"), TOPOLOGY).unwrap();
    std::fs::write(
        folder.path("flow.txt"),
        "3\n0 2 3 100 20000 2.0\n1 3 3 100 5000 2.0\n0 3 3 100 900 2.0001\n",
    )
    .unwrap();
    let config = folder.path("ns3-T2ms-irn-config.txt");
    std::fs::write(&config, format!("{CONFIG}ENABLE_IRN 1\nENABLE_PFC 0\n")).unwrap();
    // The results of one run serve as the reference of a second one, which must agree.
    sim(&[&config, "--out", &folder.path("run")]).good();
    let fct = std::fs::read_to_string(folder.path("run/fct.txt")).unwrap();
    std::fs::write(folder.path("ns3-T2ms-irn-fct.txt"), &fct).unwrap();
    let columns: Vec<Vec<&str>> = fct.lines().map(|line| line.split(' ').collect()).collect();
    let path = |row: &Vec<&str>| format!("{},{},{},{},{},-1,-1\n", row[0], row[1], row[2], row[3], row[4]);
    let paths = columns.iter().map(path).collect::<String>();
    std::fs::write(
        folder.path("ns3-T2ms-paths.csv"),
        format!("src,dst,sport,dport,size_B,hop1,hop2\n{paths}"),
    )
    .unwrap();
    let rows = rows(&sim(&["compare", &folder.path(""), "--json", "--jobs", "1"]).good());
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["difference"] == 0.0 && row["within"] == 0.15), "{rows:?}");
    sim(&["compare", &folder.path(""), "--out", &folder.path("out")]).good();
    assert!(
        std::fs::read_to_string(folder.path("out/comparison.svg")).unwrap().contains("load conweave-ns3 irn")
    );

    let missing = sim(&["compare", &folder.path(""), "--set", "until=2000010us"]);
    assert_eq!(missing.status, 3, "{}", missing.err);
    assert!(missing.out.contains("flows that ended"), "{}", missing.out);
    sim(&["compare", &folder.path(""), "--only", "incast"])
        .one_line("the folder has no comparison named incast");
    std::fs::remove_file(folder.path("ns3-T2ms-paths.csv")).unwrap();
    sim(&["compare", &folder.path("")]).one_line("ns3-T2ms-paths.csv is missing");
}

#[test]
fn what_cannot_be_compared_is_one_line_with_a_remedy() {
    let folder = Folder::new("compare-bad");
    sim(&["compare", &folder.path("")]).one_line("has no times to compare with, such as htsim-one.csv");
    single_flows(&folder);
    std::fs::write(folder.path("htsim-one.csv"), HTSIM.replace("174.335", "short")).unwrap();
    sim(&["compare", &folder.path("")]).one_line("htsim-one.csv:4: `short` in column fct_us is not a time");
    std::fs::write(folder.path("htsim-one.csv"), HTSIM.replace("intrarack", "inside")).unwrap();
    sim(&["compare", &folder.path("")])
        .one_line("unknown set inside; the sets are interpod, intrapod, intrarack");
    std::fs::write(folder.path("htsim-one.csv"), HTSIM).unwrap();
    sim(&["compare", &folder.path(""), "--set", "switch.mmu=dirty"]).one_line("--set: switch.mmu: ");
    std::fs::remove_file(folder.path("one_intrapod.cm")).unwrap();
    sim(&["compare", &folder.path("")]).one_line("one_intrapod.cm is missing");
}
