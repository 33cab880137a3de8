"""What the windows of coloc.py come to: figures of each system of a mix, with intervals, and their tables."""

import intervals
import limits
import records

BARE = {"alone": ("lc",), "best-effort": ("be", "normal"), "native": None}  # served by the same processes: who works
METRICS = {"latency": "latency_ms", "first": "first_ms", "gap": "gap_ms"}
NAMES = {"latency": "request", "first": "first token", "gap": "token gap"}
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def of_kind(window, kind="lc"):
    """Those roles of a window that serve requests at this class. Older records have no other than urgent ones."""
    return [role for role in window["roles"] if "latency_ms" in role and role.get("kind", "lc") == kind]


def pooled(windows, what="latency_ms"):
    """All latencies of the latency-critical roles of these windows, or what else is known of each request, in ms."""
    return [v for w in windows for r in of_kind(w) for v in r.get(what, [])]


def served(windows):
    """How long requests took once they were begun, in ms. Older records do not tell how long they were queued."""
    whole, queued = pooled(windows), pooled(windows, "queued_ms")
    return [a - b for a, b in zip(whole, queued)] if len(whole) == len(queued) else whole


def parts(windows):
    """What requests consist of, host and wait: P50 and P99 of the time in which their commands were given, and of that
    in which the device was waited for afterwards. Older records do not tell."""
    whole, waits = pooled(windows), pooled(windows, "wait_ms")
    if not waits or len(waits) != len(whole):
        return {}
    found = {"host": [a - b for a, b in zip(served(windows), waits)], "wait": waits}
    return {k: {f"p{p}": round(records.percentile(v, p / 100), 4) for p in (50, 99)} for k, v in found.items()}


def units(role, what):
    """The values of a role's window by request."""
    values = role.get(what, [])
    requests = len(role["latency_ms"])
    size = len(values) // requests if requests and what == "gap_ms" else 1
    return [values[i : i + size] for i in range(0, len(values), size)] if size else []


def sample(windows, what, kind="lc"):
    """All values of these windows as something that can be resampled; nothing where there are none."""
    values = [[u for role in of_kind(w, kind) for u in units(role, what)] for w in windows]
    found = intervals.Sample(values, [w["round"] for w in windows])
    return found if len(found) else None


def samples(windows, kind="lc"):
    """What was measured of requests, by name."""
    found = {name: sample(windows, what, kind) for name, what in METRICS.items()}
    return {name: one for name, one in found.items() if one}


def work_of(window):
    """Best-effort role -> items per second of its processes together."""
    sums = {}
    for role in window["roles"]:
        if "per_s" in role:
            sums[role["role"]] = sums.get(role["role"], 0.0) + role["per_s"]
    return sums


def medians(works):
    """Role -> median of what it did in each of several windows."""
    found = {}
    for work in works:
        for name, value in work.items():
            found.setdefault(name, []).append(value)
    return {name: records.median(values) for name, values in found.items()}


def rates(windows):
    """Best-effort role -> items per second of its processes together, median of the windows."""
    return medians(work_of(window) for window in windows)


def relative(now, base):
    """Mean of the roles' rates, each relative to its base."""
    parts = [now[r] / base[r] for r in now if base.get(r)]
    return sum(parts) / len(parts) if parts else None


def rounded(value, digits=4):
    return None if value is None else round(value, digits)


def three(found, digits=4):
    """A value and its interval as a list."""
    return [rounded(value, digits) for value in found]


def work(by, name, left):
    """Measures of a system's best-effort work, with intervals: rounds are resampled, the same ones of all systems that
    are compared. `left` is the share of time that the urgent program leaves."""
    compared = (name, "best-effort", "xsched-time")
    known = {n: {w["round"]: work_of(w) for w in by.get(n, [])} for n in compared}
    known = {n: rounds for n, rounds in known.items() if any(rounds.values())}
    if name not in known:
        return {}
    common = sorted(set.intersection(*(set(rounds) for rounds in known.values())))
    if not common:
        return {}

    def of(chosen):
        now, base, time = (medians(known[n][r] for r in chosen) if n in known else {} for n in compared)
        found, kept = {}, {r: now[r] / base[r] for r in now if base.get(r)}
        if kept:
            found["work kept"], found["least kept"] = sum(kept.values()) / len(kept), min(kept.values())
            found |= {f"{role} kept": value for role, value in kept.items()}
            if left:
                found["work of time left"] = found["work kept"] / left
        to_time = relative(now, time)
        if to_time is not None:
            found["work to time"] = to_time
        if "work of time left" in found and to_time is not None:
            found["points to time"] = found["work of time left"] - relative(time, base) / left
        return found

    return intervals.of_rounds(common, of)


def to_alone(mine, alone):
    """Metric -> percentile -> ratio to alone, with its interval."""
    return {
        metric: {p: three(intervals.ratio(mine[metric], alone[metric], share)) for p, share in SHARES.items()}
        for metric in mine
        if metric in alone
    }


def metrics(windows, found, alone_by_round):
    """Metric -> its percentiles with intervals, how many there are, the median of the rounds, and of their ratios to
    alone."""
    result = {}
    for metric, one in found.items():
        row = {"n": len(one), **{p: three(one.interval(share)) for p, share in SHARES.items()}}
        by_round = {w["round"]: pooled([w], METRICS[metric]) for w in windows}
        by_round = {r: records.percentile(v, 0.99) for r, v in by_round.items() if v}
        if by_round:
            row["p99_of_rounds"] = rounded(records.median(by_round.values()))
        base = alone_by_round.get(metric, {})
        ratios = [value / base[r] for r, value in by_round.items() if base.get(r)]
        if ratios:
            row["p99_to_alone_by_round"] = records.spread(ratios)
        result[metric] = row
    return result


def measures(row):
    """Measure, as limits name it -> value, low, high."""
    found = dict(row.get("work", {}))
    for metric, by in row.get("to_alone", {}).items():
        found |= {f"{metric} {p}": value for p, value in by.items()}
    for p, value in row.get("wait_beyond_alone", {}).items():
        found[f"wait {p}"] = value
    if "by_wait" in row:
        found["by wait p99"] = row["by_wait"]
    return found


def by_wait(beyond, alone):
    """What a P99 alone would be, relative to itself, if a request took longer by the wait for the device alone: value, low, high
    from those of both, on the safe side."""
    (value, low, high), (whole, least, most) = beyond, alone
    return 1 + value / whole, 1 + low / (most if low > 0 else least), 1 + high / (least if high > 0 else most)


def noise(windows):
    """Alone against alone, odd rounds against even: what ratios come to where nothing differs but chance."""
    odd, even = (samples([w for w in windows if w["round"] % 2 == rest]) for rest in (1, 0))
    return to_alone(odd, even)


def summary(windows):
    """The figures of one mix, by system, with what they are derived from."""
    by = {}
    for window in windows:
        by.setdefault(window["system"], []).append(window)
    alone, base = pooled(by.get("alone", [])), rates(by.get("best-effort", []))
    alone_samples, alone_waits = samples(by.get("alone", [])), sample(by.get("alone", []), "wait_ms")
    lower_alone = samples(by.get("best-effort", []), "normal")
    busy = None
    if alone:
        rate = sum(r["rate"] for r in of_kind(by["alone"][0]))
        busy = rate * records.percentile(served(by["alone"]), 0.5) / 1e3
    left = None if busy is None or busy >= 1 else 1 - busy
    result = {"time_left": rounded(None if busy is None else 1 - busy), "best_effort_alone_per_s": base, "systems": {}}
    if windows and windows[-1].get("arrivals"):
        result["arrivals"] = windows[-1]["arrivals"]
    if alone:
        result["noise"] = noise(by["alone"])
    alone_by_round = {w["round"]: pooled([w]) for w in by.get("alone", [])}
    tails = {m: {w["round"]: pooled([w], what) for w in by.get("alone", [])} for m, what in METRICS.items()}
    tails = {m: {r: records.percentile(v, 0.99) for r, v in rounds.items() if v} for m, rounds in tails.items()}
    for name, mine in by.items():
        row = {"windows": len(mine)}
        found = pooled(mine)
        if found:
            row.update(records.latencies(found), **parts(mine))
            if alone:
                row["p99_to_alone"] = rounded(records.percentile(found, 0.99) / records.percentile(alone, 0.99))
                row["p50_to_alone"] = rounded(records.percentile(found, 0.5) / records.percentile(alone, 0.5))
            pairs = [(pooled([w]), alone_by_round[w["round"]]) for w in mine if alone_by_round.get(w["round"])]
            pairs = [records.percentile(a, 0.99) / records.percentile(b, 0.99) for a, b in pairs if a]
            if pairs:
                row["p99_to_alone_by_round"] = records.spread(pairs)
            own, waits = samples(mine), sample(mine, "wait_ms")
            row["metrics"] = metrics(mine, own, tails)
            if name != "alone":
                row["to_alone"] = to_alone(own, alone_samples)
                if waits and alone_waits:
                    beyond = {p: intervals.difference(waits, alone_waits, SHARES[p]) for p in ("p50", "p99")}
                    row["wait_beyond_alone"] = {p: three(value) for p, value in beyond.items()}
                    row["by_wait"] = three(by_wait(beyond["p99"], alone_samples["latency"].interval(0.99)))
            unserved = sum(r.get("unserved", 0) for w in mine for r in of_kind(w))
            if unserved:
                row["unserved"] = unserved
        lower = samples(mine, "normal")
        if lower:
            row["lower"] = {m: dict(three_of(one), n=len(one)) for m, one in lower.items()}
            if name != "best-effort":
                row["lower_to_alone"] = to_alone(lower, lower_alone)
        now = rates(mine)
        if now:
            row["best_effort_per_s"] = {k: rounded(v, 2) for k, v in now.items()}
            kept = relative(now, base)
            if kept is not None and busy is not None and busy < 1:
                row["best_effort_of_time_left"] = rounded(kept / (1 - busy))
                row["best_effort_of_target"] = rounded(kept / (0.95 * (1 - busy)))
            for other in ("native", "mps-prio"):
                if other in by:
                    row[f"best_effort_to_{other}"] = rounded(relative(now, rates(by[other])))
            row["work"] = {k: three(v) for k, v in work(by, name, left).items()}
        if name not in BARE or name == "native":
            row["verdicts"] = limits.verdicts(mine[0].get("mix"), measures(row))
        result["systems"][name] = row
    return result


def three_of(one):
    return {p: three(one.interval(share)) for p, share in SHARES.items()}


# ---- tables ----------------------------------------------------------------------------------------------------------

HEAD = (
    "system",
    "of each",
    "P50 ms (95 %)",
    "P90 ms (95 %)",
    "P99 ms (95 %)",
    "max ms",
    "n",
    "P99, median of rounds",
    "P50 to alone (95 %)",
    "P90 to alone (95 %)",
    "P99 to alone (95 %)",
    "by round",
    "host's part, P50 / P99",
    "waiting, P50 / P99",
    "device wait beyond alone, P50",
    "P99",
)
WORK_HEAD = (
    "system",
    "best-effort per s (of its own without the urgent program)",
    "mean of these (95 %)",
    "of the time left (95 %)",
    "to time sharing (95 %)",
)


def ranged(found, digits=2, factor=1, unit=""):
    """A value and its interval."""
    if not found:
        return None
    value, low, high = (None if v is None else f"{factor * v:.{digits}f}" for v in found)
    return f"{value}{unit}" if low is None else f"{value}{unit} ({low}–{high})"


def percent(found):
    return ranged(found, 1, 100, " %")


def request_rows(found):
    rows = []
    for name, row in found["systems"].items():
        host, wait = ("{p50:.2f} / {p99:.2f}".format(**row[k]) if k in row else None for k in ("host", "wait"))
        beyond = row.get("wait_beyond_alone", {})
        for metric, one in row.get("metrics", {}).items():
            ratios, by_round = row.get("to_alone", {}).get(metric, {}), one.get("p99_to_alone_by_round")
            whole = metric == "latency"
            rows.append(
                (
                    name,
                    NAMES[metric],
                    *(ranged(one[p]) for p in SHARES),
                    row["max"] if whole else None,
                    f"{one['n']} ({row['unserved']} not begun)" if whole and "unserved" in row else one["n"],
                    one.get("p99_of_rounds"),
                    *(ranged(ratios.get(p), 3) for p in SHARES),
                    f"{by_round['min']:.2f}–{by_round['max']:.2f}" if by_round else None,
                    host if whole else None,
                    wait if whole else None,
                    *(ranged(beyond.get(p)) if whole else None for p in ("p50", "p99")),
                )
            )
        for metric, one in row.get("lower", {}).items():
            base = row.get("lower_to_alone", {}).get(metric, {})
            own, ratios = [ranged(one[p]) for p in SHARES], [ranged(base.get(p), 3) for p in SHARES]
            rest = (None,) * (len(HEAD) - 11)
            rows.append((f"{name}, lower class", NAMES[metric], *own, None, one["n"], None, *ratios, *rest))
    for metric, ratios in found.get("noise", {}).items():
        blank = (None,) * 6
        cells = (ranged(ratios[p], 3) for p in SHARES)
        rows.append(("alone, odd rounds to even", NAMES[metric], *blank, *cells, *(None,) * (len(HEAD) - 11)))
    return rows


def work_rows(found):
    rows = []
    for name, row in found["systems"].items():
        if "best_effort_per_s" not in row:
            continue
        own, bare = row.get("work", {}), name == "best-effort"
        each = []
        for role, per_s in row["best_effort_per_s"].items():
            kept = own.get(f"{role} kept")
            each.append(f"{role} {per_s:.1f}" + (f" ({100 * kept[0]:.1f} %)" if kept and not bare else ""))
        cells = [percent(own.get(k)) for k in ("work kept", "work of time left", "work to time")]
        rows.append((name, ", ".join(each), *((None,) * 3 if bare else cells)))
    return rows


def verdict_rows(found):
    """A row for each limit, a column for each system."""
    judged = {name: row["verdicts"] for name, row in found["systems"].items() if row.get("verdicts")}
    said = dict.fromkeys(v["limit"] for verdicts in judged.values() for v in verdicts)
    head, rows = ("limit", *judged), []
    for limit in said:
        cells = [next((v for v in verdicts if v["limit"] == limit), None) for verdicts in judged.values()]
        texts = [v and f"{ranged((v['value'], v['low'], v['high']), 3)} **{v['verdict']}**" for v in cells]
        rows.append((limit, *texts))
    return head, rows


def table(found):
    """A summary as Markdown: requests, best-effort work, limits; whatever there is of them."""
    tables = [(HEAD, request_rows(found)), (WORK_HEAD, work_rows(found)), verdict_rows(found)]
    return "\n\n".join(records.table(head, rows) for head, rows in tables if rows)


def summaries(path):
    """Mix -> summary of what a file holds of the build, window length and arrivals measured last."""
    by = {}
    for record in records.load(path):
        if record.get("bench") == "coloc":
            by.setdefault(record["mix"], []).append(record)
    same = ("build", "secs", "arrivals")
    by = {mix: [w for w in found if all(w.get(k) == found[-1].get(k) for k in same)] for mix, found in by.items()}
    return {mix: summary(found) for mix, found in by.items()}
