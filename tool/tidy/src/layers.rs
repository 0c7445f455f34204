//! The layers of crates: the folder of each crate, the crates that it may depend on, and a comparison with
//! `Cargo.toml`.
//!
//! A crate may depend only on crates above it in the list, and some only on a part of those. `cargo
//! metadata` lists the actual dependencies. This list is the only source; `drawing` generates the documents'
//! lists from it.

use crate::Fault;
use cargo_metadata::{DependencyKind, Metadata};

/// The place of a crate in the layers, and the rules for it.
#[derive(Debug, Clone, Copy)]
pub struct Layer {
    /// The folder of the root that contains the crate's folder.
    pub folder: &'static str,
    /// The name of the crate's own folder, and of its package after `remora-`.
    pub name: &'static str,
    /// The crates of the workspace that it may depend on. `None`: every crate above it.
    pub names_only: Option<&'static [&'static str]>,
    /// True if the crate depends only on listed external crates, and builds for wasm32 without imports.
    pub pure: bool,
    /// True if the crate uses no clock, sockets, threads or unordered maps, so that its results follow from
    /// its arguments.
    pub reproducible: bool,
    /// True if the crate may contain `unsafe`.
    pub may_be_unsafe: bool,
    /// The external crates that a pure crate may depend on. Its tests may depend on any crate.
    pub outside: &'static [&'static str],
}

const fn pure(
    folder: &'static str,
    name: &'static str,
    names_only: &'static [&'static str],
    outside: &'static [&'static str],
) -> Layer {
    Layer {
        folder,
        name,
        names_only: Some(names_only),
        pure: true,
        reproducible: true,
        may_be_unsafe: false,
        outside,
    }
}

const fn impure(folder: &'static str, name: &'static str, may_be_unsafe: bool) -> Layer {
    Layer { folder, name, names_only: None, pure: false, reproducible: false, may_be_unsafe, outside: &[] }
}

/// All crates of the workspace, from top to bottom.
pub const LAYERS: [Layer; 32] = [
    pure("core", "wire", &[], &["zerocopy", "crc32fast"]),
    // The crate handles memory with racing accesses, which can be a memfd on Unix.
    Layer { may_be_unsafe: true, ..pure("core", "memory", &["wire"], &["libc", "rustix"]) },
    pure("core", "transport", &["wire"], &[]),
    pure("core", "cm", &["wire", "memory"], &[]),
    // Crc-fast computes the CRC64 that the consistency kernel checks.
    pure("core", "nic", &["wire", "memory", "transport"], &["crc-fast", "pulp"]),
    // Programs for the NIC's work-request chains, and a NIC without a network to run them on.
    pure("program", "chain", &["wire", "memory", "transport", "nic"], &[]),
    Layer { names_only: Some(&["nic"]), ..impure("program", "sandbox", false) },
    // Ring, cmac and aes implement the NIC's cipher trait.
    Layer { names_only: Some(&["nic"]), ..impure("program", "cipher", false) },
    // Crc-fast: the CRC64 that Pilaf's readers check. Xxhash-rust: the hash that client and server agree on.
    // Offset-allocator: the places of objects. Hashbrown: the server's private index. Rand_xoshiro: the
    // random streams of the workloads.
    pure(
        "stores",
        "store",
        &["wire", "memory", "transport", "nic"],
        &["base64", "crc-fast", "xxhash-rust", "offset-allocator", "hashbrown", "rand_xoshiro"],
    ),
    // The crate parses shard maps and queries etcd, and needs no other crate.
    Layer { names_only: Some(&[]), ..impure("stores", "members", false) },
    // Serde and toml read the rule files that people write.
    Layer { names_only: Some(&["wire"]), reproducible: true, ..impure("sim", "fault", false) },
    // The simulation reads rule files, but a seed determines a run.
    Layer {
        names_only: Some(&["wire", "memory", "transport", "nic", "store", "fault"]),
        reproducible: true,
        ..impure("sim", "fabric", false)
    },
    // Models of the papers' hardware: real chains and kernels, on the time of measured primitives.
    Layer {
        names_only: Some(&["wire", "nic", "chain", "fabric"]),
        reproducible: true,
        ..impure("sim", "cost", false)
    },
    // Scenarios: parsers of texts that describe networks and their load.
    Layer {
        names_only: Some(&["wire", "transport", "nic", "fault", "fabric"]),
        reproducible: true,
        ..impure("sim", "scenario", false)
    },
    // Bodies of random verbs for tests, over the simulation and over real ports.
    Layer {
        names_only: Some(&["wire", "memory", "transport", "nic", "fault", "fabric"]),
        reproducible: true,
        ..impure("sim", "conformance", false)
    },
    // The crate checks the histories that clients recorded, over any transport, and so needs no other crate.
    Layer { names_only: Some(&[]), ..impure("sim", "check", false) },
    // Network namespaces as hosts of tests and benchmarks; the crate needs no other crate.
    Layer { names_only: Some(&[]), ..impure("system", "netns", false) },
    // A port moves frames and must not know RDMA queues. `memory` provides its shared memory.
    Layer { names_only: Some(&["wire", "memory", "fault"]), ..impure("system", "port", true) },
    impure("system", "host", false),
    impure("api", "verbs", true),
    // The crate shares an address between programs and connects them. A program that starts a broker forks
    // twice.
    Layer {
        names_only: Some(&["wire", "memory", "cm", "port", "host", "verbs"]),
        ..impure("api", "broker", true)
    },
    // Keys of 1RMA over TLS, in a crate of its own so that other programs do not link the TLS library.
    Layer { names_only: Some(&["verbs"]), ..impure("api", "grants", false) },
    // The library for C programs, in which every argument is a foreign pointer.
    impure("api", "capi", true),
    // The structures of libibverbs' and librdmacm's ABIs, which contain foreign pointers. The crate needs no
    // other one.
    Layer { names_only: Some(&[]), ..impure("api", "abi", true) },
    // The library for verbs programs, with libibverbs' ABI.
    Layer { names_only: Some(&["nic", "verbs", "broker", "abi"]), ..impure("api", "ibverbs", true) },
    // The connections of verbs programs, with librdmacm's ABI. The crate uses the device only through
    // libibverbs' symbols.
    Layer { names_only: Some(&["wire", "memory", "broker", "abi", "port"]), ..impure("api", "rdmacm", true) },
    // The preload library in front of the C library. It depends on no crate, so that it is small.
    Layer { names_only: Some(&[]), ..impure("api", "paths", true) },
    // The stores over real NICs as a library, without command-line arguments and printing.
    impure("stores", "service", false),
    // The options, number formats, files, tables and signal handling that all programs share.
    Layer { names_only: Some(&["port", "host", "verbs"]), ..impure("tool", "options", false) },
    // All benchmarks and figures.
    impure("tool", "bench", false),
    // The command is thin: its work is done in `service` and `bench`, and it must not use the parts of a NIC.
    Layer {
        names_only: Some(&[
            "nic", "chain", "store", "members", "scenario", "check", "host", "verbs", "broker", "grants",
            "service", "options", "bench",
        ]),
        ..impure("tool", "cli", false)
    },
    // The style rules, which read the repository and depend on none of its crates.
    Layer { names_only: Some(&[]), ..impure("tool", "tidy", false) },
];

/// The folders that group crates, from top to bottom, with their purposes.
pub const FOLDERS: [(&str, &str); 7] = [
    ("core", "the NIC: pure, without clock, sockets and threads"),
    ("program", "RedN's chains, WebAssembly kernels, 1RMA's cipher"),
    ("stores", "key-value, block and transaction stores; shard maps"),
    ("sim", "faults, the simulated network, scenarios, checkers"),
    ("system", "shared memory, UDP, AF_XDP; the loop around one NIC"),
    ("api", "for Rust programs and C programs; the NIC daemon; 1RMA's grants"),
    ("tool", "shared options; benchmarks; the remora command; style as a test"),
];

/// The crates that the tests of any crate may use: the simulation, its cipher, and the checkers of
/// histories.
const FOR_TESTS: [&str; 6] = ["fault", "fabric", "conformance", "check", "netns", "cipher"];

/// Returns the layer of the given name.
pub fn find(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}

/// Returns true if the folder groups crates.
pub fn is_folder(name: &str) -> bool {
    FOLDERS.iter().any(|(folder, _)| *folder == name)
}

/// Returns the names of the crates that may contain `unsafe`.
pub fn unsafe_crates() -> Vec<&'static str> {
    LAYERS.iter().filter(|layer| layer.may_be_unsafe).map(|layer| layer.name).collect()
}

/// A crate of the workspace with its dependencies.
#[derive(Debug, Clone)]
pub struct Crate {
    /// The name of the package.
    pub package: String,
    /// The folder of the manifest, relative to the root.
    pub folder: String,
    /// The packages that the crate depends on, with true for those that only its tests use.
    pub names: Vec<(String, bool)>,
}

/// Returns the crates of the workspace from `cargo metadata`.
pub fn crates(metadata: &Metadata) -> Vec<Crate> {
    let member = |package: &&cargo_metadata::Package| {
        let arrows = package.dependencies.iter();
        let folder =
            package.manifest_path.parent().and_then(|path| path.strip_prefix(&metadata.workspace_root).ok());
        Crate {
            package: package.name.to_string(),
            folder: folder.map(ToString::to_string).unwrap_or_default(),
            names: arrows.map(|arrow| (arrow.name.clone(), is_for_tests(arrow))).collect(),
        }
    };
    metadata.workspace_packages().iter().map(member).collect()
}

/// Returns true for a dependency of tests, or of the models that only `--cfg loom` builds.
fn is_for_tests(arrow: &cargo_metadata::Dependency) -> bool {
    let condition = arrow.target.as_ref().map(ToString::to_string);
    arrow.kind == DependencyKind::Development || condition.as_deref() == Some("cfg(loom)")
}

/// Reports dependencies on crates below or on crates that are not allowed, external crates in a pure crate,
/// and workspace members that are not listed or are in another folder.
pub fn check(crates: &[Crate]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for member in crates {
        let name = member.package.trim_start_matches("remora-");
        let Some(place) = LAYERS.iter().position(|layer| layer.name == name) else {
            faults.push(Fault::new(
                "Cargo.toml",
                0,
                format!("{} is not in the list of layers", member.package),
            ));
            continue;
        };
        let folder = format!("{}/{name}", LAYERS[place].folder);
        let path = format!("{folder}/Cargo.toml");
        if member.folder != folder {
            faults.push(Fault::new(&path, 0, format!("{} lies in {}", member.package, member.folder)));
        }
        for (named, only_tests) in &member.names {
            if let Some(says) = forbidden(place, named, *only_tests) {
                faults.push(Fault::new(&path, 0, says));
            }
        }
    }
    faults
}

/// Reports listed crates that are not in the workspace.
pub fn missing(crates: &[Crate]) -> Vec<Fault> {
    let has = |name: &str| crates.iter().any(|member| member.package.strip_prefix("remora-") == Some(name));
    let missing = LAYERS.iter().filter(|layer| !has(layer.name));
    missing
        .map(|layer| Fault::new("Cargo.toml", 0, format!("{} is listed, and no crate", layer.name)))
        .collect()
}

fn forbidden(place: usize, named: &str, only_tests: bool) -> Option<String> {
    let layer = &LAYERS[place];
    let Some(target) = named.strip_prefix("remora-") else {
        let foreign = layer.pure && !only_tests && !layer.outside.contains(&named);
        return foreign
            .then(|| format!("{} is pure: {named} is not among the crates it may use", layer.name));
    };
    let Some(above) = LAYERS.iter().position(|other| other.name == target) else {
        return Some(format!("{} names {named}, which is not in the list of layers", layer.name));
    };
    if above >= place && !(only_tests && FOR_TESTS.contains(&target)) {
        return Some(format!("{} names {target}, which is not above it", layer.name));
    }
    let narrow = layer.names_only.is_some_and(|only| !only.contains(&target));
    (narrow && !only_tests).then(|| format!("{} may not name {target}", layer.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(package: &str, named: &str, only_tests: bool) -> Vec<String> {
        let name = package.trim_start_matches("remora-");
        let folder = find(name).map(|layer| format!("{}/{name}", layer.folder)).unwrap_or_default();
        let sample = Crate { package: package.into(), folder, names: vec![(named.into(), only_tests)] };
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
    fn the_command_may_not_see_the_parts_of_a_nic() {
        for part in ["wire", "memory", "transport", "port", "fabric"] {
            let named = format!("remora-{part}");
            assert_eq!(faults("remora-cli", &named, false), [format!("cli may not name {part}")]);
        }
    }

    #[test]
    fn a_pure_crate_takes_no_crate_that_is_not_listed_but_its_tests_may() {
        assert!(faults("remora-transport", "tokio", false)[0].contains("tokio"));
        assert!(faults("remora-transport", "proptest", true).is_empty());
        assert!(faults("remora-host", "tracing", false).is_empty());
    }

    #[test]
    fn a_member_that_is_not_listed_is_a_fault() {
        assert!(faults("remora-utils", "libc", false)[0].contains("not in the list"));
        assert!(faults("remora-host", "remora-utils", false)[0].contains("not in the list"));
    }

    #[test]
    fn tests_may_name_the_simulation() {
        assert!(faults("remora-store", "remora-fabric", true).is_empty());
        assert!(!faults("remora-store", "remora-fabric", false).is_empty());
    }

    #[test]
    fn any_test_may_name_the_checkers_which_name_no_crate() {
        assert!(faults("remora-fabric", "remora-check", true).is_empty());
        assert_eq!(
            faults("remora-fabric", "remora-check", false),
            ["fabric names check, which is not above it"]
        );
        assert_eq!(faults("remora-check", "remora-wire", false), ["check may not name wire"]);
    }

    #[test]
    fn a_crate_in_another_folder_and_a_listed_crate_that_is_not_there_are_faults() {
        let sample = Crate { package: "remora-wire".into(), folder: "wire".into(), names: Vec::new() };
        assert!(check(std::slice::from_ref(&sample))[0].says.contains("lies in wire"));
        let missing = missing(&[sample]);
        assert_eq!(missing.len(), LAYERS.len() - 1);
        assert!(missing[0].says.contains("memory is listed"));
    }
}
