"""The machine that runs a comparison: its name, its instruction sets, its limits, and the programs that run on it."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Machine:
    """A machine, as `peri doctor` describes it."""

    def __init__(self, peri):
        cpu = json.loads(output([peri, "doctor", "--no-bench", "--json"]))["cpu"]
        self.name, self.cores = cpu["model"], cpu["cores"]
        # "x86_64 avx512+vnni"
        largest = cpu["used"].split()[1].split("+")[0]
        self.sets = ["avx512", "avx2"] if largest == "avx512" else [largest]

    def title(self, threads):
        """The name in tables, to which `table` adds the instruction set."""
        title = f"{self.name}, {self.cores} cores"
        return title if threads == self.cores else f"{title}, {threads} threads"


def limits(threads):
    """What the machine reaches, in operations or bytes a second: `read`, `f32`, `int8`, and with AVX2 `f32 avx2`…"""
    return parse_limits(bench("perihelion-cpu", "linear", "limits", f"threads={threads}"))


def parse_limits(lines):
    """
    >>> parse_limits(["2 threads", "limit  read 52.1 GB/s", "limit  f32 avx2 234 GFLOP/s"])
    {'read': 52100000000.0, 'f32 avx2': 234000000000.0}
    """
    found = (re.fullmatch(r"limit +(.+) ([\d.]+) \S+", line) for line in lines)
    return {match[1]: float(match[2]) * 1e9 for match in found if match}


def bench(package, name, *arguments, instruction_set=None):
    """The lines that a bench prints."""
    command = ["cargo", "bench", "-q", "--manifest-path", str(ROOT / "Cargo.toml"), "-p", package, "--bench", name]
    return output([*command, "--", *map(str, arguments)], instruction_set).splitlines()


def threads():
    """How many threads engines use by default: one for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def output(command, instruction_set=None):
    """The standard output of a command. The kernels of Perihelion keep to the instruction set."""
    environment = os.environ | ({"PERIHELION_INSTRUCTION_SET": instruction_set} if instruction_set else {})
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{result.stderr[-2000:]}")
    return result.stdout


def peers(program, modules, pythons, *arguments):
    """The name and the answer of each engine that an interpreter has, from `program`, which runs in that interpreter.

    An engine that fails, such as one that cannot read a model, is left out with a message.
    """
    for python in pythons:
        found = f"import importlib.util, sys; print(*filter(importlib.util.find_spec, {list(modules.values())}))"
        installed = output([python, "-c", found]).split()
        for name, module in modules.items():
            if module not in installed:
                continue
            command = [python, Path(__file__).with_name(program), module, *map(str, arguments)]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                reason = result.stderr.strip().splitlines() or [f"it ended with {result.returncode}"]
                print(f"{name} is left out: {reason[-1]}", file=sys.stderr, flush=True)
            else:
                yield name, json.loads(result.stdout.splitlines()[-1])
