//! Resolution of calls: with the preload library a call reaches the same function as without it.
//!
//! The programs of `testing/programs/loader` load copies of a fake OpenCL library in every way that a process may, and print the
//! copy that each call reached. Every scenario runs bare first, which shows what the loader does, then preloaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use xsched_testkit::skipped;

/// The preload library that cargo built beside this test.
fn library() -> PathBuf {
    let deps = std::env::current_exe().expect("own path");
    let found = deps.parent().and_then(Path::parent).expect("target folder").join("libxsched.so");
    assert!(found.exists(), "{} is missing: build the workspace first", found.display());
    found
}

/// The folder of the built programs.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("loader");
        // Removes the folders of runs that have ended.
        for old in std::fs::read_dir(&all).into_iter().flatten().flatten() {
            if !Path::new("/proc").join(old.file_name()).exists() {
                let _ = std::fs::remove_dir_all(old.path());
            }
        }
        let folder = all.join(std::process::id().to_string());
        std::fs::create_dir_all(&folder).expect("folder for the programs");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/programs/loader/build.sh");
        let built = Command::new("sh").arg(script).arg(&folder).output().expect("sh");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        folder
    })
}

/// One run of a program.
struct Run {
    out: String,
    err: String,
    /// Exit code, or the signal as a negative number.
    status: i32,
    /// Launches counted by the preload library; `None` if it was not started.
    launches: Option<u64>,
}

fn finished(out: Output, stats: &Path) -> Run {
    use std::os::unix::process::ExitStatusExt;
    let launches = std::fs::read_to_string(stats).ok().map(|text| {
        let counts =
            text.lines().filter_map(|line| line.split_once("\"launches\":")?.1.split(',').next()?.parse::<u64>().ok());
        counts.sum()
    });
    Run {
        out: String::from_utf8_lossy(&out.stdout).into_owned(),
        err: String::from_utf8_lossy(&out.stderr).into_owned(),
        status: out.status.code().unwrap_or_else(|| -out.status.signal().unwrap_or(0)),
        launches,
    }
}

fn run_with(mut command: Command, preload: &[PathBuf]) -> Run {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let stats = folder().join(format!("stats-{}", RUNS.fetch_add(1, Relaxed)));
    if !preload.is_empty() {
        let list: Vec<&str> = preload.iter().map(|p| p.to_str().expect("path")).collect();
        command.env("LD_PRELOAD", list.join(":"));
    }
    command.env("XSCHED_STATS", &stats).env("XSCHED_SOCKET", folder().join("no-daemon"));
    finished(command.output().expect("program"), &stats)
}

fn run(program: &str, scenario: &str, preload: &[PathBuf], env: &[(&str, &str)]) -> Run {
    let mut command = Command::new(folder().join(program));
    command.arg(folder()).arg(scenario).envs(env.iter().copied());
    run_with(command, preload)
}

/// Number of commands that the libraries report as enqueued.
fn enqueued(out: &str) -> u64 {
    out.lines().filter(|line| line.starts_with("clEnqueue") && line.contains(" in copy ")).count() as u64
}

/// Number of commands that HIP libraries report as enqueued by the application. Their calls of their own exports do not
/// count.
fn hip_enqueued(out: &str) -> u64 {
    let enters = |line: &&str| {
        ["hipLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel", "hipMemcpy", "hipMemPrefetchAsync"]
            .iter()
            .any(|name| line.starts_with(name))
    };
    let by_the_application = |line: &&str| line.contains(" in copy 1: ") || line.contains(" in copy 2: ");
    out.lines().filter(enters).filter(by_the_application).count() as u64
}

/// Runs a scenario with copies of a HIP runtime, bare and preloaded, and checks that the calls reach the same copies
/// and that every command was counted once.
fn hip(program: &str, scenario: &str) -> Run {
    let set = |preload: &[PathBuf]| {
        run(program, scenario, preload, &[("LD_LIBRARY_PATH", folder().join("hip1").to_str().expect("path"))])
    };
    let (bare, with) = (set(&[]), set(&[library()]));
    assert_eq!(bare.status, 0, "{scenario} bare: {}{}", bare.out, bare.err);
    assert_eq!((&bare.out, bare.status), (&with.out, with.status), "{scenario}: {}", with.err);
    assert_eq!(with.launches, Some(hip_enqueued(&with.out)), "{scenario}: {}", with.out);
    assert!(with.launches >= Some(10) && with.out.contains("\n0 failures\n"), "{scenario}: {}", with.out);
    assert!(with.out.contains(" inside: 0") && with.out.contains(" on its own thread: 0"), "{scenario}: {}", with.out);
    with
}

/// Runs a scenario bare and preloaded, and checks that the calls reach the same copies. Returns the preloaded run.
fn same(program: &str, scenario: &str) -> Run {
    let bare = run(program, scenario, &[], &[]);
    assert_eq!(bare.status, 0, "{scenario} bare: {}{}", bare.out, bare.err);
    assert!(bare.out.lines().count() > 1, "{scenario} does something: {}", bare.out);
    let with = run(program, scenario, &[library()], &[]);
    assert_eq!(bare.out, with.out, "{scenario}\n{}", with.err);
    assert_eq!(bare.status, with.status, "{scenario}: {}", with.err);
    with
}

/// Runs a scenario as `same` does, and checks that every command was counted.
fn same_and_counted(program: &str, scenario: &str) -> Run {
    let with = same(program, scenario);
    assert_eq!(with.launches, Some(enqueued(&with.out)), "{scenario}: {}{}", with.out, with.err);
    assert!(with.launches > Some(0), "{scenario} launches something");
    with
}

#[test]
fn linked_in_the_ordinary_way() {
    let with = same_and_counted("linked", "linked");
    assert!(!with.out.contains("copy 2"), "the program's own copy is global and serves modules too: {}", with.out);
}

#[test]
fn one_module_with_its_own_copy() {
    same_and_counted("main", "one_plugin");
}

#[test]
fn two_modules_with_two_copies() {
    let with = same_and_counted("main", "two_plugins");
    assert!(with.out.contains("copy 1") && with.out.contains("copy 2"));
}

#[test]
fn function_pointers_of_modules_called_by_the_program() {
    same_and_counted("main", "one_plugin_by_pointer");
    same_and_counted("main", "two_plugins_by_pointer");
}

#[test]
fn a_global_copy_that_was_there_before_wins() {
    let with = same_and_counted("main", "global_first");
    assert!(!with.out.contains("copy 2"), "{}", with.out);
}

#[test]
fn a_global_copy_that_comes_later_changes_nothing_for_modules_that_were_there() {
    for scenario in ["global_later_before_calls", "global_later_after_calls", "global_later_lazy_after_calls"] {
        let with = same_and_counted("main", scenario);
        assert!(with.out.contains("copy 2") && with.out.contains("copy 1"), "{scenario}: {}", with.out);
    }
}

/// A module that is bound lazily makes its first call after a global copy appeared. The loader by itself binds calls to
/// that copy and pointers to the module's own, and the program ends. With the preload library all of them reach the
/// module's own.
#[test]
fn a_module_bound_lazily_is_never_torn_between_copies() {
    let bare = run("main", "global_later_lazy_before_calls", &[], &[]);
    assert_eq!(bare.status, -libc::SIGABRT, "{}", bare.out);
    let with = run("main", "global_later_lazy_before_calls", &[library()], &[]);
    assert_eq!(with.status, 0, "{}{}", with.out, with.err);
    assert_eq!(with.launches, Some(enqueued(&with.out)));
}

#[test]
fn a_closed_global_copy_stays_for_those_bound_to_it() {
    same_and_counted("main", "global_closed");
}

#[test]
fn copies_opened_by_path_are_told_apart() {
    same_and_counted("main", "by_path");
}

#[test]
fn more_copies_than_bindings_work_and_the_surplus_is_unscheduled() {
    let with = same("main", "nine_copies");
    assert_eq!((enqueued(&with.out), with.launches), (18, Some(14)), "{}", with.out);
    assert!(with.err.contains("more than 7 copies"), "{}", with.err);
    same("main", "opened_and_closed");
}

#[test]
fn copies_that_were_only_looked_at_and_closed_take_no_binding() {
    let with = same_and_counted("main", "looked_up_and_closed");
    assert!(!with.err.contains("more than"), "{}", with.err);
}

#[test]
fn a_module_in_the_place_of_a_closed_one() {
    same_and_counted("main", "plugins_replaced");
}

#[test]
fn modules_that_come_and_go_while_others_call() {
    let with = run("main", "closed_while_others_call", &[library()], &[]);
    assert_eq!(with.status, 0, "{}", with.err);
    assert_eq!((enqueued(&with.out), with.launches), (2 * 600 + 100, Some(1300)), "{}", with.err);
}

#[test]
fn seven_modules_deep() {
    let one = same_and_counted("main", "chain");
    assert!(one.out.contains("copy 2"), "{}", one.out);
    let two = same_and_counted("main", "chain_of_two_copies");
    assert!(two.out.contains("copy 1"), "the first in the order of loading: {}", two.out);
}

#[test]
fn modules_that_bypass_any_preload_work() {
    for scenario in ["deepbind", "other_namespace"] {
        let with = same("main", scenario);
        assert_eq!(
            (enqueued(&with.out), with.launches),
            (if scenario == "deepbind" { 6 } else { 4 }, Some(3)),
            "{}",
            with.out
        );
    }
}

#[test]
fn look_ups_by_default_and_next() {
    same_and_counted("linked", "linked_look_ups");
    same_and_counted("main", "look_ups_of_plugin");
}

#[test]
fn look_ups_that_fail() {
    let with = same("main", "failures");
    assert!(with.out.contains("undefined symbol: clNoSuchFunction"), "{}", with.out);
    let with = same("main", "messages");
    assert!(with.out.contains("undefined symbol: clNoSuchFunction, version OPENCL_1.0"), "{}", with.out);
    assert_eq!(with.launches, None, "nothing was started for a look-up");
}

#[test]
fn look_ups_by_version() {
    same_and_counted("main", "versions");
    same_and_counted("main", "versions_global");
}

#[test]
fn another_preloaded_library_keeps_its_say() {
    let other = folder().join("interposer.so");
    for scenario in ["linked", "linked_look_ups"] {
        let bare = run("linked", scenario, std::slice::from_ref(&other), &[]);
        assert_eq!(bare.status, 0, "{}", bare.err);
        assert!(bare.out.contains("interposer: clFinish, something behind it"), "{}", bare.out);
        for order in [[other.clone(), library()], [library(), other.clone()]] {
            let with = run("linked", scenario, &order, &[]);
            assert_eq!(bare.out, with.out, "{scenario} {order:?}\n{}", with.err);
            assert_eq!(with.status, 0, "{}", with.err);
            assert_eq!(with.launches, Some(enqueued(&with.out)), "{scenario} {order:?}: {}", with.out);
        }
    }
}

#[test]
fn extension_functions_belong_to_the_copy_that_gave_them() {
    same_and_counted("main", "extensions");
}

#[test]
fn every_argument_and_errno_survive() {
    let with = same_and_counted("main", "arguments");
    assert!(
        with.out.contains("0x2 3 0x4 0x5 0x6 7 8 9 10 0xb 12 0xd") && with.out.contains("errno 77"),
        "{}",
        with.out
    );
}

#[test]
fn constructors_and_threads_at_the_start() {
    let with = same_and_counted("linked", "early");
    assert!(with.out.contains("threads: agree"), "{}", with.out);
}

#[test]
fn what_is_thrown_inside_a_call_reaches_the_application() {
    let bare = run("throws", "", &[], &[]);
    assert_eq!(bare.status, 0, "{}", bare.err);
    assert_eq!(bare.out.matches("caught").count(), 6, "{}", bare.out);
    let with = run("throws", "", &[library()], &[]);
    assert_eq!((bare.out, bare.status), (with.out, with.status), "{}", with.err);
    // Three events, four native kernels that were left, and ten launches deeper in the stack afterwards.
    assert_eq!(with.launches, Some(3 + 4 + 10));
}

#[test]
fn pointers_are_untouched_when_switched_off() {
    let bare = run("linked", "untouched", &[], &[]);
    assert!(bare.out.contains("libOpenCL-abc2.so clFinish"), "{}", bare.out);
    for setting in [("XSCHED_DISABLE", "1"), ("XSCHED_PLATFORMS", "sim")] {
        let off = run("linked", "untouched", &[library()], &[setting]);
        assert_eq!(bare.out, off.out, "{setting:?}\n{}", off.err);
        assert_eq!(off.launches.unwrap_or(0), 0);
        assert_eq!(off.err, "", "{setting:?}: silent");
    }
    let on = run("linked", "untouched", &[library()], &[]);
    assert!(on.out.contains("libxsched.so"), "{}", on.out);
}

/// PyOpenCL brings a copy of the OpenCL library in its wheel. Its vector addition, with a count of its own.
const VECTORS: &str = "
import numpy, pyopencl as cl
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
a, b = numpy.arange(5000, dtype=numpy.float32), numpy.ones(5000, dtype=numpy.float32)
flags, enqueued = cl.mem_flags, 0
inputs = [cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x) for x in (a, b)]
sum = cl.Buffer(context, flags.WRITE_ONLY, a.nbytes)
add = cl.Kernel(cl.Program(context, '__kernel void add(__global const float *a, __global const float *b, '
    '__global float *c) { int i = get_global_id(0); c[i] = a[i] + b[i]; }').build(), 'add')
for _ in range(10):
    add(queue, a.shape, None, *inputs, sum)
    enqueued += 1
result = numpy.empty_like(a)
cl.enqueue_copy(queue, result, sum)
enqueued += 1
queue.finish()
assert numpy.array_equal(result, a + b)
opened = {line.split('/')[-1].strip() for line in open('/proc/self/maps') if 'libOpenCL' in line}
print('enqueued', enqueued, 'with', *sorted(opened))
";

#[test]
fn pyopencl_with_the_copy_in_its_wheel() {
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pyopencl/bin/python");
    if !python.exists() {
        let folder = python.ancestors().nth(2).expect("folder");
        let made = Command::new("python3").args(["-m", "venv"]).arg(folder).output();
        if !made.is_ok_and(|out| out.status.success()) {
            return skipped("PyOpenCL from its wheel: python3 -m venv does not work here");
        }
    }
    let pip = ["-m", "pip", "install", "--quiet", "--only-binary=:all:", "--retries=0", "pyopencl", "numpy"];
    let installed = Command::new(&python).args(pip).output().expect("pip");
    if !installed.status.success() {
        return skipped(&format!("PyOpenCL: pip finds no wheel: {}", String::from_utf8_lossy(&installed.stderr)));
    }
    let script = |preload: &[PathBuf]| {
        let mut command = Command::new(&python);
        command.args(["-c", VECTORS]);
        run_with(command, preload)
    };
    let bare = script(&[]);
    if bare.status != 0 {
        return skipped(&format!("PyOpenCL: no OpenCL device for it: {}", bare.err));
    }
    let with = script(&[library()]);
    assert_eq!((&bare.out, bare.status), (&with.out, with.status), "{}", with.err);
    assert!(with.out.contains("libOpenCL-"), "the wheel's own copy: {}", with.out);
    assert_eq!(with.launches, Some(11), "{}{}", with.out, with.err);
}

#[test]
fn a_program_linked_with_the_hip_runtime() {
    let with = hip("hip_linked", "linked");
    assert!(!with.out.contains("copy 2"), "{}", with.out);
    // The copy that a module brings is there, and no caller is bound to it.
    let with = hip("hip_linked", "linked_and_bundled");
    assert!(!with.out.contains("copy 2"), "{}", with.out);
}

#[test]
fn a_hip_runtime_in_a_framework_opened_as_python_does() {
    for scenario in ["bundled", "threads"] {
        let with = hip("hip_main", scenario);
        assert!(!with.out.contains("copy 1"), "{scenario}: {}", with.out);
    }
}

#[test]
fn two_hip_runtimes_each_with_what_was_registered_with_it() {
    let with = hip("hip_main", "two_copies");
    assert!(with.out.contains("copy 1") && with.out.contains("copy 2"), "{}", with.out);
    let with = hip("hip_main", "bundled_for_all");
    assert!(!with.out.contains("copy 1"), "the first for all serves all: {}", with.out);
}

#[test]
fn hip_functions_that_were_looked_up() {
    hip("hip_main", "looked_up");
}

/// A lock that another thread held at the fork is never released in the child.
#[test]
fn children_forked_while_other_threads_are_within_this_library() {
    let path = folder().join("hip1");
    for preload in [vec![], vec![library()]] {
        let run = run("hip_main", "forks", &preload, &[("LD_LIBRARY_PATH", path.to_str().expect("path"))]);
        assert_eq!(run.status, 0, "{preload:?}: {}", run.err);
    }
}

/// Errors that were reported with another scheduler, which mixed two copies (see docs/internals/hip.md#two-copies-of-the-runtime). Here
/// the program itself mixes them, so they occur with and without the preload library.
#[test]
fn what_one_hip_runtime_made_is_unknown_to_another() {
    let set = |preload: &[PathBuf]| {
        let path = folder().join("hip1");
        run("hip_main", "mixed", preload, &[("LD_LIBRARY_PATH", path.to_str().expect("path"))])
    };
    let (bare, with) = (set(&[]), set(&[library()]));
    let errors = "mixed: launch 98, wait 709, module's kernel 400, variable 13\n";
    assert!(bare.out.contains(errors), "{}", bare.out);
    assert_eq!((&bare.out, bare.status), (&with.out, with.status), "{}", with.err);
    // A refused launch is no launch.
    assert_eq!(with.launches, Some(hip_enqueued(&with.out) - 3), "{}", with.out);
}
