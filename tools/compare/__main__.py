"""Times Perihelion and other engines in alternation, and writes the tables of docs/performance.md.

  python tools/compare models MODEL.gguf... [--prompt 64,512] [--tokens 64] [--batch 8,16] [--reproducible machine]
  python tools/compare graphs [--only TEXT]
  python tools/compare table

`models` runs `peri bench` beside llama.cpp (PyPI: llama-cpp-python), ik_llama.cpp (ik-llama-cpp-python) and OpenVINO GenAI
(openvino-genai, which reads files of the architectures llama, qwen2 and qwen3, in q4_0 and q8_0 above all). `graphs` runs
the benches of Perihelion beside ONNX Runtime (onnxruntime) and OpenVINO (openvino), which both need onnx and numpy.
`--python` names an interpreter that has some of them installed; give it once for each environment. Engines that none has
are left out.

Each round runs every engine once, each in a process of its own, and adds a line to the file of results; `table` only reads
that file, so a long comparison can run in pieces. Tables have medians of all rounds of the file and, in brackets, the
lowest and the highest of the rounds' ratios. A ratio above 1 means that Perihelion is faster. `--write PAGE` replaces
the tables of this machine in a page, and keeps those of other machines.
"""
import argparse
import datetime
import json
import sys
from pathlib import Path

import graphs
import machine
import models
import table


def parse():
    parser = argparse.ArgumentParser(
        prog="compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--results", type=Path, default=machine.ROOT / "target/compare.jsonl", metavar="FILE")
    common.add_argument("--write", type=Path, metavar="PAGE")
    measuring = argparse.ArgumentParser(add_help=False)
    measuring.add_argument("--rounds", type=int, default=5)
    measuring.add_argument("--threads", type=int, default=machine.threads())
    measuring.add_argument("--sets", type=lambda text: text.split(","), help="such as avx512,avx2; default: all of them")
    measuring.add_argument("--peri", default=str(machine.ROOT / "target/release/peri"))
    measuring.add_argument("--python", action="append", help="an interpreter with other engines; repeatable")
    command = commands.add_parser("models", parents=[common, measuring])
    command.add_argument("models", nargs="+", metavar="MODEL")
    command.add_argument("--prompt", type=numbers, default=[64, 512])
    command.add_argument("--tokens", type=int, default=64)
    command.add_argument("--batch", type=numbers, default=[8, 16])
    command.add_argument("--reproducible", choices=["any", "machine"], default="any", help="as in peri bench")
    command = commands.add_parser("graphs", parents=[common, measuring])
    command.add_argument("--only", default="", help="part of the names of the rows")
    commands.add_parser("table", parents=[common])
    return parser.parse_args()


def numbers(text):
    return [int(number) for number in text.split(",")]


def measure(options, comparison):
    """Adds a line to the file of results for each round."""
    here = machine.Machine(options.peri)
    options.sets = options.sets or here.sets
    options.python = options.python or [sys.executable]
    common = {"machine": here.title(options.threads), "table": options.command, "limits": machine.limits(options.threads)}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    for group in comparison.groups(options):
        for number in range(options.rounds):
            time = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            record = common | {"time": time} | comparison.measure(group, options)
            with options.results.open("a") as results:
                results.write(json.dumps(record) + "\n")
            print(f"{record['group']}: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)


def main():
    options = parse()
    if options.command != "table":
        measure(options, {"models": models, "graphs": graphs}[options.command])
    sections = table.sections([json.loads(line) for line in options.results.read_text().splitlines()])
    print("\n".join(sections.values()), end="")
    if options.write:
        options.write.write_text(table.merge(options.write.read_text(), sections))


main()
