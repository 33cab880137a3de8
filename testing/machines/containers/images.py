"""Images for the container checks: made of files of this machine in a moment, or of Debian's releases by mmdebstrap."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "lib"))

from harness import Skip, compile_c  # noqa: E402

LOADER = Path("/lib64/ld-linux-x86-64.so.2")
LIBRARIES = Path("/lib/x86_64-linux-gnu")
RELEASES = {"bullseye": "2.31", "bookworm": "2.36", "trixie": "2.41"}
MIRROR_LACKS = "mmdebstrap cannot make {}: {}"


def needed(tool, package):
    if not shutil.which(tool):
        raise Skip(f"{tool} is missing (apt-get install {package})")


class Tree:
    """The file system of an image."""

    def __init__(self, folder):
        self.folder = Path(folder)
        for name in ("etc", "tmp", "proc", "sys", "dev", "run", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def add(self, source, path):
        place = self.folder / str(path).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(source).resolve(), place)
        return self

    def text(self, path, text):
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return self

    def tar(self):
        path = self.folder.with_suffix(".tar")
        with tarfile.open(path, "w") as archive:
            archive.add(self.folder, arcname=".")
        return path


def glibc(work, name="glibc"):
    """This machine's glibc with a shell."""
    tree = Tree(work / name).add(LOADER, LOADER).add("/bin/sh", "/bin/sh").add("/bin/cat", "/bin/cat")
    # All but the first are for the simulated device: the library that is preloaded needs no more.
    for library in ("libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0"):
        tree.add(LIBRARIES / library, LIBRARIES / library)
    return tree


def preloading(work, where):
    """The same with a preload of its own: in a variable (given when it is imported) or in ld.so.preload."""
    jemalloc = LIBRARIES / "libjemalloc.so.2"
    if not jemalloc.exists():
        raise Skip("libjemalloc.so.2 is missing (apt-get install libjemalloc2)")
    tree = glibc(work, f"jemalloc-{where}").add(jemalloc, jemalloc)
    tree.add(LIBRARIES / "libstdc++.so.6", LIBRARIES / "libstdc++.so.6")
    return tree.text("/etc/ld.so.preload", "libjemalloc.so.2\n") if where == "file" else tree


def musl(work):
    """musl with a program linked to it."""
    needed("musl-gcc", "musl-tools")
    tree = Tree(work / "musl").add("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-x86_64.so.1")
    hello = work / "hello-musl"
    subprocess.run(["musl-gcc", "-o", hello, HERE / "hello.c"], check=True)
    return tree.add(hello, "/bin/hello")


def static(work):
    hello = compile_c(HERE / "hello.c", work / "hello-static", "-static")
    return Tree(work / "static").add(hello, "/bin/hello")


def arm64(work):
    """A program of another machine, with its loader, and what emulates that machine."""
    needed("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    needed("qemu-aarch64-static", "qemu-user-static")
    hello = work / "hello-arm64"
    subprocess.run(["aarch64-linux-gnu-gcc", "-o", hello, HERE / "hello.c"], check=True)
    libraries = Path("/usr/aarch64-linux-gnu/lib")
    tree = Tree(work / "arm64").add(hello, "/bin/hello").add(shutil.which("qemu-aarch64-static"), "/bin/qemu")
    tree.add(libraries / "ld-linux-aarch64.so.1", "/lib/ld-linux-aarch64.so.1")
    return tree.add(libraries / "libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6")


def asan(work):
    """A program that must load AddressSanitizer before all else."""
    hello = compile_c(HERE / "hello.c", work / "hello-asan", "-fsanitize=address")
    tree = glibc(work, "asan").add(hello, "/bin/hello")
    listed = subprocess.run(["ldd", hello], capture_output=True, text=True, check=True).stdout
    for word in listed.split():
        if word.startswith("/") and Path(word).is_file():
            tree.add(word, LIBRARIES / Path(word).name)
    return tree


def debian(kept, release):
    """The tar of a release; made once."""
    needed("mmdebstrap", "mmdebstrap")
    path = kept / f"{release}.tar"
    if not path.exists():
        fresh = path.with_suffix(".new.tar")
        command = ["mmdebstrap", "--quiet", "--variant=essential", release, str(fresh)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Skip(MIRROR_LACKS.format(release, done.stderr.strip().splitlines()[-1:]))
        fresh.rename(path)
    return path
