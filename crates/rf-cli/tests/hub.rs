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
fn cached_models_are_listed_and_removed() {
    let cache = cache();
    let printed = [
        &["list"][..],
        &["rm", "owner/stories-GGUF:Q4_0"],
        &["rm", "owner/stories-GGUF:Q8_0"],
        &["list"],
        &["pull", "no-such-name"],
        &["run", "qwen3.5:4b", "Hello"],
    ]
    .map(|arguments| transcript(&mut offline(cache.path(), arguments)));
    assert_data_eq!(
        printed.concat(),
        str![[r#"
$ rf-cli list
NAME                         SIZE  DOWNLOADED  MODEL
owner/stories-GGUF:Q8_0  7.58 MiB  [..]  owner/stories-GGUF:Q8_0
$ rf-cli rm owner/stories-GGUF:Q4_0
error: model 'owner/stories-GGUF:Q4_0' is not in the cache folder: check the name
? 2
$ rf-cli rm owner/stories-GGUF:Q8_0
removed owner/stories-GGUF:Q8_0 (7.58 MiB)
$ rf-cli list
no model is downloaded: `rf-cli list --all` shows names, and `rf-cli pull NAME` downloads one
$ rf-cli pull no-such-name
error: invalid value 'no-such-name' for '<NAME>': it is no short name (`rf-cli list --all` shows them), and neither OWNER/REPO nor OWNER/REPO:QUANT
? 2
$ rf-cli run qwen3.5:4b Hello
error: cannot reach http://127.0.0.1:1 for 'unsloth/Qwen3.5-4B-GGUF': io: Connection refused (os error 111): check the network, the proxy and HF_ENDPOINT
? 1

"#]]
    );
}

#[test]
fn a_client_gets_the_settings_of_the_documentation() {
    let cache = TempDir::new().unwrap();
    let printed = ["claude", "codex", "opencode", "aider", "zed", "open-webui"].map(|client| {
        let arguments = ["launch", client, "--dry-run", "--port", "8081", "--", "two words"];
        let mut command = offline(cache.path(), &arguments);
        transcript(command.env("XDG_STATE_HOME", "/state"))
    });
    assert_data_eq!(
        printed.concat(),
        str![[r#"
$ rf-cli launch claude --dry-run --port 8081 -- 'two words'
ANTHROPIC_BASE_URL=http://127.0.0.1:8081 ANTHROPIC_AUTH_TOKEN=none ANTHROPIC_MODEL=local ANTHROPIC_SMALL_FAST_MODEL=local claude 'two words'
$ rf-cli launch codex --dry-run --port 8081 -- 'two words'
codex -c 'model_providers.rocmforge={name="ROCmForge",base_url="http://127.0.0.1:8081/v1",wire_api="responses"}' -c 'model_provider="rocmforge"' -c 'model="local"' 'two words'
$ rf-cli launch opencode --dry-run --port 8081 -- 'two words'
OPENCODE_CONFIG_CONTENT='{"model":"rocmforge/local","provider":{"rocmforge":{"npm":"@ai-sdk/openai-compatible","options":{"baseURL":"http://127.0.0.1:8081/v1"},"models":{"local":{}}}}}' opencode 'two words'
$ rf-cli launch aider --dry-run --port 8081 -- 'two words'
OPENAI_API_BASE=http://127.0.0.1:8081/v1 OPENAI_API_KEY=none aider --model openai/local 'two words'
$ rf-cli launch zed --dry-run --port 8081 -- 'two words'
# /state/rocmforge/zed/config/settings.json: {"language_models":{"openai_compatible":{"rocmforge":{"api_url":"http://127.0.0.1:8081/v1","available_models":[{"name":"local","display_name":"local","max_tokens":32768}]}}},"agent":{"default_model":{"provider":"rocmforge","model":"local"}}}
ROCMFORGE_API_KEY=none zed --foreground --user-data-dir /state/rocmforge/zed 'two words'
$ rf-cli launch open-webui --dry-run --port 8081 -- 'two words'
OPENAI_API_BASE_URL=http://127.0.0.1:8081/v1 OPENAI_API_KEY=none WEBUI_AUTH=False open-webui serve --port 3000 'two words'

"#]]
    );
}

#[test]
fn the_program_alone_is_a_guide() {
    let cache = TempDir::new().unwrap();
    let finished = Finished::of(offline(cache.path(), &[]).output().unwrap());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for part in ["ROCmForge ", "Memory  ", "rf-cli run  ", "rf-cli --help  "] {
        assert!(finished.stdout.contains(part), "{}", finished.stdout);
    }
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
