//! `cargo xtask rocm [--suite SUITE] DIR`: makes a folder with AMD's own libraries of a newer ROCm than this machine's, from a suite of
//! Debian: sid for ROCm 6.4, experimental for 7.2. Nothing is installed. The ladder `testing/ladders/hip/rocm/rocm.py` runs on this folder.
//!
//! apt resolves, downloads and checks the packages, with its own lists and cache; dpkg-deb unpacks them. The folder contains `root` (the
//! packages' files, with their C library and its loader), `amd` (AMD's HIP runtime, moved out of `root`, so that programs find the software
//! runtime instead), `bin` (the packaged compiler, started with the packaged loader) and `versions.txt`: lines `NAME PACKAGE VERSION`, then
//! `skipped NAME: WHY`.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::apt::{Apt, files, remove, said};

/// Suite with ROCm 6.4.
pub(crate) const SUITE: &str = "sid";
/// Folder in which packages put libraries, in `root`.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Libraries to fetch: name, name of the package without the number at its end, and packages with its headers.
const WANTED: [(&str, &str, &[&str]); 9] = [
    ("HIP", "libamdhip64-", &["libamdhip64-dev"]),
    ("hiprtc", "libhiprtc", &[]),
    ("rocBLAS", "librocblas", &["librocblas-dev"]),
    ("hipBLAS", "libhipblas", &["libhipblas-dev", "libhipblas-common-dev"]),
    ("hipBLASLt", "libhipblaslt", &["libhipblaslt-dev"]),
    ("MIOpen", "libmiopen", &["libmiopen-dev"]),
    ("rocFFT", "librocfft", &["librocfft-dev"]),
    ("hipFFT", "libhipfft", &["libhipfft-dev"]),
    ("RCCL", "librccl", &["librccl-dev"]),
];
/// Programs of the compiler for which `bin` gets a script.
const COMPILER: [&str; 4] = ["clang", "lld", "ld.lld", "clang-offload-bundler"];

/// Folders that were made before: those of the variable ROCM, with colons between, or all in `target/rocm`.
pub(crate) fn folders(target: &Path) -> Vec<PathBuf> {
    let given = std::env::var_os("ROCM").map(|list| std::env::split_paths(&list).collect());
    let all: Vec<PathBuf> = given.unwrap_or_else(|| files(&target.join("rocm")));
    all.into_iter().filter(|folder| folder.join("versions.txt").exists()).collect()
}

/// Reads the name of a suite.
///
/// # Errors
/// One line, if it is no such name.
pub(crate) fn suite(text: &str) -> Result<String, String> {
    match is_suite(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("'{text}' is no suite of Debian: use sid (ROCm 6.4) or experimental (7.2), for one")),
    }
}

/// Reports whether a name consists of letters and dashes, as names of suites do.
fn is_suite(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('-') && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// Makes the folder, from the start if it is there.
pub(crate) fn run(suite: &str, folder: &Path) -> Result<(), String> {
    let versions = folder.join("versions.txt");
    // A run that was interrupted leaves `apt`.
    let ours = versions.exists() || folder.join("apt").exists();
    if !ours && fs::read_dir(folder).is_ok_and(|mut all| all.next().is_some()) {
        return Err(format!("{}: is not empty, and no folder of this task", folder.display()));
    }
    fs::create_dir_all(folder).map_err(|e| said(folder, &e))?;
    let folder = folder.canonicalize().map_err(|e| said(folder, &e))?;
    if versions.exists() {
        fs::remove_file(&versions).map_err(|e| said(&versions, &e))?;
    }
    for old in ["root", "amd", "bin", "apt"] {
        remove(&folder.join(old))?;
    }
    let apt = Apt::new(&folder.join("apt"), suite)?;
    let (chosen, mut skipped) = apt.choose()?;
    let packages: Vec<&str> = chosen.iter().map(|(_, package, _)| package.as_str()).collect();
    apt.install(&["--download-only"], &packages)?;
    skipped.extend(apt.extras(&chosen));
    unpack(&apt.archives(), &folder)?;
    let mut text = format!("# {suite} of Debian, by cargo xtask rocm\n");
    for (name, package, _) in &chosen {
        let _ = writeln!(text, "{name} {package} {}", apt.version(package)?);
    }
    let _ = writeln!(text, "libc libc6 {}", apt.version("libc6")?);
    for (name, why) in &skipped {
        let _ = writeln!(text, "skipped {name}: {why}");
    }
    compiler(&folder)?;
    remove(&folder.join("apt"))?;
    fs::write(&versions, &text).map_err(|e| said(&versions, &e))?;
    print!("{}:\n{text}", folder.display());
    Ok(())
}

/// Chosen packages: name, package, packages of its headers.
type Chosen = Vec<(&'static str, String, &'static [&'static str])>;
/// Names without a package, each with the reason.
type Skipped = Vec<(String, String)>;

impl Apt {
    /// Chooses the package for each name, among those that can be installed together.
    fn choose(&self) -> Result<(Chosen, Skipped), String> {
        let names = self.ask("apt-cache", &["pkgnames", "lib"])?;
        let (mut chosen, mut skipped) = (Chosen::new(), Skipped::new());
        for (name, prefix, headers) in WANTED {
            let numbered = names.lines().filter_map(|line| line.strip_prefix(prefix)?.parse::<u32>().ok());
            let Some(number) = numbered.max() else {
                skipped.push((name.into(), format!("no package {prefix}N in {}", self.suite)));
                continue;
            };
            let package = format!("{prefix}{number}");
            let so_far = chosen.iter().map(|(_, package, _): &(_, String, _)| package.as_str());
            match self.install(&["-s"], &so_far.chain([package.as_str()]).collect::<Vec<_>>()) {
                Ok(_) => chosen.push((name, package, headers)),
                Err(why) => skipped.push((name.into(), format!("{package}: {why}"))),
            }
        }
        if chosen.is_empty() {
            Err(format!("{}: none of AMD's libraries is in it", self.suite))
        } else {
            Ok((chosen, skipped))
        }
    }

    /// Downloads the headers, and the compiler of the release that MIOpen is made for, without the packages that they depend on.
    fn extras(&self, chosen: &Chosen) -> Skipped {
        let headers = chosen.iter().flat_map(|(_, _, headers)| headers.iter().map(ToString::to_string));
        let release = files(&self.archives()).into_iter().find_map(|path| {
            let name = path.file_name()?.to_str()?.strip_prefix("libclang-common-")?.to_string();
            Some(name.split('-').next()?.to_string())
        });
        let compiler = release.into_iter().flat_map(|n| {
            ["clang-", "libclang-cpp", "lld-", "rocm-device-libs-", "clang-tools-"]
                .map(|package| format!("{package}{n}"))
        });
        let download = |package: String| match self.ask("apt-get", &["download", "-q", "-t", &self.suite, &package]) {
            Ok(_) => None,
            Err(why) => Some((package, why)),
        };
        headers.chain(compiler).filter_map(download).collect()
    }

    /// Version of a package that was downloaded.
    fn version(&self, package: &str) -> Result<String, String> {
        let start = format!("{package}_");
        let of = |path: PathBuf| {
            Some(path.file_name()?.to_str()?.strip_prefix(&start)?.split('_').next()?.replace("%3a", ":"))
        };
        files(&self.archives()).into_iter().find_map(of).ok_or(format!("{package}: not downloaded"))
    }
}

/// Unpacks all packages, and moves AMD's runtime out of them.
fn unpack(archives: &Path, folder: &Path) -> Result<(), String> {
    let (root, amd) = (folder.join("root"), folder.join("amd"));
    for made in [&root, &amd] {
        fs::create_dir_all(made).map_err(|e| said(made, &e))?;
    }
    for package in files(archives).iter().filter(|path| path.extension().is_some_and(|e| e == "deb")) {
        let status = Command::new("dpkg-deb").arg("-x").arg(package).arg(&root).status();
        if !status.map_err(|e| format!("dpkg-deb: {e}"))?.success() {
            return Err(format!("{}: cannot be unpacked", package.display()));
        }
        // Only the file's name, which contains the version, is used later; its contents would take space.
        fs::write(package, "").map_err(|e| said(package, &e))?;
    }
    for unused in ["doc", "man", "locale", "bug", "lintian"] {
        remove(&root.join("usr/share").join(unused))?;
    }
    let libraries = root.join(LIBRARIES);
    if !libraries.join(LOADER).exists() {
        return Err(format!("{}: no {LOADER}; the suite is too old", libraries.display()));
    }
    for path in files(&libraries) {
        let name = path.file_name().unwrap_or_default().to_os_string();
        if name.to_string_lossy().starts_with("libamdhip64.so") {
            fs::rename(&path, amd.join(&name)).map_err(|e| said(&path, &e))?;
        }
    }
    // Some of the libraries search for others in `$ORIGIN/../lib`.
    let link = root.join("usr/lib/lib");
    std::os::unix::fs::symlink("x86_64-linux-gnu", &link).map_err(|e| said(&link, &e))
}

/// Writes scripts that start the packaged compiler with the packaged loader: the compiler's files are not at the paths that it was built
/// for.
fn compiler(folder: &Path) -> Result<(), String> {
    let Some(llvm) = files(&folder.join("root/usr/lib")).into_iter().find(|path| path.join("bin/clang").exists())
    else {
        return Ok(());
    };
    let (bin, name) = (folder.join("bin"), llvm.file_name().unwrap_or_default().to_string_lossy().into_owned());
    fs::create_dir_all(&bin).map_err(|e| said(&bin, &e))?;
    let release = name.rsplit('-').next().unwrap_or_default();
    for program in COMPILER {
        let options = if program == "clang" { clang_options(release) } else { String::new() };
        let text = format!(
            "#!/bin/sh\nbin=$(cd \"$(dirname \"$0\")\" && pwd)\nroot=${{bin%/*}}/root\nlibraries=$root/{LIBRARIES}\n\
             llvm=$root/usr/lib/{name}\n{options}exec \"$libraries/{LOADER}\" --library-path \"$libraries\" \
             --argv0 \"$bin/{program}\" \"$llvm/bin/{program}\" \"$@\"\n"
        );
        let path = bin.join(program);
        fs::write(&path, text).map_err(|e| said(&path, &e))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(|e| said(&path, &e))?;
    }
    Ok(())
}

/// Options with the paths of everything that would be in `/usr`; `-isystem /usr/include`, which MIOpen passes, would hide the C library's
/// headers from those of C++. The options are left out where clang calls itself (`-cc1`).
fn clang_options(release: &str) -> String {
    format!(
        "if [ \"$1\" != -cc1 ]; then\n    count=$#\n    while [ $count -gt 0 ]; do\n        count=$((count - 1))\n        \
         if [ \"$1 $2\" = '-isystem /usr/include' ]; then\n            count=$((count - 1))\n            shift\n        \
         else\n            set -- \"$@\" \"$1\"\n        fi\n        shift\n    done\n    \
         set -- -no-canonical-prefixes -B\"$bin\" -resource-dir \"$llvm/lib/clang/{release}\" --rocm-path=\"$root/usr\" \
         --rocm-device-lib-path=\"$llvm/lib/clang/{release}/amdgcn/bitcode\" -idirafter \"$root/usr/include\" \"$@\"\nfi\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_plain_names() {
        assert!(is_suite("sid") && is_suite("experimental") && is_suite("trixie-backports"));
        assert!(!is_suite("") && !is_suite("--suite") && !is_suite("a b") && !is_suite("../x"));
    }

    #[test]
    fn a_folder_of_something_else_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("xtask-rocm-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mine"), "").unwrap();
        let error = run("sid", &folder).unwrap_err();
        assert!(error.contains("not empty") && folder.join("mine").exists(), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
