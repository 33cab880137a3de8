//! Tests of the C API through the real library, with real processes.

mod common;

use common::{Bench, finish, library, serve as run_server};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

#[test]
#[ignore = "the device that the other tests start; `cargo test -p xsched-simdev --test c_api`"]
fn serve() {
    run_server();
}

macro_rules! scenarios {
    ($($program:literal: $($name:ident),*;)*) => { $($(
        #[test]
        fn $name() {
            Bench::new().scenario($program, stringify!($name));
        }
    )*)* };
}

scenarios! {
    "one": order, host_functions, values, evicted, deep;
    "many": released_by_another, share, killed, stopped, forked, together;
}

#[test]
fn errors() {
    Bench::new().env("SIMDEV_DEVICES", "2").scenario("one", "errors");
}

#[test]
fn no_device() {
    for server in ["/nonexistent/xsched", "/bin/false", "/dev/null"] {
        Bench::new().env("SIMDEV_SERVER", server).scenario("many", "no_device");
    }
    // A device that refuses its own environment ends at once.
    Bench::new().env("SIMDEV_TIMESLICE_US", "soon").scenario("many", "no_device");
}

#[test]
fn lost() {
    let bench = Bench::new();
    let mut server = bench.serve();
    let mut client = bench.command("many");
    client.arg("lost").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let mut byte = [0];
    client.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    client.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    let output = finish(client);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The library's own table and its own calls stay its own when its functions are interposed.
#[test]
fn preloaded() {
    let folder = tempfile::tempdir().unwrap();
    let (source, interposer) = (folder.path().join("interposer.c"), folder.path().join("interposer.so"));
    std::fs::write(&source, "int simLaunchKernel(const void *k, void *s) { (void)k; (void)s; return 77; }\n").unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&interposer).arg(&source);
    assert!(cc.status().unwrap().success());
    Bench::new().env("LD_PRELOAD", interposer.display().to_string()).scenario("many", "preloaded");
}

#[test]
fn one_server_per_socket() {
    let bench = Bench::new();
    let mut first = bench.serve();
    let output = finish(bench.serve());
    assert!(!output.status.success(), "the second one must give up");
    bench.scenario("one", "values");
    first.kill().unwrap();
    first.wait().unwrap();
    // A socket left behind by a killed server does not disturb later processes.
    assert!(bench.socket().exists());
    bench.scenario("one", "values");
}

#[test]
fn simload() {
    let bench = Bench::new();
    for arguments in [
        "lc --kernels 3 --us 100 --period-us 1000 --requests 20 --streams 2 --priority 2",
        "lc --kernels 5 --us 10 --period-us 0 --requests 50 --threads 3 --streams 4 --event-chain",
        "be --us 20 --batch 64 --secs 0.2 --threads 2 --streams 3 --priority -2",
    ] {
        let mut command = bench.command("simload");
        command.args(arguments.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = finish(command.spawn().unwrap());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{arguments}: {text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("\"check\":\"ok\""), "{text}");
    }
    let bad = finish(bench.command("simload").args(["lc", "--priority", "3"]).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(bad.status.code(), Some(2));
}

/// The header and the exports are one set.
#[test]
fn every_function_of_the_header_is_exported_and_no_other() {
    let header = include_str!("../include/simdev.h");
    let mut declared: Vec<&str> =
        header.lines().filter_map(|line| line.strip_prefix("int ")?.split('(').next()).collect();
    declared.sort_unstable();
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = listing.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.sort_unstable();
    assert_eq!(declared, exported);
}
