//! `grantway bench prices`, as an operator runs it.

#[path = "../../grantway/tests/common/mod.rs"]
mod common;

use common::{PROMPT, finish, grantway_with, succeed, words};

#[test]
fn bench_prices_prints_a_document_and_a_table_of_the_same_things() {
    let args = ["bench", "prices", "--seconds", "0.01"];
    let output = finish(grantway_with(&[&args[..], &["--json"]].concat()), PROMPT);
    assert!(output.status.success(), "{}", words(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["bench"], "prices");
    let rows = document["rows"].as_array().expect("rows");
    let table = succeed(grantway_with(&args), PROMPT);
    assert_eq!(rows.len(), 9, "{document:#}");
    for row in rows {
        let what = row["what"].as_str().expect("a name");
        assert!(table.lines().any(|line| line.trim_start().starts_with(what)), "{what}: {table}");
        assert!(row["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
    }
}
