#!/bin/bash
# Measures the GPUs of this machine and prints a Markdown table for docs/operations/status.md.
# All flags: benchmarks/gpu.sh --help. A dry run on a CPU:
#
#     benchmarks/gpu.sh --size=tiny --steps=2 --set data.corpus=toy --set data.max_pairs=2000 \
#         --set tokenizer.vocab_size=400
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${TFNMT_PYTHON:-.venv/bin/python}" -m benchmarks.gpu "$@"
