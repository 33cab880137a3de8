"""Figures of the windows of coloc.py: those of each system of a mix, with intervals, and their tables.

Noise of the machine is told apart from scheduling. A request consists of the host's part, in which its commands are given,
and of the wait for the device after the last of them: the device and its scheduler add to the wait. Figures are relative to
`alone` in the same rounds. Marked as noisy are

  a round          whose `alone` is more than 15 % away from the median of all rounds' `alone`: by the P50 of requests (of
                   token gaps where there are any), or by the P99 of the wait (of token gaps), there by more than chance
                   explains: of 100 values or more, the 95 % interval lies beyond the 15 %
  a window         in which the host's part of a request (of a token gap) is at P50 longer than that of `alone` in the same
                   round by more than 5 % of the request (gap). Time at closed gates, as the daemon counts it, is taken off
                   first: that is scheduling, whoever waits

unless the difference is below 0.02 ms, as long as it takes to wake a thread. Marked rounds and windows are in no figure, and
tables say how many were left out, and why. A system all of whose windows are marked is shown with the word `noise`. Raw
records keep everything.
"""

import intervals
import limits
import records

BARE = {"alone": ("lc",), "best-effort": ("be", "normal"), "native": None}  # served by the same processes: who works
METRICS = {"latency": "latency_ms", "first": "first_ms", "gap": "gap_ms"}
NAMES = {"latency": "request", "first": "first token", "gap": "token gap"}
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
APART = 0.15  # of a round's `alone` from the median of all rounds'
EXCESS = 0.05  # of a request: unexplained host's part
LEAST_MS = 0.02  # differences below are none
FEWEST = 100  # values of which a P99 is told
COMPARED = ("native", "mps-prio", "xsched", "xsched-inside")  # systems to which others' work and waits are related


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
    size = len(values) // requests if requests and what in ("gap_ms", "gap_wait_ms") else 1
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


def promised(window):
    """What users of a window's urgent programs wait for, in ms: each token after the first where answers come in tokens,
    else each request."""
    return pooled([window], "gap_ms") or served([window])


def hosts_part(window):
    """Unit -> the host's part of each token gap and of each request of a window, and the whole of it, in ms; only of those
    units whose wait for the device is known."""
    found = {}
    for unit, whole, wait in (("token gap", pooled([window], "gap_ms"), "gap_wait_ms"), ("request", served([window]), "wait_ms")):
        waits = pooled([window], wait)
        # Waits of nothing but 0 were not measured.
        if whole and len(waits) == len(whole) and any(waits):
            found[unit] = [a - b for a, b in zip(whole, waits)], whole
    return found


def percent_apart(value, middle):
    return f"{100 * abs(value / middle - 1):.0f} % {'above' if value > middle else 'below'} the median of rounds"


def noisy_rounds(alone):
    """Round -> why its `alone` is unlike that of the others; only those for which there is a reason."""
    alone, found = [w for w in alone if promised(w)], {}
    typical = {w["round"]: records.percentile(promised(w), 0.5) for w in alone}
    tails = {w["round"]: sample([w], "gap_ms") or sample([w], "wait_ms") for w in alone}
    tails = {number: one.interval(0.99) for number, one in tails.items() if one and len(one) >= FEWEST}
    for words, by_round in (("P50", {n: (v, v, v) for n, v in typical.items()}), ("P99 of the wait", tails)):
        if not by_round:
            continue
        middle = records.median([value for value, _, _ in by_round.values()])
        for number, (value, low, high) in by_round.items():
            beyond = low > middle * (1 + APART) or high < middle * (1 - APART)
            if beyond and abs(value - middle) >= LEAST_MS:
                what = "P99 of token gaps" if words != "P50" and pooled(alone, "gap_ms") else words
                found.setdefault(number, []).append(f"alone's {what} is {percent_apart(value, middle)}")
    return found


def host_excess(window, alone):
    """Why a window is noisy, by the host's part of its requests beside that of `alone` in the same round; None if it is
    not, or if that cannot be told."""
    mine, base = hosts_part(window), hosts_part(alone)
    unit = next((unit for unit in mine if unit in base), None)
    if unit is None:
        return None
    (own, _), (bare, whole) = mine[unit], base[unit]
    held = sum(r.get("gate_ms", 0.0) for r in of_kind(window)) / len(own)
    excess = records.percentile(own, 0.5) - records.percentile(bare, 0.5) - held
    whole = records.percentile(whole, 0.5)
    if excess < LEAST_MS or excess <= EXCESS * whole:
        return None
    return f"the host's part is {excess:.2f} ms beyond alone's, {100 * excess / whole:.0f} % of a {unit}"


def marks(windows):
    """(system, round) -> why this window is noisy, and round -> why all of the round are."""
    alone = [w for w in windows if w["system"] == "alone"]
    rounds, base, found = noisy_rounds(alone), {w["round"]: w for w in alone}, {}
    for window in windows:
        if window["system"] not in BARE and window["round"] in base:
            why = host_excess(window, base[window["round"]])
            if why:
                found.setdefault((window["system"], window["round"]), []).append(why)
    return found, rounds


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
        return work_to(by, name)

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

    return intervals.of_rounds(common, of) | work_to(by, name)


def work_to(by, name):
    """A system's best-effort work relative to that of others: mean and least of the roles, and the sum of what is kept of
    the work alone. Of the rounds that both have where these are two or more; else medians are compared, without intervals."""
    found = {}
    for other in COMPARED:
        if other == name or other not in by:
            continue
        mine, theirs, base = ({w["round"]: work_of(w) for w in by.get(n, [])} for n in (name, other, "best-effort"))
        common = sorted(n for n in mine if n in theirs and mine[n] and theirs[n])

        def of(chosen, mine=mine, theirs=theirs, base=base, other=other):
            now, then = (medians(work[r] for r in chosen if r in work) for work in (mine, theirs))
            flat = medians(base[r] for r in chosen if r in base) or medians(base.values())
            ratios = [now[r] / then[r] for r in now if then.get(r)]
            if not ratios:
                return {}
            found = {f"work to {other}": sum(ratios) / len(ratios), f"least to {other}": min(ratios)}
            kept = [sum(each[r] / flat[r] for r in each if flat.get(r)) for each in (now, then)]
            return found | ({f"kept to {other}": kept[0] / kept[1]} if kept[1] else {})

        if len(common) > 1:
            found |= intervals.of_rounds(common, of)
        else:
            found |= {measure: (value, None, None) for measure, value in of({*mine, *theirs}).items()}
    return found


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
    for p, value in row.get("gap_wait_beyond_alone", {}).items():
        found[f"gap wait {p}"] = value
    for p, value in row.get("gap_by_wait", {}).items():
        found[f"gap by wait {p}"] = value
    if "by_wait" in row:
        found["by wait p99"] = row["by_wait"]
    for other, value in row.get("wait_p99_to", {}).items():
        found[f"wait p99 to {other}"] = value
    return found


def beyond_by_round(mine, alone, what):
    """Percentile -> median, least and greatest of what each round's wait is beyond that of its own `alone`, in ms."""
    base = {w["round"]: pooled([w], what) for w in alone}
    pairs = [(pooled([w], what), base[w["round"]]) for w in mine if base.get(w["round"])]
    pairs = [(a, b) for a, b in pairs if a]
    found = {p: [records.percentile(a, SHARES[p]) - records.percentile(b, SHARES[p]) for a, b in pairs] for p in ("p50", "p99")}
    return {p: records.spread(values) for p, values in found.items() if values}


def waits_of(mine, alone, what):
    """How much longer than alone the device is waited for: percentile -> value, low, high in ms; nothing where that is not
    known."""
    # Waits of nothing but 0 were not measured.
    if not (any(pooled(mine, what)) and any(pooled(alone, what))):
        return {}
    one, other = sample(mine, what), sample(alone, what)
    return {p: intervals.difference(one, other, SHARES[p]) for p in ("p50", "p99")}


def by_wait(beyond, alone):
    """What a P99 alone would be, relative to itself, if a request took longer by the wait for the device alone: value, low, high
    from those of both, on the safe side."""
    (value, low, high), (whole, least, most) = beyond, alone
    return 1 + value / whole, 1 + low / (most if low > 0 else least), 1 + high / (least if high > 0 else most)


def noise(windows):
    """Alone against alone, odd rounds against even: what ratios come to where nothing differs but chance."""
    odd, even = (samples([w for w in windows if w["round"] % 2 == rest]) for rest in (1, 0))
    return to_alone(odd, even)


def summary(windows, leave_out=True):
    """The figures of one mix, by system, with what they are derived from. Windows that are marked as noisy are left out, and
    each system is compared with `alone` of its own rounds, unless `leave_out` is false: then all rounds count."""
    every = {}
    for window in windows:
        every.setdefault(window["system"], []).append(window)
    marked, rounds = marks(windows) if leave_out else ({}, {})
    quiet = {n: [w for w in mine if w["round"] not in rounds and (n, w["round"]) not in marked] for n, mine in every.items()}
    by = {name: quiet[name] or mine for name, mine in every.items()}
    alone, base = pooled(by.get("alone", [])), rates(by.get("best-effort", []))
    lower_alone = samples(by.get("best-effort", []), "normal")
    busy = None
    if alone:
        rate = sum(r["rate"] for r in of_kind(by["alone"][0]))
        busy = rate * records.percentile(served(by["alone"]), 0.5) / 1e3
    left = None if busy is None or busy >= 1 else 1 - busy
    result = {"time_left": rounded(None if busy is None else 1 - busy), "best_effort_alone_per_s": base, "systems": {}}
    if marked or rounds:
        result["marked"] = [dict(system=None, round=number, why=why) for number, why in sorted(rounds.items())]
        result["marked"] += [dict(system=n, round=number, why=why) for (n, number), why in sorted(marked.items())]
    if windows and windows[-1].get("arrivals"):
        result["arrivals"] = windows[-1]["arrivals"]
    if alone:
        result["noise"] = noise(by["alone"])
    alone_by_round = {w["round"]: pooled([w]) for w in every.get("alone", [])}
    tails = {m: {w["round"]: pooled([w], what) for w in every.get("alone", [])} for m, what in METRICS.items()}
    tails = {m: {r: records.percentile(v, 0.99) for r, v in rounds.items() if v} for m, rounds in tails.items()}
    for name, mine in by.items():
        row = {"windows": len(mine)}
        if not quiet[name]:
            row["noisy"] = True
        elif len(mine) < len(every[name]):
            row["left_out"] = len(every[name]) - len(mine)
        found = pooled(mine)
        if found:
            served_in = {w["round"] for w in mine}
            own_alone = [w for w in every.get("alone", []) if leave_out and w["round"] in served_in and pooled([w])]
            own_alone = own_alone or by.get("alone", [])
            alone, alone_samples = pooled(own_alone), samples(own_alone)
            row.update(records.latencies(found), **parts(mine))
            if alone:
                row["p99_to_alone"] = rounded(records.percentile(found, 0.99) / records.percentile(alone, 0.99))
                row["p50_to_alone"] = rounded(records.percentile(found, 0.5) / records.percentile(alone, 0.5))
            pairs = [(pooled([w]), alone_by_round[w["round"]]) for w in mine if alone_by_round.get(w["round"])]
            pairs = [records.percentile(a, 0.99) / records.percentile(b, 0.99) for a, b in pairs if a]
            if pairs:
                row["p99_to_alone_by_round"] = records.spread(pairs)
            own = samples(mine)
            row["metrics"] = metrics(mine, own, tails)
            if name != "alone":
                row["to_alone"] = to_alone(own, alone_samples)
                row |= beyond_alone(mine, own_alone, alone_samples)
                row["wait_p99_to"] = waits_to(mine, by, name)
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
            row["verdicts"] = limits.verdicts(limits.LIMITS.get(mine[0].get("mix"), ()), measures(row))
            row["sides"] = limits.verdicts(limits.SIDES.get(mine[0].get("mix"), {}).get(name, ()), measures(row))
        result["systems"][name] = row
    return result


def beyond_alone(mine, alone, alone_samples):
    """Parts of a system's row: its waits for the device beyond those of `alone`, whole requests and token gaps by them."""
    row = {}
    for key, what in (("wait", "wait_ms"), ("gap_wait", "gap_wait_ms")):
        beyond = waits_of(mine, alone, what)
        if not beyond:
            continue
        row[f"{key}_beyond_alone"] = {p: three(value) for p, value in beyond.items()}
        row[f"{key}_beyond_alone_by_round"] = beyond_by_round(mine, alone, what)
        if key == "wait":
            row["by_wait"] = three(by_wait(beyond["p99"], alone_samples["latency"].interval(0.99)))
        else:
            gaps = alone_samples["gap"]
            row["gap_by_wait"] = {p: three(by_wait(beyond[p], gaps.interval(SHARES[p]))) for p in beyond}
    return row


def waits_to(mine, by, name):
    """Other system -> P99 of the wait for the device relative to that under it: value, low, high."""
    found, what = {}, "gap_wait_ms" if any(pooled(mine, "gap_wait_ms")) else "wait_ms"
    if any(pooled(mine, what)):
        for other in COMPARED:
            if other != name and any(pooled(by.get(other, []), what)):
                found[other] = three(intervals.ratio(sample(mine, what), sample(by[other], what), 0.99))
    return found


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


def label(name, row):
    """The name of a system, with how many of its windows were left out as noisy."""
    if row.get("noisy"):
        return f"{name}, noise"
    return f"{name}, {row['left_out']} of {row['left_out'] + row['windows']} left out" if "left_out" in row else name


def request_rows(found):
    rows = []
    for system, row in found["systems"].items():
        name = label(system, row)
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
        rows.append((label(name, row), ", ".join(each), *((None,) * 3 if bare else cells)))
    return rows


MARKED_HEAD = ("left out as noisy", "round", "why")


def marked_rows(found):
    return [(one["system"] or "all", one["round"], "; ".join(one["why"])) for one in found.get("marked", [])]


SIDES_HEAD = (
    "system",
    "device wait beyond alone, P50 / P99 ms",
    "request to alone, P50 / P99",
    "host's part, P50 ms",
    "token gap to alone, P50 / P99",
    "gap by wait, P50",
    "gap's wait beyond alone, P99 ms",
    "first token to alone, P90",
    "best-effort per s",
    "of its own",
    "to MPS with priorities",
    "to xsched outside",
    "to that with classes",
)


def sides_rows(found):
    """A row for each system: how long the urgent program waits and what others do meanwhile."""

    def both(values, *keys, digits=3):
        shown = [f"{values[k][0]:.{digits}f}" if k in values else None for k in keys]
        return " / ".join(shown) if all(shown) else None

    rows = []
    for name, row in found["systems"].items():
        to, own = row.get("to_alone", {}), row.get("work", {})
        work = ", ".join(f"{role} {per_s:.1f}" for role, per_s in row.get("best_effort_per_s", {}).items())
        rows.append(
            (
                label(name, row),
                both(row.get("wait_beyond_alone", {}), "p50", "p99"),
                both(to.get("latency", {}), "p50", "p99"),
                f"{row['host']['p50']:.2f}" if "host" in row else None,
                both(to.get("gap", {}), "p50", "p99"),
                both(row.get("gap_by_wait", {}), "p50"),
                both(row.get("gap_wait_beyond_alone", {}), "p99"),
                both(to.get("first", {}), "p90"),
                work or None,
                None if name == "best-effort" else both(own, "work kept"),
                *(both(own, f"work to {other}") for other in COMPARED[1:]),
            )
        )
    return rows


def target_rows(found):
    """A row for each target of a system that has some."""
    judged = [(name, v) for name, row in found["systems"].items() for v in row.get("sides", [])]
    return [(name, v["limit"], ranged((v["value"], v["low"], v["high"]), 3), f"**{v['verdict']}**") for name, v in judged]


def sides_table(found):
    """The short summary of sides.py as Markdown."""
    parts = [(SIDES_HEAD, sides_rows(found)), (("system", "target", "value (95 %)", ""), target_rows(found))]
    return "\n\n".join(records.table(head, rows) for head, rows in [*parts, (MARKED_HEAD, marked_rows(found))] if rows)


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
    tables = [(HEAD, request_rows(found)), (WORK_HEAD, work_rows(found)), verdict_rows(found), (MARKED_HEAD, marked_rows(found))]
    return "\n\n".join(records.table(head, rows) for head, rows in tables if rows)


def summaries(path, leave_out=True):
    """Mix -> summary of what a file holds of the build, window length and arrivals measured last."""
    by = {}
    for record in records.load(path):
        if record.get("bench") == "coloc":
            by.setdefault(record["mix"], []).append(record)
    same = ("build", "secs", "arrivals")
    by = {mix: [w for w in found if all(w.get(k) == found[-1].get(k) for k in same)] for mix, found in by.items()}
    return {mix: summary(found, leave_out) for mix, found in by.items()}
