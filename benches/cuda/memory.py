#!/usr/bin/env python3
"""GPU memory under a limit, and the cost of counting it.

  memory.py [--bin DIR] [--out FILE] [--gpu N] [--limit GIB] [--only A,B] [--rounds N]

The GPU has to be otherwise unused: what a program has is the difference that NVML tells of the whole device, and NVML's figure of the
process where it can be told. Parts (--only):

  steps       memory taken in each way, 0.5 to 4 GiB: what is counted against what the device has
  pairs       allocations with their frees by way and size, bare, counted and under a limit. The three programs take turns of some
              ms, so that clocks that change do so for all: ns, and the median of each turn's ratio to the bare one
  programs    PyTorch programs that allocate a lot: the layers of a decoder and its backward pass with cudaMallocAsync for each tensor,
              and with cuMemAlloc for each tensor (no cache); by turns of some 0.1 s likewise, in --rounds sets of fresh
              processes: ms of a step, and its instructions in millions where the machine counts them. Two more bare ones stand
              beside them, one of them with a preloaded library that does nothing: what they differ by is chance
  switched    these programs once more, with an allocator that takes memory by the functions that the linker finds in one step and by
              the driver's own in the others: ms of a step, of it in calls that allocate and in those that free, and the medians
              of what they take beyond a step of the same turn with the driver's own, in percent of a step. `again` is another step
              with the driver's own
  within      the same commands through the functions that the linker finds and through the driver's own, by turns in one thread, ns
  start       cuInit and the first context, likewise by turns, ms
  nvml        what NVIDIA's library tells a process that initialises it with and without NVML_INIT_FLAG_NO_ATTACH, and how long it takes
  context     a C program with the primary context and 2 GiB, counted and under the limit
  fill        plain, virtual and pooled memory until it is refused under the limit
  torch, expandable, async, jax
              PyTorch with its three allocators and JAX, counted and under the limit: what they are told, what they choose, how much
              they get, and which error is the last
  cost        more ways than `pairs`, without turns

All but `cost` in some two minutes. What `xsched ps` tells of a program is compared with NVML's figure of its process. One JSON object
is written to --out (memory.json); a summary is printed.
"""

import argparse
import ctypes
import json
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
GIB, MIB = 1 << 30, 1 << 20
PARTS = ("nvml", "steps", "pairs", "programs", "switched", "within", "start", "context", "fill", "torch", "expandable", "async", "jax")
HOWS = ("bare", "counted", "limited")
# Further bare programs in turns, the second one with a library that does nothing: what ratios come to where nothing differs but chance.
AGAIN, NOTHING = "again", "nothing"
TURNS = (*HOWS, AGAIN, NOTHING)
# The daemon asks NVML every second: two answers after the last allocation.
MEASURED_S = 2.6
ALLOCATORS = {"torch": "", "expandable": "expandable_segments:True", "async": "backend:cudaMallocAsync"}


def median_of(values):
    """The median, and the range in which it lies in 95 of 100 cases, by the order of the values."""
    values, away = sorted(values), 0.98 * len(values) ** 0.5
    at = lambda place: values[max(0, min(len(values) - 1, round(place)))]
    return [round(each, 4) for each in (statistics.median(values), at(len(values) / 2 - away - 0.5), at(len(values) / 2 + away - 0.5))]


# ---- programs, in processes of their own -------------------------------------------------------------------------------------------


def hold(record):
    """Tells what was found and stays until the measurement is made."""
    print(json.dumps(record), flush=True)
    sys.stdin.readline()


def torch_program():
    import torch

    start = time.monotonic()
    torch.cuda.init()
    record = {"total_property": torch.cuda.get_device_properties(0).total_memory, "allocator": torch.cuda.get_allocator_backend()}
    record["free"], record["total"] = torch.cuda.mem_get_info()
    weights = torch.randn(4096, 4096, device="cuda")
    record["result"] = bool(torch.isfinite(weights @ weights).all())  # loads the libraries
    record["start_s"] = round(time.monotonic() - start, 2)
    held = []
    try:
        while len(held) < 400:
            held.append(torch.empty(GIB // 2, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        record["error"] = str(error).split(". ")[0][:200]
    except RuntimeError as error:
        record["other_error"] = str(error)[:300]
    record["held"] = len(held) * GIB // 2
    record["free_at_end"], record["total_at_end"] = torch.cuda.mem_get_info()
    del held[::2]
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    # Goes on after the refusal.
    again = torch.full((GIB // 4,), 3, dtype=torch.uint8, device="cuda")
    record["goes_on"] = int(again.sum(dtype=torch.int64)) == 3 * (GIB // 4)
    free, total = torch.cuda.mem_get_info()
    record["told_used"] = total - free
    record["reserved"] = torch.cuda.memory_reserved()
    hold(record)


class Instructions:
    """Instructions that this process executes in user mode, with all threads that begin later. `count` is None where nobody counts them."""

    def __init__(self):
        # struct perf_event_attr: hardware, its size, instructions; then the flags inherit, exclude_kernel and exclude_hv.
        fields = struct.pack("<IIQQQQQ", 0, 112, 1, 0, 0, 0, 1 << 1 | 1 << 5 | 1 << 6).ljust(112, b"\0")
        self.file = ctypes.CDLL(None).syscall(298, fields, 0, -1, -1, 0) if platform.machine() == "x86_64" else -1

    def count(self):
        return int.from_bytes(os.read(self.file, 8), "little") if self.file >= 0 else None


def small_training():
    """A step of a small training, as a function. All such programs work on the same two cores, so that these are no difference."""
    import torch

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-2:])
    torch.manual_seed(1)
    layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(4)]
    net = torch.nn.Sequential(*layers).cuda()
    x = torch.randn(8, 128, 512, device="cuda")

    def steps(count):
        start = time.monotonic()
        for _ in range(count):
            net(x).pow(2).mean().backward()
            net.zero_grad()
        torch.cuda.synchronize()
        return 1e3 * (time.monotonic() - start) / count

    return steps


def allocating_program():
    """As many steps of a small training a line as take 0.1 s without xsched; answers with the milliseconds of each, and its millions of
    instructions."""
    instructions = Instructions()
    steps = small_training()

    def measured(count):
        begun = instructions.count()
        found = {"step": steps(count)}
        return found if begun is None else found | {"instructions": (instructions.count() - begun) / count / 1e6}

    steps(5)
    count = max(1, round(100 / steps(10)))
    print("{}", flush=True)
    while sys.stdin.readline().strip() == "go":
        print(json.dumps(measured(count)), flush=True)


def switched_program(library, plain, turns):
    """Takes memory by alloc.c's functions, whose way changes from step to step."""
    import torch

    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "torch_allocate", "torch_free")
    torch.cuda.memory.change_current_allocator(allocator)
    functions = ctypes.CDLL(library)
    torch.cuda.init()
    functions.torch_switch(0, int(plain))
    steps, rows, spent = small_training(), [], (ctypes.c_double * 3)()
    ways = [("own", 0), ("found", 1), ("again", 0)]
    steps(10)
    for turn in range(int(turns)):
        row = {}
        for name, which in ways:
            functions.torch_switch(which, int(plain))
            functions.torch_spent(spent)
            step = steps(1)
            functions.torch_spent(spent)
            row[name] = {"step_ms": step, "allocates_ms": 1e3 * spent[0], "frees_ms": 1e3 * spent[1], "allocations": spent[2]}
        rows.append(row)
        ways = ways[1:] + ways[:1]
    column = lambda name, key: [row[name][key] for row in rows]
    found = {name: {key: round(statistics.median(column(name, key)), 4) for key in row["own"]} for name in ("own", "found", "again")}
    own = found["own"]["step_ms"]
    beyond = {
        name: {key: median_of([100 * (row[name][key] - row["own"][key]) / own for row in rows]) for key in ("step_ms", "allocates_ms", "frees_ms")}
        for name in ("found", "again")
    }
    print(json.dumps({"medians": found, "beyond_percent_of_step": beyond}), flush=True)


def jax_program():
    import jax
    import jax.numpy as jnp

    start = time.monotonic()
    device = jax.devices()[0]
    x = jnp.ones((4096, 4096), jnp.float32)
    ok = bool((x @ x)[0, 0] == 4096.0)
    stats = device.memory_stats() or {}
    record = {"result": ok, "start_s": round(time.monotonic() - start, 2), "bytes_limit": stats.get("bytes_limit")}
    held = []
    try:
        while len(held) < 400:
            held.append(jax.device_put(jnp.zeros((GIB // 2,), jnp.uint8), device).block_until_ready())
    except Exception as error:  # of its runtime
        record["error"] = f"{type(error).__name__}: {error}"[:200]
    record["held"] = len(held) * GIB // 2
    del held[::2]
    record["goes_on"] = int(jnp.sum(jnp.ones((MIB,), jnp.int32))) == MIB
    cuda, figures = ctypes.CDLL("libcuda.so.1"), (ctypes.c_size_t(), ctypes.c_size_t())
    context = ctypes.c_void_p()
    if not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) and not cuda.cuCtxSetCurrent(context):
        if not cuda.cuMemGetInfo_v2(ctypes.byref(figures[0]), ctypes.byref(figures[1])):
            record["total"], record["told_used"] = figures[1].value, figures[1].value - figures[0].value
    hold(record)


def nvml_program():
    """What the library tells this process, whose context is made beforehand."""
    cuda, context, used = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), []
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    address = ctypes.create_string_buffer(32)
    cuda.cuDeviceGetPCIBusId(address, 32, 0)
    for flags in (2, 0):
        library, device, row = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), {"flags": flags}
        memory, count, found = (ctypes.c_ulonglong * 3)(), ctypes.c_uint(64), (Nvml.Process * 64)()
        calls = {
            "init": lambda: library.nvmlInitWithFlags(flags),
            "handle": lambda: library.nvmlDeviceGetHandleByPciBusId_v2(address, ctypes.byref(device)),
            "memory": lambda: library.nvmlDeviceGetMemoryInfo(device, memory),
            "processes": lambda: library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), found),
            "shutdown": lambda: library.nvmlShutdown(),
        }
        for name, call in calls.items():
            start = time.monotonic()
            row[name] = {"code": call(), "ms": round(1e3 * (time.monotonic() - start), 2)}
            if row[name]["code"]:
                break  # without a handle the next one ends the process
        row["own"] = next((found[n].used for n in range(count.value) if found[n].pid == os.getpid()), None)
        used.append(row)
    print(json.dumps({"rows": used}))


# ---- NVML, of this process, which is not under xsched ------------------------------------------------------------------------------


class Nvml:
    class Memory(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint), *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used"))]

    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]

    def __init__(self, gpu):
        self.library, self.device = None, ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if not library.nvmlInit_v2() and not library.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(self.device)):
            self.library = library

    def used(self):
        memory = self.Memory(ctypes.sizeof(self.Memory) | 2 << 24)
        if not self.library or self.library.nvmlDeviceGetMemoryInfo_v2(self.device, ctypes.byref(memory)):
            return None
        return memory.used

    def processes(self):
        """Bytes of each process, by its number; a process in a container may have another here."""
        found, count = (self.Process * 64)(), ctypes.c_uint(64)
        get = getattr(self.library, "nvmlDeviceGetComputeRunningProcesses_v3", None) if self.library else None
        if not get or get(self.device, ctypes.byref(count), found):
            return {}
        return {found[n].pid: found[n].used for n in range(count.value) if found[n].used < 1 << 60}


class Bench:
    def __init__(self, arguments, work):
        self.arguments, self.work = arguments, Path(work)
        self.xsched = Path(arguments.bin).resolve() / "xsched"
        self.nvml = Nvml(arguments.gpu)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("XSCHED_", "LD_PRELOAD"))}
        self.env["CUDA_VISIBLE_DEVICES"] = str(arguments.gpu) if "CUDA_VISIBLE_DEVICES" not in os.environ else os.environ["CUDA_VISIBLE_DEVICES"]
        self.alloc = self.work / "alloc"
        self.library, self.nothing, compiler = self.work / "alloc.so", self.work / "nothing.so", shutil.which("gcc") or "cc"
        flags = ["-O2", str(HERE / "alloc.c"), "-ldl", "-lm", "-o"]
        built = subprocess.run([compiler, *flags, self.alloc], capture_output=True, text=True)
        subprocess.run([compiler, "-shared", "-fPIC", *flags, self.library], capture_output=True)
        subprocess.run([compiler, "-shared", "-x", "c", "/dev/null", "-o", self.nothing], check=True)
        self.alloc = self.alloc if built.returncode == 0 else None
        self.build_error = built.stderr[-500:] if built.returncode else ""
        help_of = subprocess.run([self.xsched, "run", "--help"], capture_output=True, text=True)
        self.has_option = "--memory-limit" in help_of.stdout
        # Programs under one daemon would be rivals: each way has its own.
        self.sockets = {how: self.work / f"{how}.sock" for how in HOWS[1:]}
        home = dict(self.env, XDG_CONFIG_HOME=str(self.work), XDG_STATE_HOME=str(self.work))
        log, self.daemons = open(self.work / "daemon.log", "w"), []
        for socket in self.sockets.values():
            command = [self.xsched, "daemon", "--socket", socket, "--policy", "hpf", "--idle-exit", "never"]
            self.daemons.append(subprocess.Popen(command, env=home, stdout=log, stderr=log))
            for _ in range(200):
                if subprocess.run([self.xsched, "ps", "--socket", socket], capture_output=True).returncode == 0:
                    break
                time.sleep(0.05)

    def end(self):
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait(20)

    def command(self, how, command, variables=()):
        env, limit = dict(self.env, **dict(variables)), f"{self.arguments.limit}GiB"
        stats = self.work / f"stats-{time.monotonic_ns()}"
        env["XSCHED_STATS"] = str(stats)
        if how == NOTHING:
            env["LD_PRELOAD"] = str(self.nothing)
        if how in ("bare", AGAIN, NOTHING):
            return command, env, stats
        if how == "counted":
            return [self.xsched, "run", "--socket", self.sockets[how], "--", *command], env, stats
        if self.has_option:
            return [self.xsched, "run", "--socket", self.sockets[how], "--memory-limit", limit, "--", *command], env, stats
        env["XSCHED_MEMORY_LIMIT"] = limit
        return [self.xsched, "run", "--no-daemon", "--", *command], env, stats

    def settled(self):
        """Memory in use once it has not changed for a while."""
        last, same = self.nvml.used(), 0
        for _ in range(100):
            time.sleep(0.05)
            now = self.nvml.used()
            same = same + 1 if now == last else 0
            last = now
            if same >= 6:
                break
        return last

    def start(self, how, command, variables=()):
        words, env, stats = self.command(how, [str(word) for word in command], variables)
        process = subprocess.Popen(
            [str(word) for word in words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        process.errors, process.stats = [], stats
        threading.Thread(target=lambda: process.errors.extend(process.stderr), daemon=True).start()
        timer = threading.Timer(self.arguments.patience, process.kill)
        timer.daemon = True
        timer.start()
        return process

    def finish(self, process, record):
        try:
            process.stdin.write("\n")
            process.stdin.close()
        except OSError:
            pass
        record["status"] = process.wait(self.arguments.patience)
        lines = [line.strip() for line in process.errors]
        record["xsched_says"] = [line for line in lines if line.startswith("xsched:")][:5]
        if record["status"]:
            record["stderr"] = lines[-8:]
        try:
            record["at_exit"] = json.loads(process.stats.read_text().splitlines()[-1]).get("memory")
        except (OSError, ValueError, IndexError):
            pass
        return record

    def holding(self, how, command, variables=()):
        """A program that tells a line of JSON and stays: that, with what the device has of it meanwhile."""
        baseline = self.settled()
        process = self.start(how, command, variables)
        record = {"how": how}
        line = process.stdout.readline()
        while line and not line.startswith(("{", "step")):
            line = process.stdout.readline()
        if line.startswith("{"):
            record.update(json.loads(line))
        if how != "bare":
            time.sleep(MEASURED_S)
        used = self.nvml.used()
        if used is not None and baseline is not None:
            record["device_used"] = used - baseline
        own = self.nvml.processes().get(process.pid)
        if own is not None:
            record["nvml_process"] = own
        record["ps"] = self.memory_of(how, process.pid)
        held = record["ps"]["memory"][0] if record["ps"] and record["ps"].get("memory") else None
        if held and own:
            record["ps_used"], record["ps_overhead"] = held["held"]["used_bytes"], held["held"]["overhead_bytes"]
            record["error_percent_of_device"] = round(100 * (record["ps_used"] - own) / held["capacity_bytes"], 3)
            record["error_percent"] = round(100 * (record["ps_used"] - own) / own, 3)
        return self.finish(process, record)

    def memory_of(self, how, pid):
        """What `xsched ps` tells of the program's memory."""
        socket = self.sockets.get(how, self.sockets["counted"])
        done = subprocess.run([self.xsched, "ps", "--json", "--socket", socket], capture_output=True, text=True)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            return None
        for program in found.get("programs", found.get("groups", [])):
            if program.get("pid") == pid:
                return {k: v for k, v in program.items() if "memory" in k} or None
        return None

    # ---- parts ---------------------------------------------------------------------------------------------------------------------

    def steps(self):
        baseline, rows = self.settled(), []
        process = self.start("limited", [self.alloc, "steps"])
        first = None
        for line in process.stdout:
            if not line.startswith("step "):
                continue
            _, name, taken, told = line.split()
            if name == "start":
                time.sleep(MEASURED_S)  # until the daemon knows what the context takes
                process.stdin.write("\n")
                process.stdin.flush()
                continue
            device = (self.settled() or 0) - (baseline or 0)
            row = {"step": name, "asked": int(taken), "told": int(told), "device": device}
            row["nvml_process"] = self.nvml.processes().get(process.pid)
            first = first or row
            row["told_growth"], row["device_growth"] = row["told"] - first["told"], device - first["device"]
            row["error_percent"] = round(100 * (row["told"] - device) / device, 2) if device else None
            rows.append(row)
            process.stdin.write("\n")
            process.stdin.flush()
        return self.finish(process, {"rows": rows})

    def taking_turns(self, command, count, word="", variables=(), first=0):
        """Starts the command in each way, and has one after the other answer a line, each time another one first."""
        order = list(TURNS[first % len(TURNS) :] + TURNS[: first % len(TURNS)])
        running, rounds = {}, {how: [] for how in order}
        for how in order:
            running[how] = self.start(how, command, variables)
        for process in running.values():
            process.stdout.readline()
        for _ in range(count):
            order = [*order[1:], order[0]]
            for how in order:
                running[how].stdin.write(f"{word}\n")
                running[how].stdin.flush()
                rounds[how].append(json.loads(running[how].stdout.readline()))
        for process in running.values():
            self.finish(process, {})
        return rounds

    def pairs(self):
        return self.turns(self.taking_turns([self.alloc, "pairs", "--count", "4000"], 12 * self.arguments.rounds))

    def within(self):
        """What each function takes beyond the driver's own, in a program of its own."""
        found = {}
        for how in HOWS:
            process = self.start(how, [self.alloc, "within", "--rounds", "3000"])
            found[how] = json.loads(process.stdout.readline())
            self.finish(process, {})
        return found

    def programs(self):
        kinds = {"async": ("PYTORCH_CUDA_ALLOC_CONF", ALLOCATORS["async"]), "no_cache": ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")}
        command, found = [sys.executable, __file__, "program", "allocating"], {}
        for name, variable in kinds.items():
            sets = [self.taking_turns(command, 12, "go", [variable], n) for n in range(self.arguments.rounds)]
            for how in TURNS:
                # Processes differ, as bare ones do: a row is what a set of fresh ones comes to.
                rows = [{f"{name}_{k}": statistics.median(row[k] for row in each[how]) for k in each[how][0]} for each in sets]
                found[how] = [before | row for before, row in zip(found.get(how, [{}] * len(rows)), rows)]
        return self.turns(found)

    def switched(self):
        """Steps with counted and with uncounted allocations in one process: --rounds fresh processes of each kind."""
        found = {}
        for kind, plain, turns in (("async", 0, 800), ("no_cache", 1, 400)):
            for how in HOWS[1:]:
                rows = []
                for _ in range(self.arguments.rounds):
                    process = self.start(how, [sys.executable, __file__, "program", "switched", self.library, plain, turns])
                    rows.append(self.finish(process, json.loads(process.stdout.readline() or "{}")))
                found[f"{kind} {how}"] = rows
        return found

    def start_up(self):
        rounds = {how: [] for how in HOWS}
        for _ in range(self.arguments.rounds):
            for how, found in rounds.items():
                process = self.start(how, [self.alloc, "pairs"])
                found.append(json.loads(process.stdout.readline()))
                self.finish(process, {})
        return self.turns(rounds)

    @staticmethod
    def turns(rounds):
        names = list(rounds["bare"][0])
        medians = {how: {k: statistics.median(row[k] for row in rows) for k in names} for how, rows in rounds.items()}
        pairs = {how: list(zip(rows, rounds["bare"])) for how, rows in rounds.items() if how != "bare"}
        ratios = {how: {k: median_of([row[k] / bare[k] for row, bare in each]) for k in names} for how, each in pairs.items()}
        return {"medians": medians, "ratios": ratios, "rounds": rounds}

    def probe(self):
        done = subprocess.run([sys.executable, __file__, "program", "nvml"], env=self.env, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else {"trouble": done.stderr[-500:]}

    def context(self):
        return [self.holding(how, [self.alloc, "hold"]) for how in HOWS[1:]]

    def cost(self):
        rounds = {"bare": [], "counted": [], "limited": []}
        for _ in range(self.arguments.rounds):
            for how, found in rounds.items():
                process = self.start(how, [self.alloc, "cost", "--rounds", "3"])
                out = process.stdout.read()
                self.finish(process, {})
                found.extend(json.loads(line) for line in out.splitlines() if line.startswith("{"))
        medians = {how: {k: statistics.median(row[k] for row in rows) for k in rows[0]} for how, rows in rounds.items() if rows}
        ratios = {
            how: {k: round(medians[how][k] / medians["bare"][k], 4) for k in medians["bare"]}
            for how in medians
            if how != "bare" and "bare" in medians
        }
        return {"medians": medians, "ratios": ratios, "rounds": rounds}

    def fill(self):
        ways = ("plain", "vmm", "pool")
        return [dict(self.holding("limited", [self.alloc, "fill", way]), way=way) for way in ways]

    def framework(self, part):
        if part == "jax":
            name, variables = "jax", {}
        else:
            name, conf = "torch", ALLOCATORS[part]
            variables = {"PYTORCH_CUDA_ALLOC_CONF": conf} if conf else {}
        command = [sys.executable, __file__, "program", name]
        return [self.holding(how, command, variables) for how in HOWS[1:]]


def gib(value):
    return "-" if value is None else f"{value / GIB:.2f}"


def summary(found):
    for row in found.get("steps", {}).get("rows", []):
        print(f"step {row['step']:<18} told +{row['told_growth'] / MIB:9.1f} MiB  device +{row['device_growth'] / MIB:9.1f} MiB"
              f"  all: told {gib(row['told'])}, device {gib(row['device'])} GiB ({row['error_percent']} %)")
    for part in ("pairs", "programs", "within", "start", "cost"):
        cost = found.get(part, {})
        for key, bare in cost.get("medians", {}).get("bare", {}).items():
            others = "  ".join(f"{how} {cost['medians'][how][key]:.2f} (x{cost['ratios'][how][key]})" for how in cost["ratios"])
            print(f"{part} {key:<12} bare {bare:.2f}  {others}")
    switched = found.get("switched", {})
    for how, rows in switched.items() if isinstance(switched, dict) else ():
        print(f"switched {how}: ", *(json.dumps({k: row[k] for k in ("medians", "beyond_percent_of_step", "stderr") if k in row}) for row in rows), sep="\n  ")
    for how, row in found.get("within", {}).items():
        print(f"within {how}: {json.dumps(row)}")
    print("nvml", json.dumps(found.get("nvml")))
    for part in ("context", "fill", "torch", "expandable", "async", "jax"):
        for row in found.get(part) if isinstance(found.get(part), list) else []:
            told, device = row.get("told_used"), row.get("device_used")
            error = f"{100 * (told - device) / device:+.2f} %" if told and device else "-"
            print(f"{part} {row['how']}: ps {gib(row.get('ps_used'))}, overhead {gib(row.get('ps_overhead'))}, NVML {gib(row.get('nvml_process'))} GiB: "
                  f"{row.get('error_percent')} %, of the device {row.get('error_percent_of_device')} %")
            print(f"{part} {row.get('way', '')} {row['how']}: status {row.get('status')} total {gib(row.get('total', row.get('bytes_limit')))} "
                  f"free {gib(row.get('free_before', row.get('free')))} held {gib(row.get('held'))} told {gib(told)} device {gib(device)} GiB "
                  f"({error}); {row.get('error', row.get('other_error', ''))} {row.get('xsched_says', '')}")


def main():
    if sys.argv[1:2] == ["program"]:
        programs = {"torch": torch_program, "allocating": allocating_program, "switched": switched_program, "jax": jax_program, "nvml": nvml_program}
        return programs[sys.argv[2]](*sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(HERE.parent.parent / "target/release"))
    parser.add_argument("--out", default="memory.json")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--limit", type=int, default=20, help="GiB")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--patience", type=int, default=60, help="s for each program")
    arguments = parser.parse_args()
    wrong = [part for part in arguments.only.split(",") if part not in (*PARTS, "cost")]
    if wrong:
        parser.error(f"no part {wrong[0]}: {', '.join(PARTS)}")
    found = {"limit_gib": arguments.limit}
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(arguments, work)
        found["with_option"], found["build_error"] = bench.has_option, bench.build_error
        try:
            for part in arguments.only.split(","):
                begin = time.monotonic()
                try:
                    ways = {"steps": bench.steps, "pairs": bench.pairs, "programs": bench.programs, "switched": bench.switched, "within": bench.within, "start": bench.start_up,
                            "context": bench.context, "fill": bench.fill, "cost": bench.cost}
                    if part == "nvml":
                        found[part] = bench.probe()
                    elif part in ways:
                        found[part] = ways[part]() if bench.alloc else {"trouble": "alloc.c does not compile"}
                    else:
                        found[part] = bench.framework(part)
                except Exception as error:  # the other parts are worth having
                    found[part] = {"trouble": repr(error)}
                    print(f"{part}: {error!r}", file=sys.stderr)
                found.setdefault("seconds", {})[part] = round(time.monotonic() - begin, 1)
                Path(arguments.out).write_text(json.dumps(found, indent=1))
        finally:
            bench.end()
    summary(found)
    print(f"{arguments.out}: {found['seconds']} s")


if __name__ == "__main__":
    main()
