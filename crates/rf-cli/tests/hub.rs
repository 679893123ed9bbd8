//! `-hf`: a cached model, and errors with exit codes. `rf-hub` tests downloads.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
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
error: invalid value 'no-such-name' for '[NAME]': it is no short name (`rf-cli list --all` shows them), and neither OWNER/REPO nor OWNER/REPO:QUANT
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

/// A list of names with its signature and the key of it, which only this test uses.
const KEY: &str = "RWSy8SL7iXSOdb18sIsmbXpIvVg1i4V28rddfGveEVPavRkFNZlktZYr";
const NEW_LIST: [&str; 2] = [
    "# ROCmForge names 2099-01-01\ntest:1b owner/stories-GGUF:Q8_0 0.01 text\n",
    "untrusted comment: test
RUSy8SL7iXSOdWW0rH8k8e5trlQTaoWFoDNcQiVQb8T02rewpUmBAKNAU71MY9EDK+r6gRQ05sUx1wNdpNMliBZFktgTsNUHvAk=
trusted comment: test
x9TbsmyECIVb/NwtagGYJWSLKZH5Lhhhm6Qq7PIC6GEDH2q3NFrQT5ZVczzuwhRabYfhEAOvV5azsG0BAX5uCw==
",
];
const OLD_LIST: [&str; 2] = [
    "# ROCmForge names 2020-01-01\ntest:1b owner/stories-GGUF:Q8_0 0.01 text\n",
    "untrusted comment: test
RUSy8SL7iXSOdZpmL5ePYV5CkaGet9qiar2jKOeFkIcHjhCmR+Kb/vykf2/BsnjJIOjH1O1OSfBh4qx6g540lcDwSkZvbpeWAAA=
trusted comment: test
Rr1LvPgKLxm0WlvQWhSFU9wgBy244T3gNU56gi7WjxWA6BXkncsmZaPV2HB6t9WP11C8Jx+5ZBAaJKPgDKiAAw==
",
];
/// A key that signed neither.
const OTHER_KEY: &str = "RWRxDPLVqf0yRuCtmZIzz3XAUyukiXewxgi93r1voF3TKV0+rPvGl311";

/// A cache folder with the demo model, and lists of names.
fn cache_with_lists() -> TempDir {
    let cache = cache();
    let write = |name: &str, [list, signature]: [&str; 2]| {
        fs::write(cache.path().join(name), list).unwrap();
        fs::write(cache.path().join(format!("{name}.minisig")), signature).unwrap();
    };
    write("new.txt", NEW_LIST);
    write("old.txt", OLD_LIST);
    write("damaged.txt", [&NEW_LIST[0].replace("0.01", "0.02"), NEW_LIST[1]]);
    write("swapped.txt", [NEW_LIST[0], OLD_LIST[1]]);
    fs::write(cache.path().join("unsigned.txt"), NEW_LIST[0]).unwrap();
    fs::write(cache.path().join("key.pub"), format!("untrusted comment: a key\n{KEY}\n")).unwrap();
    cache
}

/// The transcript of a command whose folder for data is in the cache folder.
fn with_data(cache: &Path, arguments: &[&str]) -> String {
    transcript(offline(cache, arguments).env("XDG_DATA_HOME", cache.join("data")))
}

#[test]
fn a_signed_list_of_names_replaces_that_of_the_program() {
    let cache = cache_with_lists();
    let printed = [
        &["pull", "--names", "new.txt", "--public-key", "key.pub"][..],
        &["list", "--all"],
        &["rm", "test:1b"],
        // The list in use is newer now.
        &["pull", "--names", "old.txt", "--public-key", KEY],
        &["pull", "--names", "new.txt", "--public-key", KEY],
    ]
    .map(|arguments| with_data(cache.path(), arguments));
    assert_data_eq!(
        printed.concat(),
        str![[r#"
$ rf-cli pull --names new.txt --public-key key.pub
using the names of 2099-01-01: `rf-cli list --all` shows them
$ rf-cli list --all
NAME     DOWNLOAD  MAKES             MODEL
test:1b   0.01 GB  text, downloaded  owner/stories-GGUF:Q8_0
$ rf-cli rm test:1b
removed owner/stories-GGUF:Q8_0 (7.58 MiB)
$ rf-cli pull --names old.txt --public-key [..]
error: 'old.txt' is of 2020-01-01, and the list in use of 2099-01-01: the older list is not used
? 2
$ rf-cli pull --names new.txt --public-key [..]
using the names of 2099-01-01: `rf-cli list --all` shows them

"#]]
    );
}

#[test]
fn a_list_of_names_without_a_valid_signature_is_refused() {
    let cache = cache_with_lists();
    let printed = [
        &["pull", "--names", "new.txt"][..],
        &["pull", "--names", "new.txt", "--public-key", OTHER_KEY],
        &["pull", "--names", "new.txt", "--public-key", "no key"],
        &["pull", "--names", "damaged.txt", "--public-key", KEY],
        &["pull", "--names", "swapped.txt", "--public-key", KEY],
        &["pull", "--names", "unsigned.txt", "--public-key", KEY],
        &["pull", "--names", "missing.txt", "--public-key", KEY],
        &["pull", "--names", "http://127.0.0.1:1/new.txt", "--public-key", KEY],
    ]
    .map(|arguments| with_data(cache.path(), arguments));
    assert_data_eq!(
        printed.concat(),
        str![[r#"
$ rf-cli pull --names new.txt
error: this program has no key for lists of names: give --public-key
? 2
$ rf-cli pull --names new.txt --public-key RWRxDPLVqf0yRuCtmZIzz3XAUyukiXewxgi93r1voF3TKV0+rPvGl311
error: the signature of 'new.txt' is not valid (The signature was created with a different key than the one provided): the list is not used
? 2
$ rf-cli pull --names new.txt --public-key 'no key'
error: 'no key' is no public key of minisign: give the file or the line that minisign made
? 2
$ rf-cli pull --names damaged.txt --public-key RWSy8SL7iXSOdb18sIsmbXpIvVg1i4V28rddfGveEVPavRkFNZlktZYr
error: the signature of 'damaged.txt' is not valid (The signature verification failed): the list is not used
? 2
$ rf-cli pull --names swapped.txt --public-key RWSy8SL7iXSOdb18sIsmbXpIvVg1i4V28rddfGveEVPavRkFNZlktZYr
error: the signature of 'swapped.txt' is not valid (The signature verification failed): the list is not used
? 2
$ rf-cli pull --names unsigned.txt --public-key RWSy8SL7iXSOdb18sIsmbXpIvVg1i4V28rddfGveEVPavRkFNZlktZYr
error: 'unsigned.txt' has no signature ([..]): put its file 'unsigned.txt.minisig' beside it
? 2
$ rf-cli pull --names missing.txt --public-key RWSy8SL7iXSOdb18sIsmbXpIvVg1i4V28rddfGveEVPavRkFNZlktZYr
error: cannot read 'missing.txt': [..]
? 2
$ rf-cli pull --names http://127.0.0.1:1/new.txt --public-key RWSy8SL7iXSOdb18sIsmbXpIvVg1i4V28rddfGveEVPavRkFNZlktZYr
error: cannot download 'http://127.0.0.1:1/new.txt': [..]: check the URL, and that LIST.minisig is beside LIST
? 1

"#]]
    );
    assert!(!cache.path().join("data").exists(), "a refused list was stored");
}

#[test]
fn a_stored_list_that_is_damaged_is_a_warning() {
    let cache = cache_with_lists();
    with_data(cache.path(), &["pull", "--names", "new.txt", "--public-key", KEY]);
    let stored = cache.path().join("data/rocmforge/names");
    let text = fs::read_to_string(&stored).unwrap();
    let reasons = [text.replace("0.01", "0.02"), text.lines().take(3).collect(), String::new()]
        .map(|damaged| {
            fs::write(&stored, damaged).unwrap();
            let printed = with_data(cache.path(), &["list", "--all"]);
            assert!(printed.contains("gpt-oss:20b") && !printed.contains("test:1b"), "{printed}");
            let warning = printed.lines().find(|line| line.starts_with("warning: ")).unwrap();
            warning.replace(&*stored.to_string_lossy(), "STORED") + "\n"
        });
    assert_data_eq!(
        reasons.concat(),
        str![[r#"
warning: the signature of 'STORED' is not valid (The signature verification failed): the list is not used: `rf-cli pull --names` stores a new one
warning: the signature of 'STORED' is not valid (it is missing): the list is not used: `rf-cli pull --names` stores a new one
warning: the signature of 'STORED' is not valid (it is missing): the list is not used: `rf-cli pull --names` stores a new one

"#]]
    );
}

#[test]
fn a_list_of_names_comes_from_a_server() {
    let cache = cache();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/names.txt", server.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = server.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let request = lines.next().unwrap();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let body = NEW_LIST[usize::from(request.contains(".minisig "))];
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    let arguments = ["pull", "--names", &url, "--public-key", KEY];
    let printed = with_data(cache.path(), &arguments);
    serving.join().unwrap();
    assert!(
        printed.ends_with("using the names of 2099-01-01: `rf-cli list --all` shows them\n"),
        "{printed}"
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
