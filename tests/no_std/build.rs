//! Links without the C library and its start-up code: the program has its own.

fn main() {
    println!("cargo:rustc-link-arg-bins=-nostdlib");
    println!("cargo:rerun-if-changed=build.rs");
}
