//! A server and its clients. Nothing shows that a server of rdma_cm listens, so a client that is refused is
//! repeated while the server lives.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};

/// A server of rdma_cm, which is killed when this value is dropped.
pub(crate) struct CmServer {
    child: Option<Child>,
    command: Command,
}

impl CmServer {
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> CmServer {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        CmServer { child: Some(child), command }
    }

    fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Runs a client until it succeeds. Returns its output.
    #[track_caller]
    pub(crate) fn serves(&mut self, mut client: Command) -> String {
        let mut refused = String::new();
        loop {
            let Output { status, stdout, stderr } = client.output().unwrap();
            let printed = String::from_utf8_lossy(&stdout).into_owned();
            if status.success() {
                return printed;
            }
            let errors = String::from_utf8_lossy(&stderr);
            // An earlier client may be the one that the server did not survive.
            refused += &format!("{status}\n{printed}\n{errors}\n");
            assert!(self.is_running(), "{client:?}: {refused}{}", self.ends());
        }
    }

    /// Waits for the server's end. Returns its output.
    #[track_caller]
    pub(crate) fn succeeds(mut self) -> String {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {}\n{out}\n{err}", self.command, output.status);
        out.into_owned()
    }

    /// Ends the server. Returns its output.
    pub(crate) fn ends(&mut self) -> String {
        let Some(mut child) = self.child.take() else { return String::new() };
        end(&mut child);
        let mut printed = String::new();
        for pipe in [child.stdout.take().map(OwnPipe::Out), child.stderr.take().map(OwnPipe::Err)] {
            let _ = match pipe {
                Some(OwnPipe::Out(mut pipe)) => pipe.read_to_string(&mut printed),
                Some(OwnPipe::Err(mut pipe)) => pipe.read_to_string(&mut printed),
                None => Ok(0),
            };
        }
        printed
    }
}

/// A pipe to which a server prints.
enum OwnPipe {
    Out(std::process::ChildStdout),
    Err(std::process::ChildStderr),
}

/// Ends `timeout` and the program that it runs.
fn end(child: &mut Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    let _ = child.wait();
}

impl Drop for CmServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
    }
}
