//! Tests of `scripts/install` and `scripts/dist`, called like `make install` and a packager call them, with
//! short files in place of cargo's output.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::place::Place;

/// The programs that the scripts call. Cargo is not among them.
const TOOLS: &str = "env bash realpath dirname basename find install date cat cp ln sed head rm rmdir mkdir tar \
                     chmod tr uname du cut id sort";

/// A program that writes a manual page and completions like the command.
const COMMAND: &str =
    "#!/bin/sh\ncase \"$1\" in man) mkdir -p \"$2\"; echo page >\"$2/remora.1\" ;; *) echo $2 ;; esac\n";

impl Place {
    /// Writes the files that cargo and `scripts/dropin` would build in this profile.
    fn built(&self, profile: &str) {
        self.write(&format!("target/{profile}/remora"), &format!("{COMMAND}# {profile}\n"));
        for file in ["libremora.so", "libremora.a"] {
            self.write(&format!("target/{profile}/{file}"), profile);
        }
        // Without cargo, the notices of the last build are taken.
        self.write("target/THIRD-PARTY", "notices");
        for file in ["libibverbs.so.1", "libremora-paths.so", "bin/rdma"] {
            self.write(&format!("target/dropin/lib/{file}"), profile);
        }
        self.write("target/dropin/lib/.profile", profile);
    }

    /// Runs `scripts/install` in this folder without cargo, under a umask that denies other users access.
    fn install(&self, words: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = self.script("install", words);
        command.env("CARGO_TARGET_DIR", self.0.join("target"));
        command.env_remove("DESTDIR").env_remove("PREFIX").env_remove("REMORA_BUILT");
        command.envs(variables.iter().copied()).output().unwrap()
    }

    #[track_caller]
    fn installs(&self, variables: &[(&str, &str)]) -> String {
        let output = self.install(&[], variables);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Returns the compiler flags of a program, as a shell receives them from pkg-config.
fn flags(prefix: &Path) -> String {
    let script = "eval set -- $(pkg-config --cflags --libs remora); printf '%s\\n' \"$@\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Regression: `DESTDIR` was written into `remora.pc`, and under umask 077 other users could not read
/// it. A prefix that was moved afterwards was not found.
#[test]
fn a_staged_installation_names_no_prefix_and_everybody_may_read_it() {
    let place = Place::new(TOOLS, "staged");
    place.built("debug");
    place.installs(&[("REMORA_BUILT", "debug"), ("DESTDIR", "stage"), ("PREFIX", "/opt/a b")]);
    let pc = fs::read_to_string(place.0.join("stage/opt/a b/lib/pkgconfig/remora.pc")).unwrap();
    assert!(!pc.contains("stage") && !pc.contains("/opt"), "{pc}");
    fs::rename(place.0.join("stage/opt"), place.0.join("moved to")).unwrap();
    let libraries = place.0.join("moved to/a b/lib");
    let folder = libraries.join("pkgconfig/../..");
    let folder = folder.display();
    assert_eq!(
        flags(&place.0.join("moved to/a b")),
        format!("-I{folder}/include\n-L{folder}/lib\n-lremora\n")
    );
    let mut find = Command::new("find");
    find.arg(place.0.join("moved to")).args(["!", "-type", "l", "!", "-perm", "-a=r"]);
    let closed = String::from_utf8(find.output().unwrap().stdout).unwrap();
    assert_eq!(closed, "", "other users may not read these");
}

#[test]
fn a_relative_prefix_is_one_of_the_callers_folder() {
    let place = Place::new(TOOLS, "relative");
    place.built("debug");
    place.installs(&[("REMORA_BUILT", "debug"), ("PREFIX", "own/prefix")]);
    assert!(place.0.join("own/prefix/bin/remora").exists());
}

/// Regression: manual pages and completions were not installed.
#[test]
fn manual_pages_completions_and_licences_are_installed() {
    let place = Place::new(TOOLS, "documents");
    place.built("debug");
    place.installs(&[("REMORA_BUILT", "debug"), ("PREFIX", "prefix")]);
    for (file, text) in [
        ("man/man1/remora.1", "page"),
        ("bash-completion/completions/remora", "bash"),
        ("zsh/site-functions/_remora", "zsh"),
        ("fish/vendor_completions.d/remora.fish", "fish"),
        ("doc/remora/THIRD-PARTY", "notices"),
    ] {
        let path = place.0.join("prefix/share").join(file);
        assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), text, "{}", path.display());
    }
    assert!(place.0.join("prefix/share/doc/remora/LICENSE-MIT").exists());
}

/// Regression: `make install` into a folder of root removed nothing and wrote nothing, but said so after
/// minutes of compilation.
#[test]
fn a_folder_that_cannot_be_written_is_refused_before_anything_is_built() {
    let place = Place::new(TOOLS, "closed");
    let refused = place.install(&[], &[("PREFIX", "/proc/1/prefix")]);
    assert!(!refused.status.success(), "{refused:?}");
    let words = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(words.lines().count(), 1, "{words}");
    assert!(words.contains("cannot install into /proc/1/prefix"), "{words}");
}

/// Regression: `make uninstall` left the C API behind.
#[test]
fn uninstall_leaves_what_others_have_installed_and_nothing_of_its_own() {
    let place = Place::new(TOOLS, "uninstall");
    place.built("debug");
    place.write("prefix/lib/libremora.so.conf", "");
    place.write("prefix/include/remora/others.h", "");
    place.write("target/debug/remora-store", "");
    let program = place.0.join("target/debug/remora-store");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    place.installs(&[("REMORA_BUILT", "debug"), ("PREFIX", "prefix")]);
    let programs: Vec<String> =
        place.files("prefix").into_iter().filter(|file| file.starts_with("./libexec")).collect();
    assert_eq!(programs, ["./libexec/remora/remora-store"], "those that are built");
    assert!(place.files("prefix").len() > 10, "{:?}", place.files("prefix"));
    // A second installation replaces the first one, and leaves folders that were there before both.
    place.installs(&[("REMORA_BUILT", "debug"), ("PREFIX", "prefix")]);
    assert!(place.install(&["uninstall"], &[("PREFIX", "prefix")]).status.success());
    assert_eq!(place.files("prefix"), ["./include/remora/others.h", "./lib/libremora.so.conf"]);
    assert!(!place.0.join("prefix/share").exists(), "a folder of the installation is left");
    assert!(place.0.join("prefix/lib").exists(), "a folder that was there before is gone");
}

/// Regression: `sudo make install` without cargo failed although all was built.
#[test]
fn without_cargo_what_was_built_before_is_installed_and_told_and_nothing_else_is_taken_for_it() {
    let place = Place::new(TOOLS, "built");
    let prefix = [("PREFIX", "prefix")];
    let words = |output: Output| {
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let nothing = words(place.install(&[], &prefix));
    assert!(nothing.contains("nothing is built") && nothing.contains("make build"), "{nothing}");
    place.built("release");
    place.write("target/release/.remora-built", "");
    assert!(place.installs(&prefix).contains("installing what was built on "));
    assert!(fs::read_to_string(place.0.join("prefix/bin/remora")).unwrap().ends_with("# release\n"));
    // Meanwhile, `make dropin` has linked libraries of another profile.
    place.write("target/dropin/lib/.profile", "dev");
    fs::remove_dir_all(place.0.join("target/dist-release")).unwrap();
    assert!(words(place.install(&[], &prefix)).contains("does not hold the optimised libraries"));
}
