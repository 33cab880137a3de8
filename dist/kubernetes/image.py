#!/usr/bin/env python3
"""Makes an image of a Debian package over a minimal Debian: image.py PACKAGE.deb IMAGE.tar [--suite SUITE] [--name NAME:TAG]

IMAGE.tar is an archive as `docker save` writes it: `ctr -n k8s.io images import`, `podman load` and `docker load` read it. Needs mmdebstrap."""

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


def field(package, name):
    return subprocess.run(["dpkg-deb", "--field", package, name], check=True, text=True, capture_output=True).stdout.strip()


def root_file_system(package, suite, out):
    """The tar of a Debian with nothing but what the package needs."""
    command = [
        "mmdebstrap", "--variant=minbase", "--format=tar", f"--include={package}",
        "--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount",
        # Nothing is installed into an image afterwards.
        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--customize-hook=rm -rf \"$1\"/var/lib/apt/lists/* \"$1\"/var/cache/apt/* \"$1\"/var/log/*",
        suite, str(out),
    ]
    subprocess.run(command, check=True)


def add(archive, name, data, mtime):
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), mtime, 0o644
    archive.addfile(info, io.BytesIO(data))


def digest_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--suite", default="bookworm")
    parser.add_argument("--name", help="NAME:TAG; default localhost/xsched:VERSION")
    args = parser.parse_args()
    if not args.package.is_file():
        sys.exit(f"image.py: {args.package} is no file: make it by cargo xtask package DIR")
    version = field(args.package, "Version")
    # A tag has no such characters.
    name = args.name or "localhost/xsched:" + version.replace("+", "-").replace("~", "-")
    with tempfile.TemporaryDirectory() as folder:
        layer = Path(folder) / "layer.tar"
        root_file_system(args.package.resolve(), args.suite, layer)
        digest = digest_of(layer)
        config = {
            "architecture": field(args.package, "Architecture"),
            "os": "linux",
            "config": {"Entrypoint": ["/usr/bin/xsched"], "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": f"xsched {version} over Debian {args.suite}"}],
        }
        config = json.dumps(config, sort_keys=True).encode()
        config_name = hashlib.sha256(config).hexdigest() + ".json"
        layer_name = f"{digest}/layer.tar"
        manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": [layer_name]}]).encode()
        mtime = int(os.environ.get("SOURCE_DATE_EPOCH") or args.package.stat().st_mtime)
        with tarfile.open(args.image, "w") as archive:
            info = archive.gettarinfo(layer, layer_name)
            info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = mtime, 0, 0, "", "", 0o644
            with open(layer, "rb") as file:
                archive.addfile(info, file)
            add(archive, config_name, config, mtime)
            add(archive, "manifest.json", manifest, mtime)
    print(f"{args.image}: {name}, {args.image.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    main()
