//! The device server by itself: `cargo run -p xsched-sim --example simdev_server -- sim-device --socket PATH
//! [--idle-exit SECS]`. Takes the arguments of `xsched sim-device`, so that `SIMDEV_SERVER` may name it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).filter(|word| word != "sim-device");
    let (mut socket, mut idle_exit) = (None, None);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--socket", Some(path)) => socket = Some(PathBuf::from(path)),
            ("--idle-exit", Some(secs)) if secs.parse::<u64>().is_ok() => {
                idle_exit = secs.parse().ok().map(Duration::from_secs);
            }
            _ => {
                eprintln!("xsched: {word}: expected --socket PATH [--idle-exit SECS]");
                return ExitCode::from(2);
            }
        }
    }
    let Some(socket) = socket else {
        eprintln!("xsched: --socket PATH is missing");
        return ExitCode::from(2);
    };
    match xsched_sim::server::run(&socket, idle_exit) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xsched: {error}");
            ExitCode::from(3)
        }
    }
}
