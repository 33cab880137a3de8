"""The two errors of the reports that hip-errors.md names last: made by bindings, and absent under libxsched.

`bindings.c` sends some of the runtime's functions to a second copy of the runtime, as a preload library does that opens one by
a path of its own. Two copies in use with nothing sent astray, under `xsched run`, give what the program gives bare.
"""

import dataclasses
import shutil
import tempfile
from pathlib import Path

import harness

HERE = Path(__file__).resolve().parent
LAUNCHES = "hipLaunchKernel,hipModuleLaunchKernel,hipExtModuleLaunchKernel"
STREAMS = "hipStreamCreate,hipStreamCreateWithFlags,hipStreamSynchronize,hipStreamDestroy"
NOT_INITIALIZED = 1  # HIPBLAS_STATUS_NOT_INITIALIZED
UNKNOWN_ERROR = 7  # miopenStatusUnknownError
# Program, what is bound wrongly, its name, the call that fails, the code that it then returns.
CASES = (
    ("hipblas", LAUNCHES, "launches", "hipblasSgemm", NOT_INITIALIZED),
    ("hipblas", "hipModuleLoad,hipModuleLoadData", "modules", "hipblasSgemm", NOT_INITIALIZED),
    ("miopen", LAUNCHES, "launches", "miopenConvolutionForwardImmediate", UNKNOWN_ERROR),
    ("miopen", STREAMS, "streams", "miopenConvolutionForwardImmediate", UNKNOWN_ERROR),
)


def show(climb, chosen):
    """Makes each error, then shows that it is absent; for the programs that ran bare."""
    programs = {program.name: program for program in chosen if program.name in climb.references}
    astray, beside = second_copy(climb, "bindings"), second_copy(climb, "beside", "-DOPENS_ONLY")
    for name, bound, what, call, code in CASES:
        if name in programs:
            program = dataclasses.replace(programs[name], env=astray | {"BINDINGS": bound})
            outcome = climb.execute(program, f"bound-{what}")[0]
            lines = [line for line in outcome.stdout.splitlines() if f"{call}(" in line]
            seen = bool(lines) and lines[0].endswith(f" {code}")
            problem = None if seen else f"{call} does not return {code}: {lines}\n{outcome.stderr[-500:]}"
            climb.note(program, f"bound:{what}", problem, outcome.seconds)
    with tempfile.TemporaryDirectory(prefix="hip-") as folder:
        daemon = harness.Daemon(climb.xsched, folder, "hpf")
        try:
            for name in sorted({name for name, *_ in CASES} & programs.keys()):
                program = dataclasses.replace(programs[name], env=beside)
                climb.scheduled(program, "two-copies", daemon)
        finally:
            daemon.stop()


def second_copy(climb, output, *flags):
    """The environment with a second copy of the runtime, from another folder."""
    work, name = climb.options.work, f"libamdhip64.so.{climb.rocm.major}"
    (work / "second").mkdir(exist_ok=True)
    shutil.copy2(climb.options.runtime / name, work / "second" / name)
    library = harness.compile_c(HERE / "bindings.c", work / f"{output}.so", *flags, "-ldl", shared=True)
    return {"LD_PRELOAD": str(library), "BINDINGS_PATH": str(work / "second" / name)}
