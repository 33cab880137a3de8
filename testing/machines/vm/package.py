"""The package and the archive in the guest: installed, used, upgraded under running programs, removed, nothing left."""

import os
import subprocess
from pathlib import Path

from tools import HERE, Steady, check, journal, programs, property_of, sh, until, xsched

PRELOAD = Path("/etc/ld.so.preload")
LIBRARY = "/usr/lib/xsched/libxsched.so"
OTHER = "/lib/x86_64-linux-gnu/libm.so.6"
# What changes by itself, or is the package manager's own or an engine's of containers.
OTHERS = ("/opt/x", "/var/log", "/var/lib/dpkg", "/var/lib/containers", "/var/cache", "/var/backups", "/var/tmp", "/tmp", "/home", "/root")
CHANGING = ("/var/lib/systemd/", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/subuid", "/etc/subgid", "/etc/mtab")
before = set()


def files():
    found = set()
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if not os.path.ismount(os.path.join(folder, name)) and not os.path.join(folder, name).startswith(OTHERS)]
        found |= {os.path.join(folder, name) for name in (*folders, *names)}
    kept = "/var/lib/systemd/deb-systemd-helper"
    return {path for path in found if path.startswith(kept) or not path.startswith(CHANGING)}


def left():
    """What is there now and was not before."""
    gone_soon = [path for path in Path("/run").iterdir() if path.name.startswith("xsched")]
    return sorted(files() - before) + [str(path) for path in gone_soon]


def deb(name):
    return sh("dpkg", "--install", str(HERE / name))


def install():
    before.update(files())
    code, text = deb("old.deb")
    check("the package installs", code == 0, text)
    check("its files are as it says", sh("dpkg", "--verify", "xsched") == (0, ""), sh("dpkg", "--verify", "xsched"))
    sh("systemctl", "preset", "xsched")
    now = (sh("systemctl", "is-enabled", "xsched")[1], property_of("ActiveState"))
    check("no daemon is enabled or started by that", now == ("disabled", "inactive"), now)
    check("its pages and completions are there", Path("/usr/share/man/man1/xsched.1.gz").exists() and "complete" in Path("/usr/share/bash-completion/completions/xsched").read_text())
    bob = Steady("bob")
    check("a user's program is scheduled without the service", until(lambda: "attached" in xsched("ps", user="bob")[1] or bob.pid() in programs("bob")), xsched("ps", user="bob"))
    check("it ends well", bob.end()[0] == 0)
    # Of the user's own daemon, which stays a while: the machine's is another.
    sh("pkill", "--full", "xsched daemon", user="bob")
    until(lambda: sh("pgrep", "--full", "xsched daemon")[0] != 0)


def upgrade():
    alice, bob = Steady("alice"), Steady("bob")
    pids = {alice.attached(), bob.attached()}
    was, folder = property_of("MainPID"), os.stat("/run/xsched").st_ino
    maps = Path(f"/proc/{alice.pid()}/maps")
    check("a program has the library mapped", f"{LIBRARY}\n" in maps.read_text(), maps.read_text()[-300:])
    # Each program of the machine loads it from now on.
    PRELOAD.write_text(f"{LIBRARY}\n")
    loop = subprocess.Popen(["sh", "-c", "while :; do /bin/true; done"], stderr=subprocess.PIPE, text=True)
    code, text = deb("new.deb")
    loop.kill()
    complaints = loop.communicate()[1]
    PRELOAD.unlink()
    check("an upgrade goes through while programs run", code == 0 and "cannot be preloaded" not in text, text)
    check("no program that starts meanwhile misses the library", complaints == "", complaints)
    check("the service is another process", property_of("ActiveState") == "active" and property_of("MainPID") != was, journal()[-300:])
    check("it is enabled or not as before", sh("systemctl", "is-enabled", "xsched")[1] == "enabled")
    check("the socket's folder is the same", os.stat("/run/xsched").st_ino == folder)
    check("programs keep the library that they have", f"{LIBRARY} (deleted)" in maps.read_text(), maps.read_text()[-300:])
    check("they go on, and attach again", until(lambda: pids <= set(programs())) and alice.goes_on() and bob.goes_on(), programs())
    check("they end well", (alice.end()[0], bob.end()[0]) == (0, 0))
    fresh = Steady("alice")
    check("a program begins with the new one", fresh.attached() and f"{LIBRARY}\n" in Path(f"/proc/{fresh.pid()}/maps").read_text())
    check("it ends well", fresh.end()[0] == 0)


def remove():
    sh("systemctl", "start", "xsched")
    alice = Steady("alice")
    alice.attached()
    PRELOAD.write_text(f"# others\n{OTHER} {LIBRARY}\n")
    sh("xsched", "cdi", "generate")
    # Python compiles what an example imports, where root runs it.
    compiled = Path("/usr/share/doc/xsched/examples/pytorch/__pycache__")
    compiled.mkdir()
    (compiled / "pace.cpython-311.pyc").write_bytes(b"")
    containers = Path("/etc/cdi/xsched.dev-class.json")
    check("engines know the classes", containers.exists())
    code, text = sh("dpkg", "--remove", "xsched")
    check("they know them no more", not containers.exists())
    check("the package is removed while a program runs", code == 0 and "cannot be preloaded" not in text, text)
    check("what others preload stays", PRELOAD.read_text() == f"# others\n{OTHER}\n", PRELOAD.read_text())
    PRELOAD.unlink()
    check("the program goes on", alice.goes_on())
    check("it ends well", alice.end()[0] == 0)
    check("no process of it is left", sh("pgrep", "--full", "/usr/(bin|lib)/xsched")[0] != 0, sh("pgrep", "-af", "xsched"))
    code, text = sh("dpkg", "--purge", "xsched")
    check("and purged", code == 0, text)
    check("nothing of it is left", left() == [], left())


def archive():
    sh("tar", "-C", "/tmp", "-xzf", str(HERE / "xsched.tar.gz"))
    (folder,) = Path("/tmp").glob("xsched-*-linux")
    code, text = sh(str(folder / "install.sh"), "/usr/local")
    check("the archive installs", code == 0, text)
    code, text = sh("systemctl", "enable", "--now", "xsched")
    check("systemd finds its unit", code == 0 and property_of("FragmentPath").startswith("/usr/local/"), text)
    alice = Steady("alice", command="/usr/local/bin/xsched")
    pid = until(lambda: alice.pid() in programs(command="/usr/local/bin/xsched") and alice.pid())
    check("a program attaches", pid, text)
    was, inode = property_of("MainPID"), os.stat("/run/xsched").st_ino
    PRELOAD.write_text("/usr/local/lib/xsched/libxsched.so\n")
    code, text = sh(str(folder / "install.sh"), "/usr/local")
    check("it installs over itself while a program runs", code == 0 and "cannot be preloaded" not in text, text)
    check("the service is another process, its folder the same", property_of("MainPID") != was and os.stat("/run/xsched").st_ino == inode, journal()[-300:])
    check("the program goes on, and attaches again", until(lambda: pid in programs(command="/usr/local/bin/xsched")) and alice.goes_on())
    code, text = sh("/usr/local/lib/xsched/uninstall.sh", "/usr/local")
    check("it is removed", code == 0 and "cannot be preloaded" not in text and not PRELOAD.exists(), text)
    check("the program goes on", alice.goes_on())
    check("it ends well", alice.end()[0] == 0)
    sh("rm", "-r", "/var/lib/xsched", str(folder))
    check("nothing of it is left but the state", left() == [], left())
