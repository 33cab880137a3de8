//! The C programs of testing/programs/cuda, which also run on a real driver, with this library as `libcuda.so.1`.

mod common;

use std::process::Command;

use common::{Bench, library, source};

#[test]
#[ignore = "the device that the other tests start; `cargo test -p xsched-fakecuda --test programs`"]
fn serve() {
    common::serve();
}

/// Programs, each with the number of calls that are illegal on purpose.
macro_rules! programs {
    ($($name:ident: $illegal:literal),* $(,)?) => { $(
        #[test]
        fn $name() {
            let stats = Bench::new().program(stringify!($name), &[]);
            assert_eq!(stats["illegal"], $illegal, "{stats}");
        }
    )* };
}

programs! {
    basics: 0, streams: 0, events: 0, memops: 1, hostfuncs: 1, capture: 0, graphs: 0, graph_nodes: 0, errors: 1, contexts: 0,
    multithread: 0, memory: 0, vmm: 1, pools: 0, limits: 1,
}

/// Devices have the memory that the variable says, and so do the refusals.
#[test]
fn a_device_has_the_memory_that_is_asked_for() {
    for mib in ["64", "3072"] {
        let bench = Bench::new();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(bench.path("libnvidia-ml.so.1"));
        assert!(cc.arg(source("testing/stand-ins/nvml/nvml.c")).status().unwrap().success());
        let mut command = bench.command(&bench.compile("memory", &[]));
        command.env("FAKENVML", bench.path("."));
        command.env("SIMDEV_MEMORY_MIB", mib).env("EXPECT_MIB", mib);
        bench.check(command);
    }
}

/// A named call fails once, with the wanted result, and leaves nothing behind.
#[test]
fn a_named_call_fails() {
    let bench = Bench::new();
    let mut command = bench.command(&bench.compile("memory", &[]));
    // The first two are those for more than there is; the third is for half of it.
    command.env("FAKECUDA_FAIL_CALL", "cuMemAlloc_v2:2:700");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = text.lines().filter(|line| !line.starts_with("ok ")).collect();
    assert!(failed.iter().any(|line| line.contains("gave 700 instead of 0")), "{text}");
    assert!(text.contains("ok refusals leave nothing behind"), "{text}");
}

#[test]
fn strict() {
    Bench::new().program("strict", &[]);
}

#[test]
fn procaddress() {
    Bench::new().program("procaddress", &[&source("testing/ladders/cuda/names.txt")]);
}

/// A preloaded `ioctl` sees the driver's own calls and may rewrite them.
#[test]
fn a_preloaded_ioctl_rewrites_the_time_slice() {
    let bench = Bench::new();
    let preload = bench.path("rewrite.so");
    let code = "#include <stdarg.h>\n#include <stdint.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
        int ioctl(int fd, unsigned long request, ...) {\n\
        va_list a; va_start(a, request); uint32_t *c = va_arg(a, void *); va_end(a);\n\
        if ((request & 0xffff) == 0x462a && c[2] == 0xa06c0103) **(uint64_t **)(c + 4) = 321;\n\
        return (int)syscall(SYS_ioctl, fd, request, c); }\n";
    let file = bench.path("rewrite.c");
    std::fs::write(&file, code).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&preload).arg(&file);
    assert!(cc.status().unwrap().success());
    let mut command = bench.command(&bench.compile("strict", &[]));
    command.env("LD_PRELOAD", &preload).env("EXPECT_TIMESLICE_US", "321");
    bench.check(command);
}

/// If the manager is preloaded, it answers the `ioctl` calls.
#[test]
fn a_preloaded_manager_answers() {
    let bench = Bench::new();
    let manager = bench.compile("fakerm", &["-shared", "-fPIC"]);
    let mut command = bench.command(&bench.compile("strict", &[]));
    command.env("LD_PRELOAD", manager);
    bench.check(command);
}

/// All names of the newest header, and the three of this library's own.
#[test]
fn exports() {
    let names = std::fs::read_to_string(source("testing/ladders/cuda/names.txt")).unwrap();
    let mut wanted: Vec<&str> = names
        .lines()
        .filter(|line| !line.starts_with('#'))
        .chain(["fakeGetCounters", "fakeMpsServe", "fakeRmIoctl"])
        .collect();
    wanted.sort_unstable();
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = listing.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.sort_unstable();
    assert_eq!(exported, wanted);
    let output = Command::new("readelf").arg("-d").arg(library()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("soname: [libcuda.so.1]"));
}
