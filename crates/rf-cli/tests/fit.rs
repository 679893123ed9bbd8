//! `fit`: what a file, a repository and the list of names say about this machine.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::process::Command;

use program::{Finished, demo_model, rf_cli};
use rf_testing::hub::{REPO, StandIn};
use serde_json::Value;
use tempfile::TempDir;

/// Runs `fit` with a hub and an empty cache.
fn fit(folder: &TempDir, endpoint: &str, arguments: &[&str]) -> Finished {
    let mut command: Command = rf_cli(folder.path(), &["fit"]);
    command.args(arguments).env("HF_ENDPOINT", endpoint).env("HF_HUB_CACHE", folder.path());
    command.env_remove("HF_HUB_OFFLINE").env_remove("HF_TOKEN").env("NO_PROXY", "127.0.0.1");
    Finished::of(command.output().unwrap())
}

/// A port that nothing listens on.
const NOWHERE: &str = "http://127.0.0.1:1";

#[test]
fn a_file_has_a_place_a_context_and_a_measured_speed() {
    let folder = TempDir::new().unwrap();
    let model = demo_model();
    let model = model.to_str().unwrap();
    let report = fit(&folder, NOWHERE, &["--json", "-t", "2", model]).json();
    let row = &report["models"][0];
    assert_eq!((&row["fits"], &row["examined"]), (&true.into(), &true.into()), "{row}");
    let place = &row["place"];
    assert_eq!((&place["gpu_layers"], &place["main_format"]), (&0.into(), &"Q8_0".into()));
    // `run` with the same context needs the same.
    assert_eq!(place["context_tokens"], place["trained_context_tokens"]);
    let bytes = fs::metadata(model).unwrap().len();
    assert_eq!(row["file_bytes"], bytes);
    assert!(place["memory_bytes"].as_u64().unwrap() > bytes, "{place}");
    // A machine that is short of memory says nothing about the speed.
    if let [speed] = report["speeds"].as_array().unwrap().as_slice() {
        assert_eq!((&speed["device"], &speed["format"]), (&"CPU".into(), &"Q8_0".into()));
        let rate = speed["bytes_per_s"].as_f64().unwrap();
        let expected = row["tokens_per_s"].as_f64().unwrap();
        assert!(expected > 0.0 && expected < rate / (bytes as f64 / 2.0), "{expected} {rate}");
        assert_eq!(row["error_percent"], speed["error_percent"]);
    }
    // Without a measurement there is no figure.
    let text = fit(&folder, NOWHERE, &["--no-measure", "-c", "64", model]);
    assert_eq!(text.code, Some(0), "{}", text.stderr);
    assert!(text.stdout.contains("CPU") && !text.stdout.contains('±'), "{}", text.stdout);
    let row = text.stdout.lines().last().unwrap();
    assert!(row.split_whitespace().any(|word| word == "64"), "{row}");
}

#[test]
fn the_quantisations_of_a_repository_are_examined_without_a_download() {
    let folder = TempDir::new().unwrap();
    let demo = fs::read(demo_model()).unwrap();
    // A model of the size of a disk: only its listing says so.
    let hub = StandIn::start(&[("m-Q8_0.gguf", demo), ("m-F16.gguf", b"GGUF".to_vec())]);
    let report = fit(&folder, &hub.url(), &["--no-measure", "--json", REPO]).json();
    let row = |quant: &str| -> Value {
        let rows = report["models"].as_array().unwrap();
        let name = format!("{REPO}:{quant}");
        rows.iter().find(|row| row["model"] == *name).unwrap().clone()
    };
    let good = row("Q8_0");
    assert_eq!(good["fits"], true, "{good}");
    assert!(good["place"]["memory_bytes"].as_u64().unwrap() > 7_000_000, "{good}");
    assert!(good.get("tokens_per_s").is_none());
    let damaged = row("F16");
    assert_eq!(damaged["fits"], false);
    assert!(damaged["problem"].as_str().unwrap().contains("m-F16.gguf"), "{damaged}");
    // The best one comes first, and no file of the hub is kept.
    assert_eq!(report["models"][0]["model"], format!("{REPO}:Q8_0"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let one = fit(&folder, &hub.url(), &["--no-measure", "--json", &format!("{REPO}:q8_0")]).json();
    assert_eq!(one["models"].as_array().unwrap().len(), 1);
}

#[test]
fn the_list_of_names_needs_no_network() {
    let folder = TempDir::new().unwrap();
    let finished = fit(&folder, NOWHERE, &["--no-measure", "--json"]);
    let report = finished.json();
    let rows = report["models"].as_array().unwrap();
    let free = report["free_bytes"].as_u64().unwrap();
    assert!(rows.iter().all(|row| row["fits"] == true && row["examined"] == false));
    let sizes: Vec<u64> = rows.iter().map(|row| row["file_bytes"].as_u64().unwrap()).collect();
    assert!(sizes.iter().rev().is_sorted() && sizes.iter().all(|size| *size < free), "{sizes:?}");
    let unknown = fit(&folder, NOWHERE, &["no-such-model"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("'no-such-model' is no file"), "{}", unknown.stderr);
}
