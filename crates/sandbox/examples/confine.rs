//! Confines itself and a worker thread, and shows what both may still do.
//!
//!     cargo run -p grantway-sandbox --example confine

use grantway_sandbox::{Files, Host, Sandbox, SandboxError, Use};
use std::fs::File;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First, before any thread is started: limits that hold for the whole process.
    let mut sandbox = Sandbox::enter(Host::None);

    // A worker has the descriptors that it needs already. It opens nothing afterwards.
    let worker = sandbox.worker();
    let thread = std::thread::spawn(move || {
        worker.confine()?;
        show("worker", "/proc/self/status");
        Ok::<(), SandboxError>(())
    });
    thread.join().map_err(|_| "the worker panicked")??;

    // The control thread may read /proc, and no other folder.
    sandbox.close(&Files::new().with("/proc", Use::Read));
    show("control thread", "/proc/self/status");
    show("control thread", "/etc/passwd");

    for part in sandbox.held() {
        println!("held: {}", part.held());
    }
    for missing in sandbox.missing() {
        println!("missing: {missing}");
    }
    Ok(())
}

fn show(thread: &str, path: &str) {
    match File::open(path) {
        Ok(_) => println!("{thread}: {path} can be read"),
        Err(error) => println!("{thread}: {path}: {error}"),
    }
}
