# What scenarios may call. Each file of lib/ has one subject.
# A scenario runs under `set -eux`: a command that fails ends it, and the trace
# says which; `fail` says why.
LAB=/run/lab
for _part in /lab/dom0/lib/*.sh; do
    . "$_part"
done
. /lab/dom0/mounts.sh
