#!/usr/bin/env python3
"""A newcomer's first minutes in the guest of `cargo xtask vm --minutes`: the package, the archive and the wheel, each installed, used and
removed by the commands of the pages, typed by root or by a user as the pages say. The screens go to the third disk.

Prints a line for each command, and at last `end N M`: N commands, M of which were not ok.
"""

import pwd
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from play import Play, Shell

HERE = Path(__file__).resolve().parent
MADE = Path("/tmp/packages")
SCREENS = HERE / "screens"
SEARCHED = "/usr/local/bin:/usr/bin:/bin"
# Pages of those who install the archive or the wheel: they are read in the checkout.
PAGES = HERE / "pages/share/doc/xsched"
# Else in a folder of a Debian that was not booted.
BOOTED = Path("/run/systemd/system").is_dir()
said = []


def say(line):
    said.append(line)
    print(line, flush=True)


def session(way, user, path=SEARCHED):
    """A play in a new shell of a user who has just logged in."""
    of = pwd.getpwnam(user)
    runtime = {"XDG_RUNTIME_DIR": f"/run/user/{of.pw_uid}"} if of.pw_uid and BOOTED else {}
    screens = SCREENS / f"{way.replace(' ', '-')}.typescript"
    # A folder with processes of its own looks like a container to xsched, which says so.
    return Play(way, Shell(screens, of.pw_dir, path, runtime, of), say, () if BOOTED else ("mount /run/xsched in the container",))


def package():
    way = "package"
    root = session(way, "root", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    root.types(f"apt install {MADE}/xsched_*_amd64.deb", may_say=("does not have a stable CLI",))
    anna = session(way, "anna")
    anna.pages(Path("/usr/share/doc/xsched"))
    anna.types("xsched daemon stop")
    if BOOTED:
        root.types("systemctl enable --now xsched", may_say=("Created symlink",))
        anna.types("xsched daemon status", wanted=["/run/xsched/xsched.sock"])
        anna.page(Path("/usr/share/doc/xsched/guide/getting-started.md"))
        root.types("systemctl disable --now xsched", may_say=("Removed",))
        anna.types("systemctl --user enable --now xsched", may_say=("Created symlink",))
        anna.types("xsched daemon status", wanted=["/run/user/"])
        anna.types("systemctl --user disable --now xsched", may_say=("Removed",))
    else:
        say("# no systemd runs here: the service of machine and user is left out")
    # Debian 12's systemd has that folder by another name, so that dpkg takes it for the package's own.
    root.types("apt purge xsched", keys=[("[Y/n]", "y\n")], may_say=("does not have a stable CLI", "system-preset' not empty"))
    root.check("nothing is left", not Path("/usr/lib/xsched").exists() and not Path("/var/lib/xsched").exists())
    anna.shell.close()
    root.shell.close()


def archive():
    anna = session("archive", "anna")
    (made,) = MADE.glob("xsched-*-linux.tar.gz")
    anna.types(f"tar -xzf {made}")
    anna.types(f"cd {made.name.removesuffix('.tar.gz')}")
    anna.types('./install.sh "$HOME/.local"')
    anna.shell.close()
    # A login shell of Debian has that folder in PATH once it is there.
    home = Path(pwd.getpwnam("anna").pw_dir)
    anna = session("archive", "anna", f"{home}/.local/bin:{SEARCHED}")
    anna.pages(home / ".local/share/doc/xsched", f"{home}/.local")
    anna.types("xsched daemon stop")
    anna.types("cd; ~/.local/lib/xsched/uninstall.sh ~/.local")
    anna.check("nothing is left", not (home / ".local/lib").exists() and not (home / ".local/bin").exists(), list((home / ".local").rglob("*"))[:5])
    anna.shell.close()


def wheel():
    anna = session("wheel", "anna")
    anna.types("python3 -m venv /tmp/venv")
    anna.types(f"/tmp/venv/bin/pip install {MADE}/xsched-*.whl", may_say=("notice",))
    anna.types(". /tmp/venv/bin/activate")
    anna.pages(PAGES, "/tmp/venv")
    anna.types("xsched daemon stop")
    anna.types("pip uninstall -y xsched")
    left = [str(path) for path in Path("/tmp/venv").rglob("*xsched*") if path.is_file()]
    anna.check("nothing is left", not left, left)
    anna.shell.close()


def main():
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", "anna"], check=True)
    if BOOTED:
        subprocess.run(["loginctl", "enable-linger", "anna"], check=True)
    SCREENS.mkdir()
    MADE.mkdir()
    for path in HERE.glob("xsched*"):
        if path.is_file():
            shutil.move(path, MADE / path.name)
    for part in (package, archive, wheel):
        try:
            part()
        except Exception as e:  # One way's fault must not hide the others' results.
            say(f"not ok {part.__name__}: {e!r}")
    if BOOTED:
        with tarfile.open("/dev/vdc", "w") as disk:
            disk.add(SCREENS, arcname=".")
    done = [line for line in said if not line.startswith("#")]
    say(f"end {len(done)} {sum(line.startswith('not ok') for line in done)}")


sys.exit(main())
