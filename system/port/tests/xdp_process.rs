//! The privileges that an XDP port needs, and its traces: none, however its process ends.
#![allow(unsafe_code, reason = "namespaces and capabilities are system calls")]

mod network;

use network::{Host, ip, run, veth_pair};
use remora_port::xdp::{Mode, OpenError, Options, XdpPort};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

const ROLE: &str = "REMORA_TEST_XDP_ROLE";

/// The process that another test starts and kills.
#[test]
#[ignore = "the entry point of a process that another test starts"]
fn acts_its_role() {
    let port = XdpPort::open("near0", None, &Options::default());
    println!("{}", if port.is_ok() { "open" } else { "refused" });
    // The port stays open until the process is killed.
    let _ = std::io::stdin().read(&mut [0]);
    drop(port);
}

fn has_program() -> bool {
    run("ip", "-json link show near0").contains("\"xdp\"")
}

/// Returns the description of the interface, once the kernel has finished duplicate address detection.
fn settled_interface() -> String {
    loop {
        let shown = run("ip", "-json -details address show near0");
        if !shown.contains("\"tentative\"") {
            return shown;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_process_that_is_killed_leaves_the_interface_as_it_was() {
    remora_netns::require!(network::possible());
    let spaces = veth_pair(1500, "");
    let before = settled_interface();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "acts_its_role", "--nocapture"]).env(ROLE, "hold");
    for round in 0..3 {
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("open") {
            line.clear();
            assert!(
                output.read_line(&mut line).unwrap() > 0 && !line.contains("refused"),
                "the port did not open"
            );
        }
        assert!(has_program(), "round {round}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!has_program(), "round {round}");
    }
    assert_eq!(settled_interface(), before);
    carries_tcp(&spaces);
    XdpPort::open("near0", None, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
}

/// Checks that the kernel's own traffic passes.
fn carries_tcp(spaces: &[Host; 2]) {
    spaces[1].enter();
    let listener = TcpListener::bind("10.90.0.2:7000").unwrap();
    spaces[0].enter();
    let mut stream = TcpStream::connect("10.90.0.2:7000").unwrap();
    stream.write_all(b"still there").unwrap();
    let mut came = [0; 11];
    listener.accept().unwrap().0.read_exact(&mut came).unwrap();
    assert_eq!(&came, b"still there");
}

#[test]
fn an_interface_that_is_deleted_takes_its_port_with_it_and_nothing_else() {
    remora_netns::require!(network::possible());
    use remora_port::{Class, Egress, Port};
    let _spaces = veth_pair(1500, "");
    let mut port = XdpPort::open("near0", None, &Options { send_frames: 64, ..Options::default() }).unwrap();
    let endpoint = remora_port::udp::endpoint("10.90.0.2:4791".parse().unwrap());
    port.resolver().wait(endpoint, std::time::Duration::from_secs(10)).unwrap();
    let peer = port.peer(endpoint).unwrap();
    ip("link delete near0");
    for _ in 0..200 {
        port.lend(peer, Class::default(), 100)
            .expect("a removed network accepts and drops all frames")
            .bytes
            .fill(1);
        port.commit();
        port.flush();
        assert_eq!(port.receive(9, &mut |_| ()), 0);
    }
    assert!(port.counters().send_dropped > 0 && port.xdp_counters().down > 0);
}

#[test]
fn without_the_rights_it_says_which_are_missing() {
    remora_netns::require!(network::possible());
    let _spaces = veth_pair(1500, "");
    // Only this thread's capabilities are dropped: other threads may need theirs.
    let none = rustix::thread::CapabilitySets {
        effective: rustix::thread::CapabilitySet::empty(),
        permitted: rustix::thread::capabilities(None).unwrap().permitted,
        inheritable: rustix::thread::CapabilitySet::empty(),
    };
    let refused = |rights: rustix::thread::CapabilitySet| {
        let all = rustix::thread::CapabilitySets { effective: rights, ..none };
        rustix::thread::set_capabilities(None, all).unwrap();
        let error = XdpPort::open("near0", None, &Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::NoRight(_)), "{error:?} with {rights:?}");
        let text = error.to_string();
        assert!(text.contains("CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_IPC_LOCK"), "{text}");
        assert!(text.contains("port udp needs no rights") && !text.contains('\n'), "{text}");
        text
    };
    use rustix::thread::CapabilitySet as Right;
    assert!(refused(Right::empty()).starts_with("opening an AF_XDP socket is not allowed: "));
    assert!(refused(Right::NET_ADMIN | Right::BPF).starts_with("opening an AF_XDP socket"));
    refused(Right::NET_RAW | Right::IPC_LOCK);
    refused(Right::NET_RAW | Right::NET_ADMIN | Right::IPC_LOCK);
    let enough = Right::NET_RAW | Right::NET_ADMIN | Right::BPF | Right::IPC_LOCK;
    rustix::thread::set_capabilities(None, rustix::thread::CapabilitySets { effective: enough, ..none })
        .unwrap();
    XdpPort::open("near0", None, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn what_could_be_opened_is_told_without_touching_anything() {
    let _spaces = veth_pair(1500, "");
    ip("link add bridge0 type bridge");
    ip("link set bridge0 up");
    let candidates = remora_port::xdp::probe().unwrap_or_else(|error| panic!("{error}"));
    let named = |name: &str| candidates.iter().find(|candidate| candidate.interface.name == name).unwrap();
    assert_eq!(candidates.len(), 2, "loopback is no Ethernet: {candidates:?}");
    assert_eq!(named("near0").interface.addresses[0], std::net::IpAddr::from([10, 90, 0, 1]));
    // Before 6.3 the kernel does not report drivers' abilities.
    if let (Some(near), Some(bridge)) = (named("near0").driver, named("bridge0").driver) {
        assert_eq!(
            (near.native, near.zero_copy, bridge.native, bridge.zero_copy),
            (true, false, false, false)
        );
    }
    assert!(!has_program());
}

#[test]
fn memory_that_may_not_be_locked_is_told() {
    remora_netns::require!(network::possible());
    let _spaces = veth_pair(1500, "");
    let all = rustix::thread::capabilities(None).unwrap();
    let effective = all.effective - rustix::thread::CapabilitySet::IPC_LOCK;
    rustix::thread::set_capabilities(None, rustix::thread::CapabilitySets { effective, ..all }).unwrap();
    // Only this thread is subject to the limit: threads of other tests keep CAP_IPC_LOCK, which exempts them.
    let limit = rustix::process::Rlimit { current: Some(8 << 20), maximum: Some(8 << 20) };
    rustix::process::setrlimit(rustix::process::Resource::Memlock, limit).unwrap();
    let receive_frames = 1 << 13;
    let options = Options { receive_frames, send_frames: 64, ..Options::default() };
    let error = XdpPort::open("near0", None, &options).unwrap_err();
    assert_eq!(error, OpenError::Memory(rustix::io::Errno::NOBUFS));
    assert!(error.to_string().contains("`ulimit -l unlimited`"), "{error}");
    assert!(!has_program());
}

#[test]
fn what_is_wrong_with_an_interface_is_told() {
    remora_netns::require!(network::possible());
    let _spaces = veth_pair(1500, "");
    let refused = |name: &str, address: Option<&str>, options: &Options| {
        XdpPort::open(name, address.map(|text| text.parse().unwrap()), options).unwrap_err()
    };
    let usual = Options::default();
    assert_eq!(refused("eth99", None, &usual), OpenError::NoInterface("eth99".to_owned()));
    assert_eq!(refused("lo", None, &usual), OpenError::NotEthernet("lo".to_owned()));
    let foreign =
        OpenError::NotItsAddress { interface: "near0".to_owned(), address: "10.90.0.9".parse().unwrap() };
    assert_eq!(refused("near0", Some("10.90.0.9"), &usual), foreign);
    assert_eq!(refused("near0", None, &Options { send_frames: 100, ..usual }), OpenError::Frames(100));
    ip("link add bare0 type veth peer name bare1");
    assert_eq!(refused("bare0", None, &usual), OpenError::Down("bare0".to_owned()));
    ip("link set bare0 addrgenmode none");
    ip("link set bare0 up");
    assert_eq!(refused("bare0", None, &usual), OpenError::NoAddress("bare0".to_owned()));
    // A bridge does not support XDP, so the kernel runs the program after it.
    ip("link add bridge0 type bridge");
    ip("address add 10.94.0.1/24 dev bridge0");
    ip("link set bridge0 up");
    let native = refused("bridge0", None, &Options { mode: Some(Mode::Native), ..usual });
    assert_eq!(native, OpenError::NoMode(Mode::Native, rustix::io::Errno::OPNOTSUPP));
    let open = XdpPort::open("bridge0", None, &usual).unwrap();
    assert_eq!((open.mode(), open.is_zero_copy()), (Mode::Generic, false));
}
