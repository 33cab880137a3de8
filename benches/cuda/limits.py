"""The mixes that coloc.py measures, the limits of each, and whether they are met."""

from dataclasses import dataclass

MIXES = ("rn18+rn50", "rn18+gemm", "bert-lc+bert-be*5", "bert-lc+rn50+gemm")
SERVING = (
    "llm+train",
    "llm+llm-be",
    "llm+train+llm-be",
    "llm+llm-low",
    "bert-lc+jax+llm-be",
    "rn18+rn50+gemm",
)
ALL = (*SERVING, *MIXES)
PLAIN_MPS = ("llm+train", "bert-lc+bert-be*5")  # measured under MPS without priorities as well

WORDS = {  # measure -> what it says
    "latency p50": "request P50 to alone",
    "latency p99": "request P99 to alone",
    "first p90": "first token P90 to alone",
    "gap p99": "token gap P99 to alone",
    "wait p99": "device wait P99 beyond alone, ms",
    "by wait p99": "request P99 alone with the device wait beyond alone, to alone",
    "work kept": "best-effort work to that without the urgent program, mean of programs",
    "least kept": "best-effort work to that without the urgent program, least of programs",
    "work of time left": "best-effort work to that without the urgent program x time left",
    "work to time": "best-effort work to time sharing's",
    "points to time": "best-effort work of the time left, less time sharing's",
    "gap by wait p50": "token gap P50 alone with the device wait beyond alone, to alone",
    "gap wait p99": "device wait of a token gap P99 beyond alone, ms",
    "wait p99 to xsched": "device wait P99 to that with the urgent program outside",
    "wait p99 to xsched-inside": "device wait P99 to that with classes",
    "work to mps-prio": "best-effort work to that under MPS with priorities",
    "work to xsched": "best-effort work to that with the urgent program outside",
    "work to xsched-inside": "best-effort work to that with classes",
    "kept to mps-prio": "sum of the work of programs to their own alone, to that under MPS with priorities",
    "least to native": "best-effort work to that with nothing done, least of programs",
}


@dataclass(frozen=True)
class Limit:
    """A bound of a measure: it must not be more, or not be less."""

    measure: str
    bound: float
    most: bool = True

    def __str__(self):
        return f"{WORDS[self.measure]} {'<=' if self.most else '>='} {self.bound:g}"

    def verdict(self, low, high):
        """`met` if the interval ends at or within the bound, `missed` if it begins beyond it, else `undecided`."""
        if low is None or high is None:
            return "undecided"
        if not self.most:
            low, high = -high, -low
        bound = self.bound if self.most else -self.bound
        return "met" if high <= bound else "missed" if low > bound else "undecided"


def at_least(measure, bound):
    return Limit(measure, bound, most=False)


# These are bound by the host, whose part of a request differs by more than the bound: what the device adds is the wait for it.
_P99 = (Limit("latency p99", 1.05), Limit("by wait p99", 1.05))
_BESIDE_KERNELS = (*_P99, at_least("points to time", -0.01))

LIMITS = {
    "llm+train": (
        Limit("gap p99", 1.05),
        Limit("first p90", 1.10),
        at_least("work of time left", 0.90),
        at_least("work to time", 1.0),
    ),
    "llm+train+llm-be": (
        Limit("gap p99", 1.20),
        Limit("first p90", 1.25),
        at_least("work kept", 0.95),
        at_least("least kept", 0.75),
    ),
    # Bound by the host: what the device adds is the wait for it.
    "bert-lc+bert-be*5": (Limit("wait p99", 0.3), Limit("latency p50", 1.05), at_least("work to time", 1.40)),
    "rn18+rn50+gemm": _P99,
    "rn18+rn50": _BESIDE_KERNELS,
    "rn18+gemm": _BESIDE_KERNELS,
    "bert-lc+rn50+gemm": _BESIDE_KERNELS,
}


# Targets of urgent programs inside the pool, beside the same build with them outside (`xsched`): mix -> system -> limits.
_NO_FLAGS = (Limit("wait p99 to xsched-inside", 2.0), at_least("work to xsched-inside", 0.9))
_AS_OUTSIDE = (Limit("wait p99 to xsched", 1.0), at_least("work to xsched", 1.0))
_TOKENS = (Limit("gap p99", 1.05), Limit("first p90", 1.10), at_least("work to xsched", 1.0))
SIDES = {
    "bert-lc+bert-be*5": {
        "xsched-inside": (Limit("wait p99", 0.3), at_least("work to mps-prio", 0.9), at_least("work to xsched", 1.6)),
        "xsched-noflags": _NO_FLAGS,
    },
    "gen+train": {
        "xsched-inside": (
            Limit("gap by wait p50", 1.03),
            Limit("gap wait p99", 0.5),
            at_least("work to mps-prio", 0.9),
            at_least("work to xsched", 1.7),
        ),
        "xsched-noflags": _NO_FLAGS,
    },
    "rn18+rn50": {"xsched-inside": (Limit("wait p99", 0.4), at_least("work to mps-prio", 0.95))},
    "bert-lc+jax+llm-be": {
        "xsched-inside": (Limit("wait p99", 0.5), at_least("kept to mps-prio", 0.9), at_least("least to native", 0.8))
    },
    "llm+train": {"xsched-inside": _TOKENS},
    "llm+train+llm-be": {"xsched-inside": _TOKENS},
    "rn18+rn50+gemm": {"xsched-inside": _AS_OUTSIDE},
    "bert-lc+rn50+gemm": {"xsched-inside": _AS_OUTSIDE},
}


def verdicts(wanted, measures):
    """What each of these limits comes to, given measure -> (value, low, high) of one system."""
    found = []
    for limit in wanted:
        if limit.measure in measures:
            value, low, high = measures[limit.measure]
            words = dict(limit=str(limit), measure=limit.measure, value=value, low=low, high=high)
            found.append(dict(words, verdict=limit.verdict(low, high)))
    return found
