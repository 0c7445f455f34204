//! The crates in layers: in which folder each lies, what it may depend on, and whether `Cargo.toml` agrees.
//!
//! A crate may name only crates above it in the list; some may name fewer. `cargo metadata` has what they do
//! name. The list is the one source: see `drawing`.

use crate::Fault;
use cargo_metadata::{DependencyKind, Metadata};

/// A crate's place and what it may do.
#[derive(Debug, Clone, Copy)]
pub struct Layer {
    /// The folder of the root in which it lies.
    pub folder: &'static str,
    /// Its own folder, and its package's name after `remora-`.
    pub name: &'static str,
    /// The crates it may name; `None`: every crate above it.
    pub names_only: Option<&'static [&'static str]>,
    /// Names only listed crates from outside, and builds for wasm32 with an empty import list.
    pub pure: bool,
    /// No clock, no sockets, no threads, no unordered maps: its results follow from its arguments.
    pub reproducible: bool,
    /// May it hold `unsafe`?
    pub may_be_unsafe: bool,
    /// For a pure crate: the crates from outside that may be part of it (tests may use what they like).
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

/// All crates of the workspace, top to bottom.
pub const LAYERS: [Layer; 32] = [
    pure("core", "wire", &[], &["zerocopy", "crc32fast"]),
    // Racing bytes are handled here, and on Unix they may lie in a memfd.
    Layer { may_be_unsafe: true, ..pure("core", "memory", &["wire"], &["libc", "rustix"]) },
    pure("core", "transport", &["wire"], &[]),
    pure("core", "cm", &["wire", "memory"], &[]),
    // Crc-fast: the CRC64 that the consistency kernel checks.
    pure("core", "nic", &["wire", "memory", "transport"], &["crc-fast", "pulp"]),
    // Programs for the NIC's chains, and a NIC alone to run them on.
    pure("program", "chain", &["wire", "memory", "transport", "nic"], &[]),
    Layer { names_only: Some(&["nic"]), ..impure("program", "sandbox", false) },
    // Ring, cmac and aes, behind the NIC's trait.
    Layer { names_only: Some(&["nic"]), ..impure("program", "cipher", false) },
    // Crc-fast: the CRC64 that Pilaf's readers check. Xxhash-rust: the hash that both ends agree on.
    // Offset-allocator: where objects lie. Hashbrown: the index that only a server sees. Rand_xoshiro: the
    // streams of the workloads.
    pure(
        "stores",
        "store",
        &["wire", "memory", "transport", "nic"],
        &["base64", "crc-fast", "xxhash-rust", "offset-allocator", "hashbrown", "rand_xoshiro"],
    ),
    // Reads a text and asks etcd, and names no other crate.
    Layer { names_only: Some(&[]), ..impure("stores", "members", false) },
    // Serde, toml: rule files are read by people.
    Layer { names_only: Some(&["wire"]), reproducible: true, ..impure("sim", "fault", false) },
    // The simulation reads rule files, but one seed gives one run.
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
    // What runs on which network: texts in, values out.
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
    // Judges what clients saw, by whichever way they came, and so names no other crate.
    Layer { names_only: Some(&[]), ..impure("sim", "check", false) },
    // Hosts of tests and benchmarks; it names no other crate.
    Layer { names_only: Some(&[]), ..impure("system", "netns", false) },
    // A port moves frames; what an RDMA byte means is not its business. `memory` lends it shared memory.
    Layer { names_only: Some(&["wire", "memory", "fault"]), ..impure("system", "port", true) },
    impure("system", "host", false),
    impure("api", "verbs", true),
    // Shares an address between programs, and connects them; a program that starts one forks twice.
    Layer {
        names_only: Some(&["wire", "memory", "cm", "port", "host", "verbs"]),
        ..impure("api", "broker", true)
    },
    // Keys of 1RMA over TLS: the library of TLS is part of programs that want it alone.
    Layer { names_only: Some(&["verbs"]), ..impure("api", "grants", false) },
    // What C programs link with: every argument is a foreign pointer.
    impure("api", "capi", true),
    // The shapes of libibverbs' and librdmacm's ABIs, foreign pointers in them; it names no crate.
    Layer { names_only: Some(&[]), ..impure("api", "abi", true) },
    // The same for programs of verbs, by libibverbs' own ABI.
    Layer { names_only: Some(&["nic", "verbs", "broker", "abi"]), ..impure("api", "ibverbs", true) },
    // Connections of such programs, by librdmacm's ABI: it knows the device by libibverbs' symbols alone.
    Layer { names_only: Some(&["wire", "memory", "broker", "abi", "port"]), ..impure("api", "rdmacm", true) },
    // Stands before functions of the C library; it names no crate, so that it is small.
    Layer { names_only: Some(&[]), ..impure("api", "paths", true) },
    // The stores over real NICs, for programs: no arguments, no printing.
    impure("stores", "service", false),
    // Options, numbers, files, tables and signals of every program.
    Layer { names_only: Some(&["port", "host", "verbs"]), ..impure("tool", "options", false) },
    // Every benchmark and figure.
    impure("tool", "bench", false),
    // The command is thin: what it runs is in `service` and `bench`, and a NIC's parts are not its business.
    Layer {
        names_only: Some(&[
            "nic", "chain", "store", "members", "scenario", "check", "host", "verbs", "broker", "grants",
            "service", "options", "bench",
        ]),
        ..impure("tool", "cli", false)
    },
    // Style as a test: it reads the repository and names no crate of it.
    Layer { names_only: Some(&[]), ..impure("tool", "tidy", false) },
];

/// The folders that group crates, top to bottom, and what each is for.
pub const FOLDERS: [(&str, &str); 7] = [
    ("core", "the NIC: pure, without clock, sockets and threads"),
    ("program", "RedN's chains, WebAssembly kernels, 1RMA's cipher"),
    ("stores", "key-value, block and transaction stores; shard maps"),
    ("sim", "faults, the simulated network, scenarios, checkers"),
    ("system", "shared memory, UDP, AF_XDP; the loop around one NIC"),
    ("api", "for Rust programs and C programs; the NIC daemon; 1RMA's grants"),
    ("tool", "shared options; benchmarks; the remora command; style as a test"),
];

/// The crates that any crate's tests may name: the simulation, its cipher, and the checkers of histories.
const FOR_TESTS: [&str; 6] = ["fault", "fabric", "conformance", "check", "netns", "cipher"];

/// The crate of this name.
pub fn find(name: &str) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| layer.name == name)
}

/// Does this folder group crates?
pub fn is_folder(name: &str) -> bool {
    FOLDERS.iter().any(|(folder, _)| *folder == name)
}

/// The names of the crates that may hold `unsafe`.
pub fn unsafe_crates() -> Vec<&'static str> {
    LAYERS.iter().filter(|layer| layer.may_be_unsafe).map(|layer| layer.name).collect()
}

/// One crate of the workspace and what it depends on.
#[derive(Debug, Clone)]
pub struct Crate {
    /// The package's name.
    pub package: String,
    /// The folder of its manifest, below the root.
    pub folder: String,
    /// The packages it names, and whether only its tests do.
    pub names: Vec<(String, bool)>,
}

/// The workspace's own crates, out of `cargo metadata`.
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

/// A dependency of tests, or of the models that only `--cfg loom` builds.
fn is_for_tests(arrow: &cargo_metadata::Dependency) -> bool {
    let condition = arrow.target.as_ref().map(ToString::to_string);
    arrow.kind == DependencyKind::Development || condition.as_deref() == Some("cfg(loom)")
}

/// Arrows that point down the list or to a crate this one may not name, crates from outside in a pure crate,
/// and members that are not listed or lie elsewhere.
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

/// Listed crates that the workspace has not.
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
