//! The key-value designs: one server and its clients, which are stopped, cut off and killed.

use remora_check::linearizable;

use crate::hosts::Hosts;
use crate::party::Server;
use crate::scene::{KINDS, Scene, Whom};

const CLIENTS: usize = 4;

/// Returns a server and clients that exercise it.
fn scene(design: &str, seed: u64, keys: &str) -> Result<Scene, remora_netns::Error> {
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
    Ok(scene)
}

fn real_run(design: &str, seed: u64) {
    let mut scene = remora_netns::require!(scene(design, seed, "8"));
    scene.mishaps(Whom::All);
    let history = scene.finish();
    scene.judge(&format!("real {design} seed {seed}"), &history, linearizable, &KINDS);
}

/// Runs each process on a host of its own. Clients are killed, clients and servers are stopped, and links
/// are cut, for shorter and for longer than retries last.
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
fn strom_kv_is_linearizable_while_processes_die_and_stand_still_and_links_are_cut() {
    real_run("strom", 5);
}

#[test]
fn a_client_that_answers_from_its_memory_is_found() {
    let mut scene = remora_netns::require!(scene("prism", 4, "4"));
    scene.enter(1, &["--liar"]);
    scene.all_go_on(200);
    let refused = linearizable(&scene.finish()).expect_err("lies");
    println!("{refused}");
}

#[test]
#[ignore = "soak: minutes"]
fn soak_real_runs_of_every_key_value_design() {
    for (index, design) in
        ["prism", "pilaf", "farm", "two-sided", "strom"].into_iter().cycle().take(40).enumerate()
    {
        real_run(design, 100 + index as u64);
    }
}
