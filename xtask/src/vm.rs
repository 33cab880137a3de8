//! `cargo xtask vm`: a Debian guest in QEMU, with systemd as process 1, in which units, several users, containers' namespaces and
//! reloads are tried ([`guest.py`](../../testing/machines/vm/guest.py)). The guest is made once and kept in the target folder.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::bundle::{copy, create, remove, target_folder};
use crate::package;

pub(crate) const HELP: &str = "\
Boots a Debian guest in QEMU and tries in it what needs systemd, several users and namespaces: package and archive, the units, reloads,
restarts, the watchdog, pools with stand-ins for NVIDIA's programs, containers of Podman with and without root. The processor is emulated, which takes some
minutes; --kvm uses the machine's own where /dev/kvm works. SUITE is one of Debian's: bookworm (the default), trixie, sid. Needs
qemu-system-x86, mmdebstrap, genext2fs and e2fsprogs, and makes the guest at the first time (400 MB).";

/// Packages of the guest besides a minimal Debian.
const PACKAGES: &str = "systemd-sysv,dbus,dbus-user-session,libpam-systemd,uidmap,linux-image-cloud-amd64,udev,procps,python3-minimal,libpython3-stdlib,\
    podman,crun,catatonit,fuse-overlayfs,apparmor";
/// Suites that may be tried.
pub(crate) const SUITES: [&str; 3] = ["bookworm", "trixie", "sid"];
/// Longest time that the guest may take.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// Beginning of the guest's lines on its console.
const MARK: &str = "XSCHED-VM: ";

/// Options of the command.
pub(crate) struct Options {
    /// Suite of Debian: one of [`SUITES`].
    pub(crate) suite: String,
    /// The machine's own processor is used, not an emulated one.
    pub(crate) kvm: bool,
}

/// Makes the guest if it is missing, boots it with the built programs, and prints its lines.
pub(crate) fn run(root: &Path, options: Options) -> Result<(), String> {
    for (program, package) in [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("mmdebstrap", "mmdebstrap"),
        ("genext2fs", "genext2fs"),
        ("resize2fs", "e2fsprogs"),
    ] {
        let there = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
        if !there.is_ok_and(|status| status.success()) {
            return Err(format!("{program} is not installed: apt-get install {package}"));
        }
    }
    let Options { suite, kvm } = options;
    let folder = target_folder(root).join("vm").join(&suite);
    create(&folder)?;
    let image = guest(&folder, &suite)?;
    let payload = payload(root, &folder)?;
    boot(&folder, &image, &payload, kvm)
}

fn done(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Disk of the guest; the kernel lies beside it.
fn guest(folder: &Path, suite: &str) -> Result<PathBuf, String> {
    let (image, fresh, of) = (folder.join("root.ext2"), folder.join("fresh.ext2"), folder.join("packages"));
    // A guest with other packages is made again.
    if image.exists() && std::fs::read_to_string(&of).is_ok_and(|had| had == PACKAGES) {
        return Ok(image);
    }
    println!("making the guest (Debian {suite}), once");
    let boot = folder.join("boot");
    remove(&boot)?;
    create(&boot)?;
    let unit = folder.join("try.service");
    let text = "[Unit]\nAfter=multi-user.target systemd-logind.service\n[Service]\nType=oneshot\n\
        ExecStart=/bin/sh -c 'mkdir -p /opt/x && tar xf /dev/vdb -C /opt/x && /opt/x/guest.py 2>&1 | \
        while read -r line; do echo \"XSCHED-VM: $line\" >/dev/ttyS0; done'\n\
        ExecStopPost=/bin/systemctl poweroff --force --force\n[Install]\nWantedBy=multi-user.target\n";
    std::fs::write(&unit, text).map_err(|e| format!("{}: {e}", unit.display()))?;
    let hook = |text: String| format!("--customize-hook={text}");
    done(
        Command::new("mmdebstrap")
            .args(["--quiet", "--variant=minbase", "--format=ext2"])
            .arg(format!("--include={PACKAGES}"))
            // A mirror's copy of sid may be older than sid's lists allow.
            .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
            .arg(hook(format!("copy-out /boot '{}'", folder.display())))
            .arg(hook(format!("upload '{}' /etc/systemd/system/xsched-try.service", unit.display())))
            .arg(hook("chroot \"$1\" systemctl enable xsched-try.service".into()))
            // Login prompts and apt's timer have no use here.
            .arg(hook(
                "chroot \"$1\" systemctl mask getty@tty1.service serial-getty@ttyS0.service apt-daily.timer".into(),
            ))
            .arg(suite)
            .arg(&fresh),
    )?;
    done(Command::new("truncate").args(["-s", "1G"]).arg(&fresh))?;
    done(Command::new("resize2fs").arg(&fresh).stdout(Stdio::null()).stderr(Stdio::null()))?;
    std::fs::write(&of, PACKAGES).map_err(|e| format!("{}: {e}", of.display()))?;
    std::fs::rename(&fresh, &image).map_err(|e| format!("{}: {e}", image.display()))?;
    Ok(image)
}

/// Makes a disk that is a tar archive: the package in two versions, the archive, and the programs that are tested with them.
fn payload(root: &Path, folder: &Path) -> Result<PathBuf, String> {
    done(Command::new("cargo").args(["build", "--quiet", "--workspace"]).current_dir(root))?;
    let (built, stage) = (target_folder(root).join("debug"), folder.join("payload"));
    remove(&stage)?;
    create(&stage.join("driver"))?;
    for (version, name) in [("0.0.1", "old.deb"), ("0.0.2", "new.deb")] {
        let release = package::Release::of(root).called(version);
        let written = package::write(root, &built, &folder.join("package"), &folder.join("package/out"), &release)?;
        copy(&written.deb, &stage.join(name))?;
        copy(&written.archive, &stage.join("xsched.tar.gz"))?;
    }
    // The simulated device, and stand-ins for the parts of NVIDIA's driver. They find each other in one folder.
    let stand_ins = [
        ("xsched", "xsched"),
        ("libsimdev.so", "libsimdev.so"),
        ("libfakecuda.so", "driver/libcuda.so.1"),
        ("nvidia-cuda-mps-control", "driver/nvidia-cuda-mps-control"),
        ("nvidia-cuda-mps-server", "driver/nvidia-cuda-mps-server"),
    ];
    for (name, to) in stand_ins {
        copy(&built.join(name), &stage.join(to))?;
        done(Command::new("strip").arg("--strip-debug").arg(stage.join(to)))?;
    }
    for script in ["guest.py", "tools.py", "package.py", "pools.py", "engines.py"] {
        copy(&root.join("testing/machines/vm").join(script), &stage.join(script))?;
    }
    let cc = |source: &str, to: &str, flags: &[&str]| {
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1"]).arg(root.join("testing").join(source)).arg("-o").arg(stage.join(to));
        cc.arg("-I").arg(root.join("crates/xsched-simdev/include")).arg("-L").arg(&stage).args(flags);
        done(cc.args(["-lpthread", "-lm", "-ldl"]))
    };
    cc("programs/hazards/steady.c", "steady", &["-lsimdev", "-Wl,-rpath,/opt/x"])?;
    cc("programs/cuda/pooled.c", "pooled", &[])?;
    let include = format!("-I{}", root.join("include").display());
    cc("programs/domains/rights_scheduler.c", "librights.so", &["-shared", "-fPIC", &include])?;
    cc("programs/cuda/fakerm.c", "fakerm.so", &["-shared", "-fPIC"])?;
    cc("stand-ins/nvml/nvml.c", "libnvidia-ml.so.1", &["-shared", "-fPIC"])?;
    let archive = folder.join("payload.tar");
    done(Command::new("tar").arg("-C").arg(&stage).arg("-cf").arg(&archive).arg("."))?;
    Ok(archive)
}

/// Boots the guest and prints its lines. The guest's writes to its disks are discarded.
fn boot(folder: &Path, image: &Path, payload: &Path, kvm: bool) -> Result<(), String> {
    let newest = |prefix: &str| -> Result<PathBuf, String> {
        let boot = folder.join("boot");
        let files = std::fs::read_dir(&boot).map_err(|e| format!("{}: {e}", boot.display()))?;
        let names = files.filter_map(|file| Some(file.ok()?.path()));
        let is = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
        names.filter(is).max().ok_or_else(|| format!("{} has no {prefix}: remove {}", boot.display(), folder.display()))
    };
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(if kvm { ["-accel", "kvm"] } else { ["-accel", "tcg,thread=multi"] });
    qemu.args(["-cpu", "max", "-m", "1024", "-smp", "2", "-nodefaults", "-no-reboot", "-display", "none"]);
    qemu.args(["-serial", "stdio", "-snapshot", "-device", "virtio-rng-pci"]);
    qemu.arg("-kernel").arg(newest("vmlinuz")?).arg("-initrd").arg(newest("initrd")?);
    qemu.args(["-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.show_status=0 mitigations=off"]);
    for disk in [image, payload] {
        qemu.arg("-drive").arg(format!("file={},format=raw,if=virtio", disk.display()));
    }
    let child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let mut child = child.map_err(|e| format!("qemu-system-x86_64: {e}"))?;
    let console = child.stdout.take().ok_or("no console")?;
    let (tell, lines) = channel();
    let log = folder.join("console.log");
    let mut kept = std::fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let reader = std::thread::spawn(move || {
        let mut console = BufReader::new(console);
        let mut line = Vec::new();
        while console.read_until(b'\n', &mut line).is_ok_and(|got| got > 0) {
            let _ = kept.write_all(&line);
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if let Some(at) = text.find(MARK)
                && tell.send(text[at + MARK.len()..].to_owned()).is_err()
            {
                return;
            }
            line.clear();
        }
    });
    let outcome = follow(&lines, Instant::now() + PATIENCE);
    let _ = child.kill();
    let _ = child.wait();
    let _ = reader.join();
    outcome.map_err(|why| format!("{why}; the console is in {}", log.display()))
}

/// Prints the guest's lines up to the last one.
fn follow(lines: &std::sync::mpsc::Receiver<String>, until: Instant) -> Result<(), String> {
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                if let Some(end) = line.strip_prefix("end ") {
                    let failed = end.split(' ').nth(1).unwrap_or("?");
                    return if failed == "0" { Ok(()) } else { Err(format!("{failed} checks failed in the guest")) };
                }
            }
            Err(RecvTimeoutError::Timeout) => return Err("the guest takes too long".into()),
            Err(RecvTimeoutError::Disconnected) => return Err("the guest ended before it was through".into()),
        }
    }
}
