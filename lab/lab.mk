# Real Xen under emulation; see lab/README.md.
.PHONY: lab lab-bench lab-shell

# SCENARIO="boot drop-in" runs those only; WITHIN=1080 begins none after so many seconds.
lab: ## scenarios in a real Xen under emulation (lab/README.md)
	lab/run $(if $(WITHIN),--within $(WITHIN)) $(SCENARIO)

# PART="kernel bridge" measures those only.
lab-bench: ## what packets cost there, in instructions, beside the kernel's netback
	lab/bench -v $(PART)

lab-shell: ## a console into that Xen's dom0
	lab/shell
