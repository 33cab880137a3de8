#!/usr/bin/env python3
"""Containers of a real engine (Podman) that get a class by the Container Device Interface, under one daemon with the simulated device.

Without --full: images of this machine's own files. Ends with a table: case, what happened. Exit code 3: nothing could run here."""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import images
from engine import KIND, Background, Engine, Skip, until

STEADY = ("/job/simload", "be", "--us", "200", "--batch", "16", "--secs", "60")
LOAD = ("/job/simload", "be", "--us", "200", "--batch", "16", "--secs", "0.5")


class Checks:
    def __init__(self, engine, kept):
        self.engine, self.kept, self.rows, self.failed = engine, kept, [], 0

    def case(self, name, body):
        """One row of the table: what the body returns, or why it failed."""
        begin = time.monotonic()
        try:
            what, outcome = body(), "ok"
        except Skip as why:
            what, outcome = str(why), "SKIPPED"
            print(f"SKIPPED: containers: {name}: {why}", flush=True)
        except (RuntimeError, AssertionError, KeyError, IndexError, ValueError, OSError) as why:
            what, outcome = f"{type(why).__name__}: {' '.join(str(why).split())[:300]}", "FAILED"
            self.failed += 1
            self.engine.podman("rm", "-af", "-t", "0")
        self.rows.append((outcome, name, what, time.monotonic() - begin))
        print(f"{outcome:8} {name}: {what}", flush=True)

    def table(self):
        print("\n| case | what happened | s |\n| --- | --- | --- |")
        for outcome, name, what, seconds in self.rows:
            print(f"| {name} | {'' if outcome == 'ok' else outcome + ': '}{what} | {seconds:.1f} |")

    def record(self, name):
        return next(record for record in self.engine.records() if record["name"] == name)

    def scheduled(self, image, *changes, holds="", more=(), run=True):
        """A load in it is scheduled: each launch got a decision, and the daemon knows whose it is."""
        engine, name = self.engine, image.name if isinstance(image, Path) else image
        stats = engine.work / f"stats-{name}"
        if isinstance(image, Path):
            name = image.stem
            engine.image(image, name, *changes)
        stats.unlink(missing_ok=True)
        more = (*more, "-e", f"XSCHED_STATS=/job/{stats.name}")
        container = engine.begin(f"c-{name}", name, *LOAD, more=more)
        program = until("it is attached", lambda: next((p for p in engine.programs() if p["container"] == container), None))
        assert program["class"] == "low", program
        record = self.record(f"c-{name}")
        assert record["unscheduled"] is None and record["class"] == "low" and record["id"] == container, record
        if holds:
            maps = Path(f"/proc/{program['pid']}/maps").read_text()
            assert holds in maps and "libxsched.so" in maps, maps
        done = engine.podman("wait", f"c-{name}")
        said = json.loads(engine.podman("logs", f"c-{name}").stdout)
        counted = json.loads(stats.read_text().splitlines()[0])
        assert done.stdout.strip() == "0" and said["check"] == "ok", (done.stdout, said)
        unscheduled = sum(counted["unscheduled"].values())
        assert counted["launches"] == said["enqueued"] and unscheduled == 0, (counted, said)
        engine.podman("rm", "-f", f"c-{name}")
        self.nothing_left(container)
        return f"scheduled: {counted['launches']} launches, none past it{', beside ' + holds if holds else ''}"

    def unscheduled(self, image, why, *command, expect="alive without"):
        """It starts all the same, and the reason is told."""
        engine, name = self.engine, image.stem
        engine.image(image, name)
        # It stays, so that the daemon still knows it when it is asked.
        container = engine.begin(f"c-{name}", name, *command, "stay")
        record = self.record(f"c-{name}")
        assert why in (record["unscheduled"] or ""), record
        until("it has begun", lambda: expect in engine.podman("logs", f"c-{name}").stdout)
        engine.podman("kill", "-s", "TERM", f"c-{name}")
        status = engine.podman("wait", f"c-{name}").stdout.strip()
        logs = engine.podman("logs", f"c-{name}")
        assert status == "0" and expect in logs.stdout and not logs.stderr, (status, logs.stdout, logs.stderr)
        engine.podman("rm", "-f", f"c-{name}")
        self.nothing_left(container)
        return f"starts, not scheduled: {record['unscheduled']}"

    def inherits(self, image, *command):
        """The host's library and what preloads it come into a container of another C library, as with a host's files mounted into it
        or a chroot: its programs run as without, and say nothing."""
        engine, name = self.engine, image.stem if isinstance(image, Path) else image
        if isinstance(image, Path):
            engine.image(image, name)
        preload = engine.work / "ld.so.preload"
        preload.write_text("/usr/lib/libxsched.so\n")
        mount = ("-v", f"{engine.bin}/libxsched.so:/usr/lib/libxsched.so:ro")
        for more in (("-e", "LD_PRELOAD=/usr/lib/libxsched.so"), ("-v", f"{preload}:/etc/ld.so.preload:ro")):
            done = engine.run(f"c-{name}", name, *command, device=None, more=(*mount, *more))
            assert done.status == 0 and "alive" in done.stdout and not done.stderr, (more, done.status, done.stdout, done.stderr)
        return "starts as ever, by LD_PRELOAD and by ld.so.preload"

    def nothing_left(self, container):
        folder = self.engine.work / "run-containers"
        left = [path.name for path in folder.iterdir() if path.name.startswith(container)]
        assert not left, left
        mounts = Path("/proc/mounts").read_text()
        assert f"{container}.preload" not in mounts, mounts

    def images_of_all_kinds(self, full):
        work, case = self.engine.work, self.case
        case("glibc of this machine", lambda: self.scheduled(images.glibc(work).tar()))
        case("glibc, read-only root", lambda: self.scheduled("glibc", more=("--read-only",)))
        case("glibc, as a user, no new privileges", lambda: self.scheduled("glibc", more=("--user", "1234", "--security-opt", "no-new-privileges")))
        preload = "ENV LD_PRELOAD=libjemalloc.so.2"
        case("preloads jemalloc by a variable", lambda: self.scheduled(images.preloading(work, "variable").tar(), preload, holds="libjemalloc"))
        case("preloads jemalloc by ld.so.preload", lambda: self.scheduled(images.preloading(work, "file").tar(), holds="libjemalloc"))
        case("musl", lambda: self.unscheduled(images.musl(work).tar(), "linked to musl", "/bin/hello"))
        case("the host's library in musl", lambda: self.inherits("musl", "/bin/hello"))
        case("static", lambda: self.unscheduled(images.static(work).tar(), "linked statically", "/bin/hello"))
        case("AddressSanitizer", lambda: self.unscheduled(images.asan(work).tar(), "AddressSanitizer", "/bin/hello"))
        case("no daemon, no socket's folder", self.without_a_folder)
        case("two classes", self.two_classes)
        if full:
            alive = ("sh", "-c", "echo alive without")
            for release in images.RELEASES:
                case(f"Debian {release}, glibc {images.RELEASES[release]}", lambda release=release: self.scheduled(images.debian(self.kept, release)))
            case("the host's library in Debian bullseye", lambda: self.inherits(images.debian(self.kept, "bullseye"), *alive))
            emulated = ("/bin/qemu", "/bin/hello")
            case("arm64, emulated", lambda: self.unscheduled(images.arm64(work).tar(), "another machine (aarch64)", *emulated))

    def without_a_folder(self):
        """The daemon is stopped, its folder gone: the container starts, and finds the folder of the next daemon."""
        engine = self.engine
        engine.stop_daemon()
        shutil.rmtree(engine.socket.parent)
        container = engine.begin("c-early", "glibc", "sh", "-c", "while [ ! -e /job/go ]; do :; done; exec " + " ".join(LOAD))
        engine.start_daemon()
        (engine.work / "go").touch()
        until("it is attached", lambda: any(p["container"] == container for p in engine.programs()))
        engine.podman("wait", "c-early")
        engine.podman("rm", "-f", "c-early")
        self.nothing_left(container)
        return "starts, and is scheduled by the daemon that comes later"

    def two_classes(self):
        engine = self.engine
        container = engine.begin("c-two", "glibc", *LOAD, more=("--device", f"{KIND}=high"))
        record = self.record("c-two")
        engine.podman("rm", "-f", "-t", "0", "c-two")
        assert record["class"] == "low" and record["unscheduled"] is None, record
        self.nothing_left(container)
        return "the less urgent one is kept"


    def names_and_rules(self):
        """The engine's name is shown and rules go by it; the class that a container was made with is its ceiling."""
        engine = self.engine
        engine.stop_daemon()
        engine.start_daemon('[[rule]]\ncontainer = "web-*"\npriority = 100\n')
        shown = {}
        for name, device, wish in (("web-1", f"{KIND}=low", None), ("plain", f"{KIND}=low", "high"), ("none", f"{KIND}=low", None)):
            wishes = ("-e", f"XSCHED_PRIORITY={wish}") if wish else ()
            # What the engine sets is taken away, so that only rules and the container's class say something.
            command = ("sh", "-c", f"{'export XSCHED_PRIORITY=' + wish if wish else 'unset XSCHED_PRIORITY'}; exec " + " ".join(STEADY))
            container = engine.begin(name, "glibc", *command, device=device, more=wishes)
            program = until("it is attached", lambda: next((p for p in engine.programs() if p["container"] == container), None))
            outside = Path(f"/proc/{program['pid']}/status").read_text()
            inside = next(line for line in outside.splitlines() if line.startswith("NSpid:")).split()[1:]
            assert inside == [str(program["pid"]), "1"], inside
            assert program["container_name"] == name, program
            shown[name] = (program["priority"], program["class_from"], program["limited"])
            assert f"{name}" in engine.xsched("ps", "--wide").stdout
        engine.podman("rm", "-af", "-t", "0")
        engine.stop_daemon()
        engine.start_daemon()
        assert shown["web-1"] == (100, "rule", False), shown
        assert shown["plain"] == (-1, "option", True), shown
        assert shown["none"] == (-128, "rule", False), shown
        return "shown by name with the host's pid; the rule by name holds; a wish above the container's class is cut"

    def beside_a_program_outside(self):
        """Two containers and a program of the host on one device: the urgent one alone, beside two best-effort ones unscheduled (native), then scheduled."""
        engine = self.engine
        urgent = ("/job/simload", "lc", "--kernels", "5", "--us", "200", "--period-us", "10000", "--requests", "150")
        load = ("/job/simload", "be", "--us", "500", "--batch", "64", "--secs", "60")
        off = ("-e", "XSCHED_DISABLE=1")

        def measured(more, beside):
            if beside:
                ids = [engine.begin(f"low-{n}", "glibc", *load, more=more) for n in (1, 2)]
                if not more:
                    until("both are attached", lambda: {p["container"] for p in engine.programs()} >= set(ids))
            done = engine.run("urgent", "glibc", *urgent, device=f"{KIND}=high", more=more)
            rows = engine.programs()
            engine.podman("rm", "-f", "-t", "0", "low-1", "low-2")
            said = json.loads(done.stdout)
            assert said["check"] == "ok", said
            return said["p50_ms"], said["p99_ms"], rows

        alone, alone_p99, _ = measured((), False)
        native, native_p99, _ = measured(off, True)
        scheduled, scheduled_p99, rows = measured((), True)
        shares = [row["groups"][0]["device_us"] for row in rows if row["container_name"] in ("low-1", "low-2")]
        assert scheduled < native, (alone, native, scheduled)
        until("nothing is attached any more", lambda: not engine.programs())
        ratio = max(shares) / max(1, min(shares))
        figures = ((alone, alone_p99), (native, native_p99), (scheduled, scheduled_p99))
        said = ["{:.1f}/{:.1f} ms".format(*pair) for pair in figures]
        return f"P50/P99 of the urgent container: {said[0]} alone, {said[1]} native, {said[2]} scheduled; device time of two low ones 1 : {ratio:.2f}"

    def killed_and_restarted(self):
        """A container is killed, the daemon starts anew, the engine's containers go on: nothing lost, nothing left."""
        engine = self.engine
        low = engine.begin("low", "glibc", *STEADY)
        env = dict(engine.env, LD_LIBRARY_PATH=str(engine.bin), LD_PRELOAD=str(engine.bin / "libxsched.so"), XSCHED_PRIORITY="high")
        outside = Background([engine.simload, *STEADY[1:]], env, engine.work, "outside")

        def both():
            rows = engine.programs()
            return any(p["container"] == low for p in rows) and any(p["container"] is None for p in rows)

        until("both are attached", both)
        engine.stop_daemon()
        engine.start_daemon()
        until("both are attached again", both)
        names = {p["container_name"] for p in engine.programs()}
        assert names == {"low", None}, names
        engine.podman("kill", "low")
        until("the killed one is gone", lambda: [p["container"] for p in engine.programs()] == [None])
        engine.podman("rm", "-f", "low")
        self.nothing_left(low)
        outside.stop()
        return "both attach to the daemon that comes back; the killed container leaves, the program outside goes on"


def cost(engine, rounds):
    """What a start takes with and without a class, in turns, ms."""
    engine.image(images.glibc(engine.work, "cost").tar(), "cost")
    took = {"without": [], "with": []}
    for _ in range(rounds + 1):
        for kind, device in (("without", None), ("with", f"{KIND}=low")):
            begin = time.monotonic()
            done = engine.run("cost", "cost", "sh", "-c", ":", device=device)
            took[kind].append((time.monotonic() - begin) * 1e3)
            assert done.status == 0, done.stderr
    # The first of each fills caches.
    for kind, times in took.items():
        times = sorted(times[1:])
        print(f"start {kind} a class: n {len(times)}, min {times[0]:.0f} ms, P50 {statistics.median(times):.0f} ms, P90 {times[int(0.9 * len(times))]:.0f} ms", flush=True)
    print(json.dumps({"unit": "ms", **{kind: [round(t, 1) for t in times[1:]] for kind, times in took.items()}}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of xsched and libxsched.so")
    parser.add_argument("--kept", default="target/containers", help="folder for Debian's images")
    parser.add_argument("--floor", help="folder by which programs are linked for the oldest glibc (crates/xsched-floor); --full needs it")
    parser.add_argument("--full", action="store_true", help="Debian's releases and another machine's programs too")
    parser.add_argument("--cost", action="store_true", help="what a start takes with and without a class, 30 times in turns")
    options = parser.parse_args()
    if options.full and not options.floor:
        parser.error("--full needs --floor: `cargo xtask containers` makes it")
    kept = Path(options.kept)
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="xsched-containers-") as work:
        # Programs of containers write their counts there, as whatever user.
        Path(work).chmod(0o1777)
        try:
            engine = Engine(options.bin, work, options.floor)
        except Skip as why:
            print(f"SKIPPED: containers: {why}")
            return 3
        try:
            engine.start_device()
            engine.start_daemon()
            checks = Checks(engine, kept)
            checks.images_of_all_kinds(options.full)
            checks.case("names, rules, process ids", checks.names_and_rules)
            checks.case("a container killed, the daemon restarted", checks.killed_and_restarted)
            if options.full:
                checks.case("two containers beside an urgent one", checks.beside_a_program_outside)
            if options.cost:
                cost(engine, 30)
        finally:
            engine.end()
    checks.table()
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
