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
# A port of this job, below those that Linux uses for outgoing connections.
port=$((20000 + ${SLURM_JOB_ID:-0} % 12000))
# The first address of this node; change it if the others cannot reach that one.
address="$(hostname -I | cut -d ' ' -f 1):$port"

# Without a token, every user who reaches the port can run code as you.
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
RAY_AUTH_TOKEN=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export RAY_AUTH_TOKEN
export RAY_gcs_rpc_server_reconnect_timeout_s=15 # the other nodes end that long after the first

run_node() {
    local head=()
    if [ "${SLURM_PROCID:-0}" = 0 ]; then
        head=(--include-dashboard=false) # the other nodes refuse this flag
    fi
    exec ray symmetric-run --address "$address" --min-nodes "$nodes" \
        --num-cpus "${SLURM_CPUS_PER_TASK:-1}" "${head[@]}" -- "$@"
}
export -f run_node
export address nodes

# symmetric-run succeeds even if Ray does not start. The command removes this file.
waiting=$(mktemp)
trap 'rm -f "$waiting"' EXIT
command=$1
shift
step=(bash -c 'run_node "$@"' run_node bash -c 'rm "$0"; exec "$@"' "$waiting"
    "$python" -m "tfnmt.$command" --executor=ray --address="$address" "$@")
if [ "$nodes" -gt 1 ]; then
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not take it from sbatch
    srun --kill-on-bad-exit=1 --wait=0 "${step[@]}"
else
    "${step[@]}"
fi
if [ -e "$waiting" ]; then
    echo "slurm.sh: Ray did not start; see the messages above" >&2
    exit 1
fi
