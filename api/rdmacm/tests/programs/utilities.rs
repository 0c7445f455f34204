//! The programs of rdmacm-utils, qperf and fio.

use crate::connections::CmServer;
use crate::library::{address, program_at, unlimited_at};
use std::process::Stdio;

/// Runs a program as a server at one address, and as its client at another. `ADDRESS` stands for the
/// server's address.
#[track_caller]
fn pair_at([here, there]: [&str; 2], server: &str, client: &str) -> String {
    let words = |line: &str| line.replace("ADDRESS", here);
    let server = words(server);
    let client = words(client);
    let server: Vec<&str> = server.split_whitespace().collect();
    let client: Vec<&str> = client.split_whitespace().collect();
    let mut serves = CmServer::start(program_at(here, &server));
    let printed = serves.serves(program_at(there, &client));
    serves.succeeds();
    printed
}

/// Like [`pair_at`], with both programs at one address.
#[track_caller]
fn pair(server: &str, client: &str) -> String {
    let here = address();
    pair_at([&here, &here], server, client)
}

#[test]
fn rping_runs_at_one_address_and_between_two() {
    let here = address();
    let there = address();
    for client in [&here, &there] {
        let printed = pair_at([&here, client], "rping -s -a ADDRESS", "rping -c -v -C 100 -a ADDRESS");
        assert_eq!(printed.matches("ping data: rdma-ping-").count(), 100, "{printed}");
    }
}

#[test]
fn rping_runs_over_ipv6() {
    let printed =
        pair_at(["::1", "::1"], "rping -s -a ADDRESS -p 7275", "rping -c -v -C 20 -p 7275 -a ADDRESS");
    assert_eq!(printed.matches("ping data: rdma-ping-").count(), 20, "{printed}");
}

#[test]
fn a_persistent_rping_serves_one_client_after_the_other_also_after_one_was_killed() {
    let here = address();
    let mut server = CmServer::start(program_at(&here, &["rping", "-s", "-P", "-a", &here]));
    server.serves(program_at(&here, &["rping", "-c", "-C", "20", "-a", &here]));
    let mut victim =
        unlimited_at(&here, &["rping", "-c", "-v", "-a", &here]).stdout(Stdio::piped()).spawn().unwrap();
    // Its first output shows that it is connected.
    let mut first = [0; 1];
    std::io::Read::read_exact(victim.stdout.as_mut().unwrap(), &mut first).unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    server.serves(program_at(&here, &["rping", "-c", "-C", "20", "-a", &here]));
    let printed = server.ends();
    assert!(printed.contains("DISCONNECT EVENT"), "{printed}");
}

#[test]
fn ucmatose_udaddy_and_cmtime_run() {
    pair("ucmatose -b ADDRESS -c 4 -C 20", "ucmatose -s ADDRESS -c 4 -C 20");
    pair("udaddy -b ADDRESS -c 4 -C 20", "udaddy -s ADDRESS -c 4 -C 20");
    let here = address();
    // cmtime's server does not end by itself.
    let mut server = CmServer::start(program_at(&here, &["cmtime", "-b", &here]));
    let printed = server.serves(program_at(&here, &["cmtime", "-s", &here, "-c", "50"]));
    assert!(printed.contains("disconnect"), "{printed}");
}

/// Regression: a queue pair that asked for no inline bytes refused the 16 inline bytes that rdma_xclient
/// sends; providers accept them.
#[test]
fn endpoints_of_rc_and_xrc_run() {
    pair("rdma_server", "rdma_client -s ADDRESS");
    pair("rdma_xserver -c r", "rdma_xclient -s ADDRESS -c r");
    pair("rdma_xserver -c x", "rdma_xclient -s ADDRESS -c x");
}

#[test]
fn mckey_sends_to_a_group_that_another_program_has_joined() {
    let here = address();
    let group = "239.1.1.7";
    let server = CmServer::start(program_at(&here, &["mckey", "-m", group, "-b", &here]));
    // The sender waits some seconds before it sends.
    let printed = program_at(&here, &["mckey", "-m", group, "-s", "-b", &here]).output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let received = server.succeeds();
    assert!(received.contains("receiving data transfers"), "{received}");
}

#[test]
fn qperf_connects_by_rdma_cm() {
    let here = address();
    let mut server = CmServer::start(program_at(&here, &["qperf"]));
    let printed = server.serves(program_at(&here, &["qperf", "-cm1", "-t", "1", &here, "rc_lat"]));
    assert!(printed.contains("latency"), "{printed}");
}

#[test]
fn fio_writes_reads_and_sends_by_its_rdma_engine() {
    for verb in ["write", "read", "send"] {
        let here = address();
        let server =
            "fio --name=server --ioengine=rdma --port=12345 --bs=64k --size=1m --rw=read --iodepth=16";
        // fio's client succeeds also if it is refused, so its output is checked.
        let client = format!(
            "fio --name=client --ioengine=rdma --hostname={here} --port=12345 --verb={verb} --bs=64k --size=1m \
             --rw=write --iodepth=1 --iodepth_batch_complete=1 | grep WRITE:"
        );
        let server: Vec<&str> = server.split_whitespace().collect();
        let mut server = CmServer::start(program_at(&here, &server));
        let printed = server.serves(program_at(&here, &["sh", "-c", &client]));
        assert!(printed.contains("io=1024KiB"), "{verb}: {printed}");
        server.succeeds();
    }
}
