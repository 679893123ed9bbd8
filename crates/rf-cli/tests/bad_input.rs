//! What the program says of input that it cannot use: exact words, exit code, and nothing left
//! behind.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use program::terminal::Terminal;
use program::{Finished, TinyModel, demo_model, finish, finish_with_input, rf_cli, transcripts};
use rf_quant::DType;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

/// Nothing on stdout, `error: message` on stderr, and the exit code.
fn check(finished: &Finished, code: i32, message: &str) {
    assert_eq!(finished.stderr, format!("error: {message}\n"));
    assert_eq!(finished.code, Some(code));
    assert_eq!(finished.stdout, "");
}

fn folder_with(name: &str, bytes: &[u8]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join(name), bytes).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_missing_file() {
    let folder = TempDir::new().unwrap();
    for arguments in [
        &["run", "-m", "no.gguf", "Hello"][..],
        &["info", "no.gguf"],
        &["tokenize", "-m", "no.gguf", "Hello"],
        &["bench", "-m", "no.gguf", "-o", "jsonl"],
        &["quantize", "no.gguf", "out.gguf", "Q4_0"],
    ] {
        let finished = finish(folder.path(), arguments);
        check(&finished, 2, "file 'no.gguf' does not exist: check the path");
    }
    let finished = finish(folder.path(), &["run", "-f", "no.txt"]);
    check(&finished, 2, "file 'no.txt' does not exist: check the path");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_file_that_is_no_prompt_cache() {
    let folder = folder_with("story.txt", b"Once upon a time there was a fox.");
    let arguments = ["run", "--raw", "Once upon a time", "--prompt-cache"];
    let finished = finish(folder.path(), &[&arguments[..], &["story.txt"]].concat());
    check(&finished, 2, "'story.txt': the file is not a prompt cache: give another name");
    assert_eq!(names(folder.path()), ["story.txt"]);

    let cache = folder.path().join("story.cache");
    let written = finish(folder.path(), &[&arguments[..], &["story.cache", "-n", "1"]].concat());
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    let other = [&arguments[..], &["story.cache", "--cache-type", "q8_0"]].concat();
    let message = "'story.cache': the prompt cache belongs to another model, device or kind of KV \
                   cache: delete it, or give another name (-c, --cache-type and --spec set the kind)";
    check(&finish(folder.path(), &other), 2, message);
    let bytes = fs::read(&cache).unwrap();
    // The version follows the eight bytes of the name.
    let later = [&bytes[..8], &7_u32.to_le_bytes(), &bytes[12..]].concat();
    fs::write(&cache, later).unwrap();
    let finished = finish(folder.path(), &[&arguments[..], &["story.cache"]].concat());
    let message =
        "'story.cache': the prompt cache has version 7, but version 2 is needed: delete it";
    check(&finished, 2, message);
    fs::write(&cache, &bytes[..bytes.len() / 2]).unwrap();
    let finished = finish(folder.path(), &[&arguments[..], &["story.cache"]].concat());
    let message = "'story.cache': the prompt cache is truncated or damaged: delete it";
    check(&finished, 2, message);
}

#[cfg(target_os = "linux")]
#[test]
fn a_prompt_cache_that_cannot_be_written_does_not_cost_the_answer() {
    let folder = TempDir::new().unwrap();
    let arguments = ["run", "-q", "--raw", "-n", "2", "--temp", "0", "Once upon a"];
    let answer = finish(folder.path(), &arguments).stdout;
    let with_cache =
        |path| finish(folder.path(), &[&arguments[..], &["--prompt-cache", path]].concat());
    let ran = with_cache("/proc/story.cache");
    assert_eq!((ran.code, &ran.stdout), (Some(1), &answer), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: cannot save '/proc/story.cache': "), "{}", ran.stderr);
    check(&with_cache("/dev/zero"), 2, "'/dev/zero' is no file: give the path of a file");
}

#[test]
fn a_directory() {
    let folder = TempDir::new().unwrap();
    let finished = finish(folder.path(), &["run", "-m", ".", "Hello"]);
    check(&finished, 2, "'.' is a directory: give the path of a .gguf file");
    let finished = finish(folder.path(), &["run", "-f", "."]);
    check(&finished, 2, "'.' is a directory: give the path of a file");
}

#[test]
fn a_folder_that_does_not_exist() {
    let folder = TempDir::new().unwrap();
    for flag in ["--lora-dir", "--slot-save-path"] {
        let finished = finish(folder.path(), &["serve", flag, "no"]);
        check(&finished, 2, &format!("{flag} no: there is no such folder"));
    }
}

#[test]
fn parts_of_the_cpu_without_tensor_parallelism() {
    let folder = TempDir::new().unwrap();
    let finished = finish(folder.path(), &["run", "--device", "cpu,cpu", "-n", "1", "x"]);
    let message = "several parts of the CPU share a model only if each layer is divided: --device \
                   cpu,cpu needs -sm tensor";
    check(&finished, 2, message);
}

#[test]
fn an_empty_file() {
    let folder = folder_with("empty.gguf", b"");
    let finished = finish(folder.path(), &["run", "-m", "empty.gguf", "Hello"]);
    check(&finished, 2, "empty.gguf: the file is empty: download or convert the model again");
}

#[test]
fn a_text_file() {
    let folder = folder_with("text.gguf", b"This is not a model, but text.\n");
    let finished = finish(folder.path(), &["info", "text.gguf"]);
    check(
        &finished,
        2,
        "text.gguf: not a GGUF file: it looks like a text file: give a model in GGUF format",
    );
}

#[test]
fn a_truncated_file() {
    let bytes = fs::read(demo_model()).unwrap();
    let folder = folder_with("half.gguf", &bytes[..bytes.len() / 2]);
    let finished = finish(folder.path(), &["run", "-m", "half.gguf", "Hello"]);
    check(
        &finished,
        2,
        "half.gguf: at byte 131080: tensor 'blk.3.ffn_down.weight': its data ends at byte 4180288 but \
         the file has 3974816: the file is truncated (was the download complete?): download or copy it again",
    );
    let folder = folder_with("head.gguf", &bytes[..100]);
    let finished = finish(folder.path(), &["run", "-m", "head.gguf", "Hello"]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.ends_with(": download or copy it again\n"), "{}", finished.stderr);
}

#[test]
fn an_unsupported_architecture() {
    let model = TinyModel {
        architecture: "rwkv7",
        tensors: vec![("token_embd.weight", vec![256, 4], DType::F32)],
    };
    let folder = folder_with("rwkv7.gguf", &model.bytes());
    let finished = finish(folder.path(), &["run", "-m", "rwkv7.gguf", "Hello"]);
    let message = format!(
        "architecture 'rwkv7' is not supported; supported are {}",
        rf_model::supported_architectures().join(", ")
    );
    check(&finished, 2, &message);
}

#[test]
fn an_unsupported_quantisation() {
    let folder = folder_with("iq.gguf", &with_q8_k_tensor());
    let message = "tensor 'token_embd.weight' has type Q8_K (15), which is not supported: \
                   re-quantise the model to one that is, such as Q4_K_M";
    let finished = finish(folder.path(), &["run", "-m", "iq.gguf", "Hello"]);
    check(&finished, 2, message);
    let finished = finish(folder.path(), &["quantize", "iq.gguf", "out.gguf", "Q4_0"]);
    check(&finished, 2, message);
    assert_eq!(names(folder.path()), ["iq.gguf"]);

    // Listing it does not need the format.
    let json = finish(folder.path(), &["info", "--json", "iq.gguf"]).json();
    assert_eq!(json["types"][0]["type"], "Q8_K (15)");
    assert_eq!(json["types"][0]["supported"], false);
    assert_eq!(json["runnable"], false);
    assert_eq!(json["problems"][0], message);
}

/// The writer makes no such file, so the type of an `F32` tensor is overwritten.
fn with_q8_k_tensor() -> Vec<u8> {
    const NAME: &[u8] = b"token_embd.weight";
    const Q8_K: u32 = 15;
    let model = TinyModel {
        architecture: "llama",
        tensors: vec![("token_embd.weight", vec![256, 4], DType::F32)],
    };
    let mut bytes = model.bytes();
    let name = bytes.windows(NAME.len()).position(|window| window == NAME).unwrap();
    let ty = name + NAME.len() + 4 + 2 * 8; // behind the number of axes and two lengths
    assert_eq!(bytes[ty..ty + 4], 0_u32.to_le_bytes());
    bytes[ty..ty + 4].copy_from_slice(&Q8_K.to_le_bytes());
    bytes
}

#[test]
fn a_vocabulary_is_no_model() {
    let model = TinyModel { architecture: "llama", tensors: Vec::new() };
    let folder = folder_with("vocab.gguf", &model.bytes());
    let finished = finish(folder.path(), &["run", "-m", "vocab.gguf", "Hello"]);
    check(&finished, 2, "the file has no tensors: it is a vocabulary, not a model");
    let finished = finish(folder.path(), &["quantize", "vocab.gguf", "out.gguf", "Q4_0"]);
    let message = "vocab.gguf: the file has no tensors, only a vocabulary: give a model";
    check(&finished, 2, message);
}

#[test]
fn more_than_the_memory() {
    let folder = TempDir::new().unwrap();
    let finished = finish(folder.path(), &["run", "-t", "1", "-c", "1000000000", "-q", "Hello"]);
    assert_eq!(finished.code, Some(2));
    let (warning, error) = finished.stderr.split_once('\n').unwrap();
    assert!(warning.starts_with("warning: a context of 1000000000 tokens exceeds the 1024"));
    let (needed, rest) = error
        .strip_prefix("error: the model needs ")
        .unwrap()
        .split_once(" of memory on the CPU (weights ")
        .unwrap();
    // A token takes 4096 bytes of KV cache, 256 of RoPE tables and 32 of attention scores; weights
    // and buffers come on top.
    let needed_mib: u64 = needed.strip_suffix(" MiB").unwrap().parse().unwrap();
    assert!((4_180_908..4_181_100).contains(&needed_mib), "{needed}");
    let cure = " are available: use a smaller context or a smaller quantisation\n";
    assert!(rest.ends_with(cure), "{rest}");
}

#[test]
fn a_prompt_longer_than_the_context() {
    let folder = folder_with("long.txt", "Once upon a time ".repeat(20).as_bytes());
    let finished = finish(folder.path(), &["run", "--raw", "-c", "32", "-f", "long.txt"]);
    check(
        &finished,
        2,
        "the prompt has 81 tokens, but the context has room for 32: use a larger context or a shorter prompt: see -c",
    );
}

#[test]
fn no_tokens_to_generate() {
    let folder = TempDir::new().unwrap();
    let mut chat = Terminal::start(rf_cli(folder.path(), &["run", "-n", "0"]), "xterm");
    chat.wait_for("-n 0 generates nothing in a chat: give 1 or more, or -1 to continue until");
    assert_eq!(chat.finish().0, Some(2));
}

#[test]
fn a_prompt_that_is_not_utf_8() {
    let folder = folder_with("latin1.txt", b"caf\xe9 au lait");
    let message = "'latin1.txt' is not valid UTF-8 (at byte 3): convert the text to UTF-8";
    check(&finish(folder.path(), &["run", "-f", "latin1.txt"]), 2, message);
    let message = "standard input is not valid UTF-8 (at byte 3): convert the text to UTF-8";
    check(&finish_with_input(folder.path(), &["run"], b"caf\xe9 au lait"), 2, message);
    // Tokenizing takes any bytes.
    let json = finish(folder.path(), &["tokenize", "--json", "-f", "latin1.txt"]).json();
    let ids: Vec<_> = json["ids"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let mut command = rf_cli(folder.path(), &["tokenize", "--decode", &ids.join(",")]);
    assert_eq!(command.output().unwrap().stdout, b"caf\xe9 au lait");
}

#[test]
fn nothing_to_say() {
    let folder = folder_with("empty.txt", b"\n");
    let model = demo_model();
    let message = "the prompt is empty: give one as an argument, with -f FILE, or by a pipe";
    for arguments in [&["-f", "empty.txt"][..], &[]] {
        let arguments = [&["run", "-m", model.to_str().unwrap()], arguments].concat();
        check(&finish(folder.path(), &arguments), 2, message);
    }
    // A script passes an empty "$X" if the variable is not set. The default prompt of the demo
    // model must not take its place.
    let message = "the prompt is empty: write a text between the quotation marks (a variable of the \
                   shell may be empty), or leave it out";
    for prompt in
        [&[""][..], &["  "], &["-p", ""], &["-p", " "], &["--raw", ""], &["-f", "empty.txt", ""]]
    {
        for model in [&[][..], &["-m", model.to_str().unwrap()]] {
            check(&finish(folder.path(), &[&["run"], model, prompt].concat()), 2, message);
        }
    }
    let finished = finish(folder.path(), &["tokenize", "--json", "-f", "empty.txt"]);
    assert_eq!(finished.json()["ids"].as_array().unwrap().len(), 1);
    let finished = finish(folder.path(), &["perplexity", "-f", "empty.txt"]);
    check(&finished, 2, "'empty.txt' has 1 tokens, but at least 2 are needed: give a longer text");
}

#[test]
fn sampling_out_of_range() {
    let folder = TempDir::new().unwrap();
    let message = "top_p is 1.5, expected a number from 0 to 1";
    check(&finish(folder.path(), &["run", "--top-p", "1.5", "Hello"]), 2, message);
    let bias = transcripts(folder.path(), &[&["run", "--logit-bias", "x", "Hello"]]);
    assert_data_eq!(
        bias,
        str![[r#"
$ rf-cli run --logit-bias x Hello
error: invalid value 'x' for '--logit-bias <ID±B>': expected a token id, + or -, and a number, as in 15043+1
? 2

"#]]
    );
}

#[test]
fn a_grammar_that_is_none() {
    let folder = TempDir::new().unwrap();
    let run = |option: &str, text: &str| finish(folder.path(), &["run", option, text, "Hello"]);
    check(
        &run("--json-schema", "{"),
        2,
        "--json-schema is not JSON: EOF while parsing an object at line 1 column 1; give a schema, \
         or @ and a file",
    );
    check(
        &run("--grammar", "root ::= a\na ::= ["),
        2,
        "the GBNF grammar is malformed in line 2, column 7: the class is not closed: add ]",
    );
    check(&run("--grammar", "@no.gbnf"), 2, "file 'no.gbnf' does not exist: check the path");
    let finished = run("--json-schema", r#"{"properties": {"a": {"type": "strin"}}}"#);
    assert_eq!(finished.code, Some(2));
    let place = "error: the JSON schema is not supported at #/properties/a: ";
    assert!(finished.stderr.starts_with(place), "{}", finished.stderr);
}

#[test]
fn drafts_that_cannot_be_made() {
    let model = TinyModel {
        architecture: "llama",
        tensors: vec![("token_embd.weight", vec![256, 4], DType::F32)],
    };
    let folder = folder_with("other.gguf", &model.bytes());
    let run = |arguments: &[&str]| {
        finish(folder.path(), &[&["run", "-q", "-n", "2", "Hello"], arguments].concat())
    };
    check(
        &run(&["-md", "other.gguf"]),
        2,
        "the draft model has another vocabulary, first at token 0: use a smaller model of the same \
         family",
    );
    check(&run(&["-md", "no.gguf"]), 2, "file 'no.gguf' does not exist: check the path");
    check(
        &run(&["--spec", "mtp"]),
        2,
        "the model has no heads that predict several tokens (MTP): give --spec ngram, or leave \
         --spec out",
    );
    let message = "--spec draft needs a draft model: give one with -md FILE";
    check(&run(&["--spec", "draft"]), 2, message);
    check(
        &run(&["--spec", "ngram", "-md", "other.gguf"]),
        2,
        "--spec ngram needs no draft model: leave out -md, or give --spec draft",
    );
    check(
        &run(&["--spec", "mtp", "-md", "other.gguf"]),
        2,
        "--spec mtp needs no draft model: leave out -md, or give --spec draft",
    );
    let message = "--draft-max 0 drafts nothing: give 1 or more, or --spec off";
    check(&run(&["--draft-max", "0"]), 2, message);
    let message = "--draft-min 9 is above --draft-max 8: give a smaller one";
    check(&run(&["--draft-min", "9", "--draft-max", "8"]), 2, message);
}

#[test]
fn an_unknown_format() {
    let folder = TempDir::new().unwrap();
    let printed = transcripts(folder.path(), &[&["quantize", "in.gguf", "out.gguf", "Q9"]]);
    assert_data_eq!(
        printed,
        str![[r#"
$ rf-cli quantize in.gguf out.gguf Q9
error: unknown type 'Q9': use one of F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_1, Q5_0, Q4_K_M, Q4_K_S, IQ4_NL, IQ4_XS, Q4_1, Q4_0, Q3_K_L, Q3_K_M, Q3_K_S, IQ3_M, IQ3_S, IQ3_XS, IQ3_XXS, Q2_K, Q2_K_S, IQ2_M, IQ2_S, IQ2_XS, IQ2_XXS, IQ1_M, IQ1_S, TQ2_0, TQ1_0, MXFP4, MXFP4_MOE, NVFP4, Q2_0, Q1_0, MXFP6_E2M3, MXFP6_E3M2
? 2

"#]]
    );
}

#[test]
fn unknown_arguments_are_usage_errors() {
    let folder = TempDir::new().unwrap();
    let lines = [&["--nothing"][..], &["run", "--nothing"], &["fly"], &["run", "-c", "x"]];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli --nothing
error: unknown flag '--nothing': `rf-cli --help` lists the flags, and a text that begins with a dash comes after `--`
? 2
$ rf-cli run --nothing
error: unknown flag '--nothing': `rf-cli run --help` lists the flags, and a text that begins with a dash comes after `--`
? 2
$ rf-cli fly
error: 'fly' is no command, file or short name: `rf-cli --help` lists the commands, `rf-cli list --all` the names, and `rf-cli run "fly"` asks a model
? 2
$ rf-cli run -c x
error: invalid value 'x' for '--ctx-size <CTX>': expected a whole number
? 2

"#]]
    );
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let folder = TempDir::new().unwrap();
    for arguments in [
        &["run", "-q", "--temp", "0", "Tell me a story."][..],
        &["run", "--json", "-n", "3", "Tell me a story."],
        &["info", "--tensors"],
        &["info", "--json"],
        &["tokenize", "Once upon a time"],
        &["bench", "-p", "4", "-n", "0", "-r", "1"],
        &["completions", "bash"],
        &["quantize", "--dry-run", demo_model().to_str().unwrap(), "x.gguf", "Q8_0"],
    ] {
        let mut command = rf_cli(folder.path(), arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take()); // as `head` does when it has seen enough
        let finished = Finished::of(child.wait_with_output().unwrap());
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_device_is_a_failure() {
    let folder = TempDir::new().unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = rf_cli(folder.path(), &["info"]).stdout(full).output().unwrap();
    let finished = Finished::of(output);
    check(
        &finished,
        1,
        "No space left on device (os error 28): make room on the disk or write to another one",
    );
}
