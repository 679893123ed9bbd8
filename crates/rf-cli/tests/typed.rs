//! What people type who know other programs, and files that must not be lost.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;

use program::{demo_model, finish, rf_cli, transcripts};
use rf_testing::transcript;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

/// A folder with the demo model and a text.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::copy(demo_model(), folder.path().join("m.gguf")).unwrap();
    fs::write(folder.path().join("t.txt"), "A fox and a key. ".repeat(40)).unwrap();
    folder
}

#[test]
fn values_of_the_wrong_kind_are_named_in_our_words() {
    let folder = TempDir::new().unwrap();
    let lines = [
        &["run", "-n", "abc", "hi"][..],
        &["run", "-s", "", "hi"],
        &["run", "--temp", "warm", "hi"],
        &["run", "-c", "-1", "hi"],
        &["run", "-b", "99999999999999999999", "hi"],
        &["serve", "--drain-timeout", "-1"],
        &["run", "--grammar", "", "hi"],
        &["run", "--raw", "--grammar", "root ::= root", "hi"],
        &["run", "--logit-bias", "99999+1", "hi"],
        &["bench", "-o", "sql"],
        &["run", "-hf", "a/b/c", "hi"],
        &["run", "--chat-template", "{% if false %}{% endif %}", "hi"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli run -n abc hi
error: invalid value 'abc' for '--predict <N>': expected a whole number
? 2
$ rf-cli run -s '' hi
error: invalid value '' for '--seed <SEED>': expected a whole number
? 2
$ rf-cli run --temp warm hi
error: invalid value 'warm' for '--temp <T>': expected a number, as in 0.8
? 2
$ rf-cli run -c -1 hi
error: invalid value '-1' for '--ctx-size <CTX>': expected a whole number of 0 or more
? 2
$ rf-cli run -b 99999999999999999999 hi
error: invalid value '99999999999999999999' for '--batch-size <N>': the number is too large
? 2
$ rf-cli serve --drain-timeout -1
error: invalid value '-1' for '--drain-timeout <SECONDS>': expected a whole number of 0 or more
? 2
$ rf-cli run --grammar '' hi
error: --grammar is empty: give a rule, as in 'root ::= "yes" | "no"'
? 2
$ rf-cli run --raw --grammar 'root ::= root' hi
error: the output cannot be constrained: no token may follow: a rule of the grammar contradicts itself, or refers to itself without an end
? 2
$ rf-cli run --logit-bias 99999+1 hi
error: --logit-bias 99999: the vocabulary has 4096 tokens: `rf-cli tokenize` shows ids
? 2
$ rf-cli bench -o sql
error: invalid value 'sql' for '--output <FORMAT>': expected one of md, json, jsonl, csv
? 2
$ rf-cli run -hf a/b/c hi
error: invalid value 'a/b/c' for '--hf-repo <OWNER/REPO[:QUANT]>': 'a/b/c' does not name a model of the hub: give OWNER/REPO or OWNER/REPO:QUANT
? 2
$ rf-cli run --chat-template '{% if false %}{% endif %}' hi
error: the chat template renders this conversation as nothing: give another one with --chat-template, or --raw to continue the text
? 2

"#]]
    );
}

#[test]
fn flags_and_commands_that_do_not_exist_are_named() {
    let folder = TempDir::new().unwrap();
    let lines = [
        &["run", "--tempp", "1", "hi"][..],
        &["embed", "--port", "1", "hi"],
        &["list", "llama3"],
        &["rnu"],
        &["llama3"],
        &["ps"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli run --tempp 1 hi
error: unknown flag '--tempp', did you mean --temp: `rf-cli run --help` lists the flags, and a text that begins with a dash comes after `--`
? 2
$ rf-cli embed --port 1 hi
error: --port is not supported: it belongs to `rf-cli serve`
? 2
$ rf-cli list llama3
error: unexpected argument 'llama3': a text of several words stands in quotation marks, and `rf-cli list --help` lists the arguments
? 2
$ rf-cli rnu
error: 'rnu' is no command, file or short name: `rf-cli --help` lists the commands, `rf-cli list --all` the names, and `rf-cli run "rnu"` asks a model
? 2
$ rf-cli llama3
error: 'llama3' is no command, file or short name: `rf-cli --help` lists the commands, `rf-cli list --all` the names, and `rf-cli run "llama3"` asks a model
? 2
$ rf-cli ps
error: 'ps' is no command, file or short name: `rf-cli --help` lists the commands, `rf-cli list --all` the names, and `rf-cli run "ps"` asks a model
? 2

"#]]
    );
    let mut command = rf_cli(folder.path(), &["run", "hi"]);
    command.env("ROCFORGE_DEVICE", "bogus");
    assert_data_eq!(
        transcript(&mut command),
        str![[r#"
$ rf-cli run hi
error: invalid value 'bogus' for 'ROCFORGE_DEVICE': expected cpu, gpu, auto, or the number of a GPU, or several as in 0,1
? 2

"#]]
    );
}

#[test]
fn command_lines_of_llama_cpp_work() {
    let folder = folder();
    let run = |arguments: &[&str]| {
        let finished = finish(folder.path(), arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {}", finished.stderr);
        finished.stdout
    };
    let expected = run(&["run", "-m", "m.gguf", "--raw", "--temp", "0", "-n", "3", "Once"]);
    let plain = ["-m", "m.gguf", "-p", "Once", "-no-cnv", "--temp", "0", "-n", "3"];
    let flags = ["--no-warmup", "-ngl", "0", "-fa", "on", "--mlock", "--no-mmap", "--top_k", "40"];
    assert_eq!(run(&plain), expected);
    assert_eq!(run(&[&plain[..], &flags].concat()), expected);

    let expected = run(&["tokenize", "-m", "m.gguf", "-f", "t.txt", "--ids"]);
    let text = fs::read_to_string(folder.path().join("t.txt")).unwrap();
    assert_eq!(run(&["tokenize", "-m", "m.gguf", "--ids", "-p", &text]), expected);
    assert_eq!(run(&["tokenize", "m.gguf", "--ids", &text]), expected);

    let expected = run(&["embed", "-m", "m.gguf", "--json", "one"]);
    assert_eq!(run(&["embed", "-m", "m.gguf", "-p", "one", "--json", "-s", "1"]), expected);
    assert_eq!(run(&["embed", "m.gguf", "one", "--json"]), expected);
    fs::write(folder.path().join("lines.txt"), "one\n\n").unwrap();
    assert_eq!(run(&["embed", "m.gguf", "-f", "lines.txt", "--json"]), expected);

    let imatrix = ["imatrix", "-m", "m.gguf", "-f", "t.txt", "-o", "i.gguf", "-c", "32"];
    run(&[&imatrix[..], &["-ngl", "99", "-ub", "64", "--no-ppl", "-ofreq", "10"]].concat());
    run(&["quantize", "--allow-requantize", "--dry-run", "-m", "m.gguf", "q8_0"]);
}

#[test]
fn a_name_that_is_no_model_is_answered_with_a_note() {
    let folder = TempDir::new().unwrap();
    for (prompt, has_note) in [("llama3", true), ("owner/model", true), ("Hi", false)] {
        let finished = finish(folder.path(), &["run", "-n", "1", prompt]);
        let note = "no model is named with -m or -hf, so the demo model answers";
        assert_eq!(finished.stderr.contains(note), has_note, "{prompt}: {}", finished.stderr);
    }
}

#[test]
fn outputs_do_not_replace_inputs() {
    let folder = folder();
    let model = fs::read(folder.path().join("m.gguf")).unwrap();
    fs::hard_link(folder.path().join("m.gguf"), folder.path().join("link.gguf")).unwrap();
    fs::write(folder.path().join("i.gguf"), "an importance matrix").unwrap();
    let lines = [
        &["imatrix", "-m", "m.gguf", "-f", "t.txt", "-c", "32", "-o", "m.gguf"][..],
        &["imatrix", "-m", "m.gguf", "-f", "t.txt", "-c", "32", "-o", "link.gguf"],
        &["imatrix", "-m", "m.gguf", "-f", "t.txt", "-c", "32", "-o", "t.txt"],
        &["imatrix", "--in-file", "i.gguf", "-o", "./i.gguf"],
        &["run", "-m", "m.gguf", "--trace", "m.gguf", "hi"],
        &["run", "-m", "m.gguf", "-f", "t.txt", "--trace", "t.txt"],
        &["run", "--trace", "m.gguf", "hi"],
        &["run", "--trace", "-m", "m.gguf", "hi"],
        &["quantize", "--imatrix", "i.gguf", "m.gguf", "i.gguf", "q4_0"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli imatrix -m m.gguf -f t.txt -c 32 -o m.gguf
error: the output 'm.gguf' is the input 'm.gguf': write to another file
? 2
$ rf-cli imatrix -m m.gguf -f t.txt -c 32 -o link.gguf
error: the output 'link.gguf' is the input 'm.gguf': write to another file
? 2
$ rf-cli imatrix -m m.gguf -f t.txt -c 32 -o t.txt
error: the output 't.txt' is the input 't.txt': write to another file
? 2
$ rf-cli imatrix --in-file i.gguf -o ./i.gguf
error: the output './i.gguf' is the input 'i.gguf': write to another file
? 2
$ rf-cli run -m m.gguf --trace m.gguf hi
error: the output 'm.gguf' is a model, which it would replace: give another file
? 2
$ rf-cli run -m m.gguf -f t.txt --trace t.txt
error: the output 't.txt' is the input 't.txt': write to another file
? 2
$ rf-cli run --trace m.gguf hi
error: the output 'm.gguf' is a model, which it would replace: give another file
? 2
$ rf-cli run --trace -m m.gguf hi
error: the output '-m' begins as a flag does: for a file of this name write './-m'
? 2
$ rf-cli quantize --imatrix i.gguf m.gguf i.gguf q4_0
error: the output 'i.gguf' is the input 'i.gguf': write to another file
? 2

"#]]
    );
    assert_eq!(fs::read(folder.path().join("m.gguf")).unwrap(), model);
    assert_eq!(fs::read(folder.path().join("i.gguf")).unwrap(), b"an importance matrix");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn windows_are_no_longer_than_the_trained_context() {
    let Some(model) = rf_testing::shared("golden/arch/gpt2.gguf") else { return };
    let folder = folder();
    let finished =
        finish(folder.path(), &["perplexity", "-m", model.to_str().unwrap(), "-f", "t.txt"]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
}

#[test]
fn groups_of_experts_must_have_enough_of_them() {
    let Some(model) = rf_testing::shared("golden/arch/deepseek2_groups.gguf") else { return };
    let groups = "deepseek2.expert_group_used_count=int:1";
    let arguments = ["run", "--raw", "-m", model.to_str().unwrap(), "--override-kv", groups, "hi"];
    let finished = finish(&std::env::temp_dir(), &arguments);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    let expected = "1 of 4 groups have 2 experts, and a token uses 3";
    assert!(finished.stderr.contains(expected), "{}", finished.stderr);
}

#[test]
fn layers_beyond_those_of_the_metadata_are_an_error() {
    let folder = folder();
    let arguments = ["run", "-m", "m.gguf", "--override-kv", "llama.block_count=int:6", "hi"];
    let finished = finish(folder.path(), &arguments);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains("blk.6."), "{}", finished.stderr);
}
