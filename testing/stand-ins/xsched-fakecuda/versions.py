#!/usr/bin/env python3
"""Writes versions.txt: which version of CUDA brought each symbol of the driver.

    versions.py NAMES cudaTypedefs.h > versions.txt

cudaTypedefs.h (of the CUDA toolkit, or of the PyPI package nvidia-cuda-runtime) has one typedef for each version of
each function, and the driver one symbol for it: sorted, they are the same.
"""
import collections
import re
import sys


def main() -> None:
    names_file, header = sys.argv[1:]
    versions, symbols = collections.defaultdict(set), collections.defaultdict(list)
    with open(header, encoding="utf-8") as file:
        for base, version, variant in re.findall(r"PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)", file.read()):
            versions[base, variant].add(int(version))
    with open(names_file, encoding="utf-8") as file:
        for name in (line.strip() for line in file if not line.startswith("#")):
            base, number, variant = re.fullmatch(r"(cu\w+?)(?:_v(\d+))?(_pt[ds][sz])?", name).groups()
            symbols[base, variant or ""].append((int(number or 1), name))
    # The typedef of its per-thread variant is missing.
    versions["cuGetProcAddress", "_ptsz"] = {12000}
    lines = []
    for key, found in symbols.items():
        if len(found) != len(versions[key]):
            sys.exit(f"{key}: {found} against {versions[key]}")
        lines += [f"{name} {version}" for (_, name), version in zip(sorted(found), sorted(versions[key]))]
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
