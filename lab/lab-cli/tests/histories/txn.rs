//! Transactions over two shards, while the shards and their clients are stopped, cut off and killed.

use remora_check::{History, Violation, serializable, strictly_serializable};

use crate::hosts::Hosts;
use crate::party::Server;
use crate::scene::{KINDS, Scene, Whom};

const SHARDS: usize = 2;
const CLIENTS: usize = 4;

/// Starts a shard.
fn shard(hosts: &Hosts, design: &str, index: usize) -> Server {
    let (address, listen, number) =
        (hosts.address(index), format!("{}:7491", hosts.address(index)), index.to_string());
    let serve = ["serve", "txn", "--design", design, "--shard", &number, "--shards", "2", "--keys", "1000"];
    let own = ["--value-len", "4200", "--port", "udp", "--address", &address, "--listen", &listen];
    Server::spawn(hosts.remora(index, &[&serve[..], &own].concat()), index)
}

/// Returns two shards and clients that exercise them.
fn scene(design: &str, seed: u64, keys: &str) -> Result<Scene, remora_netns::Error> {
    let hosts = Hosts::new(SHARDS + CLIENTS)?;
    let mut shards: Vec<Server> = (0..SHARDS).map(|index| shard(&hosts, design, index)).collect();
    shards.iter_mut().for_each(Server::wait);
    let addresses: Vec<String> = (0..SHARDS).map(|index| format!("{}:7491", hosts.address(index))).collect();
    let addresses = addresses.join(",");
    let words = ["txn", "exercise", "--shards", &addresses, "--window", "3", "--keys", keys, "--rate", "60"];
    let mut scene = Scene::new(hosts, shards, seed, &words);
    scene.notes_failures = true;
    (SHARDS..SHARDS + CLIENTS).for_each(|host| scene.enter(host, &[]));
    scene.all_go_on(5);
    Ok(scene)
}

fn real_run(design: &str, seed: u64, judge: fn(&History) -> Result<(), Violation>) {
    let mut scene = remora_netns::require!(scene(design, seed, "12"));
    // One more client is killed than elsewhere, because other clients must clean up its transaction.
    scene.kill_client();
    scene.mishaps(Whom::Part);
    let history = scene.finish();
    scene.judge(&format!("real {design} seed {seed}"), &history, judge, &KINDS);
}

/// Runs two shards and clients, each process on a host of its own. Clients are killed, clients and shards
/// are stopped, and links are cut.
#[test]
fn prism_tx_is_serializable_while_processes_die_and_stand_still_and_links_are_cut() {
    real_run("prism-tx", 21, serializable);
}

#[test]
fn farm_is_strictly_serializable_while_processes_die_and_stand_still_and_links_are_cut() {
    real_run("farm", 22, strictly_serializable);
}

#[test]
fn a_client_of_transactions_that_answers_from_its_memory_is_found() {
    let mut scene = remora_netns::require!(scene("prism-tx", 23, "4"));
    scene.enter(SHARDS, &["--liar"]);
    scene.all_go_on(40);
    let refused = serializable(&scene.finish()).expect_err("lies");
    println!("{refused}");
}

#[test]
#[ignore = "soak: minutes"]
fn soak_real_runs_of_transactions() {
    for seed in 0..20 {
        real_run("prism-tx", 200 + seed, serializable);
        real_run("farm", 300 + seed, strictly_serializable);
    }
}
