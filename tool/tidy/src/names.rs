//! The rules against meaningless names, unused source files, and crates without the workspace's lints.

use crate::Fault;
use crate::tokens::{Scope, is_ident, line, walk};
use crate::tree::File;
use proc_macro2::TokenTree;
use std::collections::BTreeSet;

/// Names of modules that would collect unrelated things. A specific noun is better.
const GRAB_BAGS: [&str; 9] =
    ["utils", "util", "common", "helpers", "helper", "manager", "managers", "misc", "stuff"];

/// Reports files, folders and modules with such a name.
pub fn grab_bags(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in files {
        let parts = file.path.split('/').map(|part| part.split('.').next().unwrap_or(part));
        for part in parts.filter(|part| is_grab_bag(part)) {
            faults.push(Fault::new(&file.path, 0, format!("`{part}` names no thing: find the noun")));
        }
        if file.is_rust() {
            let walked = walk(file, Scope::All, &mut |tokens| {
                for pair in tokens.windows(2) {
                    if let (true, TokenTree::Ident(name)) = (is_ident(Some(&pair[0]), "mod"), &pair[1])
                        && is_grab_bag(&name.to_string())
                    {
                        faults.push(Fault::new(
                            &file.path,
                            line(&pair[1]),
                            format!("`mod {name}` names no thing"),
                        ));
                    }
                }
            });
            faults.extend(walked.err());
        }
    }
    faults
}

fn is_grab_bag(name: &str) -> bool {
    name.split('_').any(|word| GRAB_BAGS.contains(&word.to_ascii_lowercase().as_str()))
}

/// Reports source files that no `mod` names. The compiler does not read them, so nothing else reports them.
pub fn dead_files(files: &[File]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut modules = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let walked = walk(file, Scope::All, &mut |tokens| {
            for pair in tokens.windows(2) {
                if is_ident(Some(&pair[0]), "mod") {
                    modules.insert((file.member().to_owned(), pair[1].to_string()));
                }
            }
        });
        faults.extend(walked.err());
    }
    let sources = files.iter().filter(|file| file.is_source());
    for file in sources {
        let parts: Vec<&str> = file.parts().collect();
        if matches!(parts[..], [_, _, "lib.rs" | "main.rs"] | [_, _, "bin", ..]) {
            continue;
        }
        let stem = file.module();
        if !modules.contains(&(file.member().to_owned(), stem.to_owned())) {
            faults.push(Fault::new(
                &file.path,
                0,
                format!("no `mod {stem}` in {}: this file is dead", file.member()),
            ));
        }
    }
    faults
}

/// Reports crates whose manifest does not use the workspace's lints.
pub fn lints(files: &[File]) -> Vec<Fault> {
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let loose = manifests.filter(|file| !file.text.contains("[lints]\nworkspace = true"));
    loose.map(|file| Fault::new(&file.path, 0, "does not say `[lints]` `workspace = true`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grab_bags_are_faults_as_file_folder_and_module() {
        for (path, text) in [
            ("nic/src/utils.rs", ""),
            ("nic/tests/common/mod.rs", ""),
            ("nic/src/queue_manager.rs", ""),
            ("nic/src/lib.rs", "mod test_helpers;"),
        ] {
            assert_eq!(grab_bags(&[File::sample(path, text)]).len(), 1, "{path}");
        }
        assert_eq!(grab_bags(&[File::sample("nic/src/queue_pair.rs", "mod communication { }")]), []);
    }

    #[test]
    fn a_file_without_a_mod_is_dead() {
        let files = [
            File::sample("nic/src/lib.rs", "mod alive;"),
            File::sample("nic/src/alive.rs", "mod deeper;"),
            File::sample("nic/src/alive/deeper.rs", ""),
            File::sample("nic/src/dead.rs", ""),
            File::sample("port/src/lib.rs", "mod dead;"),
            File::sample("port/src/dead.rs", ""),
            File::sample("nic/tests/whole.rs", ""),
        ];
        let faults = dead_files(&files);
        assert!(faults.len() == 1 && faults[0].path == "nic/src/dead.rs", "{faults:?}");
    }

    #[test]
    fn a_manifest_without_the_lints_is_a_fault() {
        assert_eq!(lints(&[File::sample("nic/Cargo.toml", "[package]\n")]).len(), 1);
        assert_eq!(lints(&[File::sample("nic/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n")]), []);
    }
}
