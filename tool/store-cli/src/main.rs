//! `remora-store`: the commands of `remora` that serve, use and measure the stores.

use std::process::ExitCode;

fn main() -> ExitCode {
    remora_store_cli::start()
}
