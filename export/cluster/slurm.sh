#!/bin/bash
# Runs a command of tfnmt on a Ray cluster that exists for one Slurm job:
#
#     sbatch export/cluster/slurm.sh translate --model=runs/backwards --input=mono.de \
#         --output=mono.en --beam_size=1 --gpus_per_worker=1 --resume
#
# A requeued job continues with its finished parts, because of --resume.
#SBATCH --job-name=tfnmt
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail
python=${TFNMT_PYTHON:-.venv/bin/python}
bin=$(cd "$(dirname "$(command -v "$python")")" && pwd)
export PATH="$bin:$PATH" # symmetric-run calls ray
nodes=${SLURM_NNODES:-1}
# Not the usual port, which another Ray on the first node may use.
port=$((20000 + ${SLURM_JOB_ID:-0} % 20000))
# The first address of this node; change it if the others cannot reach that one.
address="$(hostname -I | cut -d ' ' -f 1):$port"

# Without a token, every user who reaches the port can run code as you.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export RAY_AUTH_TOKEN

command=$1
shift
run=(ray symmetric-run --address "$address" --min-nodes "$nodes"
    --num-cpus "${SLURM_CPUS_PER_TASK:-1}" --include-dashboard=false --
    "$python" -m "tfnmt.$command" --executor=ray --address="$address" "$@")
if [ "$nodes" -gt 1 ]; then
    exec srun --kill-on-bad-exit=1 "${run[@]}"
fi
exec "${run[@]}"
