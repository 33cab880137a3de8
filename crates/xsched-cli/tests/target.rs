//! Programs that the library cannot be loaded into: they are started without it, and one line gives the reason.

mod common;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Place, copy_program, said};

/// Program that exits with 7 without the library, and with 8 with it.
const PROGRAM: &str = r#"#include <stdlib.h>
    int main(void) { return getenv("ATTACHED") ? 8 : 7; }"#;

fn run(place: &Place, program: &Path) -> Command {
    run_with(place, &[], program)
}

fn run_with(place: &Place, options: &[&str], program: &Path) -> Command {
    let library = place.join("stand-in.so");
    if !library.exists() {
        place.stand_in("stand-in.so");
    }
    let mut command = place.xsched(&["run", "--local", "hpf"]);
    command.args(options).arg("--").arg(program).env("XSCHED_PRELOAD", library);
    command
}

fn script(place: &Place, name: &str, text: &str) -> PathBuf {
    let path = place.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn an_ordinary_program_is_entered() {
    let place = Place::new();
    said(run(&place, &place.compile("ordinary", PROGRAM, &[]))).quiet(8);
    said(run(&place, &place.compile("no-pie", PROGRAM, &["-no-pie"]))).quiet(8);
    let stripped = place.compile("stripped", PROGRAM, &["-s"]);
    said(run_with(&place, &["--require"], &stripped)).quiet(8);
}

#[test]
fn what_a_static_program_starts_is_entered() {
    let place = Place::new();
    let launcher = r#"#include <unistd.h>
        int main(int count, char **words) { return count > 1 ? execv(words[1], words + 1) : 7; }"#;
    let ordinary = place.compile("ordinary", PROGRAM, &[]);
    for (name, flag) in [("static", "-static"), ("static-pie", "-static-pie")] {
        let program = place.compile(name, launcher, &[flag]);
        for options in [&[][..], &["--require"]] {
            said(run_with(&place, options, &program)).quiet(7);
            let mut command = run_with(&place, options, &program);
            command.arg(&ordinary);
            said(command).quiet(8);
        }
    }
}

#[test]
fn programs_of_other_machines_are_told_by_name() {
    let place = Place::new();
    let ordinary = std::fs::read(place.compile("ordinary", PROGRAM, &[])).unwrap();
    for (name, at, value, expected) in
        [("arm", 18, 183, "is made for another machine (aarch64)"), ("short", 4, 1, "is a 32-bit program")]
    {
        let mut bytes = ordinary.clone();
        bytes[at] = value;
        let path = place.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        // The end of a bare run depends on the machine (it may have an emulator); the line that it is bare does not.
        let answer = said(run(&place, &path));
        assert!(answer.err.contains(expected), "{answer:?}");
        said(run_with(&place, &["--require"], &path)).one_line(3, expected);
    }
}

#[test]
fn setuid_programs_run_bare() {
    let place = Place::new();
    let program = place.compile("setuid", PROGRAM, &[]);
    let folder_allows = !rustix::fs::statvfs(&program).unwrap().f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID);
    if !rustix::process::getuid().is_root() || !folder_allows {
        // Only root can make a program of another user.
        let passwd = Path::new("/usr/bin/passwd");
        let meta = passwd.metadata().expect("a setuid program of the system");
        assert_eq!((meta.mode() & 0o4000, meta.uid()), (0o4000, 0));
        let answer = said(run_with(&place, &["--require"], passwd));
        return answer.one_line(3, "is setuid");
    }
    chown(&program, Some(65534), Some(65534)).unwrap();
    for mode in [0o4755, 0o2755] {
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        said(run(&place, &program)).one_line(7, "is setuid, setgid or has file capabilities");
    }
    // For its owner the bit has no effect, and the loader preloads as usual.
    chown(&program, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    said(run(&place, &program)).quiet(8);
}

#[test]
fn a_loader_or_libc_that_the_library_cannot_work_with_is_noticed() {
    let place = Place::new();
    let asan = place.compile("asan", PROGRAM, &["-fsanitize=address"]);
    said(run(&place, &asan)).quiet(8);
    // This program brings options for the sanitizer; those of ASAN_OPTIONS, which `run` sets, are used all the same.
    let own = format!("{PROGRAM}\nconst char *__asan_default_options(void) {{ return \"detect_leaks=0\"; }}");
    said(run(&place, &place.compile("asan-own", &own, &["-fsanitize=address"]))).quiet(8);
    // The real loader under another name: the name in the program counts.
    let real = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    let real = Path::new(real.into_iter().find(|p| Path::new(p).exists()).unwrap());
    let with_loader = |name: &str, loader: &Path| {
        std::fs::create_dir_all(loader.parent().unwrap()).unwrap();
        copy_program(real, loader);
        place.compile(&format!("{name}-program"), PROGRAM, &[&format!("-Wl,--dynamic-linker={}", loader.display())])
    };
    let musl = with_loader("musl", &place.join("musl/ld-musl-x86_64.so.1"));
    said(run(&place, &musl)).one_line(7, "is linked to musl");
    let strange = with_loader("strange", &place.join("strange/linker64"));
    said(run(&place, &strange)).one_line(7, "the library needs glibc's loader");
    let old = with_loader("old", &place.join("old/ld-linux-x86-64.so.2"));
    said(run(&place, &old)).quiet(8);
    place.compile("old/libc.so.6", "int nothing;", &["-shared", "-fPIC", "-nostdlib"]);
    said(run(&place, &old)).one_line(7, "is linked to a glibc older than 2.28");
    let gone = with_loader("gone", &place.join("gone/ld-linux-x86-64.so.2"));
    std::fs::remove_dir_all(place.join("gone")).unwrap_or(());
    said(run(&place, &gone)).one_line(127, "its loader");
}

#[test]
fn scripts_are_followed_to_what_reads_them() {
    let place = Place::new();
    let check = "[ -n \"$ATTACHED\" ] && exit 8; exit 7";
    for (name, first) in [("sh", "#!/bin/sh"), ("env", "#!/usr/bin/env sh"), ("env-s", "#!/usr/bin/env -S X=1 sh -e")] {
        said(run(&place, &script(&place, name, &format!("{first}\n{check}\n")))).quiet(8);
    }
    // Without `#!` a shell reads the script.
    said(run(&place, &script(&place, "plain", &format!("{check}\n")))).quiet(8);
    // The interpreter is a script, whose own interpreter is a static program.
    let reader = place.compile("reader", PROGRAM, &["-static"]);
    let middle = script(&place, "middle", &format!("#!{}\n", reader.display()));
    let outer = script(&place, "outer", &format!("#!{}\n", middle.display()));
    said(run(&place, &outer)).quiet(7);
    // The interpreter of this one has a loader that cannot preload.
    let loader = place.join("strange/linker64");
    std::fs::create_dir_all(loader.parent().unwrap()).unwrap();
    let real = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    copy_program(Path::new(real.into_iter().find(|p| Path::new(p).exists()).unwrap()), &loader);
    let flag = format!("-Wl,--dynamic-linker={}", loader.display());
    let strange = place.compile("strange-reader", PROGRAM, &[&flag]);
    let middle = script(&place, "middle-strange", &format!("#!{}\n", strange.display()));
    let outer = script(&place, "outer-strange", &format!("#!{}\n", middle.display()));
    said(run(&place, &outer)).one_line(7, "strange-reader is loaded by");
    // A script that is its own interpreter.
    let circle = place.join("circle");
    script(&place, "circle", &format!("#!{}\n", circle.display()));
    let answer = said(run(&place, &circle));
    assert_eq!(answer.code, Some(126), "{answer:?}");
    assert!(answer.err.contains("too long a chain of scripts"), "{answer:?}");
}

#[test]
fn what_is_no_program_at_all_is_said() {
    let place = Place::new();
    let path = script(&place, "binary", "MZ\0\0 not for here");
    let answer = said(run(&place, &path));
    assert_eq!(answer.code, Some(126), "{answer:?}");
    assert!(answer.err.contains("is not an ELF program"), "{answer:?}");
}
