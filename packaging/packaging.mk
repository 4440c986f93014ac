# Installing, Debian packages and releases. Included by the Makefile.
#
#   make install PREFIX=/usr/local DESTDIR=
#   make deb
#   make dist

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
DOCDIR ?= $(PREFIX)/share/doc/grantway
MANDIR ?= $(PREFIX)/share/man
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
# Debian's zsh reads packages' completions elsewhere than those of /usr/local.
ZSHDIR ?= $(PREFIX)/share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
LIBDIR ?= $(PREFIX)/lib/grantway
UNITDIR ?= $(PREFIX)/lib/systemd/system
MODULESLOADDIR ?= $(PREFIX)/lib/modules-load.d
# Not every modprobe reads /usr/local.
MODPROBEDIR ?= /lib/modprobe.d
# The units name it.
CONFIGDIR := /etc/grantway
# Where xl looks for the scripts of vifs.
SCRIPTDIR ?= /etc/xen/scripts

# For any x86-64: wider copies are chosen at run time. The folder is separate, since these flags would
# cause everything else to be built again.
BASELINE := $(BUILD)/baseline
BASELINE_BIN := $(BASELINE)/release/grantway
# Runs on this machine and makes manual pages and completions. Name another one if BASELINE_BIN was
# built for another machine.
GENERATOR := $(BASELINE_BIN)
# Programs that the command runs for `bench`, `demo` and `iperf`.
BESIDE := grantway-bench grantway-iperf
# The pages that people read. A link to what is not installed keeps its words only.
PAGES := $(filter-out docs/SUMMARY.md,$(wildcard docs/*.md))
PAGE_LINKS := -e 's|\]\(\.\./packaging/grafana/|](|g' -e 's,!?\[([^][]*)\]\((\.\./|img/|samples/)[^)]*\),\1,g'
GRAFANA := $(addprefix packaging/grafana/,alerts.yml grantway.json)

# Pages, one after the other, with their links changed.
define install_pages
install -d $(DESTDIR)$(DOCDIR)
for page in $(notdir $(PAGES)); do \
  sed -E $(PAGE_LINKS) docs/$$page > $(DESTDIR)$(DOCDIR)/$$page && \
  chmod 644 $(DESTDIR)$(DOCDIR)/$$page || exit 1; \
done
endef
BASELINE_FLAGS := $(if $(filter x86_64,$(shell uname -m)),-C target-cpu=x86-64)

BACKEND_UNITS := grantway-backend grantway-backend-domU

# $(call install_units,NAMES): units, with the places that they name.
define install_units
for unit in $(1); do \
  install -d $(DESTDIR)$(UNITDIR) && \
  sed -e 's|@BINDIR@|$(BINDIR)|' -e 's|@DOCDIR@|$(DOCDIR)|' packaging/systemd/$$unit.service.in \
    > $(DESTDIR)$(UNITDIR)/$$unit.service && \
  chmod 644 $(DESTDIR)$(UNITDIR)/$$unit.service || exit 1; \
done
endef

# $(call install_options,NAME): a file of options, unless there is one.
define install_options
test -e $(DESTDIR)$(CONFIGDIR)/$(1) \
  || install -D -m 644 packaging/etc/$(1) $(DESTDIR)$(CONFIGDIR)/$(1)
endef

# After the next boot xen-netback is kept away, and guests have a backend. The backend that serves them now
# is not stopped; if it is ours, the new one takes over.
ENABLE = if command -v systemctl >/dev/null; then \
  systemctl --quiet enable $(addsuffix .service,$(BACKEND_UNITS)) && \
  if [ -d /run/systemd/system ]; then systemctl daemon-reload && \
  systemctl try-restart $(addsuffix .service,$(BACKEND_UNITS)); fi; \
  else echo "no systemd: have \`grantway backend\` started at boot, as xen-netback is kept away" >&2; fi
# Guests that cannot be given back keep their backend, and nothing is removed.
DISABLE = PATH="$(BINDIR):$$PATH" packaging/lib/give-back || [ $$? = 2 ] || exit 1; \
  ! command -v systemctl >/dev/null || systemctl --quiet disable $(addsuffix .service,$(BACKEND_UNITS)) || true

.PHONY: install install-command install-backend install-frontend uninstall deb baseline static dist dist-check dist-again dist-try

baseline:
	RUSTFLAGS="$(BASELINE_FLAGS)" cargo build --release --locked $(PROGRAMS) --target-dir $(BASELINE)

# `make install` as root must not build as root, so it takes the programs that are built.
install: install-command install-backend install-frontend ## installs command, backend and frontend below DESTDIR and PREFIX; enables the units unless DESTDIR is set
	$(if $(DESTDIR),,@$(ENABLE))

# For a workstation: it changes nothing on the machine.
install-command: $(if $(wildcard $(BASELINE_BIN)),,baseline) ## installs the command alone, with manual pages and completions
	install -D -m 755 $(BASELINE_BIN) $(DESTDIR)$(BINDIR)/grantway
	install -D -m 755 -t $(DESTDIR)$(BINDIR) $(addprefix $(dir $(BASELINE_BIN)),$(BESIDE))
	made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && \
	$(GENERATOR) generate "$$made" && gzip -9n "$$made"/man1/* && \
	install -D -m 644 -t $(DESTDIR)$(MANDIR)/man1 "$$made"/man1/* && \
	install -D -m 644 "$$made"/completions/grantway.bash $(DESTDIR)$(BASHDIR)/grantway && \
	install -D -m 644 -t $(DESTDIR)$(FISHDIR) "$$made"/completions/grantway.fish && \
	install -D -m 644 -t $(DESTDIR)$(ZSHDIR) "$$made"/completions/_grantway
	$(install_pages)
	install -D -m 644 -t $(DESTDIR)$(DOCDIR) $(GRAFANA)

install-backend:
	$(call install_units,$(BACKEND_UNITS))
	install -D -m 644 packaging/modprobe.d/grantway.conf $(DESTDIR)$(MODPROBEDIR)/grantway.conf
	install -D -m 644 packaging/modules-load.d/grantway.conf $(DESTDIR)$(MODULESLOADDIR)/grantway.conf
	install -D -m 755 packaging/scripts/vif-grantway $(DESTDIR)$(SCRIPTDIR)/vif-grantway
	install -D -m 755 packaging/lib/give-back $(DESTDIR)$(LIBDIR)/give-back
	$(call install_options,backend.toml)

install-frontend:
	$(call install_units,grantway-frontend@)
	$(call install_options,frontend.toml)

uninstall: ## removes what `make install` installed, except /etc/grantway; gives vifs to xen-netback unless DESTDIR is set
	$(if $(DESTDIR),,@$(DISABLE))
	rm -f $(DESTDIR)$(BINDIR)/grantway $(addprefix $(DESTDIR)$(BINDIR)/,$(BESIDE))
	rm -f $(DESTDIR)$(MANDIR)/man1/grantway.1.gz $(DESTDIR)$(MANDIR)/man1/grantway-*.1.gz
	rm -f $(DESTDIR)$(BASHDIR)/grantway $(DESTDIR)$(FISHDIR)/grantway.fish $(DESTDIR)$(ZSHDIR)/_grantway
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(addsuffix .service,$(BACKEND_UNITS) grantway-frontend@))
	rm -f $(DESTDIR)$(MODPROBEDIR)/grantway.conf $(DESTDIR)$(MODULESLOADDIR)/grantway.conf
	rm -f $(DESTDIR)$(SCRIPTDIR)/vif-grantway $(DESTDIR)$(LIBDIR)/give-back $(addprefix $(DESTDIR)$(DOCDIR)/,$(notdir $(PAGES) $(GRAFANA)))
	-rmdir $(DESTDIR)$(DOCDIR) $(DESTDIR)$(LIBDIR) 2>/dev/null
	$(if $(DESTDIR),,@[ ! -d /run/systemd/system ] || systemctl daemon-reload)

# Needs the C library's static part: Debian's libc6-dev, glibc-static of the Red Hat family.
STATIC := $(BUILD)/static
STATIC_TARGET := $(shell uname -m)-unknown-linux-gnu
STATIC_BIN := $(STATIC)/$(STATIC_TARGET)/release

static: ## builds programs that need no library, for systems with an older C library; in target/static
	RUSTFLAGS="$(BASELINE_FLAGS) -C target-feature=+crt-static" cargo build --release --locked $(PROGRAMS) \
	  --target $(STATIC_TARGET) --target-dir $(STATIC)
	@bash -euo pipefail -c '. packaging/dist/lib && barred host "$$@"' - $(addprefix $(STATIC_BIN)/,grantway $(BESIDE))
	@$(STATIC_BIN)/grantway --version
	@echo $(STATIC_BIN)/grantway

deb: baseline ## Debian packages of the command, the backend and the frontend, in target/debian
	@MAKE="$(MAKE)" packaging/deb/build $(BUILD)

# ARCH=amd64 makes only the files for that one.
dist: ## the files of a release, from the last commit, for amd64 and arm64, in target/dist
	@MAKE="$(MAKE)" packaging/dist/build $(BUILD) $(ARCH)

dist-check: ## tries the files in target/dist in a clean root, as root
	@packaging/dist/check $(BUILD)/dist

# What CI has time for: no static programs, one architecture.
dist-try: ## packs the programs in target/release, and tries the packages in a clean root, as root
	cargo build --release $(PROGRAMS)
	@MAKE="$(MAKE)" packaging/dist/build $(BUILD) --of $(BUILD)/release
	@packaging/dist/check $(BUILD)/dist-try

dist-again: ## builds the files in target/dist again in another folder, and compares them
	@MAKE="$(MAKE)" packaging/dist/again $(BUILD)
