//! Shows the Xen domain in which it runs, and whether a backend could run there.
//!
//!     cargo build -p grantway-xen --example domain && sudo target/debug/examples/domain

use grantway_hypervisor::{Error, FrontendPlatform, Platform};
use grantway_xen::Xen;
use std::process::ExitCode;

fn main() -> ExitCode {
    let shown = match Xen::open() {
        Ok(xen) => show(&xen).map_err(|error| error.to_string()),
        // Without Xen, the error names the remedy.
        Err(error) => Err(error.to_string()),
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show(xen: &Xen) -> Result<(), Error> {
    println!("domain {}", xen.domain());
    let name = xen.store()?.read_text("name")?;
    println!("name: {}", name.as_deref().unwrap_or("unknown"));
    match xen.require_backend() {
        Ok(()) => println!("a backend can run here"),
        Err(error) => println!("no backend can run here: {error}"),
    }
    Ok(())
}
