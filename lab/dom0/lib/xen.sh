# What the hypervisor holds.

# zombies: domains that died and cannot go, because someone still maps them.
zombies() { xl list | awk 'NR > 1 && ($1 == "(null)" || $5 ~ /d/)'; }

# grant_mappings [DOMID]: grants in use, of one domain or of all, as the
# hypervisor counts them: "DOMID GREF" a line. Console and xenstore, which every
# guest has, are left out: their references are below 8.
grant_mappings() {
    xl dmesg -c >/dev/null
    xl debug-keys g
    xl dmesg | tee -a $LAB/logs/grants | awk -v want="${1-}" '
        # (XEN) grant-table for remote d1 (v1)
        match($0, /remote d[0-9]+/) { id = substr($0, RSTART + 8, RLENGTH - 8) }
        # (XEN) [0x208]      0 0xa5346 0x00000001          0 0x0a5346 0x19
        match($0, /\[0x[0-9a-f]+\] +[0-9]+ 0x/) {
            gref = substr($0, RSTART + 1, index($0, "]") - RSTART - 1)
            if (gref !~ /^0x00[0-7]$/ && (want == "" || want == id)) print id, gref
        }'
}

# hypervisor_version: such as 4.17.7.
hypervisor_version() {
    echo "$(cat /sys/hypervisor/version/major).$(cat /sys/hypervisor/version/minor)$(cat /sys/hypervisor/version/extra)"
}

# nothing_left: no zombie, no vif's interface, no grant mapped.
nothing_left() {
    wait_for 20 no_zombie
    await 20 "" "interfaces of vifs" vifs_left
    await 20 "" "grants still mapped" grant_mappings
}
no_zombie() { [ -z "$(zombies)" ]; }
