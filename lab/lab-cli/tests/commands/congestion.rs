//! `remora bench congestion`: its rows and plots. The tests of its scenarios check the values.

use serde_json::Value;

use crate::running::remora;

#[test]
fn two_flows_are_judged_by_fairness_and_queue_and_drawn() {
    let folder = tempfile::tempdir().expect("a folder").keep();
    let path = folder.to_str().expect("a path of letters");
    let out = remora(&["bench", "congestion", "--json", "--rounds", "1", "--report", path]).good();
    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), 9, "three figures of three contestants");
    let judged: Vec<_> = rows.iter().filter(|row| row["holds"].is_boolean()).collect();
    assert_eq!(judged.len(), 4);
    assert!(judged.iter().all(|row| row["holds"] == true), "{judged:?}");
    for plot in ["congestion-none", "congestion-dcqcn", "congestion-timely-patched", "congestion-queue"] {
        let svg = std::fs::read_to_string(folder.join(format!("{plot}.svg"))).expect("a plot");
        assert!(svg.matches("<polyline").count() >= 2, "{plot}");
    }
    std::fs::remove_dir_all(&folder).expect("the folder that it made");
}
