#!/bin/bash
# Trains on all nodes of a Slurm job. Its arguments are those of tfnmt.train:
#
#     sbatch export/cluster/slurm-train.sh --dataset=wmt14 --run_dir="$PWD/runs/wmt14"
#
# The job is requeued and resumes when a node or worker is lost, and at its time limit.
#SBATCH --job-name=tfnmt
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=16
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120

export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun does not take it from sbatch

# --wait=0: the first worker averages checkpoints after the others have ended.
srun --kill-on-bad-exit=1 --wait=0 "${TFNMT_PYTHON:-.venv/bin/python}" -m tfnmt.train "$@"
code=$?
# Above 128, a signal ended a worker. Before the time limit it is 143, and all workers have saved.
# A job that ends in its first minutes would fail again.
if [ $code -gt 128 ] && [ $SECONDS -ge "${TFNMT_REQUEUE_AFTER:-300}" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
