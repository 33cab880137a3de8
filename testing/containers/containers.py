#!/usr/bin/env python3
"""Containers of a real engine (Podman) that get a class by the Container Device Interface, under one daemon with the simulated device.

Without --full: images of this machine's own files. Ends with a table: case, what happened. Exit code 3: nothing could run here."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import images
from engine import KIND, Engine, Skip, until

LOAD = ("/work/simload", "be", "--us", "200", "--batch", "16", "--secs", "0.5")


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
        more = (*more, "-e", f"XSCHED_STATS=/work/{stats.name}")
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
        container = engine.begin(f"c-{name}", name, *command)
        record = self.record(f"c-{name}")
        assert why in (record["unscheduled"] or ""), record
        status = engine.podman("wait", f"c-{name}").stdout.strip()
        logs = engine.podman("logs", f"c-{name}")
        assert status == "0" and expect in logs.stdout and not logs.stderr, (status, logs.stdout, logs.stderr)
        engine.podman("rm", "-f", f"c-{name}")
        self.nothing_left(container)
        return f"starts, not scheduled: {record['unscheduled']}"

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
        case("static", lambda: self.unscheduled(images.static(work).tar(), "linked statically", "/bin/hello"))
        case("AddressSanitizer", lambda: self.unscheduled(images.asan(work).tar(), "AddressSanitizer", "/bin/hello"))
        case("no daemon, no socket's folder", self.without_a_folder)
        case("two classes", self.two_classes)
        if full:
            alive = ("sh", "-c", "echo alive without")
            case("Debian bullseye, glibc 2.31", lambda: self.unscheduled(images.debian(self.kept, "bullseye"), "older than 2.34", *alive))
            for release in images.RELEASES[1:]:
                case(f"Debian {release}", lambda release=release: self.scheduled(images.debian(self.kept, release)))
            emulated = ("/bin/qemu", "/bin/hello")
            case("arm64, emulated", lambda: self.unscheduled(images.arm64(work).tar(), "another machine (aarch64)", *emulated))

    def without_a_folder(self):
        """The daemon is stopped, its folder gone: the container starts, and finds the folder of the next daemon."""
        engine = self.engine
        engine.stop_daemon()
        shutil.rmtree(engine.socket.parent)
        container = engine.begin("c-early", "glibc", "sh", "-c", "while [ ! -e /work/go ]; do :; done; exec " + " ".join(LOAD))
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of xsched and libxsched.so")
    parser.add_argument("--kept", default="target/containers", help="folder for Debian's images")
    parser.add_argument("--full", action="store_true", help="Debian's releases and another machine's programs too")
    options = parser.parse_args()
    kept = Path(options.kept)
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="xsched-containers-") as work:
        # Programs of containers write their counts there, as whatever user.
        Path(work).chmod(0o1777)
        try:
            engine = Engine(options.bin, work)
        except Skip as why:
            print(f"SKIPPED: containers: {why}")
            return 3
        try:
            engine.start_device()
            engine.start_daemon()
            checks = Checks(engine, kept)
            checks.images_of_all_kinds(options.full)
        finally:
            engine.end()
    checks.table()
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
