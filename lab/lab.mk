# Real Xen under emulation; see lab/README.md.
.PHONY: lab worlds lab-crowd lab-bench lab-shell

# SCENARIO="boot drop-in" runs those only; WITHIN=1080 begins none after so many seconds;
# WORLD=trixie has a newer Xen and Linux.
lab: ## scenarios in a real Xen under emulation (lab/README.md)
	lab/run $(if $(WORLD),--world $(WORLD)) $(if $(WITHIN),--within $(WITHIN)) $(SCENARIO)

# Hours. A package that is gone in a world that moves is no failure.
worlds: ## every scenario in every world; writes docs/compatibility.md
	@status=0; for world in $(notdir $(wildcard lab/worlds/*)); do \
	  echo "== $$world"; lab/run --world $$world || status=1; \
	done; lab/matrix; exit $$status

lab-crowd: ## three hundred guests at once, each one program: half an hour or more
	lab/run --verbose crowd-300

# PART="kernel bridge" measures those only; SYMBOLS=1 says by function where the instructions went.
lab-bench: ## what packets cost there, in instructions, beside the kernel's netback
	lab/bench -v $(if $(SYMBOLS),--symbols) $(PART)

lab-shell: ## a console into that Xen's dom0
	lab/shell
