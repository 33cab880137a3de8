#!/usr/bin/env python3
"""What is tried inside the guest that `cargo xtask vm` boots, as root, with systemd as process 1.

Prints a line for each check, `ok NAME` or `not ok NAME: why`, and at last `end N M`: N checks, M of which failed.
"""

import contextlib
import os
import pwd
import re
import socket
import subprocess
import sys
from pathlib import Path

import engines
import package
import pools
from tools import HERE, SIM, SOCKET, Steady, check, journal, outcomes, programs, property_of, ps, say, sh, state, until, user_journal, xsched


def the_system_unit():
    code, text = sh("systemctl", "enable", "--now", "xsched")
    check("the system unit starts and says that it serves", (code, property_of("ActiveState")) == (0, "active"), text + journal())
    info = ps()
    check("root's command finds the daemon", info is not None, xsched("ps"))
    code, text = sh("systemd-analyze", "security", "--no-pager", "xsched")
    score = re.search(r"exposure level for xsched\.service: ([0-9.]+)", text)
    check(f"exposure under 3.0: {score and score[1]}", score and float(score[1]) < 3.0, score and score[1])
    is_first = lambda: runs_first(property_of("MainPID"))
    check("its loop goes before ordinary threads", is_first())
    packet = sent_by("policy", "list")
    storms = [os.fork() or storm(packet) for _ in range(3)]
    check("but for one that does not sleep", until(lambda: not is_first()))
    for pid in storms:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    check("and does so again once it sleeps", until(is_first))
    check("its files are its own", oct(os.stat("/var/lib/xsched").st_mode & 0o777) == "0o700", os.listdir("/var/lib"))


def runs_first(pid):
    """Whether the main thread of a process, which is a daemon's loop, has real-time priority."""
    return os.sched_getscheduler(int(pid)) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR


def sent_by(*command):
    """The packet that a command of `xsched` opens with."""
    path = "/run/listened.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        with subprocess.Popen(["/usr/bin/xsched", *command, "--socket", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            with listener.accept()[0] as connection:
                packet = connection.recv(65536)
    os.unlink(path)
    return packet


def storm(packet):
    """Asks as root as often as it can, so that the loop always has something to do."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(SOCKET)
        connection.setblocking(False)
        while True:
            with contextlib.suppress(BlockingIOError):
                while connection.send(packet):
                    pass
            with contextlib.suppress(BlockingIOError):
                while connection.recv(65536):
                    pass


def users():
    alice, bob = Steady("alice", ["--priority", "low"]), Steady("bob")
    a, b = alice.attached(), bob.attached()
    check("programs of two users attach to one daemon", a and b, (a, b, journal()[-300:]))
    check("a user sees its own programs only", list(programs("alice")) == [a], programs("alice"))
    check("root sees all", {a, b} <= set(programs()), programs())
    code, text = xsched("suspend", "--pid", str(b), user="alice")
    check("a user cannot suspend another's program", code == 3 and "attached" in text, text)
    check("that is in the journal", f"refused: process {b} is of user" in journal(), journal()[-400:])
    code, text = xsched("suspend", "--pid", str(a), user="bob")
    code, text = xsched("policy", "set", "up", user="alice")
    check("a user cannot change the policy", code == 3, text)
    code, text = xsched("hint", "--pid", str(a), "--priority", "system", user="alice")
    check("nor take a class above its limit", code == 3 and "limit" in text, text)
    check("urgent programs of one hold those of the other", held_by(bob, a), programs().get(a))
    for program in (alice, bob):
        code, errors = program.end()
        check("it ends well", code == 0, errors)


def held_by(program, pid):
    xsched("hint", "--pid", str(program.pid()), "--priority", "high")
    return until(lambda: state(pid) == "ready" and state(program.pid()) == "running")


def over_a_restart():
    alice = Steady("alice")
    pid = alice.attached()
    xsched("suspend", "--pid", str(pid))
    check("root suspends it", until(lambda: state(pid) == "suspended"), state(pid))
    before = property_of("MainPID")
    sh("systemctl", "restart", "xsched")
    check("the unit restarts", property_of("MainPID") != before and property_of("ActiveState") == "active", journal()[-400:])
    check("it is suspended again by the next daemon", until(lambda: state(pid) == "suspended"), (state(pid), journal()[-300:]))
    xsched("resume", "--pid", str(pid))
    check("and goes on when it is resumed", alice.goes_on(), state(pid))
    check("it ends well", alice.end()[0] == 0)


def reload():
    folder = Path("/etc/xsched")
    folder.mkdir(exist_ok=True)
    config = folder / "config.toml"
    config.write_text('policy = "up"\n')
    code, text = sh("systemctl", "reload", "xsched")
    check("a reload changes the policy", code == 0 and until(lambda: xsched("policy", "get")[1] == "up"), text + xsched("policy", "get")[1])
    config.write_text('policy = "up"\nplicy = 1\n')
    sh("systemctl", "reload", "xsched")
    check("a wrong configuration is told with its line", until(lambda: "config.toml:2: unknown key" in journal()), journal()[-300:])
    check("and changes nothing", xsched("policy", "get")[1] == "up")
    config.write_text('[[rule]]\ncgroup = "/batch.slice/*"\npriority = "low"\n')
    sh("systemctl", "reload", "xsched")
    until(lambda: xsched("policy", "get")[1] == "hpf")
    batch = Steady(before=["systemd-run", "--quiet", "--scope", "--slice=batch.slice"])
    pid = batch.attached()
    found = programs().get(pid, {})
    check("a rule by cgroup gives the class", (found.get("class"), found.get("class_from")) == ("low", "rule"), found)
    config.unlink()
    sh("systemctl", "reload", "xsched")
    check("without the rule it is normal again", until(lambda: programs().get(pid, {}).get("class") == "normal"), programs().get(pid))
    check("it ends well", batch.end()[0] == 0)


def watchdog():
    alice = Steady("alice")
    pid = alice.attached()
    before = property_of("MainPID")
    os.kill(int(before), 19)
    check("a program goes on while the daemon hangs", alice.goes_on())
    is_new = until(lambda: property_of("MainPID") not in (before, "0") and property_of("ActiveState") == "active")
    check("the watchdog ends it and the unit starts again", is_new, journal()[-400:])
    check("because of the watchdog", "atchdog" in sh("journalctl", "-u", "xsched", "--no-pager")[1])
    check("the program attaches again", until(lambda: pid in programs()), journal()[-300:])
    check("it ends well", alice.end()[0] == 0)


def read_metrics():
    with socket.create_connection(("127.0.0.1", 9495), timeout=30) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


def metrics():
    config = Path("/etc/xsched/config.toml")
    config.write_text('[metrics]\nlisten = "127.0.0.1:9495"\n')
    sh("systemctl", "restart", "xsched")
    check("a port that nothing reaches is told", "nothing reaches" in journal(), journal()[-300:])
    sh("systemctl", "enable", "xsched-metrics.socket")
    code, text = sh("systemctl", "restart", "xsched")
    check("the unit starts with a port", (code, property_of("ActiveState")) == (0, "active"), text + journal()[-300:])
    text = read_metrics()
    check("metrics are read by the loopback", text.startswith("HTTP/1.1 200") and "xsched_uptime_seconds" in text, text[:300])
    before = property_of("MainPID")
    os.kill(int(before), 9)
    until(lambda: property_of("MainPID") not in (before, "0") and property_of("ActiveState") == "active")
    text = read_metrics()
    check("also of the next daemon after a crash", "xsched_uptime_seconds" in text, text[:300])
    sh("systemctl", "stop", "xsched")
    try:
        text = read_metrics()
    except OSError:
        text = ""
    check("a daemon that was stopped is not started by reading", (text, property_of("ActiveState")) == ("", "inactive"), (text[:100], property_of("ActiveState")))
    config.unlink()
    sh("systemctl", "disable", "xsched-metrics.socket")
    sh("systemctl", "start", "xsched")


def a_scheduler_of_its_own():
    folder, written = Path("/etc/systemd/system/xsched.service.d"), Path("/var/lib/xsched/written")
    folder.mkdir(parents=True)
    command = f"/usr/bin/xsched daemon --socket {SOCKET} --scheduler {HERE}/librights.so"
    (folder / "scheduler.conf").write_text(f"[Service]\nEnvironment=RIGHTS_FILE={written}\nExecStart=\nExecStart={command}\n")
    sh("systemctl", "daemon-reload")
    code, text = sh("systemctl", "restart", "xsched")
    check("the unit starts with a scheduler of one's own", code == 0 and xsched("policy", "get")[1] == "external", text + journal()[-300:])
    until(lambda: "rights write" in journal())
    check("which has no capabilities", re.search(r"rights CapPrm:\s+0{16}\s", journal()), journal()[-400:])
    check("and cannot write where the daemon can", "rights write no" in journal() and not written.exists(), journal()[-400:])
    (folder / "scheduler.conf").unlink()
    folder.rmdir()
    sh("systemctl", "daemon-reload")
    sh("systemctl", "restart", "xsched")


def the_user_unit():
    sh("loginctl", "enable-linger", "alice")
    uid = pwd.getpwnam("alice").pw_uid
    until(lambda: Path(f"/run/user/{uid}/systemd/private").exists())
    as_alice = {"XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    its = {"XSCHED_SOCKET": f"/run/user/{uid}/xsched/xsched.sock", **as_alice}
    unit = lambda verb: sh("systemctl", "--user", verb, "xsched", user="alice", **as_alice)
    its_property = lambda name: sh("systemctl", "--user", "show", "-P", name, "xsched", user="alice", **as_alice)[1]
    main_pid = lambda: its_property("MainPID")
    enabled = unit("is-enabled")[1]
    # As LimitRTPRIO=1 of user@.service.
    sh("prlimit", "--rtprio=1:1", "--pid", property_of("MainPID", f"user@{uid}"))
    check("the user unit is off", (enabled, its_property("ActiveState")) == ("disabled", "inactive"), enabled)
    code, text = unit("start")
    check("the user unit starts", code == 0, text + user_journal()[-400:])
    check("its loop goes before ordinary threads where the user may have that", runs_first(main_pid()))
    code, text = sh("systemd-analyze", "--user", "security", "--no-pager", "xsched", user="alice", **as_alice)
    score = re.search(r"exposure level for xsched\.service: ([0-9.]+)", text)
    check(f"exposure under 3.0: {score and score[1]}", score and float(score[1]) < 3.0, text[-300:])
    program = Steady("alice", env=its)
    known = until(lambda: (pid := program.pid()) in programs("alice", **its) and pid)
    check("a program attaches to it", known, ps("alice", **its))
    exe = programs("alice", **its).get(known, {}).get("exe")
    check("it knows the program's file", exe == str(HERE / "steady"), exe)
    its_state = lambda: (programs("alice", **its).get(known, {}).get("groups") or [{}])[0].get("state")
    xsched("suspend", "--pid", str(known), user="alice", **its)
    check("it suspends", until(lambda: its_state() == "suspended"), its_state())
    folder = Path(f"/home/alice/.config/xsched")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text('[[rule]]\nexe = "/opt/x/steady"\nweight = 300\n')
    for path in (folder.parent, folder):
        os.chown(path, uid, uid)
    check("it reloads", unit("reload")[0] == 0 and until(lambda: programs("alice", **its).get(known, {}).get("weight") == 300), programs("alice", **its))
    was = main_pid()
    os.kill(int(was), 19)
    is_new = until(lambda: main_pid() not in (was, "0") and its_property("ActiveState") == "active")
    check("the watchdog ends one that hangs", is_new, user_journal()[-400:])
    check("what was suspended is so under the next", until(lambda: its_state() == "suspended"), (its_state(), user_journal()[-300:]))
    xsched("resume", "--pid", str(known), user="alice", **its)
    check("and goes on when it is resumed", program.goes_on(), its_state())
    check("it ends well", program.end()[0] == 0)
    (folder / "config.toml").unlink()
    pools.a_pool("user unit", main_pid, unit, **its)
    code, text = unit("stop")
    check("it stops", code == 0, text)


def rootless_container():
    inside = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-c"]
    line = f'mount --bind /run/xsched /run/xsched; exec "$0" "$@"'
    program = Steady("alice", before=[*inside, line], options=["--socket", SOCKET, "--require"])
    pid = program.attached()
    found = programs().get(pid, {})
    check("a program of a rootless container attaches to the machine's daemon", pid, program.child.poll() and program.child.communicate())
    check("as its owner", found.get("uid") == pwd.getpwnam("alice").pw_uid, found)
    stop = ["runuser", "-u", "alice", "--", *inside, line, "/usr/bin/xsched", "policy", "set", "--socket", SOCKET, "up"]
    code, text = sh(*stop)
    check("its root is not the machine's", code == 3 and "only root" in text, (code, text))
    check("it ends well", program.end()[0] == 0)
    code, text = sh("unshare", "--pid", "--fork", "--mount", "/usr/bin/xsched", "policy", "set", "up")
    check("nor is that of a container with the machine's users", code == 3 and "only root" in text, (code, text))


def stop():
    alice = Steady("alice")
    alice.attached()
    sh("systemctl", "stop", "xsched")
    check("programs go on when the unit stops", alice.goes_on())
    check("it ends well", alice.end()[0] == 0)
    check("nothing of the daemon is left", not Path("/run/xsched").exists() or not os.listdir("/run/xsched"))


def main():
    for user in ("alice", "bob"):
        if user not in {p.pw_name for p in pwd.getpwall()}:
            subprocess.run(["useradd", "--create-home", user], check=True)
    # The device is no part of what is installed.
    device = subprocess.Popen([HERE / "xsched", "sim-device", "--socket", SIM])
    until(lambda: Path(SIM).exists())
    os.chmod(SIM, 0o666)
    say(f"# systemd {sh('systemctl', '--version')[1].split()[1]}, Linux {os.uname().release}, glibc {os.confstr('CS_GNU_LIBC_VERSION').split()[1]}")
    parts = (
        package.install,
        the_system_unit,
        users,
        over_a_restart,
        reload,
        watchdog,
        rootless_container,
        engines.podman_of_a_user,
        engines.podman_of_root,
        metrics,
        a_scheduler_of_its_own,
        pools.stand_ins,
        pools.under_the_system_unit,
        the_user_unit,
        pools.taken_away,
        package.upgrade,
        stop,
        package.remove,
        package.archive,
    )
    for part in parts:
        say(f"# {part.__name__.replace('_', ' ')}")
        try:
            part()
        except Exception as e:  # One part's fault must not hide the others' results.
            check(part.__name__, False, repr(e))
    device.terminate()
    say(f"end {len(outcomes)} {outcomes.count(False)}")


sys.exit(main())
