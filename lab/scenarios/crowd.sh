# Twenty-four guests that are one program each, at once.
# boot: hvm
# timeout: 400
# needs: grantway-xen
only_grantway
crowd 24 8
