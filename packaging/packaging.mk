# Installing, and a Debian package. Included by the Makefile.
#
#   make install PREFIX=/usr/local DESTDIR=
#   make deb

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
DOCDIR ?= $(PREFIX)/share/doc/grantway
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
# Debian's zsh reads packages' completions elsewhere than those of /usr/local.
ZSHDIR ?= $(PREFIX)/share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
UNITDIR ?= $(PREFIX)/lib/systemd/system
MODULESLOADDIR ?= $(PREFIX)/lib/modules-load.d
# Not every modprobe reads /usr/local.
MODPROBEDIR ?= /lib/modprobe.d
DEFAULTDIR ?= /etc/default
# Where xl looks for the scripts of vifs.
SCRIPTDIR ?= /etc/xen/scripts

# For any x86-64: wider copies are chosen at run time. In a folder of its own,
# as these flags would have everything else built anew.
BASELINE := $(BUILD)/baseline
BASELINE_BIN := $(BASELINE)/release/grantway
# What the command runs for `bench`, `demo` and `iperf`, beside it.
BESIDE := grantway-bench grantway-iperf
BASELINE_FLAGS := $(if $(filter x86_64,$(shell uname -m)),-C target-cpu=x86-64)

.PHONY: install uninstall deb baseline

baseline:
	RUSTFLAGS="$(BASELINE_FLAGS)" cargo build --release --locked $(PROGRAMS) --target-dir $(BASELINE)

# `make install` as root must not build as root: what is built is taken.
install: $(if $(wildcard $(BASELINE_BIN)),,baseline) ## the command and its programs, their manual, units and modprobe.d, below DESTDIR and PREFIX
	install -D -m 755 $(BASELINE_BIN) $(DESTDIR)$(BINDIR)/grantway
	install -D -m 755 -t $(DESTDIR)$(BINDIR) $(addprefix $(dir $(BASELINE_BIN)),$(BESIDE))
	made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && \
	$(BASELINE_BIN) generate "$$made" && gzip -9n "$$made"/man1/* && \
	install -D -m 644 -t $(DESTDIR)$(MANDIR)/man1 "$$made"/man1/* && \
	install -D -m 644 "$$made"/completions/grantway.bash $(DESTDIR)$(BASHDIR)/grantway && \
	install -D -m 644 -t $(DESTDIR)$(FISHDIR) "$$made"/completions/grantway.fish && \
	install -D -m 644 -t $(DESTDIR)$(ZSHDIR) "$$made"/completions/_grantway
	for unit in grantway-backend grantway-backend-domU; do \
	  install -d $(DESTDIR)$(UNITDIR) && \
	  sed -e 's|@BINDIR@|$(BINDIR)|' -e 's|@DOCDIR@|$(DOCDIR)|' packaging/systemd/$$unit.service.in \
	    > $(DESTDIR)$(UNITDIR)/$$unit.service && \
	  chmod 644 $(DESTDIR)$(UNITDIR)/$$unit.service || exit 1; \
	done
	install -D -m 644 packaging/modprobe.d/grantway.conf $(DESTDIR)$(MODPROBEDIR)/grantway.conf
	install -D -m 644 packaging/modules-load.d/grantway.conf $(DESTDIR)$(MODULESLOADDIR)/grantway.conf
	install -D -m 755 packaging/scripts/vif-grantway $(DESTDIR)$(SCRIPTDIR)/vif-grantway
	install -D -m 644 packaging/README.md $(DESTDIR)$(DOCDIR)/README.md
	test -e $(DESTDIR)$(DEFAULTDIR)/grantway \
	  || install -D -m 644 packaging/default/grantway $(DESTDIR)$(DEFAULTDIR)/grantway

uninstall: ## what `make install` put there, but for /etc/default/grantway
	rm -f $(DESTDIR)$(BINDIR)/grantway $(addprefix $(DESTDIR)$(BINDIR)/,$(BESIDE))
	rm -f $(DESTDIR)$(MANDIR)/man1/grantway.1.gz $(DESTDIR)$(MANDIR)/man1/grantway-*.1.gz
	rm -f $(DESTDIR)$(BASHDIR)/grantway $(DESTDIR)$(FISHDIR)/grantway.fish $(DESTDIR)$(ZSHDIR)/_grantway
	rm -f $(DESTDIR)$(UNITDIR)/grantway-backend.service $(DESTDIR)$(UNITDIR)/grantway-backend-domU.service
	rm -f $(DESTDIR)$(MODPROBEDIR)/grantway.conf $(DESTDIR)$(MODULESLOADDIR)/grantway.conf
	rm -f $(DESTDIR)$(SCRIPTDIR)/vif-grantway
	rm -f $(DESTDIR)$(DOCDIR)/README.md
	-rmdir $(DESTDIR)$(DOCDIR) 2>/dev/null

deb: baseline ## a Debian package, in target/debian
	@MAKE="$(MAKE)" packaging/deb/build $(BUILD)
