"""Ray on one device: an urgent actor answers beside less urgent tasks that train. Ray starts each kind under `xsched run`.

The device is the simulated one of examples/tour: put a model of yours in the places of `launch` and `wait`.
"""

import sys
import time
from pathlib import Path

import ray

sys.path.append(str(Path(__file__).resolve().parent.parent / "tour"))


def under(priority):
    """A runtime environment whose workers have this class on the device."""
    return {"py_executable": f"xsched run --priority {priority} -- {sys.executable}", "env_vars": {"PYTHONPATH": sys.path[-1]}}


@ray.remote(num_cpus=0.1, num_gpus=0.25, runtime_env=under("low"))
def train(secs):
    from device import launch, wait

    end = time.monotonic() + secs
    while time.monotonic() < end:
        launch(200, 64)  # 64 kernels of 0.2 ms
        wait()


@ray.remote(num_cpus=0.1, num_gpus=0.25, runtime_env=under("high"))
class Server:
    def answer(self):
        from device import launch, wait

        launch(1000, 5)  # 5 kernels of 1 ms
        wait()


def main():
    ray.init(num_cpus=1, num_gpus=1, include_dashboard=False)
    secs = float(sys.argv[1]) if sys.argv[1:] else 20
    tasks = [train.remote(secs) for _ in range(2)]
    server, times = Server.remote(), []
    ray.get(server.answer.remote())
    while not ray.wait(tasks, num_returns=2, timeout=0)[0]:
        begin = time.monotonic()
        ray.get(server.answer.remote())
        times.append((time.monotonic() - begin) * 1e3)
        time.sleep(0.05)
    print(f"{len(times)} answers, the median took {sorted(times)[len(times) // 2]:.1f} ms")


if __name__ == "__main__":
    main()
