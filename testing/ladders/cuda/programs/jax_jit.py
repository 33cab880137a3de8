#!/usr/bin/env python3
"""JAX: compiled functions, gradients, convolutions, loops, random numbers."""

import checks

checks.need("numpy")
jax = checks.need("jax")
import jax.numpy as jnp  # noqa: E402
import numpy  # noqa: E402

WANTED = "cpu" if checks.DEVICE == "cpu" else "gpu"
if jax.default_backend() != WANTED:
    checks.absent(f"JAX runs on {jax.default_backend()} here, not on {WANTED}")


def made(seed, *shape):
    return numpy.random.RandomState(seed).randn(*shape).astype(numpy.float32)


def layer(weights, x):
    return jnp.tanh(x @ weights[0] + weights[1])


@checks.check
def arrays():
    x = jnp.arange(100_000, dtype=jnp.float32)
    checks.show("sum", jnp.sum(jnp.sin(x)))
    checks.show("sorted", jnp.sort(jnp.cos(x)))


@checks.check
def compiled():
    a, b = made(1, 300, 200), made(2, 200, 100)
    found = jax.jit(lambda p, q: jax.nn.softmax(p @ q))(a, b)
    checks.show("jit", found)
    product = jax.jit(lambda p, q: jnp.matmul(p, q, precision="highest"))(a, b)
    checks.close("matmul_right", product, a @ b, 1e-4)


@checks.check
def gradients():
    weights, x = (made(3, 64, 64) * 0.1, made(4, 64)), made(5, 128, 64)
    step = jax.jit(jax.value_and_grad(lambda w: jnp.mean(layer(w, x) ** 2)))
    for _ in range(20):
        loss, slopes = step(weights)
        weights = tuple(w - 0.1 * s for w, s in zip(weights, slopes))
    checks.show("loss", loss)
    checks.show("weights", weights[0])


@checks.check
def convolution():
    x, w = made(6, 2, 8, 32, 32), made(7, 16, 8, 3, 3)
    found = jax.jit(lambda p, q: jax.lax.conv(p, q, (1, 1), "SAME"))(x, w)
    checks.show("convolution", found)


@checks.check
def loops():
    x = made(8, 1000)
    found = jax.jit(lambda v: jax.lax.fori_loop(0, 200, lambda i, u: u * 0.99 + i, v))(x)
    checks.show("loop", found)
    _, steps = jax.lax.scan(lambda carry, i: (carry * 0.5 + i, carry.sum()), x, jnp.arange(50.0))
    checks.show("scan", steps)


@checks.check
def mapped():
    checks.show("mapped", jax.vmap(lambda v: jnp.linalg.norm(v) * jnp.fft.rfft(v).real)(made(9, 32, 128)))


@checks.check
def random_numbers():
    checks.show("random", jax.random.normal(jax.random.key(7), (1000,)))


if __name__ == "__main__":
    checks.main()
