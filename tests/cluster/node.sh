#!/bin/bash
# Runs a node of the test cluster: node.sh NAME FOLDER. Namespaces give it a network, a process
# table and a host name. They end with this process, and so does everything that it starts.
# The node d9 also runs the controller. The test connects the network device of d10 to that of d9.
set -euo pipefail
name=$1 folder=$2
export SLURM_CONF="$folder/slurm.conf"
exec >"$folder/$name.out" 2>&1

hostname "$name"
mount --bind "$folder/hosts" /etc/hosts
mkdir -p -m 1777 /tmp/ray # it stays, and other users may run Ray later
mount -t tmpfs ray /tmp/ray # Ray finds other instances of the machine there
ip link set lo up
if [ "$name" = d9 ]; then
    # The folder is private: --force makes munged accept a socket that others cannot reach.
    munged --force --foreground --socket="$folder/munge" --key-file="$folder/key" \
        --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" \
        --seed-file="$folder/seed" &
    until [ -S "$folder/munge" ]; do sleep 0.1; done
fi
until ip address add "10.77.0.${name#d}/24" dev eth0; do sleep 0.1; done
ip link set eth0 up
if [ "$name" = d9 ]; then
    slurmctld -D &
fi
slurmd -D -N "$name" &
wait
