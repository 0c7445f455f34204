//! The key-value designs: what one server holds, while it and its clients are stopped, cut off and killed.

use check::{Asked, History, Measures, hold, linearizable};

use crate::hosts::Hosts;
use crate::party::Server;
use crate::scene::Length::{Long, Short};
use crate::scene::{Scene, Whom};

const CLIENTS: usize = 4;
const KINDS: [&str; 5] =
    ["client killed", "client stopped", "client cut off", "server stopped", "server cut off"];

/// A server, and clients at work.
fn scene(design: &str, seed: u64, keys: &str) -> Option<Scene> {
    let hosts = Hosts::new(1 + CLIENTS)?;
    let (address, listen) = (hosts.address(0), format!("{}:7471", hosts.address(0)));
    let serve = ["serve", "kv", "--design", design, "--capacity", "1000", "--max-value", "6000"];
    let own = ["--port", "udp", "--address", &address, "--listen", &listen];
    let mut server = Server::spawn(hosts.remora(0, &[&serve[..], &own].concat()), 0);
    server.wait();
    let words = ["kv", "exercise", "--design", design, "--connect", &listen, "--window", "3", "--keys", keys];
    let mut scene = Scene::new(hosts, vec![server], seed, &words);
    scene.notes_failures = true;
    (1..=CLIENTS).for_each(|host| scene.enter(host, &[]));
    scene.all_go_on(10);
    Some(scene)
}

/// Each mishap, short and long, in an order that the seed decides.
fn mishaps(scene: &mut Scene) {
    let mut left: Vec<u32> = (0..9).collect();
    while !left.is_empty() {
        let at = scene.random.below(left.len() as u64) as usize;
        match left.swap_remove(at) {
            0 => scene.kill_client(),
            1 => scene.stop_client(Short),
            2 => scene.stop_client(Long),
            3 => scene.cut_client(Short),
            4 => scene.cut_client(Long),
            5 => scene.stop_server(0, Whom::All, Short),
            6 => scene.stop_server(0, Whom::All, Long),
            7 => scene.cut_server(0, Whom::All, Short),
            _ => scene.cut_server(0, Whom::All, Long),
        }
    }
}

fn judge(name: &str, history: &History, kinds: &[&str]) {
    hold(name, history, linearizable);
    let mut measures = Measures::default();
    measures.add(history, kinds);
    measures.hold(&Asked {
        histories: 1,
        clients: 8,
        keys: 16,
        overlapping: 0.3,
        faults: &KINDS,
        fired: 1.0,
    });
}

fn real_run(design: &str, seed: u64) {
    let Some(mut scene) = scene(design, seed, "8") else { return };
    mishaps(&mut scene);
    let history = scene.finish();
    judge(&format!("real {design} seed {seed}"), &history, &scene.kinds());
}

#[test]
fn prism_kv_is_linearizable_while_processes_die_and_stand_still_and_links_are_cut() {
    real_run("prism", 1);
}

#[test]
fn pilaf_is_linearizable_while_processes_die_and_stand_still_and_links_are_cut() {
    real_run("pilaf", 2);
}

#[test]
fn farm_is_linearizable_while_processes_die_and_stand_still_and_links_are_cut() {
    real_run("farm", 3);
}

#[test]
fn a_client_that_answers_from_its_memory_is_found() {
    let Some(mut scene) = scene("prism", 4, "4") else { return };
    scene.enter(1, &["--liar"]);
    scene.all_go_on(200);
    let refused = linearizable(&scene.finish()).expect_err("lies");
    println!("{refused}");
}

#[test]
#[ignore = "soak: minutes"]
fn soak_real_runs_of_every_key_value_design() {
    for (at, design) in ["prism", "pilaf", "farm", "two-sided"].into_iter().cycle().take(40).enumerate() {
        real_run(design, 100 + at as u64);
    }
}
