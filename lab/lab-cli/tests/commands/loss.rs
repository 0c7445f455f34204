//! `remora bench loss`: its rows and plots. The tests of its scenarios check the values.

use serde_json::Value;

use crate::running::remora;

/// Returns the rows of a short run of the part that `only` selects, and one of its plots.
fn short(only: &[&str], plot: &str) -> (Vec<Value>, String) {
    let folder = tempfile::tempdir().expect("a folder").keep();
    let words = ["bench", "loss", "--json", "--rounds", "1", "--packets", "128", "--report"];
    let path = folder.to_str().expect("a path of letters");
    let out = remora(&[&words[..], &[path], only].concat()).good();
    let svg = std::fs::read_to_string(folder.join(plot)).unwrap_or_default();
    std::fs::remove_dir_all(&folder).expect("the folder that it made");
    let line = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    (out.lines().map(line).collect(), svg)
}

fn cases<'a>(rows: &'a [Value], metric: &str) -> Vec<&'a str> {
    rows.iter().filter(|row| row["metric"] == metric).filter_map(|row| row["case"].as_str()).collect()
}

const MACHINES: [&str; 6] = [
    "go-back-n",
    "irn",
    "irn-with-go-back-n",
    "irn-without-sack",
    "irn-without-bdp-fc",
    "irn-sacked-leave-cap",
];

fn every_machine_at_every_loss(place: &str, rows: &[Value], svg: &str) {
    let cases = cases(rows, "goodput");
    for machine in MACHINES {
        for loss in ["0%", "0.01%", "0.1%", "1%", "5%"] {
            let case = format!("{place}/{machine}/{loss}");
            assert!(cases.contains(&case.as_str()), "no {case} among {cases:?}");
        }
        assert!(svg.contains(machine), "no {machine} in the plot");
    }
    let judged = rows.iter().filter(|row| row["holds"].is_boolean()).count();
    assert_eq!(judged, 7, "IRN twice beside go-back-N and once beside itself, two ablations at two losses");
    assert!(rows.iter().all(|row| row["value"].as_f64().is_some_and(|value| value > 0.0)));
}

#[test]
fn the_simulated_path_gives_a_figure_for_every_machine_at_every_loss_and_a_plot() {
    let (rows, svg) = short(&["--only", "world/goodput"], "loss-world.svg");
    every_machine_at_every_loss("world", &rows, &svg);
}

#[test]
fn real_udp_gives_a_figure_for_every_machine_at_every_loss_and_a_plot() {
    let (rows, svg) = short(&["--port", "udp"], "loss-udp.svg");
    every_machine_at_every_loss("udp", &rows, &svg);
}

#[test]
fn the_overflowing_buffer_is_judged_by_what_is_lost_and_by_the_end() {
    let (rows, svg) = short(&["--only", "world/incast"], "loss-incast.svg");
    for metric in ["lost", "completion"] {
        let expected: Vec<String> = [4, 8, 16, 32]
            .iter()
            .flat_map(|senders| {
                ["irn", "irn-without-bdp-fc"].map(|name| format!("world/incast/{senders}/{name}"))
            })
            .collect();
        assert_eq!(cases(&rows, metric), expected);
    }
    assert!(rows.iter().filter(|row| row["baseline"] == "irn").all(|row| row["holds"].is_boolean()));
    assert!(svg.contains("senders"));
}

#[test]
fn what_irn_costs_without_loss_is_judged_in_packets_per_second() {
    let (rows, _) = short(&["--port", "shm"], "none");
    assert_eq!(cases(&rows, "rate"), ["shm/lossless/64/irn", "shm/lossless/8192/irn"]);
    assert!(rows.iter().all(|row| row["least"] == 0.97 && row["holds"].is_boolean()), "{rows:?}");
}
