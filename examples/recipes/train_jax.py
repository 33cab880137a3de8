"""Trains a network of eight layers on random data without end, by JAX."""

import argparse
import itertools
import time

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--width", type=int, default=4096, help="[4096]")
parser.add_argument("--batch", type=int, default=4096, help="[4096]")
args = parser.parse_args()

keys = jax.random.split(jax.random.key(0), 9)
shape = (args.width, args.width)
weights = [jax.random.normal(key, shape, jnp.bfloat16) / args.width**0.5 for key in keys[:8]]
data = jax.random.normal(keys[8], (args.batch, args.width), jnp.bfloat16)


def loss(weights, x):
    for matrix in weights:
        x = jnp.tanh(x @ matrix)
    return jnp.mean((x - data).astype(jnp.float32) ** 2)


@jax.jit
def step(weights):
    change = jax.grad(loss)(weights, data)
    return [matrix - 0.01 * part for matrix, part in zip(weights, change)]


said, done = time.monotonic(), 0
for n in itertools.count(1):
    weights = step(weights)
    if n % 4 == 0:
        jax.block_until_ready(weights)
        if time.monotonic() - said > 2:
            print(f"train_jax.py: step {n}, {(n - done) / (time.monotonic() - said):.1f} steps/s", flush=True)
            said, done = time.monotonic(), n
