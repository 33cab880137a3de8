"""Pools and the state of devices under the units as they are shipped, with stand-ins for NVIDIA's driver, MPS and management library."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from tools import HERE, SIM, Program, check, journal, programs, property_of, ps, sh, until, user_journal

DRIVER = {
    "LD_LIBRARY_PATH": str(HERE / "driver"),
    "LD_PRELOAD": str(HERE / "fakerm.so"),
    # As `xsched run` has it on a machine with NVIDIA's driver.
    "CUDA_MPS_PIPE_DIRECTORY": "/none",
}
CONTROL = Path("/usr/local/bin/nvidia-cuda-mps-control")
NVML = Path("/usr/local/lib/libnvidia-ml.so.1")


def stand_ins():
    """Where NVIDIA's own would be. Of the environment of a keeper MPS finds nothing, so that a script says where the device is."""
    CONTROL.write_text(
        f"#!/bin/sh\nexport SIMDEV_SOCKET={SIM} LD_PRELOAD=$LD_PRELOAD:{HERE}/fakerm.so\n"
        f'exec {HERE}/driver/nvidia-cuda-mps-control "$@"\n'
    )
    CONTROL.chmod(0o755)
    NVML.write_bytes((HERE / "libnvidia-ml.so.1").read_bytes())
    sh("ldconfig")
    told = HERE / "nvml"
    told.mkdir(exist_ok=True)
    told.chmod(0o777)
    for name, value in (("memory_used", 3 << 30), ("memory_total", 8 << 30), ("temperature", 55)):
        (told / name).write_text(f"{value}\n")
    for kind in ("system", "user"):
        folder = Path(f"/etc/systemd/{kind}/xsched.service.d")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stand-in.conf").write_text(f"[Service]\nEnvironment=FAKENVML={told}\n")
    sh("systemctl", "daemon-reload")
    sh("systemctl", "restart", "xsched")


def taken_away():
    for path in (CONTROL, NVML):
        path.unlink()
    sh("ldconfig")
    for kind in ("system", "user"):
        shutil.rmtree(f"/etc/systemd/{kind}/xsched.service.d")
    sh("systemctl", "daemon-reload")


def owners(name):
    """Users of the processes that are called so."""
    found = subprocess.run(["ps", "-eo", "uid,args"], capture_output=True, text=True).stdout
    return {int(line.split()[0]) for line in found.splitlines() if name in line.split()[1:2] or any(word.endswith(name) for word in line.split()[1:3])}


def a_pool(where, main_pid, unit, **variables):
    """One pool of alice's, from its first program to its end, over a restart of the daemon."""
    uid = pwd.getpwnam("alice").pw_uid
    one = Program("pooled", "alice", ["--share", "pool", "--priority", "low"], env={**DRIVER, **variables})
    check(f"{where}: a program is in a pool", one.says("mps 1") and one.says("context 0"), (one.lines, one.errors(), journal()[-300:], user_journal()[-300:]))
    pid = one.pid()
    share = lambda: programs("alice", **variables).get(pid, {}).get("share")
    check("the daemon says so", until(lambda: share() == "pool"), share())
    check("MPS runs as the user", owners("nvidia-cuda-mps-server") == {uid}, (owners("nvidia-cuda-mps-server"), sh("ps", "-ef")))
    cgroup = lambda pid: Path(f"/proc/{pid}/cgroup").read_text()
    servers = sh("pgrep", "--full", "nvidia-cuda-mps-server")[1].split()
    check("outside of the daemon's unit", servers and all("xsched-pool" in cgroup(server) for server in servers), [cgroup(s) for s in servers])
    devices = until(lambda: [d for d in (ps("alice", **variables) or {}).get("devices", []) if d["latest"].get("memory_total_bytes")])
    check("the state of the device is told", devices, ps("alice", **variables))
    maps = Path(f"/proc/{main_pid()}/maps").read_text()
    check("and the daemon has not loaded NVIDIA's library", "libnvidia-ml" not in maps, maps[-300:])
    was = main_pid()
    unit("restart")
    check("the pool outlives a restart of the daemon", until(lambda: main_pid() not in (was, "0") and share() == "pool") and one.does("sync", "sync 0"), (share(), one.lines))
    one.tell("crash")
    check("a GPU fault ends it", one.says("crash 700"), one.lines)
    one.end()
    two = Program("pooled", "alice", ["--share", "pool"], env={**DRIVER, **variables})
    check("the next program has another", two.says("mps 1") and two.says("context 0"), (two.lines, two.errors()))
    check("it ends well", two.end() == 0)
    gone = until(lambda: not owners("nvidia-cuda-mps-server") and not owners("nvidia-cuda-mps-control"))
    check("the pool ends with its last program", gone, sh("ps", "-ef"))
    folders = [Path(f"/run/user/{uid}/xsched-pool"), Path("/run/xsched_pool")]
    empty = until(lambda: not any(os.listdir(folder) for folder in folders if folder.exists()))
    check("and leaves nothing", empty, [os.listdir(folder) for folder in folders if folder.exists()])


def under_the_system_unit():
    rights = Path(f"/proc/{property_of('MainPID')}/status").read_text()
    held = int(next(line for line in rights.splitlines() if line.startswith("CapBnd")).split()[1], 16)
    # CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE of linux/capability.h.
    check("the daemon can read what others may not, and nothing else", held == 1 << 2 | 1 << 19, hex(held))
    a_pool("system unit", lambda: property_of("MainPID"), lambda verb: sh("systemctl", verb, "xsched"))
