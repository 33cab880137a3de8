"""A program that must be quick: five kernels of 1 ms, every 20 ms."""
import time

from device import launch, wait

while True:
    launch(1000, 5)
    wait()
    time.sleep(0.015)
