//! `-hf`: a cached model, and errors with exit codes. `rf-hub` tests downloads.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::path::Path;

use program::{Finished, demo_model, rf_cli};
use tempfile::TempDir;

/// A port that nothing listens on.
const NOWHERE: &str = "http://127.0.0.1:1";

/// Runs the program with the cache folder `cache` and a hub that cannot be reached.
fn finish(cache: &Path, arguments: &[&str]) -> Finished {
    let mut command = rf_cli(cache, arguments);
    command.env("HF_ENDPOINT", NOWHERE).env("HF_HUB_CACHE", cache);
    command.env_remove("HF_HUB_OFFLINE").env_remove("HF_TOKEN").env("NO_PROXY", "127.0.0.1");
    Finished::of(command.output().unwrap())
}

/// A cache folder with the demo model.
fn cache() -> TempDir {
    let cache = TempDir::new().unwrap();
    let folder = cache.path().join("models--owner--stories-GGUF");
    fs::create_dir_all(folder.join("snapshots/c0ffee")).unwrap();
    fs::create_dir_all(folder.join("refs")).unwrap();
    fs::write(folder.join("refs/main"), "c0ffee").unwrap();
    fs::copy(demo_model(), folder.join("snapshots/c0ffee/stories-Q8_0.gguf")).unwrap();
    cache
}

#[test]
fn every_command_takes_a_cached_model() {
    let cache = cache();
    fs::write(cache.path().join("text.txt"), "Once upon a time there was a fox. ".repeat(4))
        .unwrap();
    let name = "owner/stories-GGUF:Q8_0";
    for arguments in [
        &["tokenize", "-hf", name, "--ids", "Once upon"][..],
        &["run", "--hf-repo", "owner/stories-GGUF", "--raw", "-n", "2", "Once"],
        &["embed", "-hf", name, "--json", "Once upon a time"],
        &["perplexity", "-hfr", name, "-f", "text.txt", "-c", "8"],
        &["bench", "-hf", name, "-p", "8", "-n", "0", "-r", "1"],
    ] {
        let finished = finish(cache.path(), arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.stderr);
        assert!(!finished.stdout.is_empty(), "{arguments:?}");
        assert!(finished.stderr.contains("warning: using the cached owner/stories-GGUF"));
    }
    // The demo model is a generator, which is found out after it was loaded.
    let finished = finish(cache.path(), &["rerank", "-hf", name, "query", "document"]);
    assert!(finished.stderr.contains("the model is not a reranker"), "{}", finished.stderr);
}

#[test]
fn errors_name_the_model_and_the_cure() {
    let cache = TempDir::new().unwrap();
    let finished = finish(cache.path(), &["run", "-hf", "owner/repo", "Hello"]);
    assert_eq!(finished.code, Some(1));
    let start = format!("error: cannot reach {NOWHERE} for 'owner/repo': ");
    assert!(finished.stderr.starts_with(&start), "{}", finished.stderr);
    assert!(finished.stderr.ends_with(": check the network, the proxy and HF_ENDPOINT\n"));

    let finished = finish(cache.path(), &["run", "-hf", "no-owner", "Hello"]);
    assert_eq!(finished.code, Some(2));
    let cure = "'no-owner' does not name a model of the hub: give OWNER/REPO or OWNER/REPO:QUANT";
    assert!(finished.stderr.contains(cure), "{}", finished.stderr);

    let finished = finish(cache.path(), &["run", "-m", "x.gguf", "-hf", "owner/repo", "Hello"]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("cannot be used with"), "{}", finished.stderr);
}

#[test]
fn a_model_that_is_not_cached_is_an_error_offline() {
    let cache = cache();
    let mut command =
        rf_cli(cache.path(), &["tokenize", "-hf", "owner/stories-GGUF:Q4_0", "Hello"]);
    command.env("HF_HUB_CACHE", cache.path()).env("HF_HUB_OFFLINE", "1");
    let finished = Finished::of(command.output().unwrap());
    assert_eq!(finished.code, Some(2));
    let start = "error: model 'owner/stories-GGUF:Q4_0' is not in the cache folder '";
    assert!(finished.stderr.starts_with(start), "{}", finished.stderr);
}

#[test]
fn the_help_of_each_command_explains_the_option() {
    for command in ["run", "serve", "tokenize", "embed", "rerank", "perplexity", "bench"] {
        let help = finish(Path::new("."), &[command, "--help"]).stdout;
        assert!(help.contains("--hf-repo <OWNER/REPO[:QUANT]>"), "{command}: {help}");
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("of the Hugging Face hub, downloaded unless"), "{command}: {help}");
    }
}
