"""A program that must be quick: five kernels of 1 ms, every 20 ms."""
import sys
import time

# The folder may be an installed one, which is removed with the package.
sys.dont_write_bytecode = True

from device import launch, wait  # noqa: E402

while True:
    launch(1000, 5)
    wait()
    time.sleep(0.015)
