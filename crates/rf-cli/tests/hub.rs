//! `-hf`: a cached model, and errors with exit codes. `rf-hub` tests downloads.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use program::{Finished, demo_model, rf_cli};
use rf_testing::transcript;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

/// A port that nothing listens on.
const NOWHERE: &str = "http://127.0.0.1:1";

/// Runs the program with the cache folder `cache` and a hub that cannot be reached.
fn offline(cache: &Path, arguments: &[&str]) -> Command {
    let mut command = rf_cli(cache, arguments);
    command.env("HF_ENDPOINT", NOWHERE).env("HF_HUB_CACHE", cache);
    command.env_remove("HF_HUB_OFFLINE").env_remove("HF_TOKEN").env("NO_PROXY", "127.0.0.1");
    command
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
        let finished = Finished::of(offline(cache.path(), arguments).output().unwrap());
        assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.stderr);
        assert!(!finished.stdout.is_empty(), "{arguments:?}");
        assert!(finished.stderr.contains("warning: using the cached owner/stories-GGUF"));
    }
    // The demo model is a generator, which is found out after it was loaded.
    let mut rerank = offline(cache.path(), &["rerank", "-hf", name, "query", "document"]);
    assert_data_eq!(
        transcript(&mut rerank),
        str![[r#"
$ rf-cli rerank -hf owner/stories-GGUF:Q8_0 query document
warning: using the cached owner/stories-GGUF:Q8_0: cannot reach http://127.0.0.1:1 for 'owner/stories-GGUF': [..]: check the network, the proxy and HF_ENDPOINT
error: the model is not a reranker (its pooling is not rank): give a reranker, or compare embeddings of `rf-cli embed`
? 2

"#]]
    );
}

#[test]
fn errors_name_the_model_and_the_cure() {
    let cache = TempDir::new().unwrap();
    let printed = [
        &["run", "-hf", "owner/repo", "Hello"][..],
        &["run", "-hf", "no-owner", "Hello"],
        &["run", "-m", "x.gguf", "-hf", "owner/repo", "Hello"],
    ]
    .map(|arguments| transcript(&mut offline(cache.path(), arguments)));
    assert_data_eq!(
        printed.concat(),
        str![[r#"
$ rf-cli run -hf owner/repo Hello
error: cannot reach http://127.0.0.1:1 for 'owner/repo': [..]: check the network, the proxy and HF_ENDPOINT
? 1
$ rf-cli run -hf no-owner Hello
error: invalid value 'no-owner' for '--hf-repo <OWNER/REPO[:QUANT]>': 'no-owner' does not name a model of the hub: give OWNER/REPO or OWNER/REPO:QUANT

For more information, try '--help'.
? 2
$ rf-cli run -m x.gguf -hf owner/repo Hello
error: the argument '--model <FILE>' cannot be used with '--hf-repo <OWNER/REPO[:QUANT]>'

Usage: rf-cli run --model <FILE> --device <DEVICE> [PROMPT]...

For more information, try '--help'.
? 2

"#]]
    );
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
