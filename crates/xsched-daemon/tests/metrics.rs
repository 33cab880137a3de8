//! Metrics of a thousand programs are made in time, off the thread that decides.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use support::Daemon;
use xsched_testkit::least_of;

/// Time limit of the promise, as `cargo test --release` tests it; a debug build takes about ten times as long.
const WITHIN: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1_000 } else { 100 });

#[test]
fn a_thousand_programs_are_told_of_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("m.sock");
    let config = folder.path().join("config.toml");
    let text = format!("[metrics]\nlisten = \"unix:{}\"\npids = true\nmax_programs = 1000\n", socket.display());
    std::fs::write(&config, text).unwrap();
    let daemon = Daemon::start_with(|options| options.config = vec![config]);
    let clients: Vec<_> = (0..1_000).map(|_| daemon.attach(0)).collect();
    for client in &clients {
        client.group(0, "sim:0");
        client.queue(0, 0);
        client.ready(0);
    }
    let read = || {
        let begin = Instant::now();
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("text");
        (begin.elapsed(), text)
    };
    let (first, text) = read();
    println!("the first: {first:?}, {} bytes", text.len());
    // All programs are of one process: one series, which counts them.
    let programs = text.lines().find(|line| line.starts_with("xsched_programs{")).expect("a series");
    assert!(programs.ends_with(" 1000.0"), "{programs}");
    least_of(5, WITHIN, "a thousand programs", || read().0);
}
