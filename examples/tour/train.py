"""A program that never rests: 64 kernels of 0.2 ms, again and again."""
from device import launch, wait

while True:
    launch(200, 64)
    wait()
