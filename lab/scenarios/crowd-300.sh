# Three hundred guests that are one program each, at once.
# boot: crowd
# timeout: 3000
# needs: grantway-xen
# named: yes
only_grantway
crowd 300 8
