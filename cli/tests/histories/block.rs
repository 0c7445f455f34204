//! Replicated blocks: three replicas, of which one at a time is stopped, cut off, or killed for good; and clients, likewise.

use check::{Asked, History, Measures, hold, linearizable};

use crate::hosts::Hosts;
use crate::party::Server;
use crate::scene::Length::{Long, Short};
use crate::scene::{Scene, Whom};

const REPLICAS: usize = 3;
const CLIENTS: usize = 3;
const KINDS: [&str; 6] = [
    "client killed",
    "client stopped",
    "client cut off",
    "server stopped",
    "server cut off",
    "server killed",
];

/// Where the replicas are.
fn all(hosts: &Hosts) -> String {
    let addresses: Vec<String> = (0..REPLICAS).map(|at| format!("{}:7481", hosts.address(at))).collect();
    addresses.join(",")
}

/// What a replica is told.
fn replica(hosts: &Hosts, design: &str, at: usize) -> Server {
    let (address, number, all) = (hosts.address(at), at.to_string(), all(hosts));
    let serve = ["serve", "block", "--design", design, "--replica", &number, "--blocks", "16"];
    let own = ["--block-len", "4608", "--port", "udp", "--address", &address, "--servers", &all, "--new"];
    Server::spawn(hosts.remora(at, &[&serve[..], &own].concat()), at)
}

/// Three replicas, and clients at work.
fn scene(design: &str, seed: u64, keys: &str) -> Option<Scene> {
    let hosts = Hosts::new(REPLICAS + CLIENTS)?;
    let mut replicas: Vec<Server> = (0..REPLICAS).map(|at| replica(&hosts, design, at)).collect();
    replicas.iter_mut().for_each(Server::wait);
    let addresses = all(&hosts);
    let words = ["block", "exercise", "--servers", &addresses, "--window", "3", "--keys", keys];
    let mut scene = Scene::new(hosts, replicas, seed, &words);
    (REPLICAS..REPLICAS + CLIENTS).for_each(|host| scene.enter(host, &[]));
    scene.all_go_on(10);
    Some(scene)
}

/// Each mishap, short and long, in an order that the seed decides; all replicas live.
fn mishaps(scene: &mut Scene) {
    let mut left: Vec<u32> = (0..9).collect();
    while !left.is_empty() {
        let at = scene.random.below(left.len() as u64) as usize;
        let replica = scene.random.below(REPLICAS as u64) as usize;
        match left.swap_remove(at) {
            0 => scene.kill_client(),
            1 => scene.stop_client(Short),
            2 => scene.stop_client(Long),
            3 => scene.cut_client(Short),
            4 => scene.cut_client(Long),
            5 => scene.stop_server(replica, Whom::Some, Short),
            6 => scene.stop_server(replica, Whom::Some, Long),
            7 => scene.cut_server(replica, Whom::Some, Short),
            _ => scene.cut_server(replica, Whom::Some, Long),
        }
    }
}

/// A replica dies and stays dead. The others are a majority; without another one of them nobody does anything.
fn one_dies(scene: &mut Scene) {
    let dead = scene.random.below(REPLICAS as u64) as usize;
    scene.kill_server(dead);
    scene.kill_client();
    let other = (dead + 1) % REPLICAS;
    scene.stop_server(other, Whom::All, Short);
    scene.cut_server(other, Whom::All, Long);
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
    one_dies(&mut scene);
    let history = scene.finish();
    judge(&format!("real {design} seed {seed}"), &history, &scene.kinds());
}

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
    let Some(mut scene) = scene("prism-rs", 13, "4") else { return };
    scene.enter(REPLICAS, &["--liar"]);
    scene.all_go_on(200);
    let refused = linearizable(&scene.finish()).expect_err("lies");
    println!("{refused}");
}
