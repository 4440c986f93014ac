# The hypervisor, dom0 and a guest come up.
# boot: pv
# timeout: 90
say "Xen $(hypervisor_version), dom0 Linux $(uname -r)"
guest_start g1
say "g1: $(guest_run g1 'uname -r; cat /proc/uptime' | tr '\n' ' ')"
# What the control channel carries, it carries whole.
expect "$(guest_run g1 'seq 3000' | md5sum)" = "$(seq 3000 | md5sum)" "output of a guest"
expect "$(guest_run g1 'exit 7' || echo $?)" = 7 "exit status of a guest"
xl shutdown g1
guest_gone g1
nothing_left
