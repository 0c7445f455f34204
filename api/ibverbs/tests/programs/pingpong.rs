//! The programs of ibverbs-utils.

use crate::library::{done, program};
use crate::pairs::pair;

/// Runs one of the ping-pongs with these options, and checks its last line.
#[track_caller]
fn runs(name: &str, options: &[&str]) {
    let words: Vec<&str> = [name, "-g", "0", "-n", "200"].iter().chain(options).copied().collect();
    let printed = pair(&words, "-p");
    assert!(printed.contains("200 iters in"), "{words:?}: {printed}");
}

#[test]
fn ibv_devinfo_shows_one_active_port_and_nothing_on_stderr() {
    let output = program(&["ibv_devinfo", "-v"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    for word in ["remora0", "PORT_ACTIVE (4)", "Ethernet", "LINK_UP (5)", "::ffff:127.", "RoCE v2"] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    let devices = done(&mut program(&["ibv_devices"]));
    assert_eq!(devices.matches("remora0").count(), 1, "{devices}");
}

#[test]
fn ibv_rc_pingpong_runs_with_events_checks_and_each_mtu() {
    for options in [&[][..], &["-c"], &["-e"], &["-t"], &["-o"], &["-j"], &["-N"]] {
        runs("ibv_rc_pingpong", options);
    }
    for mtu in ["256", "512", "1024", "2048", "4096"] {
        runs("ibv_rc_pingpong", &["-c", "-m", mtu]);
    }
}

#[test]
fn ibv_uc_pingpong_runs_with_events_checks_and_each_mtu() {
    runs("ibv_uc_pingpong", &["-e"]);
    for mtu in ["256", "512", "1024", "2048", "4096"] {
        runs("ibv_uc_pingpong", &["-c", "-m", mtu]);
    }
}

#[test]
fn ibv_ud_pingpong_runs_with_events_and_checks() {
    runs("ibv_ud_pingpong", &["-c"]);
    runs("ibv_ud_pingpong", &["-e", "-s", "1024"]);
}

#[test]
fn ibv_srq_and_xsrq_pingpong_run_with_events() {
    for name in ["ibv_srq_pingpong", "ibv_xsrq_pingpong"] {
        let words = [name, "-g", "0", "-n", "100"];
        pair(&words, "-p");
        pair(&[&words[..], &["-e"]].concat(), "-p");
    }
}
