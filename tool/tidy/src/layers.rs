//! The layers of crates: the folder of each crate, the crates that it may depend on, and a comparison with
//! `Cargo.toml`.
//!
//! A crate may name only crates below it in the list; some may name fewer. `cargo metadata` has what they do
//! name. The list is the one source: `Cargo.toml` and the documents repeat it, see `drawing`.

use crate::Fault;
use cargo_metadata::{DependencyKind, Metadata};

/// The place of a crate in the layers, and the rules for it.
#[derive(Debug, Clone, Copy)]
pub struct Layer {
    /// The folder of the root that contains the crate's folder.
    pub folder: &'static str,
    /// The name of the crate's own folder, and of its package after `remora-`.
    pub name: &'static str,
    /// The crates it may name; `None`: every crate below it.
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

/// All crates of the workspace, top to bottom: calls go down the list, and a crate names only crates below
/// it.
pub const LAYERS: [Layer; 37] = [
    // Commands of the laboratory; what they run is in `bench` and `store-cli`.
    impure("lab", "lab-cli", false),
    // Every benchmark and figure.
    impure("lab", "bench", false),
    // Bodies of random verbs for tests, over the simulation and over real ports.
    Layer {
        names_only: Some(&["wire", "memory", "transport", "nic", "fault", "fabric"]),
        reproducible: true,
        ..impure("lab", "conformance", false)
    },
    // Judges what clients saw, whatever the store, and so names no other crate.
    Layer { names_only: Some(&[]), ..impure("lab", "check", false) },
    // Style as a test: it reads the repository and names no crate of it.
    Layer { names_only: Some(&[]), ..impure("tool", "tidy", false) },
    Layer {
        names_only: Some(&["import", "scenario", "host", "options", "plot"]),
        ..impure("tool", "sim-cli", false)
    },
    Layer {
        names_only: Some(&[
            "chain", "store", "members", "service", "netns", "host", "verbs", "grants", "options", "plot",
        ]),
        ..impure("tool", "store-cli", false)
    },
    // The command for verbs programs: no store, no simulator, no benchmark.
    Layer {
        names_only: Some(&["nic", "chain", "sandbox", "host", "verbs", "broker", "options"]),
        ..impure("tool", "cli", false)
    },
    Layer { names_only: Some(&["options"]), ..impure("tool", "plot", false) },
    // Options, numbers, files, tables and signals of every program.
    Layer { names_only: Some(&["port", "host", "verbs"]), ..impure("tool", "options", false) },
    // The files of other simulators, as scenarios.
    Layer { names_only: Some(&["fabric", "scenario"]), reproducible: true, ..impure("sim", "import", false) },
    // Texts in, values out: which traffic runs on which network.
    Layer {
        names_only: Some(&["wire", "transport", "nic", "fault", "fabric"]),
        reproducible: true,
        ..impure("sim", "scenario", false)
    },
    // Models of the papers' hardware: real chains and kernels, on the time of measured primitives.
    Layer {
        names_only: Some(&["wire", "nic", "chain", "fabric"]),
        reproducible: true,
        ..impure("sim", "cost", false)
    },
    // The simulation reads rule files, but one seed gives one run.
    Layer {
        names_only: Some(&["wire", "memory", "transport", "nic", "store", "fault"]),
        reproducible: true,
        ..impure("sim", "fabric", false)
    },
    // The stores over real NICs, for programs: no arguments, no printing.
    impure("stores", "service", false),
    // Reads a text and asks etcd, and names no other crate.
    Layer { names_only: Some(&[]), ..impure("stores", "members", false) },
    // Crc-fast: the CRC64 that Pilaf's readers check. Xxhash-rust: the hash that both ends agree on.
    // Offset-allocator: where objects lie. Hashbrown: the index that only a server sees. Rand_xoshiro: the
    // streams of the workloads. Postcard, with serde: messages before the first operation. Thiserror here and
    // below: the texts of errors.
    pure(
        "stores",
        "store",
        &["wire", "memory", "transport", "nic"],
        &[
            "base64",
            "crc-fast",
            "xxhash-rust",
            "offset-allocator",
            "hashbrown",
            "rand_xoshiro",
            "postcard",
            "serde",
            "thiserror",
        ],
    ),
    // Stands before functions of the C library; it names no crate, so that it is small.
    Layer { names_only: Some(&[]), ..impure("api", "paths", true) },
    // Connections of verbs programs, by librdmacm's ABI: it knows the device by libibverbs' symbols alone.
    Layer { names_only: Some(&["wire", "memory", "broker", "abi", "port"]), ..impure("api", "rdmacm", true) },
    // The verbs of such programs, by libibverbs' own ABI.
    Layer { names_only: Some(&["nic", "verbs", "broker", "abi"]), ..impure("api", "ibverbs", true) },
    // The shapes of libibverbs' and librdmacm's ABIs, foreign pointers in them; it names no crate.
    Layer { names_only: Some(&[]), ..impure("api", "abi", true) },
    // Linked into C programs: every argument is a foreign pointer.
    impure("api", "capi", true),
    // Keys of 1RMA over TLS: the library of TLS is part of programs that want it alone.
    Layer { names_only: Some(&["verbs"]), ..impure("api", "grants", false) },
    // Shares an address between programs, and connects them; a program that starts one forks twice.
    Layer {
        names_only: Some(&["wire", "memory", "cm", "port", "host", "verbs"]),
        ..impure("api", "broker", true)
    },
    impure("api", "verbs", true),
    impure("system", "host", false),
    // A port moves frames; what an RDMA byte means is not its business. `memory` lends it shared memory.
    Layer { names_only: Some(&["wire", "memory", "fault"]), ..impure("system", "port", true) },
    // Hosts of tests and benchmarks; it names no other crate.
    Layer { names_only: Some(&[]), ..impure("system", "netns", false) },
    // Serde, toml: rule files are read by people.
    Layer { names_only: Some(&["wire"]), reproducible: true, ..impure("system", "fault", false) },
    // Ring, cmac and aes, behind the NIC's trait.
    Layer { names_only: Some(&["nic"]), ..impure("program", "cipher", false) },
    Layer { names_only: Some(&["nic"]), ..impure("program", "sandbox", false) },
    // Programs for the NIC's chains, and a NIC alone to run them on.
    pure("program", "chain", &["wire", "memory", "transport", "nic"], &["thiserror"]),
    // Crc-fast: the CRC64 that the consistency kernel checks.
    pure(
        "core",
        "nic",
        &["wire", "memory", "transport"],
        &["crc-fast", "pulp", "serde", "strum", "thiserror"],
    ),
    pure("core", "cm", &["wire", "memory"], &["thiserror"]),
    pure("core", "transport", &["wire"], &["serde", "thiserror"]),
    // Racing bytes are handled here, and on Unix they may lie in a memfd.
    Layer { may_be_unsafe: true, ..pure("core", "memory", &["wire"], &["libc", "rustix", "serde"]) },
    pure("core", "wire", &[], &["zerocopy", "crc32fast", "serde"]),
];

/// The folders that group crates, top to bottom, and what each is for.
pub const FOLDERS: [(&str, &str); 8] = [
    ("lab", "benchmarks, figures, random operations and their checkers"),
    ("tool", "the commands and their options; style as a test"),
    ("sim", "the simulated network, scenarios, models of hardware"),
    ("stores", "key-value, block and transaction stores; shard maps"),
    ("api", "for Rust programs and C programs; the NIC daemon; 1RMA's grants"),
    ("system", "the loop around one NIC; shared memory, UDP, AF_XDP; faults"),
    ("program", "1RMA's cipher, WebAssembly kernels, RedN's chains"),
    ("core", "the NIC: pure, without clock, sockets and threads"),
];

/// Folders whose crates a user of the NIC does not need. The simulator turns on the switches of experiments
/// (feature `experiments`), which one build of both would turn on for everybody.
const NOT_FOR_USERS: [&str; 2] = ["lab", "sim"];

/// Crates of other folders that a user of the NIC does not need.
const OTHERS_NOT_FOR_USERS: [&str; 2] = ["tidy", "sim-cli"];

impl Layer {
    /// The crate's folder, from the root.
    pub fn path(&self) -> String {
        format!("{}/{}", self.folder, self.name)
    }

    /// Returns whether a plain `cargo build` builds the crate.
    pub fn is_default(&self) -> bool {
        !NOT_FOR_USERS.contains(&self.folder) && !OTHERS_NOT_FOR_USERS.contains(&self.name)
    }
}

/// The crates that any crate's tests may name: the simulation, its cipher, and the checkers of histories.
const FOR_TESTS: [&str; 7] = ["import", "fault", "fabric", "conformance", "check", "netns", "cipher"];

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

/// Arrows that point up the list or to a crate this one may not name, crates from outside in a pure crate,
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

/// Lists of `Cargo.toml` that differ from the list of layers: the members in its order, those that a plain
/// `cargo build` builds, and the crates with `unsafe`.
pub fn manifest(text: &str) -> Vec<Fault> {
    let all: Vec<String> = LAYERS.iter().map(Layer::path).collect();
    let default: Vec<String> = LAYERS.iter().filter(|layer| layer.is_default()).map(Layer::path).collect();
    let lists = [("members", all), ("default-members", default)];
    let wrong = lists.into_iter().filter(|(key, wanted)| entries(text, key) != *wanted);
    let mut faults: Vec<Fault> = wrong
        .map(|(key, wanted)| Fault::new("Cargo.toml", 0, format!("{key} is not {}", wanted.join(", "))))
        .collect();
    let sentence = unsafe_sentence();
    if !text.contains(&sentence) {
        faults.push(Fault::new("Cargo.toml", 0, format!("does not say: {sentence}")));
    }
    faults
}

/// The sentence that names the crates with `unsafe`.
pub fn unsafe_sentence() -> String {
    format!("`unsafe` stands only in {}.", unsafe_crates().join(", "))
}

/// The texts of a list in a manifest, without its comments.
fn entries(text: &str, key: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| *line != format!("{key} = [")).skip(1);
    let lines = lines.take_while(|line| *line != "]").map(|line| line.split('#').next().unwrap_or_default());
    lines.flat_map(|line| line.split('"').skip(1).step_by(2).map(str::to_owned)).collect()
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
    if only_tests && target == layer.name {
        // A crate names itself to turn on a feature in its tests.
        return None;
    }
    let Some(below) = LAYERS.iter().position(|other| other.name == target) else {
        return Some(format!("{} names {named}, which is not in the list of layers", layer.name));
    };
    if below <= place && !(only_tests && FOR_TESTS.contains(&target)) {
        return Some(format!("{} names {target}, which is not below it", layer.name));
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
    fn an_arrow_up_the_list_is_a_fault() {
        assert_eq!(faults("remora-wire", "remora-nic", false), ["wire names nic, which is not below it"]);
        assert_eq!(faults("remora-wire", "remora-nic", true), ["wire names nic, which is not below it"]);
        assert!(faults("remora-nic", "remora-wire", false).is_empty());
    }

    #[test]
    fn transport_may_not_see_bytes_nor_port_see_queues() {
        assert_eq!(faults("remora-transport", "remora-memory", false), ["transport may not name memory"]);
        assert_eq!(faults("remora-port", "remora-nic", false), ["port may not name nic"]);
    }

    #[test]
    fn the_command_may_not_see_the_parts_of_a_nic() {
        for part in ["wire", "memory", "transport", "port", "fabric", "store", "service", "scenario"] {
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
    fn folders_follow_each_other_as_their_crates_do() {
        let mut folders: Vec<&str> = LAYERS.iter().map(|layer| layer.folder).collect();
        folders.dedup();
        assert_eq!(folders, FOLDERS.map(|(folder, _)| folder));
    }

    #[test]
    fn a_manifest_has_the_same_lists_in_the_same_order() {
        let list = |key: &str, layers: Vec<&Layer>| {
            let lines: Vec<String> =
                layers.iter().map(|layer| format!("    \"{}\", # \"comment\"\n", layer.path())).collect();
            format!("{key} = [\n{}]\n", lines.concat())
        };
        let all = list("members", LAYERS.iter().collect());
        let default = list("default-members", LAYERS.iter().filter(|layer| layer.is_default()).collect());
        let good = format!("{all}{default}# {}\n", unsafe_sentence());
        assert_eq!(manifest(&good), []);
        assert_eq!(manifest(&good.replace("port, ", "")).len(), 1);
        assert!(manifest(&good.replace("    \"tool/plot\"", "    \"lab/plot\"")).len() == 2);
        let reversed = list("members", LAYERS.iter().rev().collect());
        assert!(manifest(&good.replace(&all, &reversed))[0].says.starts_with("members is not lab/lab-cli"));
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
            ["fabric names check, which is not below it"]
        );
        assert_eq!(faults("remora-check", "remora-wire", false), ["check may not name wire"]);
    }

    #[test]
    fn a_crate_in_another_folder_and_a_listed_crate_that_is_not_there_are_faults() {
        let sample = Crate { package: "remora-wire".into(), folder: "wire".into(), names: Vec::new() };
        assert!(check(std::slice::from_ref(&sample))[0].says.contains("lies in wire"));
        let missing = missing(&[sample]);
        assert_eq!(missing.len(), LAYERS.len() - 1);
        assert!(missing.iter().any(|fault| fault.says.contains("memory is listed")));
    }
}
