# Real Xen under emulation; see lab/README.md.
.PHONY: lab lab-shell

# SCENARIO="boot drop-in" runs those only.
lab: ## scenarios in a real Xen under emulation (lab/README.md)
	lab/run $(SCENARIO)

lab-shell: ## a console into that Xen's dom0
	lab/shell
