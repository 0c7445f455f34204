//! Replicated blocks: three replicas, of which one at a time is stopped, cut off, or killed and repaired,
//! and clients to which the same happens.

use std::time::{Duration, Instant};

use remora_check::linearizable;

use crate::hosts::Hosts;
use crate::party::{Server, until};
use crate::scene::Length::{Long, Short};
use crate::scene::{Scene, Whom};

const REPLICAS: usize = 3;
const CLIENTS: usize = 3;
const KINDS: [&str; 7] = [
    "client killed",
    "client stopped",
    "client cut off",
    "server stopped",
    "server cut off",
    "server killed",
    "server repaired",
];

/// Returns a replica of this design. If `new`, it creates the store.
fn replica(hosts: &Hosts, design: &str, index: usize, new: bool) -> Server {
    let address = hosts.address(index);
    let servers = servers(hosts);
    let number = index.to_string();
    let serve = ["serve", "block", "--design", design, "--replica", &number, "--servers", &servers];
    let own = ["--blocks", "16", "--block-len", "4608", "--port", "udp", "--address", &address];
    let new: &[&str] = if new { &["--new"] } else { &[] };
    Server::spawn(hosts.remora(index, &[&serve[..], &own, new].concat()), index)
}

fn servers(hosts: &Hosts) -> String {
    let addresses: Vec<String> =
        (0..REPLICAS).map(|index| format!("{}:7481", hosts.address(index))).collect();
    addresses.join(",")
}

/// Returns three replicas and clients that exercise them.
fn scene(design: &str, seed: u64, more: &[&str]) -> Result<Scene, remora_netns::Error> {
    let hosts = Hosts::new(REPLICAS + CLIENTS)?;
    let mut replicas: Vec<Server> = (0..REPLICAS).map(|index| replica(&hosts, design, index, true)).collect();
    replicas.iter_mut().for_each(Server::wait);
    let servers = servers(&hosts);
    let words = ["block", "exercise", "--servers", &servers, "--window", "3"];
    let mut scene = Scene::new(hosts, replicas, seed, &[&words[..], more].concat());
    (REPLICAS..REPLICAS + CLIENTS).for_each(|host| scene.enter(host, &[]));
    scene.all_go_on(10);
    Ok(scene)
}

/// Kills a replica, which loses its memory. While another one is missing too, no operation completes. After
/// its repair the replica replaces a different missing one.
fn one_dies_and_comes_back(scene: &mut Scene, design: &str) {
    let dead = scene.random.below(REPLICAS as u64) as usize;
    let other = (dead + 1) % REPLICAS;
    scene.kill_server(dead);
    scene.kill_client();
    scene.stop_server(other, Whom::All, Short);
    repair(scene, design, dead);
    scene.stop_server(other, Whom::Some, Long);
}

/// Starts a replica again without its memory. It gives up if the others do not answer for long, so the
/// start is repeated.
fn repair(scene: &mut Scene, design: &str, dead: usize) {
    let mut server = replica(&scene.hosts, design, dead, false);
    until("a replica is repaired", || {
        let serves = server.serves();
        if let Err(messages) = &serves {
            println!("{messages:?}");
            server = replica(&scene.hosts, design, dead, false);
        }
        serves.is_ok()
    });
    scene.replace_server(dead, server);
}

fn real_run(design: &str, seed: u64) {
    let mut scene = remora_netns::require!(scene(design, seed, &["--keys", "8"]));
    scene.mishaps(Whom::Some);
    one_dies_and_comes_back(&mut scene, design);
    let history = scene.finish();
    scene.judge(&format!("real {design} seed {seed}"), &history, linearizable, &KINDS);
}

/// Stops, cuts off, kills and repairs replicas one at a time while the others continue. Without a majority
/// no operation succeeds.
#[test]
fn prism_rs_is_linearizable_while_processes_die_and_stand_still_and_links_are_cut() {
    real_run("prism-rs", 11);
}

#[test]
fn abdlock_is_linearizable_while_processes_die_and_stand_still_and_links_are_cut() {
    real_run("abdlock", 12);
}

#[test]
fn a_client_of_blocks_that_answers_from_its_memory_is_found() {
    let mut scene = remora_netns::require!(scene("prism-rs", 13, &["--keys", "4"]));
    scene.enter(REPLICAS, &["--liar"]);
    scene.all_go_on(200);
    let refused = linearizable(&scene.finish()).expect_err("lies");
    println!("{refused}");
}

/// Kills and repairs one replica after the other for a long time, with other mishaps in between.
#[test]
#[ignore = "soak: ten minutes"]
fn soak_prism_rs_loses_no_acknowledged_write_in_ten_minutes_of_kills_and_repairs() {
    let mut scene = remora_netns::require!(scene("prism-rs", 14, &["--keys", "8", "--rate", "150"]));
    let started = Instant::now();
    let mut round = 0;
    while started.elapsed() < Duration::from_secs(600) {
        let dead = round % REPLICAS;
        scene.kill_server(dead);
        repair(&mut scene, "prism-rs", dead);
        let number = scene.random.below(9);
        let replica = scene.random.below(REPLICAS as u64) as usize;
        scene.mishap(number, replica, Whom::Some);
        round += 1;
    }
    let history = scene.finish();
    println!("{round} rounds");
    scene.judge("real soak of prism-rs", &history, linearizable, &KINDS);
}
