//! `cargo xtask bundle DIR`: one folder that measures and tests on a GPU machine without Rust, a C compiler or a network.
//! It needs there: the driver, Python 3 with what the workloads import, glibc 2.34 or newer.
//!
//! `cargo xtask bundle --hip DIR`: the same for owners of AMD GPUs, see docs/guide/amd-kit.md. Its C++ programs are compiled
//! there, by the compiler of the ROCm that they are to try.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::hip_runtime;
use crate::package::tree;
use crate::release;

/// Largest size of a bundle, in bytes: a larger one takes too long to copy to another machine.
const LIMIT_BYTES: u64 = 40 << 20;
/// Newest glibc that the C programs in a bundle may need. They run on the measured machines; xsched's own files must run with the older
/// glibc of [`crate::package::tree::GLIBC`].
const GLIBC: (u32, u32) = (2, 36);

/// Names of the command and the libraries in XSched 1.2.0, as links to ours. See docs/guide/coming-from-xsched.md.
pub(crate) const ORIGINAL: [(&str, &str); 5] = [
    ("xserver", "xsched"),
    ("xcli", "xsched"),
    ("libshimcuda.so", "libxsched.so"),
    ("libshimhip.so", "libxsched.so"),
    ("libshimopencl.so", "libxsched.so"),
];

/// Libraries that belong to the command.
pub(crate) const LIBRARIES: [&str; 5] =
    ["libxsched.so", "libpreempt.so", "libhalcuda.so", "libhalhip.so", "libhalopencl.so"];

/// Contents of a bundle beside the command and the library.
pub(crate) struct Contents {
    /// C programs, or folders of them, each `*.c` of which becomes one program.
    compiled: &'static [&'static str],
    /// Platform for programs of `testing/programs/capi`, and those programs, which become `capi-NAME`.
    api: (&'static str, &'static [&'static str]),
    /// C libraries: source, and name of the product.
    libraries: &'static [(&'static str, &'static str)],
    /// Files that are copied as they are.
    carried: &'static [&'static str],
    /// Files at the top: their names and texts. Those that end in `.sh` can be executed.
    top: &'static [(&'static str, &'static str)],
    /// True if it has the files that benches/soak.py needs.
    soak: bool,
    /// True if it has the software HIP runtime and the programs that are built against it.
    hip_runtime: bool,
}

/// Bundle for NVIDIA GPUs.
pub(crate) const CUDA: Contents = Contents {
    compiled: &[
        "benches/cuda",
        "testing/ladders/cuda/programs",
        // Programs that the ladder runs.
        "testing/programs/cuda/basics.c",
        "testing/programs/cuda/capture.c",
        "testing/programs/cuda/contexts.c",
        "testing/programs/cuda/errors.c",
        "testing/programs/cuda/events.c",
        "testing/programs/cuda/graph_nodes.c",
        "testing/programs/cuda/graph_threads.c",
        "testing/programs/cuda/graphs.c",
        "testing/programs/cuda/groups.c",
        "testing/programs/cuda/hostfuncs.c",
        "testing/programs/cuda/memops.c",
        "testing/programs/cuda/multithread.c",
        "testing/programs/cuda/streams.c",
        // Programs that benches/cuda/pool.py runs.
        "testing/programs/cuda/pooled.c",
        "testing/programs/cuda/steady.c",
    ],
    api: ("cuda", &["calls", "hints", "local", "manual", "threads"]),
    libraries: &[("testing/ladders/cuda/count/count.c", "count.so")],
    carried: &[
        "benches/cuda",
        "benches/hip",
        "benches/soak.py",
        "examples/pytorch",
        "python",
        "testing/ladders/cuda",
        "testing/ladders/hip",
        "testing/lib",
        "testing/programs/capi",
        "testing/programs/cuda",
        "testing/programs/hip",
        "testing/programs/python",
    ],
    top: &[
        ("bench.sh", BENCH),
        ("compat.sh", COMPAT),
        ("hip.sh", HIP_BENCH),
        ("soak.sh", SOAK),
        ("README.txt", README),
    ],
    soak: true,
    hip_runtime: true,
};

/// Bundle for AMD GPUs.
pub(crate) const HIP: Contents = Contents {
    compiled: &[],
    api: ("hip", &[]),
    libraries: &[],
    carried: &[
        "benches/cuda",
        "testing/ladders/cuda/programs",
        "testing/ladders/hip/kit",
        "testing/lib",
        "testing/programs/hip",
        "docs/guide/amd-kit.md",
    ],
    top: &[
        ("kit.sh", include_str!("../../testing/ladders/hip/kit/kit.sh")),
        (
            "README.txt",
            "An AMD GPU, ROCm, Python 3.11 or newer: ./kit.sh --quick, then ./kit.sh; see docs/guide/amd-kit.md.\n",
        ),
    ],
    soak: false,
    hip_runtime: false,
};

const BENCH: &str = "#!/bin/sh
# Measures; results go to results/. See benches/cuda/bench.py --help.
here=$(cd \"$(dirname \"$0\")\" && pwd) || exit 3
exec python3 \"$here/benches/cuda/bench.py\" --bin \"$here/bin\" --results \"$here/results\" \"$@\"
";

const COMPAT: &str = "#!/bin/sh
# Runs real programs bare and under xsched and compares; results go to results/. See testing/ladders/cuda/ladder.py --help.
here=$(cd \"$(dirname \"$0\")\" && pwd) || exit 3
mkdir -p \"$here/work\" \"$here/results\" || exit 3
exec python3 \"$here/testing/ladders/cuda/ladder.py\" --bin \"$here/bin\" --work \"$here/work\" \\
    --json \"$here/results/ladder.json\" \"$@\"
";

const HIP_BENCH: &str = "#!/bin/sh
# HIP programs on the software HIP runtime, on this machine's CUDA driver: the compatibility ladder, then co-location.
# Results go to results/hip.jsonl. See benches/hip/bench.py --help.
here=$(cd \"$(dirname \"$0\")\" && pwd) || exit 3
exec python3 \"$here/benches/hip/bench.py\" all --bin \"$here/bin\" --runtime \"$here/hip\" --backend cuda \\
    --out \"$here/results/hip.jsonl\" --deadline 440 \"$@\"
";

const SOAK: &str = "#!/bin/sh
# Random starts, stops, kills, policies, priorities and reloads for so many seconds (300); results go to results/soak-cuda.*. See
# benches/soak.py --help.
here=$(cd \"$(dirname \"$0\")\" && pwd) || exit 3
mkdir -p \"$here/results\" || exit 3
secs=${1:-300}
[ $# -gt 0 ] && shift
exec python3 \"$here/benches/soak.py\" --secs \"$secs\" --platform cuda --bin \"$here/bin\" --program \"$here/bin/soak-work\" \\
    --out \"$here/results/soak-cuda.jsonl\" --svg \"$here/results/soak-cuda.svg\" \"$@\"
";

const README: &str = "xsched, to be measured and tried on this machine.

Needs: an NVIDIA driver, Python 3.11 or newer; PyTorch, torchvision and transformers for the workloads; glibc 2.34 or newer.

  ./bench.sh --quick             everything in a few seconds each: does it work here?
  ./bench.sh --part K/N          the K-th of N parts of the measurements, each under 8 minutes where N is 12 or more
  ./bench.sh --gpus 4 --part K/N the same on four GPUs at a time: N of 4 is enough
  ./bench.sh --only coloc        one of them; ./bench.sh --help has the names
  ./compat.sh --part K/N         real programs, bare and under xsched, compared
  bin/xsched check               does xsched work with this machine's PyTorch?
  ./hip.sh --quick, ./hip.sh     HIP programs on a software HIP runtime over this machine's driver, under 8 minutes
  ./soak.sh SECS                 programs that come and go at random under one daemon; are results right, is memory flat?
  python3 benches/cuda/report.py results
                                 everything measured so far, as JSON, Markdown and plots

A command that ends with exit status 75 ran out of its time: the same command goes on where it stopped. What is measured
already is not measured again. Nothing is installed, and no setting of a GPU is touched; MPS is run from a private folder.

bin/      xsched, its libraries and the C programs        benches/, testing/    what uses them
hip/      the software HIP runtime and its programs
results/  what was measured                              COMMIT                the sources' commit
";

/// Makes the folder, or brings it up to date; `results/` in it is left alone.
pub(crate) fn run(root: &Path, folder: &Path, contents: &Contents) -> Result<(), String> {
    refuse_foreign(folder)?;
    release::build(root)?;
    if contents.soak {
        release::build_more(root, &["-p", "xsched-decisions", "--bin", "decision"])?;
    }
    let bin = folder.join("bin");
    for old in ["bin", "benches", "docs", "examples", "hip", "python", "testing"] {
        remove(&folder.join(old))?;
    }
    create(&bin)?;
    let release = target_folder(root).join("release");
    for name in ["xsched"].into_iter().chain(LIBRARIES) {
        let to = bin.join(name);
        copy(&release.join(name), &to)?;
        strip(&to)?;
        glibc_is_old_enough(&to, tree::GLIBC)?;
    }
    link_original(&bin)?;
    for path in contents.carried {
        let (from, to) = (root.join(path), folder.join(path));
        if from.is_file() {
            create(to.parent().unwrap_or(folder))?;
            copy(&from, &to)?;
        } else if from.exists() {
            copy_tree(&from, &to)?;
        }
    }
    for source in contents.compiled.iter().flat_map(|f| c_files(&root.join(f))) {
        compile::<&str>(root, &source, &bin.join(source.file_stem().unwrap_or_default()), &[])?;
    }
    let (platform, programs) = contents.api;
    for name in programs {
        let source = root.join(format!("testing/programs/capi/{name}.c"));
        compile(root, &source, &bin.join(format!("capi-{name}")), &api_flags(root, &bin, platform))?;
    }
    if contents.soak {
        compile(root, &root.join("testing/programs/suite/work.c"), &bin.join("soak-work"), &["-DPLATFORM=\"cuda.h\""])?;
        let probe = bin.join("decision");
        copy(&release.join("decision"), &probe)?;
        strip(&probe)?;
    }
    for (source, name) in contents.libraries {
        compile(root, &root.join(source), &bin.join(name), &["-shared", "-fPIC"])?;
    }
    let mut binaries = files(&bin)?;
    binaries.retain(|file| !file.is_symlink());
    if contents.hip_runtime {
        binaries.extend(lay_out_hip(root, &folder.join("hip"))?);
    }
    for file in binaries {
        glibc_is_old_enough(&file, GLIBC)?;
    }
    for (name, text) in contents.top {
        write(&folder.join(name), text)?;
        if name.ends_with(".sh") {
            executable(&folder.join(name))?;
        }
    }
    write(&folder.join("COMMIT"), &format!("{}\n", commit(root)?))?;
    let bytes = size(folder, Path::new("results"))?;
    if bytes > LIMIT_BYTES {
        return Err(format!("{} holds {} MiB, more than {}", folder.display(), bytes >> 20, LIMIT_BYTES >> 20));
    }
    println!("{}: {:.1} MiB", folder.display(), bytes as f64 / f64::from(1 << 20));
    Ok(())
}

/// Makes the links of [`ORIGINAL`] in a folder that has what they lead to.
fn link_original(folder: &Path) -> Result<(), String> {
    for (name, target) in ORIGINAL {
        let link = folder.join(name);
        std::os::unix::fs::symlink(target, &link).map_err(|e| format!("{}: {e}", link.display()))?;
    }
    Ok(())
}

/// Refuses a folder with other files than a bundle's, since a bundle replaces them.
fn refuse_foreign(folder: &Path) -> Result<(), String> {
    let foreign = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if foreign && !folder.join("COMMIT").exists() {
        return Err(format!("{} is not empty and no bundle: name another folder", folder.display()));
    }
    Ok(())
}

/// Lays out the software HIP runtime, and the benchmark's programs, which `benches/hip/place.py` builds against it. Returns all files.
fn lay_out_hip(root: &Path, folder: &Path) -> Result<Vec<PathBuf>, String> {
    hip_runtime::run(root, folder, hip_runtime::Built::Release)?;
    // The bundle has one in `bin` already.
    fs::remove_file(folder.join("xsched")).map_err(|e| format!("{}/xsched: {e}", folder.display()))?;
    for file in files(folder)? {
        strip(&file)?;
    }
    let mut build = Command::new("python3");
    build.arg(root.join("benches/hip/place.py")).arg(folder).env("PYTHONDONTWRITEBYTECODE", "1");
    quietly(&mut build, "apt-get install python3")?;
    files(folder)
}

pub(crate) fn strip(file: &Path) -> Result<(), String> {
    quietly(Command::new("strip").arg("--strip-unneeded").arg(file), "apt-get install binutils")
}

/// Compiles a C program or library. The product names its sources by their paths in the repository.
fn compile<F: AsRef<OsStr>>(root: &Path, source: &Path, output: &Path, flags: &[F]) -> Result<(), String> {
    let mut command = Command::new("gcc");
    command.arg(format!("-ffile-prefix-map={}/=", root.display()));
    command.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(output).arg(source).args(flags);
    command.args(["-ldl", "-lpthread", "-lm"]);
    quietly(&mut command, "apt-get install gcc libc6-dev")
}

/// Compiler options for a program of the C API that finds its libraries beside itself.
fn api_flags(root: &Path, bin: &Path, platform: &str) -> Vec<String> {
    vec![
        format!("-DPLATFORM=\"{platform}.h\""),
        "-Wno-unused-function".into(),
        format!("-I{}", root.join("include").display()),
        format!("-L{}", bin.display()),
        "-Wl,-rpath,$ORIGIN".into(),
        "-lpreempt".into(),
        format!("-lhal{platform}"),
    ]
}

/// Fails if a file needs a newer glibc than this.
pub(crate) fn glibc_is_old_enough(file: &Path, limit: (u32, u32)) -> Result<(), String> {
    let output = Command::new("objdump").arg("-T").arg(file).output().map_err(|e| format!("objdump: {e}"))?;
    match newest_glibc(&String::from_utf8_lossy(&output.stdout)) {
        Some(found) if found > limit => {
            Err(format!("{} needs glibc {}.{}: build it on an older system", file.display(), found.0, found.1))
        }
        _ => Ok(()),
    }
}

/// Newest `GLIBC_x.y` in a list of symbols.
fn newest_glibc(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let mut numbers = rest[..end].split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

/// Hash of the commit, followed by `-dirty` if the working tree differs from it.
fn commit(root: &Path) -> Result<String, String> {
    let mut command = Command::new("git");
    let output = command.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(root).output();
    let output = output.map_err(|e| format!("git: {e}"))?;
    if !output.status.success() {
        return Ok("unknown".into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(crate) fn target_folder(root: &Path) -> PathBuf {
    // A relative path counts from the folder where cargo was called, which is the root.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// Runs a command. Its output is printed only if it fails.
pub(crate) fn quietly(command: &mut Command, cure: &str) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("{name}: {error}; {cure}")),
    }
}

/// Returns a C file, or those directly in a folder.
fn c_files(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let mut found: Vec<PathBuf> = files(place).unwrap_or_default();
    found.retain(|f| f.extension() == Some(OsStr::new("c")));
    found.sort();
    found
}

/// Files directly in a folder.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(entries.flatten().map(|e| e.path()).filter(|p| p.is_file()).collect())
}

pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    create(to)?;
    for entry in fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == "__pycache__" {
            continue;
        }
        if source.is_symlink() {
            let link = fs::read_link(&source).and_then(|to| std::os::unix::fs::symlink(to, &target));
            link.map_err(|e| format!("{}: {e}", target.display()))?;
        } else if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            copy(&source, &target)?;
        }
    }
    Ok(())
}

/// Size of all files below a folder, in bytes, without one of its folders.
fn size(folder: &Path, but: &Path) -> Result<u64, String> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
        let path = entry.path();
        if path.strip_prefix(folder) == Ok(but) {
            continue;
        }
        bytes += if path.is_dir() { size(&path, Path::new(""))? } else { entry.metadata().map_or(0, |m| m.len()) };
    }
    Ok(bytes)
}

fn executable(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(|e| format!("{}: {e}", path.display()))
}

pub(crate) fn create(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

pub(crate) fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", path.display())),
        _ => Ok(()),
    }
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_original_are_those_of_the_page_and_lead_to_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["xsched", "libxsched.so"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        link_original(folder.path()).unwrap();
        let page = include_str!("../../docs/guide/coming-from-xsched.md");
        for (name, target) in ORIGINAL {
            assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), target);
            assert!(page.contains(&format!("`{name}")) || page.contains(&format!("={name}`")), "{name}");
        }
    }

    #[test]
    fn the_newest_glibc_is_found() {
        let symbols = "0000 DF *UND* 0000 (GLIBC_2.2.5) free\n0000 DF *UND* 0000 (GLIBC_2.34) dlopen\n GLIBC_2.9 pipe2";
        assert_eq!(newest_glibc(symbols), Some((2, 34)));
        assert_eq!(newest_glibc("nothing GLIBC_PRIVATE"), None);
    }
}
