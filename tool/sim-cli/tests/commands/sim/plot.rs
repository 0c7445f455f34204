//! `remora sim plot`: several runs, a sweep, and folders that are neither.

use super::{Folder, own, sim};

#[test]
fn runs_are_drawn_together_and_a_sweep_over_its_axis() {
    let folder = Folder::new("plot");
    let scenario = own("examples/irn-with-pfc-and-loss.toml");
    for transport in ["irn", "roce"] {
        let out = folder.path(transport);
        sim(&[&scenario, "--set", "loss=0", "--transport", transport, "--out", &out]).good();
    }
    let drawn =
        sim(&["plot", &folder.path("irn"), &folder.path("roce"), "--out", &folder.path("both.svg")]).good();
    assert_eq!(drawn.trim(), folder.path("both.svg"));
    let svg = std::fs::read_to_string(folder.path("both.svg")).unwrap();
    for word in ["slowdown by size", "CDF of the slowdown", "irn p50", "irn p99", "roce p99", "</svg>"] {
        assert!(svg.contains(word), "no {word}");
    }
    let drawn = sim(&["plot", &folder.path("irn")]).good();
    assert_eq!(drawn.trim(), folder.path("irn/plot.svg"));

    let axes = "[[axis]]\nkey = \"loss\"\nvalues = [0.0, 0.001]\n[[axis]]\nkey = \"transport.name\"\n\
        values = [\"irn\", \"irn+pfc\"]\n[[axis]]\nkey = \"workload.0.traffic.size\"\nvalues = [\"20KB\"]\n";
    std::fs::write(folder.path("sweep.toml"), format!("base = \"{scenario}\"\n{axes}")).unwrap();
    sim(&["sweep", &folder.path("sweep.toml"), "--out", &folder.path("sweep")]).good();
    sim(&["plot", &folder.path("sweep")]).good();
    let svg = std::fs::read_to_string(folder.path("sweep/plot.svg")).unwrap();
    for word in ["mean slowdown", "99th percentile", "loss", "0.001", "irn+pfc", "</svg>"] {
        assert!(svg.contains(word), "no {word}");
    }
    sim(&["plot", &folder.path("sweep"), "--axis", "transport.name"]).good();
    sim(&["plot", &folder.path("sweep"), "--axis", "mtu"]).one_line("has no axis mtu: choose one of loss, ");
    sim(&["plot", &folder.path("sweep"), &folder.path("irn")]).one_line("a sweep is drawn by itself");
    sim(&["plot", &folder.path("irn"), "--axis", "loss"]).one_line("--axis loss is only for sweeps");
}

#[test]
fn a_folder_that_is_no_run_is_one_line_with_a_remedy() {
    let folder = Folder::new("no-run");
    sim(&["plot", &folder.path("")])
        .one_line("is not the folder of a run: give a folder that `remora sim --out` wrote");
    sim(&["plot", &folder.path("none")]).one_line("is not the folder of a run");
    std::fs::write(folder.path("summary.json"), "{").unwrap();
    sim(&["plot", &folder.path("")]).one_line("is not a summary: run the scenario again");
    std::fs::write(folder.path("summary.json"), "{}").unwrap();
    sim(&["plot", &folder.path("")]).one_line("lacks numbers of a summary");
    std::fs::write(folder.path("sweep.csv"), "a,b\n1,2\n").unwrap();
    sim(&["plot", &folder.path("")]).one_line("has no column run: run the sweep again");
    sim(&["plot"]).bad_arguments("required arguments were not provided");
}
