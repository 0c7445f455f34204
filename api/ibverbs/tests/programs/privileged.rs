//! A set-user-ID program, which has more rights than the user that starts it: no variable of that user may
//! choose a program to run, a file to write or an address.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use remora_netns::{Error, Namespace};

use crate::library::{ROOT, done, folder, remora};

/// The user that starts the program, which belongs to root.
const USER: [&str; 4] = ["setpriv", "--reuid=1001", "--regid=1001", "--clear-groups"];

/// An installed drop-in, a set-user-ID program that finds its library by the path in its own file, and a
/// program of the starter that must not run.
struct Scene {
    host: Namespace,
    folder: PathBuf,
}

impl Scene {
    fn new() -> Result<Scene, Error> {
        let host = Namespace::new("privileged")?;
        let home = std::env::temp_dir().join(format!("remora-privileged-{}", std::process::id()));
        for part in ["lib/remora", "bin", "user"] {
            fs::create_dir_all(home.join(part)).unwrap();
        }
        let scene = Scene { host, folder: home };
        fs::copy(folder().join("libibverbs.so.1"), scene.library()).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(&scene.folder.join("user"), 0o777);
        let [ran, evil] = [scene.user("ran"), scene.user("remora")];
        fs::write(&evil, format!("#!/bin/sh\nid -u >{}\n", ran.display())).unwrap();
        mode(&evil, 0o755);
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-o"]).arg(scene.program());
        cc.arg(format!("{ROOT}/api/ibverbs/tests/c/privileged.c")).arg("-L").arg(folder()).arg("-libverbs");
        done(cc.arg(format!("-Wl,-rpath,{}", scene.folder.join("lib/remora").display())));
        mode(&scene.program(), 0o4755);
        Ok(scene)
    }

    fn library(&self) -> PathBuf {
        self.folder.join("lib/remora/libibverbs.so.1")
    }

    fn program(&self) -> PathBuf {
        self.folder.join("privileged")
    }

    /// Returns the path of a file that the starter may write.
    fn user(&self, name: &str) -> PathBuf {
        self.folder.join("user").join(name)
    }

    /// Starts the program with these variables, and with the starter's program first in PATH.
    fn run(&self, variables: &[(&str, &Path)]) -> Output {
        let words = [&self.host.exec()[..], &USER, &["timeout", "--signal=KILL", "60"]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(self.program());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.folder.join("user").display()));
        command.envs(variables.iter().copied()).output().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Regression: `REMORA_COMMAND` and `PATH` chose a program that ran as root, and `REMORA_CAPTURE` a file
/// that root wrote.
#[test]
fn a_set_user_id_program_obeys_no_variable_of_the_user_that_starts_it() {
    let scene = remora_netns::require!(Scene::new());
    let evil = scene.user("remora");
    // No command is installed beside the library, and PATH must not be searched for one.
    let output = scene.run(&[]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("set-user-ID"), "{output:?}");
    assert!(!scene.user("ran").exists(), "a program of PATH ran");

    symlink(remora(), scene.folder.join("bin/remora")).unwrap();
    let output = scene.run(&[("REMORA_COMMAND", &evil)]);
    assert!(!scene.user("ran").exists(), "REMORA_COMMAND ran");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "127.0.0.1\n", "{output:?}");

    let capture = scene.user("capture");
    let variables = [("REMORA_ALONE", "1"), ("REMORA_ADDRESS", "127.0.0.9")];
    let mut variables: Vec<(&str, &Path)> = variables.map(|(name, value)| (name, Path::new(value))).to_vec();
    variables.push(("REMORA_CAPTURE", &capture));
    let output = scene.run(&variables);
    assert!(!capture.exists(), "REMORA_CAPTURE was written");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "127.0.0.1\n", "{output:?}");
}
