//! The rooms of the house in order, and the arrows between them.
//!
//! A room may name only rooms above it; some may name fewer. `cargo metadata` tells what they do name.

use crate::Fault;
use cargo_metadata::{DependencyKind, Metadata};

/// What a room may do.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Its folder, and after `remora-` its crate.
    pub name: &'static str,
    /// The rooms it may name; `None`: every room above it.
    pub names_only: Option<&'static [&'static str]>,
    /// Names only listed crates from outside, and builds for wasm32 with an empty import list.
    pub pure: bool,
    /// No clock, no sockets, no threads, no unordered maps: what it does follows from what it is given.
    pub reproducible: bool,
    /// May it hold `unsafe`?
    pub may_be_unsafe: bool,
    /// For a pure room: the crates from outside that may be part of it (tests may use what they like).
    pub outside: &'static [&'static str],
}

const fn pure(
    name: &'static str,
    names_only: &'static [&'static str],
    outside: &'static [&'static str],
) -> Room {
    Room { name, names_only: Some(names_only), pure: true, reproducible: true, may_be_unsafe: false, outside }
}

const fn impure(name: &'static str, may_be_unsafe: bool) -> Room {
    Room { name, names_only: None, pure: false, reproducible: false, may_be_unsafe, outside: &[] }
}

/// All rooms, top to bottom, the rooms that are yet to be built among them.
pub const ROOMS: [Room; 15] = [
    pure("wire", &[], &["zerocopy", "crc32fast"]),
    // Racing bytes are handled here, and on Unix they may lie in a memfd.
    Room { may_be_unsafe: true, ..pure("memory", &["wire"], &["libc", "rustix"]) },
    pure("transport", &["wire"], &[]),
    // Crc-fast: the CRC64 that the consistency kernel checks.
    pure("nic", &["wire", "memory", "transport"], &["crc-fast", "pulp"]),
    // Programs for the NIC's chains, and a NIC alone to run them on.
    pure("chain", &["wire", "memory", "transport", "nic"], &[]),
    // Crc-fast: the CRC64 that Pilaf's readers check. Xxhash-rust: the hash that both ends agree on. Offset-allocator:
    // where objects lie. Hashbrown: the index that only a server sees. Rand_xoshiro: the streams of the workloads.
    pure(
        "store",
        &["wire", "memory", "transport", "nic"],
        &["base64", "crc-fast", "xxhash-rust", "offset-allocator", "hashbrown", "rand_xoshiro"],
    ),
    // The simulated world reads rule files, but one seed gives one world.
    Room {
        names_only: Some(&["wire", "memory", "transport", "nic", "store"]),
        reproducible: true,
        ..impure("fabric", false)
    },
    // A port moves frames; what an RDMA byte means is not its business. `memory` lends it shared memory, `fabric` the
    // fault rules.
    Room { names_only: Some(&["wire", "memory", "fabric"]), ..impure("port", true) },
    impure("host", false),
    impure("verbs", true),
    // What C programs link with: every argument is a foreign pointer.
    impure("capi", true),
    Room { names_only: Some(&["nic"]), ..impure("sandbox", false) },
    // Judges what clients saw, by whichever way they came, and so knows nothing of the house.
    Room { names_only: Some(&[]), ..impure("check", false) },
    // Reads a text and asks etcd: nothing of the house.
    Room { names_only: Some(&[]), ..impure("members", false) },
    impure("cli", false),
];

/// The rooms that any room's tests may name: the simulated world, and who judges what happened there.
const FOR_TESTS: [&str; 2] = ["fabric", "check"];

/// The room of this name.
pub fn find(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// The names of the rooms that may hold `unsafe`.
pub fn unsafe_rooms() -> Vec<&'static str> {
    ROOMS.iter().filter(|room| room.may_be_unsafe).map(|room| room.name).collect()
}

/// One crate of the workspace and what it depends on.
#[derive(Debug, Clone)]
pub struct Crate {
    /// The package's name.
    pub package: String,
    /// The packages it names, and whether only its tests do.
    pub names: Vec<(String, bool)>,
}

/// The workspace's own crates, out of `cargo metadata`.
pub fn crates(metadata: &Metadata) -> Vec<Crate> {
    let members = metadata.workspace_packages();
    let names = |package: &cargo_metadata::Package| {
        let arrows = package.dependencies.iter();
        arrows.map(|arrow| (arrow.name.clone(), is_for_tests(arrow))).collect()
    };
    members.iter().map(|package| Crate { package: package.name.to_string(), names: names(package) }).collect()
}

/// A dependency of tests, or of the models that only `--cfg loom` builds.
fn is_for_tests(arrow: &cargo_metadata::Dependency) -> bool {
    let condition = arrow.target.as_ref().map(ToString::to_string);
    arrow.kind == DependencyKind::Development || condition.as_deref() == Some("cfg(loom)")
}

/// Arrows that point down the list or to a room this one may not name, crates from outside in a pure room, and
/// members that are no room.
pub fn check(crates: &[Crate]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for member in crates.iter().filter(|member| !is_tool(&member.package)) {
        let folder = member.package.trim_start_matches("remora-");
        let Some(place) = ROOMS.iter().position(|room| room.name == folder) else {
            faults.push(Fault::new("Cargo.toml", 0, format!("{} is no room of the house", member.package)));
            continue;
        };
        let path = format!("{folder}/Cargo.toml");
        for (named, only_tests) in &member.names {
            if let Some(says) = forbidden(place, named, *only_tests) {
                faults.push(Fault::new(&path, 0, says));
            }
        }
    }
    faults
}

/// `tidy` looks at the house from outside.
fn is_tool(package: &str) -> bool {
    package == "remora-tidy"
}

fn forbidden(place: usize, named: &str, only_tests: bool) -> Option<String> {
    let room = &ROOMS[place];
    let Some(target) = named.strip_prefix("remora-") else {
        let foreign = room.pure && !only_tests && !room.outside.contains(&named);
        return foreign.then(|| format!("{} is pure: {named} is not among the crates it may use", room.name));
    };
    let Some(above) = ROOMS.iter().position(|other| other.name == target) else {
        return Some(format!("{} names {named}, which is no room", room.name));
    };
    if above >= place && !(only_tests && FOR_TESTS.contains(&target)) {
        return Some(format!("{} names {target}, which is not above it", room.name));
    }
    let narrow = room.names_only.is_some_and(|only| !only.contains(&target));
    (narrow && !only_tests).then(|| format!("{} may not name {target}", room.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(package: &str, named: &str, only_tests: bool) -> Vec<String> {
        let sample = Crate { package: package.into(), names: vec![(named.into(), only_tests)] };
        check(&[sample]).into_iter().map(|fault| fault.says).collect()
    }

    #[test]
    fn an_arrow_down_the_list_is_a_fault() {
        assert_eq!(faults("remora-wire", "remora-nic", false), ["wire names nic, which is not above it"]);
        assert_eq!(faults("remora-wire", "remora-nic", true), ["wire names nic, which is not above it"]);
        assert!(faults("remora-nic", "remora-wire", false).is_empty());
    }

    #[test]
    fn transport_may_not_see_bytes_nor_port_see_queues() {
        assert_eq!(faults("remora-transport", "remora-memory", false), ["transport may not name memory"]);
        assert_eq!(faults("remora-port", "remora-nic", false), ["port may not name nic"]);
    }

    #[test]
    fn a_pure_room_takes_no_crate_that_is_not_listed_but_its_tests_may() {
        assert!(faults("remora-transport", "tokio", false)[0].contains("tokio"));
        assert!(faults("remora-transport", "proptest", true).is_empty());
        assert!(faults("remora-host", "tracing", false).is_empty());
    }

    #[test]
    fn a_member_that_is_no_room_is_a_fault() {
        assert!(faults("remora-utils", "libc", false)[0].contains("no room"));
        assert!(faults("remora-host", "remora-utils", false)[0].contains("no room"));
    }

    #[test]
    fn tests_may_reach_for_the_simulated_world() {
        assert!(faults("remora-store", "remora-fabric", true).is_empty());
        assert!(!faults("remora-store", "remora-fabric", false).is_empty());
    }

    #[test]
    fn any_test_may_ask_the_judges_who_know_nothing_of_the_house() {
        assert!(faults("remora-fabric", "remora-check", true).is_empty());
        assert_eq!(
            faults("remora-fabric", "remora-check", false),
            ["fabric names check, which is not above it"]
        );
        assert_eq!(faults("remora-check", "remora-wire", false), ["check may not name wire"]);
    }
}
