# What there is to do. `make` alone prints the targets.

BUILD := $(or $(CARGO_TARGET_DIR),target)
GRANTWAY := $(BUILD)/release/grantway
# The command, and what it runs for `bench`, `demo` and `iperf`.
PROGRAMS := -p grantway -p grantway-bench -p grantway-iperf
# What a guest without std links.
NO_STD := -p grantway-netif -p grantway-ring -p grantway-hypervisor -p grantway-xenstore -p grantway-frontend \
  -p grantway-stack -p grantway-iperf2 -p grantway-bare
BARE := x86_64-unknown-none

.DEFAULT_GOAL := help
.PHONY: help demo setup test soak fuzz fuzz-keep proof proof-keep bench bench-peers measure check avx2 no-std unikernel \
  instructions instructions-keep package reproduce papers retpolines pictures prices docs retpolines-build

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the whole path at work on this machine: neither Xen nor root needed
	cargo build --release $(PROGRAMS)
	$(GRANTWAY) demo

# WITH="metrics peers" installs the larger ones, too (scripts/packages).
setup: ## installs the Debian packages that tests, fuzzing, proofs and the lab use, as root
	@scripts/packages --install test fuzz instructions proof lab $(WITH)

# FILTER=grantway/net runs the test programs of that name only, TIMES=1 names the slowest tests.
test: ## all tests that this machine can run; names what it leaves out
	@scripts/packages test metrics
	@TIMES=$(TIMES) scripts/test $(BUILD) $(FILTER)

# KINDS="busy one slow user" and RUNS=3 run less of it; SIDE=5 runs five side by side.
soak: ## the tests again and again under adversity; takes hours, as root
	@scripts/soak $(BUILD)

# BARS="fairness tcp" measures those only (scripts/measure --list), SECONDS is the time for all.
measure: ## rates, shares and times against their bars: holds, falls short, or not judged
	cargo build --release $(PROGRAMS)
	scripts/measure $(GRANTWAY) --seconds $(or $(SECONDS),300) $(if $(JSON),--json) $(BARS)


# TARGET="slots_tx backend" runs those only. TARGET=vector FRAMES=10000000 goes on for
# so many frames in place of seconds.
fuzz: ## fuzzes each target, and each end, for SECONDS (30)
	@$(if $(FRAMES),GRANTWAY_FUZZ_FRAMES=$(FRAMES)) scripts/fuzz $(BUILD) run $(or $(SECONDS),30) $(TARGET)

fuzz-keep: ## keeps in the repository what fuzzing found
	@scripts/fuzz $(BUILD) keep $(TARGET)

proof: ## no wake-up is lost: models of both ends, and what each of their steps is for
	@scripts/packages --need proof
	@scripts/proof $(BUILD)

proof-keep: ## writes down in proof/README.md what each step is for
	@scripts/proof $(BUILD) --keep

bench: ## packets a second, to, from and between guests, three sizes, every policy
	cargo build --release $(PROGRAMS)
	$(GRANTWAY) bench packets --direction all --size 64,512,1496 --seconds 1

# PEERS="--size 64 --pairs 40" says what is measured, and how often.
bench-peers: ## staging against DPDK's memif and vhost-user, and the kernel; needs root for the kernel's
	@scripts/packages --need peers
	cargo build --release $(PROGRAMS)
	$(GRANTWAY) bench peers --report $(BUILD)/peers.html $(PEERS)

instructions: ## counts the instructions of a packet; fails where they became more
	@scripts/packages --need instructions
	cargo build --release -p grantway-bench
	scripts/instructions $(GRANTWAY)-bench

reproduce: ## all that this machine can measure, on one page and as JSON; QUICK=1 shows that it works
	cargo build --release $(PROGRAMS)
	scripts/reproduce $(BUILD)/release $(if $(QUICK),--quick) $(if $(TO),--to $(TO))

papers: retpolines-build ## prints the five papers' tables beside ours into docs/papers-results.md; TCP as root, XEN=FILE of make lab-bench
	cargo build --release $(PROGRAMS)
	scripts/papers $(BUILD) $(if $(QUICK),--quick) $(if $(XEN),--on-xen $(XEN)) $(if $(TO),--to $(TO))

# Stable Rust hands the feature on to LLVM with a warning. A compiler that no longer does is found here.
retpolines-build:
	RUSTFLAGS="-C target-feature=+retpoline --cfg retpolines" CARGO_TARGET_DIR=$(BUILD)/retpolines \
	  env -u CARGO_ENCODED_RUSTFLAGS cargo build --release -p grantway-bench
	@grep -q __llvm_retpoline_r11 $(BUILD)/retpolines/release/grantway-bench || \
	  { echo "retpolines: this compiler makes none of -C target-feature=+retpoline"; exit 1; }

retpolines: retpolines-build ## paper 002 with indirect calls as retpolines, as the paper was measured
	$(BUILD)/retpolines/release/grantway-bench bench papers --paper 002 --seconds 2

pictures: ## the pictures of the documentation, in docs/img
	cargo build --release $(PROGRAMS)
	scripts/pictures $(GRANTWAY)

prices: ## what a locked operation, a system call and a wake-up take here: instructions do not show it
	cargo build --release -p grantway -p grantway-bench
	$(GRANTWAY) bench prices

instructions-keep: ## writes them down where they became less; WHY is the reason
	cargo build --release -p grantway-bench
	scripts/instructions $(GRANTWAY)-bench --keep "$(WHY)"

check: instructions avx2 ## format, lints, imports, comments, documentation and its links, licences, instructions per packet
	scripts/floors
	scripts/circles
	scripts/check-words
	scripts/check-papers
	scripts/check-links
	scripts/check-docs
	cargo fmt --all --check
	cargo fmt --manifest-path tests/no_std/Cargo.toml --check
	cargo fmt --manifest-path tests/libfuzzer/Cargo.toml --check
	cargo fmt --manifest-path tests/hostile/Cargo.toml --check
	cargo fmt --manifest-path unikernel/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --manifest-path tests/libfuzzer/Cargo.toml --target-dir $(BUILD)/libfuzzer \
	  --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	scripts/check-licences

package: ## packages every crate as for a registry, and builds none; needs the registry's index
	cargo package --workspace $(foreach crate,needs testkit fuzz,--exclude grantway-$(crate)) --no-verify --allow-dirty \
	  --target-dir $(BUILD)/package

avx2: ## copies keep the upper halves of registers, in a build for AVX2
	@if grep -qw avx2 /proc/cpuinfo; then \
	  CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 \
	    CARGO_TARGET_DIR=$(BUILD)/avx2 RUSTFLAGS="-C target-feature=+avx2" \
	    env -u CARGO_ENCODED_RUSTFLAGS cargo test -q --release -p grantway-ring --test upper \
	    | grep -o '1 passed; 0 failed'; \
	else \
	  echo "avx2: not run, as this processor has none"; \
	fi

no-std: ## the guest's side without std: built, linked, run against a mock, and the unikernel's own tests
	cargo clippy --manifest-path tests/no_std/Cargo.toml --target-dir $(BUILD)/no-std -- -D warnings
	cargo run -q --manifest-path tests/no_std/Cargo.toml --target-dir $(BUILD)/no-std
	cargo clippy --manifest-path unikernel/Cargo.toml --target-dir $(BUILD)/no-std --release --bins --examples \
	  -- -D warnings
	cargo clippy --manifest-path tests/hostile/Cargo.toml --target-dir $(BUILD)/no-std --release -- -D warnings
	cargo clippy --manifest-path unikernel/Cargo.toml --target-dir $(BUILD)/no-std --lib --tests -- -D warnings
	cargo test -q --manifest-path unikernel/Cargo.toml --target-dir $(BUILD)/no-std --lib
	cargo build -q --manifest-path unikernel/Cargo.toml --target-dir $(BUILD)/no-std --bins --examples
	@if rustup target list --installed 2>/dev/null | grep -qx $(BARE) \
	    || rustup target add $(BARE) >/dev/null 2>&1; then \
	  echo "cargo build $(NO_STD) --target $(BARE)"; \
	  cargo build $(NO_STD) --target $(BARE); \
	else \
	  echo "no-std: not built for $(BARE), which is not installed (rustup target add $(BARE))"; \
	fi

unikernel: ## a Xen guest that is one program (unikernel/README.md)
	@scripts/unikernel $(BUILD)

docs: ## the book of docs/, in target/docs; installs mdbook into .cache/tools if it is missing
	@scripts/book $(BUILD)

include packaging/packaging.mk
include lab/lab.mk
