//! Files that are not what they say, and what people type first.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;

use program::terminal::Terminal;
use program::{
    Finished, TinyModel, changed_demo, demo_model, finish, finish_with_input, rf_cli, transcripts,
};
use rf_gguf::Value;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

/// The demo model with a chat template, in a folder.
fn with_template(template: &str) -> TempDir {
    with_file(&changed_demo(&[("tokenizer.chat_template", template.into())], |_, _| ()))
}

fn with_file(bytes: &[u8]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("m.gguf"), bytes).unwrap();
    folder
}

fn run(folder: &TempDir, arguments: &[&str]) -> Finished {
    let arguments: Vec<_> =
        ["run", "-m", "m.gguf", "-n", "2"].iter().chain(arguments).copied().collect();
    finish(folder.path(), &arguments)
}

#[test]
fn hostile_templates_are_bad_input() {
    for template in [
        "{% set ns = namespace(s='aaaaaaaaaa') %}{% for i in range(60) %}\
         {% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{{ ([1]*9999999999)|sum }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        &format!("{{{{ {} 1 }}}}", "not ".repeat(30_000)),
        "{{ raise_exception('\x1b[31mred\x07') }}",
    ] {
        let folder = with_template(template);
        let finished = run(&folder, &["hi"]);
        assert_eq!(finished.code, Some(2), "{}", finished.stderr);
        assert!(finished.stderr.starts_with("error: the chat template "), "{}", finished.stderr);
        assert!(!finished.stderr.contains(['\x1b', '\x07']), "{}", finished.stderr);
        assert_eq!(finished.stdout, "");
    }
}

#[test]
fn a_malformed_template_blocks_chats_only() {
    let mut printed = String::new();
    for template in [Value::from("{% if %}"), Value::from(5_u32)] {
        let folder = with_file(&changed_demo(&[("tokenizer.chat_template", template)], |_, _| ()));
        printed += &transcripts(folder.path(), &[&["run", "-m", "m.gguf", "hi"]]);
        for arguments in [&["--raw", "hi"][..], &["--chat-template", "chatml", "hi"]] {
            let finished = run(&folder, arguments);
            assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        }
        let text = folder.path().join("text.txt");
        fs::write(&text, "Once upon a time there was a fox.").unwrap();
        let finished = finish(folder.path(), &["perplexity", "-m", "m.gguf", "-f", "text.txt"]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }
    assert_data_eq!(
        printed,
        str![[r#"
$ rf-cli run -m m.gguf hi
error: the chat template is malformed: line 1: expected a value, found `%}`: give --raw to continue the text without a template, or another template with --chat-template, such as chatml
? 2
$ rf-cli run -m m.gguf hi
error: key 'tokenizer.chat_template' holds u32, not a string: give --raw to continue the text without a template, or another template with --chat-template, such as chatml
? 2

"#]]
    );
}

#[test]
fn templates_and_their_variables_can_be_given() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("t.jinja"), "{{ mood }}:{{ messages[0].content }}").unwrap();
    let ids = |arguments: &[&str]| {
        let arguments: Vec<_> =
            ["run", "--json", "-n", "1"].iter().chain(arguments).copied().collect();
        finish(folder.path(), &arguments).json()["prompt_ids"].clone()
    };
    let kwargs = r#"{"mood": "glad"}"#;
    let template = ["--chat-template", "t.jinja", "--chat-template-kwargs", kwargs, "hi"];
    assert_eq!(ids(&template), ids(&["--raw", "glad:hi"]));
    assert_ne!(ids(&["--chat-template", "llama3", "hi"]), ids(&["hi"]));
    let finished = finish(folder.path(), &["run", "--chat-template", "no\x1bne", "hi"]);
    assert_eq!(finished.code, Some(2));
    let expected = "error: the chat template no\\u{1b}ne is neither a file nor built in: the built-in templates are chatml, ";
    assert!(finished.stderr.starts_with(expected), "{}", finished.stderr);
    let finished = finish(folder.path(), &["run", "--chat-template-kwargs", "[1]", "hi"]);
    assert!(finished.stderr.starts_with("error: --chat-template-kwargs is not a JSON object"));
}

/// The demo model with other bytes at the start of a tensor.
fn spoilt(tensor: &str, start: &[u8]) -> TempDir {
    with_file(&changed_demo(&[], |name, bytes| {
        if name == tensor {
            bytes[..start.len()].copy_from_slice(start);
        }
    }))
}

#[test]
fn values_that_are_no_numbers_give_no_text() {
    let nan = f32::NAN.to_le_bytes();
    let (nan_scale, infinite_scale) = ([0x00, 0x7e], [0x00, 0xfc]);
    let scale = "has a value that is not a number or infinite in row 0: the file is damaged";
    let value = "has the value NaN at element 0: the file is damaged";
    for (tensor, start, problem) in [
        ("token_embd.weight", &nan_scale[..], scale),
        ("blk.0.attn_q.weight", &infinite_scale, scale),
        ("blk.7.ffn_down.weight", &nan_scale, scale),
        ("blk.0.attn_norm.weight", &nan, value),
    ] {
        let finished = run(&spoilt(tensor, start), &["--raw", "Once upon a time"]);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""));
        let expected = format!("error: tensor '{tensor}' {problem}");
        assert!(finished.stderr.starts_with(&expected), "{}", finished.stderr);
    }
    // Finite weights whose result is not.
    let largest = f32::MAX.to_le_bytes().repeat(256);
    let finished = run(&spoilt("output_norm.weight", &largest), &["--raw", "Once upon a time"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""));
    let expected = "error: the result contains NaN";
    assert!(finished.stderr.starts_with(expected), "{}", finished.stderr);
}

#[test]
fn names_of_a_file_cannot_write_to_the_terminal() {
    let name = "\x1b[31mllama\x1b]0;pwned\x07";
    let folder = with_file(&changed_demo(&[("general.architecture", name.into())], |_, _| ()));
    let finished = run(&folder, &["hi"]);
    assert!(
        finished.stderr.starts_with("error: architecture '\\u{1b}[31mllama\\u{1b}]0;pwned\\u{7}'")
    );
    let folder = with_file(&changed_demo(
        &[("general.architecture", "x".repeat(1 << 20).into())],
        |_, _| (),
    ));
    for finished in [run(&folder, &["hi"]), finish(folder.path(), &["info", "m.gguf"])] {
        let len = finished.stderr.len() + finished.stdout.len();
        assert!(len < 20_000, "{len} bytes");
    }
}

#[test]
fn a_model_file_is_understood_without_m() {
    let folder = TempDir::new().unwrap();
    fs::copy(demo_model(), folder.path().join("m.gguf")).unwrap();
    let expected =
        finish(folder.path(), &["run", "-m", "m.gguf", "--raw", "--temp", "0", "-n", "3", "Once"]);
    assert_eq!(expected.code, Some(0), "{}", expected.stderr);
    for arguments in [
        &["run", "m.gguf", "Once", "--raw", "--temp", "0", "-n", "3"][..],
        &["m.gguf", "Once", "--raw", "--temp", "0", "-n", "3"],
    ] {
        assert_eq!(finish(folder.path(), arguments).stdout, expected.stdout);
    }
    let lines =
        [&["run", "missing.gguf", "Hi"][..], &["run", "Hello", "there"], &["run", "qwen9:8b"]];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli run missing.gguf Hi
error: file 'missing.gguf' does not exist: check the path
? 2
$ rf-cli run Hello there
error: unexpected argument 'there': put the prompt in quotation marks, and give the model with -m
? 2
$ rf-cli run qwen9:8b
error: 'qwen9:8b' is not a name that this program knows: `rf-cli list --all` shows the names. Or give a file with -m, or a repository of the Hugging Face hub with -hf
? 2

"#]]
    );
}

#[test]
fn a_prompt_and_piped_text_join() {
    let folder = TempDir::new().unwrap();
    let ids = |arguments: &[&str], input: &str| {
        let arguments: Vec<_> =
            ["run", "--raw", "--json", "-n", "1"].iter().chain(arguments).copied().collect();
        finish_with_input(folder.path(), &arguments, input.as_bytes()).json()["prompt_ids"].clone()
    };
    let whole = ids(&["Explain this\n\na fox"], "");
    assert_eq!(ids(&["Explain this"], "a fox\n"), whole);
    assert_eq!(ids(&["Explain this", "-f", "-"], "a fox\n"), whole);
    assert_eq!(ids(&["-p", r"Explain this\n\na fox"], ""), whole);
    assert_eq!(ids(&["Explain this"], ""), ids(&["-p", "Explain this"], ""));
}

#[test]
fn flags_that_are_not_supported_are_named() {
    let folder = TempDir::new().unwrap();
    let lines = [
        &["run", "-hello"][..],
        &["rerank", "--lora", "a.gguf", "hi"],
        &["bench", "-mg", "1"],
        &["bench", "-sm", "row"],
        &["quantize", "--prune-layers", "1", "a", "b", "q4_0"],
        &["quantize", "-t", "100000", "a", "b", "q4_0"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli run -hello
error: unknown flag '-hello': `rf-cli run --help` lists the flags, and a text that begins with a dash comes after `--`
? 2
$ rf-cli rerank --lora a.gguf hi
error: --lora is not supported: merge the adapter into the model first, with llama-export-lora or transformers
? 2
$ rf-cli bench -mg 1
error: -mg is not supported: select the GPU with --device N
? 2
$ rf-cli bench -sm row
error: invalid value 'row' for '--split-mode <MODE>': expected none, layer or tensor, which divides every layer
? 2
$ rf-cli quantize --prune-layers 1 a b q4_0
error: --prune-layers is not supported: leave it out: layers cannot be pruned
? 2
$ rf-cli quantize -t 100000 a b q4_0
error: 100000 threads are not supported: give at most 1024
? 2

"#]]
    );
}

#[test]
fn common_mistakes_are_told_before_any_work() {
    let folder = TempDir::new().unwrap();
    let lines = [
        &["run", "-m", "https://example.org/m.gguf", "hi"][..],
        &["run", "-m", "~/m.gguf", "hi"],
        &["bench", "-m", "missing"],
        &["run", "-n", "1", "--trace", "no/such/t.json", "hi"],
        &["quantize", "in.gguf", "-", "q8_0"],
    ];
    assert_data_eq!(
        transcripts(folder.path(), &lines),
        str![[r#"
$ rf-cli run -m https://example.org/m.gguf hi
error: file 'https://example.org/m.gguf' does not exist: addresses are not opened: download the file, or give a repository of the Hugging Face hub with -hf
? 2
$ rf-cli run -m '~/m.gguf' hi
error: file '~/m.gguf' does not exist: the shell replaces ~ outside quotation marks only: write $HOME instead
? 2
$ rf-cli bench -m missing
error: file 'missing' does not exist: check the path
? 2
$ rf-cli run -n 1 --trace no/such/t.json hi
error: the folder of 'no/such/t.json' does not exist: create it, or check the path
? 2
$ rf-cli quantize in.gguf - q8_0
error: the output cannot be a stream, because it is not written in order: give a file
? 2

"#]]
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let finished = finish_with_input(folder.path(), &["perplexity", "-f", "-"], b"\xff");
    assert!(finished.stderr.starts_with("error: standard input has"), "{}", finished.stderr);
}

#[test]
fn metadata_can_be_overridden() {
    let folder = TempDir::new().unwrap();
    let context = |arguments: &[&str]| {
        let arguments: Vec<_> = ["info", "--json"].iter().chain(arguments).copied().collect();
        finish(folder.path(), &arguments).json()["model"]["context_length"].clone()
    };
    let before = context(&[]);
    let after = context(&["--override-kv", "llama.context_length=int:77"]);
    assert!(before != after && after == 77, "{before} {after}");
}

#[test]
fn metadata_that_replace_nothing_are_named() {
    let folder = TempDir::new().unwrap();
    let run = |entry: &str| {
        let model = demo_model();
        let model = model.to_str().unwrap();
        let arguments = ["run", "-q", "-m", model, "-n", "2", "--override-kv", entry, "hi"];
        let finished = finish(folder.path(), &arguments);
        assert_eq!(finished.code, Some(0), "{entry}: {}", finished.stderr);
        finished.stderr
    };
    assert_eq!(
        run("llama.rope.freq_bas=float:500000"),
        "warning: --override-kv llama.rope.freq_bas: the file has no such key, and nothing reads it: \
         `rf-cli info --metadata` shows the keys\n"
    );
    // The file does not have these keys, but they have an effect.
    for entry in [
        "llama.rope.scaling.type=str:linear",
        "tokenizer.ggml.eom_token_id=int:2",
        "general.sampling.temp=float:0",
        "llama.context_length=int:77",
    ] {
        assert_eq!(run(entry), "", "{entry}");
    }
    let model = demo_model();
    let arguments = ["run", "--override-kv", "general.sampling.top_k=int:3", "-m"];
    let arguments = [&arguments[..], &[model.to_str().unwrap()]].concat();
    let mut command = rf_cli(folder.path(), &arguments);
    command.env("XDG_STATE_HOME", folder.path());
    let mut chat = Terminal::start(command, "xterm");
    chat.wait_for(">>> ");
    chat.press(b"/exit\r");
    let (code, screen) = chat.finish();
    assert!(code == Some(0) && !screen.contains("warning"), "{screen}");
}

#[test]
fn tokens_of_unknown_types_are_a_problem_and_scores_that_are_no_numbers_an_error() {
    let demo = rf_gguf::Gguf::open(demo_model()).unwrap();
    let metadata = demo.metadata();
    let mut types = metadata.required_i32s("tokenizer.ggml.token_type").unwrap().into_owned();
    (types[300], types[301]) = (99, -4);
    let folder =
        with_file(&changed_demo(&[("tokenizer.ggml.token_type", types.into())], |_, _| ()));
    let problem = "token 300 has the unknown type 99 (tokenizer.ggml.token_type), as 1 more do, and counts as unused";
    let ran = run(&folder, &["-q", "hi"]);
    assert_eq!(
        (ran.code, ran.stderr),
        (Some(0), format!("warning: {problem}: convert the model again\n"))
    );
    let info = finish(folder.path(), &["info", "--json", "m.gguf"]).json();
    assert_eq!(info["problems"], serde_json::json!([problem]));

    // The demo model has no scores.
    let tiny = TinyModel { architecture: "llama", tensors: Vec::new() }.bytes();
    let tiny = rf_gguf::Gguf::from_bytes(tiny).unwrap();
    let mut writer = rf_gguf::GgufWriter::new();
    for (key, value) in tiny.metadata().iter() {
        writer.add(key, value.clone()).unwrap();
    }
    writer.set("tokenizer.ggml.scores", vec![0.0, 0.0, f32::NAN, 0.0]).unwrap();
    let mut file = Vec::new();
    writer.write_to(&mut file, |_, _| Ok(())).unwrap();
    let folder = with_file(&file);
    let problem =
        "the score of token 2 is not a number (tokenizer.ggml.scores): convert the model again";
    let ran = finish(folder.path(), &["tokenize", "-m", "m.gguf", "hi"]);
    assert_eq!((ran.code, ran.stderr), (Some(2), format!("error: {problem}\n")));
    let info = finish(folder.path(), &["info", "--json", "m.gguf"]).json();
    let problems = info["problems"].as_array().unwrap();
    assert!(problems.contains(&problem.into()), "{problems:?}");
}

/// A chat at a terminal of this type, with answers of two tokens. Its prompt is shown.
fn chat(folder: &TempDir, term: &str) -> Terminal {
    let arguments = ["run", "-q", "-t", "1", "-n", "2", "--temp", "0"];
    let mut command = rf_cli(folder.path(), &arguments);
    command.env("XDG_STATE_HOME", folder.path());
    let mut chat = Terminal::start(command, term);
    chat.wait_for(">>> ");
    chat
}

/// Types the last lines of a chat, which save it, and returns its messages without the answers.
fn ended(folder: &TempDir, mut chat: Terminal, lines: &str) -> Vec<String> {
    chat.press(format!("{lines}\r/save chat.json\r/exit\r").as_bytes());
    let (code, screen) = chat.finish();
    assert_eq!(code, Some(0), "{screen}");
    let text = fs::read(folder.path().join("chat.json")).unwrap();
    let saved: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let messages = saved["messages"].as_array().unwrap().iter();
    let messages = messages.filter(|message| message["role"] != "assistant");
    messages.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn lines_that_arrive_at_once_are_all_answered() {
    for term in ["xterm", "dumb"] {
        let folder = TempDir::new().unwrap();
        // A terminal without bracketed paste sends them like this.
        let lines = "/system Be brief.\rone\rtwo\\\rlines\rthree";
        let messages = ended(&folder, chat(&folder, term), lines);
        assert_eq!(messages, ["Be brief.", "one", "two\nlines", "three"]);
    }
}

#[test]
fn a_saved_chat_continues_where_it_ended() {
    let folder = TempDir::new().unwrap();
    let saved = || fs::read_to_string(folder.path().join("chat.json")).unwrap();
    ended(&folder, chat(&folder, "xterm"), "A fox\rA key");
    let first = saved();
    let mut next = chat(&folder, "xterm");
    next.press(b"/load chat.json\r");
    next.wait_for("the conversation has 4 messages");
    // The conversation is the same if its last answer is.
    ended(&folder, next, "/regenerate");
    assert_eq!(saved(), first);
    let mut next = chat(&folder, "xterm");
    fs::write(folder.path().join("other.json"), "[]").unwrap();
    next.press(b"/load other.json\r");
    next.wait_for("'other.json' is not a conversation");
    assert_eq!(ended(&folder, next, "Hi"), ["Hi"]);
}

#[test]
fn the_end_of_input_ends_a_chat_and_its_line() {
    for term in ["xterm", "dumb"] {
        let folder = TempDir::new().unwrap();
        let mut chat = chat(&folder, term);
        chat.press(b"\x04");
        let (code, screen) = chat.finish();
        assert!(code == Some(0) && screen.ends_with('\n'), "{screen:?}");
    }
}

#[test]
fn the_history_is_kept_between_runs() {
    let folder = TempDir::new().unwrap();
    ended(&folder, chat(&folder, "xterm"), "A fox and a key");
    // Three lines up: above /exit and /save.
    let up = "\x1b[A".repeat(3);
    assert_eq!(ended(&folder, chat(&folder, "xterm"), &up), ["A fox and a key"]);
}

#[test]
fn bytes_that_are_not_utf_8_do_not_end_a_chat() {
    for term in ["xterm", "dumb"] {
        let folder = TempDir::new().unwrap();
        let mut chat = chat(&folder, term);
        chat.press(b"h\xfch\r");
        chat.wait_for("the line has bytes that are not UTF-8 and is left out");
        chat.wait_for(">>> ");
        assert_eq!(ended(&folder, chat, "Hi"), ["Hi"]);
    }
}

#[test]
fn ctrl_c_at_the_prompt_does_not_end_a_chat() {
    for term in ["xterm", "dumb"] {
        let folder = TempDir::new().unwrap();
        let mut chat = chat(&folder, term);
        if term == "dumb" {
            chat.interrupt();
        } else {
            chat.press(b"half a line\x03");
        }
        chat.wait_for("(Ctrl-D or /exit to leave)");
        chat.wait_for(">>> ");
        assert_eq!(ended(&folder, chat, "Hi"), ["Hi"]);
    }
}
