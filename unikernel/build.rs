//! Links a Xen guest: no C library, a place in memory, and the note by which Xen finds the entry.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/guest.ld");
    // A target of an operating system is linked by a compiler, which passes arguments on to its
    // linker; one without is linked by the linker itself.
    let on = match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("none") => "",
        _ => "-Wl,",
    };
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let kinds: &[_] =
        if std::path::Path::new(examples).exists() { &["bins", "examples"] } else { &["bins"] };
    for kind in kinds {
        for argument in ["-nostdlib", "-static", "-no-pie"] {
            println!("cargo:rustc-link-arg-{kind}={argument}");
        }
        for argument in ["--build-id=none", "-n", &format!("-T{script}")] {
            println!("cargo:rustc-link-arg-{kind}={on}{argument}");
        }
    }
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rerun-if-changed=build.rs");
}
