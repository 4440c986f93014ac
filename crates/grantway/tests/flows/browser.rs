//! The page in Chromium without a window.

use super::common::{PROMPT, succeed};
use super::{planted, run};
use grantway_needs::{Need, met};
use std::path::Path;
use std::process::Command;

const CHROMIUM: &str = "chromium";

/// The page as it is after its scripts ran, and what the browser had to say.
fn opened(page: &Path, profile: &Path) -> String {
    let mut command = Command::new(CHROMIUM);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--no-first-run", "--disable-extensions", "--window-size=1280,3000"]);
    command.args(["--virtual-time-budget=3000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("file://{}", page.display()));
    succeed(command, PROMPT)
}

#[test]
fn the_page_draws_itself_and_marks_the_stalls() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = planted().write(folder.path());
    let page = folder.path().join("flows.html");
    run(&path, &["--report", page.to_str().expect("a path")]);
    let source = std::fs::read_to_string(&page).expect("the page");
    for absent in ["src=", "href=", "https://", "url(", "@import", "NaN"] {
        assert!(!source.contains(absent), "{absent:?} in the page");
    }
    // The name of what is drawn is no address that is asked for.
    assert_eq!(source.matches("http://").count(), 1);
    assert!(source.contains("default-src 'none'"));
    if !met(&[Need::Program(CHROMIUM, CHROMIUM)]) {
        return;
    }
    let profile = folder.path().join("profile");
    let drawn = opened(&page, &profile);
    assert!(drawn.contains("data-drawn=\"1\""), "nothing was drawn: {drawn}");
    assert!(!drawn.contains("data-error"), "a script failed: {drawn}");
    // In each of four plots, and as a button.
    for (cause, at) in [("network", "0.61"), ("wake-up", "0.98")] {
        let mark = format!("data-cause=\"{cause}\" data-at=\"{at}\"");
        assert_eq!(drawn.matches(&mark).count(), 4, "{cause}: {drawn}");
    }
    assert!(drawn.contains("0.610 s: 350 ms, network</button>"), "{drawn}");
    assert!(drawn.matches("<svg class=\"chart\"").count() == 4 && !drawn.contains("NaN"));

    // The button of a stall, and twice the plus: what was before it is out of sight.
    let act = "<script>const press = (s) => document.querySelector(s).click();\
               press('.go .cause-wake-up'); press('.bar-of-flow button');\
               press('.bar-of-flow button');</script></body>";
    std::fs::write(&page, source.replace("</body>", act)).expect("the page");
    let zoomed = opened(&page, &profile);
    let marks = |cause| zoomed.matches(&format!("data-cause=\"{cause}\"")).count();
    assert_eq!((marks("wake-up"), marks("network")), (4, 0));
    assert!(!zoomed.contains("data-error"), "a script failed");
}
