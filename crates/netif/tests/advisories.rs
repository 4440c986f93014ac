//! The tests that `docs/advisories.md` names exist.

use std::path::Path;

#[test]
fn every_test_of_the_matrix_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let matrix = std::fs::read_to_string(crates.join("../docs/advisories.md")).unwrap();
    let mut found = 0;
    for (number, line) in (1..).zip(matrix.lines()) {
        for name in line.split('`').skip(1).step_by(2) {
            let Some((path, test)) = name.split_once("::") else { continue };
            let text = std::fs::read_to_string(crates.join(path));
            let text = text.unwrap_or_else(|e| panic!("line {number}: {path}: {e}"));
            let needle = match test.strip_suffix('*') {
                Some(prefix) => format!("fn {prefix}"),
                None => format!("fn {test}("),
            };
            assert!(text.contains(&needle), "line {number}: {path} has no test {test}");
            found += 1;
        }
    }
    assert!(found > 100, "{found} tests named");
}
