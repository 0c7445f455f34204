//! The GID table of a device that has all addresses of its network namespace.

use remora_broker::client::{self, Options as ClientOptions, Paths, PortEvents, Range, Watch};
use remora_broker::{Broker, GIDS, GidEntry, Options};
use remora_netns::{Error, Namespace};
use remora_verbs::Counters;
use std::sync::mpsc::{Receiver, channel};

use crate::{at, never, report};

/// A host with a loopback interface, and one more interface that is up.
fn host() -> Result<[Namespace; 2], Error> {
    let near = Namespace::new("near")?;
    let far = Namespace::new("far")?;
    near.add_veth("eth0", &far, "eth0", "")?;
    near.ip("link set eth0 addrgenmode none")?;
    for (end, interface) in [(&near, "lo"), (&far, "eth0"), (&near, "eth0")] {
        end.ip(&format!("link set {interface} up"))?;
    }
    near.ip("address add 10.98.3.1/24 dev eth0")?;
    near.ip("address add fd98:3::1/64 dev eth0 nodad")?;
    near.ip("address add fe80::7/64 dev eth0 nodad")?;
    near.wait_until_up("eth0")?;
    Ok([near, far])
}

fn everything() -> ClientOptions {
    ClientOptions { every_address: true, ..never() }
}

fn table(address: &str) -> Vec<(usize, String)> {
    report(at(address)).gids().collect()
}

/// Waits until the table has this many entries, and returns them.
#[track_caller]
fn table_of(address: &str, count: usize) -> Vec<String> {
    crate::until(at(address), |report| report.gids().count() == count);
    table(address).into_iter().map(|(index, gid)| format!("{index} {gid}")).collect()
}

/// A program that records how its GIDs change.
struct WatchingProgram {
    range: Range,
    first: Vec<Option<GidEntry>>,
    changes: Receiver<Vec<Option<GidEntry>>>,
    _watch: Watch,
}

impl WatchingProgram {
    fn start(address: &str, options: &ClientOptions) -> WatchingProgram {
        let range = client::open(at(address), options).unwrap();
        let events = PortEvents::open(&range).unwrap();
        let first = events.first().gids.clone();
        let (change, changes) = channel();
        let events = events.on_change(move |state| change.send(state.gids).unwrap());
        let watch = Watch::of(&range, None, Some(events), Counters::default, || {}).unwrap();
        WatchingProgram { range, first, changes, _watch: watch }
    }
}

/// Regression: `/sys` of a program with one address showed all GIDs of its broker, and that of a program
/// with several did not follow the port.
#[test]
fn all_addresses_stand_in_order_and_an_index_stays_with_its_address() {
    let [near, _far] = remora_netns::require!(host());
    near.inside(|| {
        let address = "127.0.0.1:0";
        let _broker = Broker::open(at(address), &Options::default()).unwrap();
        assert_eq!(table_of(address, 1), ["0 127.0.0.1"]);
        let chosen = WatchingProgram::start(address, &never());
        assert_eq!(chosen.first.len(), 1, "a program that has chosen its address has that alone");
        let paths = Paths::open(&[at(address)], &everything()).unwrap();
        let eth0 = chosen_scope(&near);
        let link_local = format!("4 fe80::7%{eth0}");
        let all = ["0 127.0.0.1", "1 10.98.3.1", "2 fd98:3::1", "3 ::1", link_local.as_str()];
        assert_eq!(table_of(address, 5), all);
        let program = WatchingProgram::start(address, &everything());
        assert_eq!(program.first.len(), 5);
        let file = |name: &str| {
            let port = paths.folder().join("sys/class/infiniband/remora0/ports/1");
            std::fs::read_to_string(port.join(name)).map(|text| text.trim().to_owned())
        };
        assert_eq!(file("gids/1").unwrap(), "0000:0000:0000:0000:0000:ffff:0a62:0301");
        assert_eq!(
            (file("gid_attrs/types/3").unwrap(), file("gid_attrs/ndevs/2").unwrap()),
            ("RoCE v2".to_owned(), "eth0".to_owned())
        );
        assert!(file("gid_attrs/types/5").is_err() && file("gids/5").unwrap().starts_with("0000:0000"));
        // A program that has chosen addresses sees only those, in its order, whatever addresses the broker
        // has.
        let gids_of = |addresses: &[&str]| {
            let chosen: Vec<_> = addresses.iter().map(|address| at(address)).collect();
            let paths = Paths::open(&chosen, &never()).unwrap();
            let gid = |index: usize| {
                let gids = paths.folder().join("sys/class/infiniband/remora0/ports/1/gids");
                std::fs::read_to_string(gids.join(index.to_string())).unwrap().trim().to_owned()
            };
            (0..addresses.len() + 1).map(gid).collect::<Vec<_>>()
        };
        let none = "0000:0000:0000:0000:0000:0000:0000:0000";
        let (loopback, eth0_gid) =
            ("0000:0000:0000:0000:0000:ffff:7f00:0001", "0000:0000:0000:0000:0000:ffff:0a62:0301");
        assert_eq!(gids_of(&[address]), [loopback, none]);
        assert_eq!(gids_of(&["10.98.3.1:0", address]), [eth0_gid, loopback, none]);
        // A share of each address, which the program keeps.
        let take = |gid: &GidEntry| {
            let share = program.range.further(gid.address()).unwrap();
            assert_eq!((share.range(), share.local()), (program.range.number(), gid.address()));
            share
        };
        let _shares: Vec<_> = program.first.iter().flatten().skip(1).map(take).collect();
        // One address is removed, one is added, and the first one comes back.
        let ip = |words: &str| near.ip(words).unwrap();
        ip("address del 10.98.3.1/24 dev eth0");
        assert_eq!(table_of(address, 4)[1], "2 fd98:3::1");
        ip("address add 10.98.4.2/24 dev eth0");
        assert_eq!(table_of(address, 5)[4], "5 10.98.4.2", "the address in use keeps its index");
        ip("address add 10.98.3.1/24 dev eth0");
        assert_eq!(table_of(address, 6)[1], "1 10.98.3.1");
        let last = program.changes.iter().find(|gids| gids.iter().flatten().count() == 6).unwrap();
        assert_eq!(last[..5], program.first[..]);
        assert!(chosen.changes.try_recv().is_err(), "the chosen address has not changed");
        // Nobody has a share of this address, so its index becomes free.
        ip("address del 10.98.4.2/24 dev eth0");
        table_of(address, 5);
        ip("address add 10.98.5.3/24 dev eth0");
        assert_eq!(table_of(address, 6)[5], "5 10.98.5.3");
    })
    .unwrap();
}

/// The index of the host's interface.
fn chosen_scope(host: &Namespace) -> String {
    let shown = host.ip("-oneline link show eth0").unwrap();
    shown.split(':').next().unwrap().to_owned()
}

#[test]
fn the_table_takes_so_many_addresses_and_goes_on_when_one_goes() {
    let [near, _far] = remora_netns::require!(host());
    near.inside(|| {
        let address = "10.98.3.1:0";
        let _broker = Broker::open(at(address), &Options::default()).unwrap();
        let program = WatchingProgram::start(address, &everything());
        assert_eq!(program.first.iter().flatten().count(), 5);
        for last in 2..GIDS + 2 {
            near.ip(&format!("address add 10.98.3.{last}/24 dev eth0")).unwrap();
        }
        let full = table_of(address, GIDS);
        assert_eq!(full[0], "0 10.98.3.1");
        assert!(full[GIDS - 1].starts_with(&format!("{} 10.98.3.", GIDS - 1)), "{full:?}");
        // A new address waits for a free entry.
        near.ip("address add 10.98.4.1/24 dev eth0").unwrap();
        near.ip("address del 10.98.3.9/24 dev eth0").unwrap();
        let is_there = |report: &client::Report| report.gids().any(|(_, gid)| gid == "10.98.3.29");
        crate::until(at(address), |report| is_there(report) && report.gids().count() == GIDS);
        // Programs that have chosen an address which is not in the table get the reason why they cannot have
        // it.
        let words = client::open(at("127.9.9.9:0"), &never()).map(|_| ()).unwrap_err().to_string();
        assert!(words.contains("no broker has"), "{words}");
        let refusal = program.range.further(at("127.9.9.9:0")).unwrap_err().to_string();
        assert!(refusal.contains(&format!("has {GIDS} addresses")), "{refusal}");
    })
    .unwrap();
}

#[test]
fn an_address_that_another_broker_has_is_left_to_it() {
    let [near, _far] = remora_netns::require!(host());
    near.inside(|| {
        let _other = Broker::open(at("10.98.3.1:0"), &Options::default()).unwrap();
        let _taken = std::net::UdpSocket::bind("[fd98:3::1]:4791").unwrap();
        let _broker = Broker::open(at("127.0.0.1:0"), &Options::default()).unwrap();
        let _program = WatchingProgram::start("127.0.0.1:0", &everything());
        let link_local = format!("2 fe80::7%{}", chosen_scope(&near));
        assert_eq!(table_of("127.0.0.1:0", 3), ["0 127.0.0.1", "1 ::1", link_local.as_str()]);
        assert_eq!(table_of("10.98.3.1:0", 1), ["0 10.98.3.1"]);
    })
    .unwrap();
}
