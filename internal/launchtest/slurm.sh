#!/bin/sh
# slurm.sh RANKS PROGRAM [ARGUMENT…]: runs PROGRAM by srun on a cluster of this machine alone, without authentication. It is process 1 of
# namespaces of its own (processes, network, name of the machine, mounts): all that it starts, and the memory of /run, goes with it.
ranks=$1
shift
# It resolves names only where there is an address other than 127.0.0.1.
mount -t tmpfs slurm /run && mkdir /run/s && hostname localhost && ip address add 192.0.2.1/32 dev lo || exit
export SLURM_CONF=/run/slurm.conf
cat >$SLURM_CONF <<'END'
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/run/s
SlurmdSpoolDir=/run/s
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=localhost NodeAddr=127.0.0.1 CPUs=64 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP
END
slurmctld -D >/run/slurmctld.log 2>&1 &
slurmd -D -N localhost >/run/slurmd.log 2>&1 &
tries=0
until timeout 20 srun --immediate=30 true 2>/run/srun.log; do
  tries=$((tries + 1))
  if [ $tries = 100 ]; then
    tail -n 20 /run/*.log >&2
    exit 1
  fi
  sleep 0.1
done
srun -n "$ranks" "$@"
