//! The test of every rule on the repository itself. The tests of the rules with bad samples are in
//! `tool/tidy/src`.

use remora_tidy::tree::{self, File};
use remora_tidy::{
    Fault, arguments, attributes, cycles, docs, drawing, environment, glossary, layers, lengths, listing,
    names, plain, planted, purity, silent, unsafety, unused, words,
};
use std::sync::LazyLock;

static FILES: LazyLock<Vec<File>> =
    LazyLock::new(|| tree::read(&tree::root()).expect("the repository is readable"));

static METADATA: LazyLock<cargo_metadata::Metadata> = LazyLock::new(|| {
    let manifest = tree::root().join("Cargo.toml");
    let mut command = cargo_metadata::MetadataCommand::new();
    command.manifest_path(manifest).no_deps().exec().expect("cargo metadata")
});

#[track_caller]
fn holds(faults: Vec<Fault>) {
    assert!(faults.is_empty(), "{}", listing(&faults));
}

#[test]
fn the_walk_sees_the_repository() {
    assert!(FILES.iter().any(|file| file.path == "tool/tidy/tests/repository.rs"));
    assert!(FILES.iter().any(|file| file.path == ".ci/run"));
    assert!(!FILES.iter().any(|file| file.path.starts_with("target/") || file.path.starts_with(".git/")));
}

#[test]
fn the_repository_holds_what_everybody_looks_for() {
    use std::os::unix::fs::PermissionsExt;
    let root = tree::root();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|_| panic!("no {path}"));
    for path in [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "docs/reference/wire/frames.md",
        "docs/internals/performance.md",
        "rust-toolchain.toml",
    ] {
        assert!(!read(path).trim().is_empty(), "{path} is empty");
    }
    let makefile = read("Makefile");
    for target in ["setup", "test", "demo", "bench", "soak"] {
        assert!(makefile.lines().any(|line| line.starts_with(&format!("{target}:"))), "no `make {target}`");
    }
    let run = root.join(".ci/run").metadata().expect(".ci/run exists");
    assert!(run.permissions().mode() & 0o111 == 0o111 && read(".ci/run").contains("make test"));
    assert!(
        read("ARCHITECTURE.md").split_whitespace().count() <= 2100,
        "ARCHITECTURE.md is longer than 2,100 words"
    );
}

#[test]
fn crates_lie_in_their_layer_and_name_only_crates_below_them() {
    let crates = layers::crates(&METADATA);
    println!("{}", drawing::drawing());
    print!("{}", drawing::sizes(&FILES));
    holds(layers::missing(&crates));
    holds(layers::check(&crates));
    holds(drawing::drawn(&FILES));
    holds(layers::manifest(&std::fs::read_to_string(tree::root().join("Cargo.toml")).expect("Cargo.toml")));
}

#[test]
fn the_root_has_few_folders() {
    let entries = std::fs::read_dir(tree::root()).expect("the repository is readable");
    let folders = entries.map(|entry| entry.expect("an entry")).filter(|entry| entry.path().is_dir());
    let names: Vec<_> = folders.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    // Folders whose names begin with a dot are for other programs, which choose their names.
    let kept: Vec<_> = names.iter().filter(|name| !name.starts_with('.') && *name != "target").collect();
    assert!(kept.len() <= 15, "{kept:?}: group them");
}

#[test]
fn files_and_functions_are_short() {
    holds(lengths::check(&FILES));
}

#[test]
fn unsafe_stands_only_where_it_may() {
    holds(unsafety::check(&FILES));
    holds(unsafety::unused(&FILES));
}

#[test]
fn public_functions_have_a_caller() {
    holds(unused::check(&FILES));
    assert_eq!(unused::stale(&FILES), [""; 0]);
}

#[test]
fn names_say_what_they_name() {
    holds(names::grab_bags(&FILES));
}

#[test]
fn types_and_files_have_no_metaphors_for_names() {
    holds(plain::metaphors(&FILES));
    holds(plain::file_names(&FILES));
}

#[test]
fn worn_words_are_gone() {
    holds(plain::worn(&FILES));
}

#[test]
fn comments_are_as_wide_as_code() {
    holds(plain::width(&FILES));
    let plain::Counts { short_docs, long_sentences, common_names } = plain::counts(&FILES);
    println!("{short_docs} doc comments of one or two words, {long_sentences} sentences of over 40 words");
    let common: Vec<_> = common_names.iter().map(|(name, crates)| format!("{name} ({crates})")).collect();
    println!("types of one name in more than three crates: {}", common.join(", "));
}

#[test]
fn no_function_takes_a_tuple() {
    holds(arguments::check(&FILES));
}

#[test]
fn modules_have_no_cycles() {
    holds(cycles::check(&FILES));
}

#[test]
fn the_glossary_has_the_words_of_the_code() {
    holds(glossary::check(&FILES));
}

#[test]
fn no_file_is_dead() {
    holds(names::dead_files(&FILES));
}

#[test]
fn every_crate_takes_the_lints() {
    holds(names::lints(&FILES));
}

#[test]
fn code_is_finished() {
    holds(words::unfinished(&FILES));
}

#[test]
fn texts_hold_no_notes_to_oneself_and_no_paths_of_one_machine() {
    holds(words::notes(&FILES));
}

#[test]
fn pure_crates_have_no_clock_socket_thread_or_unordered_map() {
    holds(words::impure(&FILES));
}

#[test]
fn the_libraries_read_variables_in_one_place() {
    holds(environment::check(&FILES));
}

#[test]
fn every_variable_that_code_or_a_script_reads_is_in_the_book() {
    holds(environment::documented(&FILES));
}

#[test]
fn silenced_checks_say_why_and_examples_run() {
    holds(attributes::check(&FILES));
}

#[test]
fn documents_name_what_exists() {
    holds(docs::check(&FILES));
    holds(docs::comments(&FILES));
}

#[test]
fn planted_faults_fit_the_code() {
    holds(planted::misfits(&tree::root(), &FILES).expect("git runs"));
}

/// Regression: the check looked for the module under a guessed name, found an old one and passed.
#[test]
fn the_pure_crates_import_nothing() {
    for layer in layers::LAYERS.iter().filter(|layer| layer.pure) {
        let built = purity::build(&tree::root(), &METADATA.target_directory, layer);
        let module = built.unwrap_or_else(|words| panic!("{words}"));
        let bytes = std::fs::read(&module).unwrap_or_else(|error| panic!("{}: {error}", module.display()));
        let face = purity::face(&bytes).expect("a wasm module");
        assert_eq!(face.imports, Vec::<String>::new(), "{} asks this of its outside", layer.name);
        assert!(face.functions > 100, "{}: {} functions cannot be all of it", layer.name, face.functions);
        println!("{}: {} functions, no import", layer.name, face.functions);
    }
}

/// Regression: the check for imports passed whatever the code did, because the linker had dropped the
/// code that nothing calls.
#[test]
fn an_import_shows_even_in_code_that_nothing_calls() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("clock.rs");
    let module = folder.join("clock.wasm");
    let text = "unsafe extern \"C\" { fn now() -> u64; } pub fn uncalled() -> u64 { unsafe { now() } }";
    std::fs::write(&source, text).expect("the target folder is writable");
    let mut rustc = std::process::Command::new("rustc");
    rustc.args(["--crate-type", "cdylib", "--target", "wasm32-unknown-unknown", "--edition", "2024", "-o"]);
    assert!(rustc.arg(&module).args(purity::LINK_WHOLE).arg(&source).status().expect("rustc runs").success());
    let face = purity::face(&std::fs::read(&module).expect("built")).expect("a wasm module");
    assert_eq!(face.imports, ["env.now"]);
}

#[test]
fn no_test_passes_without_having_run() {
    holds(silent::early_returns(&FILES));
}
