//! `cargo xtask hip-runtime [--debug] DIR`: lays out the software HIP runtime as `libamdhip64.so.5`, `.so.6` and `.so.7`, for use with
//! `LD_LIBRARY_PATH=DIR`. The command `xsched`, which runs the simulated device, lies beside them.
//!
//! All three libraries are linked from one archive (`testing/stand-ins/xsched-fakehip`) and a small assembly file each, which is generated here: every
//! name of that major version (`testing/ladders/hip/symbols.txt`) jumps to its implementation, or to a function that reports its lack. This leaves
//! the versions of symbols to the linker; Rust cannot set them in its own shared libraries.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAMES: &str = "testing/ladders/hip/symbols.txt";
const MAJORS: [u32; 3] = [5, 6, 7];
/// System libraries that the archive needs.
const SYSTEM: [&str; 3] = ["-ldl", "-lpthread", "-lm"];
/// Functions that are called through the exported symbol, in the order of the library's `Plt`.
const REENTERED: [&str; 3] = ["hipMalloc", "hipMemcpyAsync", "hipModuleLaunchKernel"];

/// Symbol of the list.
struct Name<'a> {
    node: &'a str,
    name: &'a str,
    /// First major version that has the symbol.
    since: u32,
    /// Last major version that has the symbol.
    last: u32,
}

/// Build that the archive and `xsched` come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Built {
    /// Build of [`crate::release::DEBUG`].
    Debug,
    /// The release.
    Release,
}

/// Builds and lays out everything.
pub(crate) fn run(root: &Path, folder: &Path, built: Built) -> Result<(), String> {
    let text = std::fs::read_to_string(root.join(NAMES)).map_err(|e| format!("{NAMES}: {e}"))?;
    let names = read(&text)?;
    let target = crate::test::target_folder(root);
    let built = match built {
        Built::Debug => {
            crate::release::build_debug(root)?;
            target.join("debug")
        }
        Built::Release => {
            crate::release::build(root)?;
            target.join("release")
        }
    };
    let archive = built.join("libfakehip.a");
    let implemented = implemented(&archive)?;
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let folder = folder.canonicalize().map_err(|e| format!("{}: {e}", folder.display()))?;
    for major in MAJORS {
        link(&folder, &archive, major, &names, &implemented)?;
    }
    place(&built.join("xsched"), &folder.join("xsched"))?;
    println!("{}: libamdhip64.so.5, .so.6, .so.7, xsched", folder.display());
    Ok(())
}

/// Copies a program over an older one that may be running.
fn place(from: &Path, to: &Path) -> Result<(), String> {
    let new = to.with_extension("new");
    std::fs::copy(from, &new).map_err(|e| format!("{}: {e}", from.display()))?;
    std::fs::rename(&new, to).map_err(|e| format!("{}: {e}", to.display()))
}

fn read(text: &str) -> Result<Vec<Name<'_>>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let name = |line| match str::split_whitespace(line).collect::<Vec<_>>()[..] {
        [node, name, since] => Some(Name { node, name, since: since.parse().ok()?, last: u32::MAX }),
        [node, name, since, last] => Some(Name { node, name, since: since.parse().ok()?, last: last.parse().ok()? }),
        _ => None,
    };
    lines.map(|line| name(line).ok_or_else(|| format!("{NAMES}: {line:?} is not NODE NAME FIRST [LAST]"))).collect()
}

/// Names of functions that the archive implements.
fn implemented(archive: &Path) -> Result<BTreeSet<String>, String> {
    let output = Command::new("nm").args(["--defined-only", "--extern-only"]).arg(archive).output();
    let output = output.map_err(|e| format!("nm (package binutils): {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: BTreeSet<String> =
        text.lines().filter_map(|line| line.rsplit_once(" T fakehip_").map(|(_, name)| name.to_string())).collect();
    if names.is_empty() { Err(format!("{}: no entry points in it", archive.display())) } else { Ok(names) }
}

/// Links one shared library from trampolines, version script and archive.
fn link(
    folder: &Path,
    archive: &Path,
    major: u32,
    names: &[Name<'_>],
    implemented: &BTreeSet<String>,
) -> Result<(), String> {
    let mine: Vec<&Name<'_>> = names.iter().filter(|name| (name.since..=name.last).contains(&major)).collect();
    let (assembly, script) = (assembly(major, &mine, implemented), script(&mine));
    let write = |suffix: &str, text: String| -> Result<PathBuf, String> {
        let path = folder.join(format!("hip{major}.{suffix}"));
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    };
    let (source, map) = (write("s", assembly)?, write("map", script)?);
    let library = folder.join(format!("libamdhip64.so.{major}"));
    let new = folder.join(format!("libamdhip64.so.{major}.new"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-o"]).arg(&new).arg(&source).arg("-Wl,--whole-archive").arg(archive);
    gcc.arg("-Wl,--no-whole-archive").args(SYSTEM).args(["-static-libgcc", "-Wl,--gc-sections", "-Wl,-z,nodelete"]);
    gcc.arg(format!("-Wl,-soname,libamdhip64.so.{major}"));
    gcc.arg(format!("-Wl,--version-script={}", map.display()));
    let linked = succeed(&mut gcc);
    for path in [source, map] {
        // A file that stays does no harm.
        let _ = std::fs::remove_file(path);
    }
    linked?;
    std::fs::rename(&new, &library).map_err(|e| format!("{}: {e}", library.display()))
}

/// Version script: `hip_4.2 { global: …; local: *; }; hip_4.3 { global: …; } hip_4.2; …`, with each name in the node of the version that
/// introduced it.
fn script(names: &[&Name<'_>]) -> String {
    let mut nodes: Vec<&str> = names.iter().map(|name| name.node).collect();
    nodes.dedup();
    let (mut out, mut before) = (String::new(), None::<&str>);
    for node in nodes {
        let _ = writeln!(out, "hip_{node} {{\nglobal:");
        for name in names.iter().filter(|name| name.node == node) {
            let _ = writeln!(out, "    {};", name.name);
        }
        match before {
            // Counts for tests, which no real runtime has.
            None => out.push_str("    fakehipGetCounters;\nlocal:\n    *;\n};\n\n"),
            Some(before) => {
                let _ = writeln!(out, "}} hip_{before};\n");
            }
        }
        before = Some(node);
    }
    out
}

/// Entry points, their list, and the constructor that tells the library its version.
fn assembly(major: u32, names: &[&Name<'_>], implemented: &BTreeSet<String>) -> String {
    let mut out = String::from("    .intel_syntax noprefix\n    .text\n");
    for Name { name, .. } in names {
        let _ = writeln!(out, "    .globl {name}\n    .type {name}, @function\n{name}:\n.Lexport_{name}:");
        if implemented.contains(*name) {
            let _ = writeln!(out, "    jmp fakehip_{name}@PLT");
        } else {
            let _ = writeln!(out, "    lea rdi, .Lname_{name}[rip]\n    jmp fakehip_unsupported@PLT");
        }
        let _ = writeln!(out, "    .size {name}, .-{name}");
    }
    for name in REENTERED {
        let _ = writeln!(out, ".Lplt_{name}:\n    jmp {name}@PLT");
    }
    let _ = writeln!(
        out,
        ".Lstart:\n    mov edi, {major}\n    lea rsi, .Lsymbols[rip]\n    mov edx, {}\n    lea rcx, .Lplt[rip]\n    \
         jmp fakehip_start@PLT",
        names.len()
    );
    // A local label, since another library may define the same global symbol.
    out.push_str("    .section .init_array,\"aw\"\n    .quad .Lstart\n    .section .data.rel.ro,\"aw\"\n.Lplt:\n");
    for name in REENTERED {
        let _ = writeln!(out, "    .quad .Lplt_{name}");
    }
    out.push_str(".Lsymbols:\n");
    for Name { node, name, .. } in names {
        // The exported function, as the loader finds it in the real runtime, whatever is loaded before it.
        let _ = writeln!(out, "    .quad .Lname_{name}, .Lexport_{name}, {}", number(node));
    }
    out.push_str("    .section .rodata\n");
    for Name { name, .. } in names {
        let _ = writeln!(out, ".Lname_{name}:\n    .asciz \"{name}\"");
    }
    out.push_str("    .section .note.GNU-stack,\"\",@progbits\n");
    out
}

/// Number of a version: 604 for `6.4`.
fn number(node: &str) -> u32 {
    let (major, minor) = node.split_once('.').unwrap_or((node, "0"));
    major.parse().unwrap_or(0) * 100 + minor.parse().unwrap_or(0)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_inherits_the_one_before() {
        let names = read("4.2 a 5\n4.2 b 5\n5.0 c 5\n6.1 d 6\n").unwrap();
        assert_eq!((names[0].last, read("4.2 a 5 6").unwrap()[0].last), (u32::MAX, 6));
        let old: Vec<&Name<'_>> = names.iter().filter(|name| name.since <= 5).collect();
        let script = script(&old);
        assert!(script.contains("hip_4.2 {") && script.contains("} hip_4.2;") && !script.contains("hip_6.1"));
        assert_eq!(script.matches("local:").count(), 1);
    }

    #[test]
    fn names_without_code_say_so() {
        let names = read("4.2 a 5\n4.2 b 5\n").unwrap();
        let text = assembly(5, &names.iter().collect::<Vec<_>>(), &BTreeSet::from(["a".to_string()]));
        assert!(text.contains("a:\n    jmp fakehip_a@PLT") && text.contains("lea rdi, .Lname_b[rip]"));
        assert!(text.contains(".quad .Lname_a, .Lexport_a, 402"));
    }

    #[test]
    fn a_broken_line_is_found() {
        assert!(read("4.2 a\n").is_err());
    }
}
