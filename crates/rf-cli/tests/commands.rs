//! What the commands print when all is well.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::path::PathBuf;

use program::{demo_model, finish, finish_with_input, transcripts};
use rf_testing::shared;
use serde_json::Value;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn integers(json: &Value) -> Vec<u64> {
    json.as_array().unwrap().iter().map(|item| item.as_u64().unwrap()).collect()
}

#[test]
fn the_demo_model_tells_a_story() {
    let json = finish(&here(), &["run", "--json", "--temp", "0"]).json();
    let text = json["text"].as_str().unwrap();
    assert!(text.contains("fox") && text.contains("key"), "{text}");
    assert!(text.split_whitespace().count() > 60, "{text}");
    assert_eq!(json["stop_reason"], "eog");
    assert!(!json["prompt_ids"].as_array().unwrap().is_empty());
    let timings = json["timings"].as_object().unwrap();
    let names: Vec<_> = timings.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "prompt_tokens",
            "prompt_ms",
            "prompt_per_second",
            "generated_tokens",
            "decode_ms",
            "decode_per_second",
            "ttft_ms",
            "drafted_tokens",
            "accepted_tokens",
            "load_ms"
        ]
    );
    assert_eq!(timings["generated_tokens"], json["ids"].as_array().unwrap().len());
}

#[test]
fn an_answer_fits_its_schema_or_grammar() {
    let schema = r#"{"type": "object", "properties": {"name": {"enum": ["fox", "owl"]},
        "age": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["name", "age"],
        "additionalProperties": false}"#;
    let json = finish(&here(), &["run", "--json", "--json-schema", schema, "Who?"]).json();
    let answer: Value = serde_json::from_str(json["text"].as_str().unwrap()).unwrap();
    assert!(answer["name"] == "fox" || answer["name"] == "owl", "{answer}");
    assert!((1..=99).contains(&answer["age"].as_i64().unwrap()), "{answer}");
    assert_eq!(json["stop_reason"], "constraint");

    let folder = TempDir::new().unwrap();
    let file = folder.path().join("list.gbnf");
    fs::write(&file, "root ::= (\"- \" [a-z]{3,5} \"\\n\"){2}").unwrap();
    let grammar = format!("@{}", file.display());
    let text = finish(&here(), &["run", "-q", "--raw", "--grammar", &grammar, "Once"]).stdout;
    let lines: Vec<_> = text.lines().collect();
    let fits = |line: &&str| line.starts_with("- ") && (5..=7).contains(&line.len());
    assert!(lines.len() == 2 && lines.iter().all(fits), "{text:?}");
}

#[test]
fn a_prompt_is_computed_once_with_a_prompt_cache() {
    let folder = TempDir::new().unwrap();
    let run = |prompt: &str| {
        let arguments = ["run", "--json", "--temp", "0", "-n", "8", "--raw", prompt];
        let cached = [&arguments[..], &["--prompt-cache", "story.cache"]].concat();
        let (plain, cached) =
            (finish(folder.path(), &arguments).json(), finish(folder.path(), &cached).json());
        assert_eq!(cached["ids"], plain["ids"], "{prompt}");
        cached["timings"]["prompt_tokens"].as_u64().unwrap()
    };
    let prompt = "Once upon a time there was a fox";
    let tokens = run(prompt);
    assert!(tokens > 4);
    assert_eq!(run(prompt), 1);
    assert!(run(&format!("{prompt} who had lost a key")) < tokens);
}

#[test]
fn no_tokens_to_generate_only_compute_the_prompt() {
    let folder = TempDir::new().unwrap();
    let run = |arguments: &[&str]| {
        let basic = ["run", "--raw", "--temp", "0", "Once upon a time there was a fox"];
        finish(folder.path(), &[&basic[..], arguments].concat())
    };
    let plain = run(&["-n", "0"]);
    assert_eq!((plain.code, &*plain.stdout), (Some(0), ""), "{}", plain.stderr);
    assert!(plain.stderr.contains("generated 0 tokens"), "{}", plain.stderr);
    let cache = ["--prompt-cache", "story.cache"];
    let filled = run(&[&["-n", "0", "--json"], &cache[..]].concat()).json();
    assert_eq!((&filled["text"], &filled["ids"]), (&serde_json::json!(""), &serde_json::json!([])));
    assert!(filled["timings"]["prompt_tokens"].as_u64().unwrap() > 4);
    // The cache has all tokens but the last.
    let later = run(&[&["-n", "2", "--json"], &cache[..]].concat()).json();
    assert_eq!(later["timings"]["prompt_tokens"], 1);
    assert_eq!(later["ids"], run(&["-n", "2", "--json"]).json()["ids"]);
}

#[test]
fn text_goes_to_stdout_and_metrics_to_stderr() {
    let arguments = ["run", "--temp", "0", "-n", "8", "--raw", "Once upon a time"];
    let plain = finish(&here(), &arguments);
    let json = finish(&here(), &[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(plain.code, Some(0));
    assert_eq!(plain.stdout, format!("{}\n", json["text"].as_str().unwrap()));
    let metrics = str![[r#"
prompt 4 tokens ([..] t/s), generated 8 tokens ([..] t/s), TTFT [..], memory [..] MiB

"#]];
    assert_data_eq!(plain.stderr, metrics);
    assert_eq!(json["stop_reason"], "length");
    let quiet = finish(&here(), &[&arguments[..], &["--quiet"]].concat());
    assert_eq!((quiet.stdout, quiet.stderr.as_str()), (plain.stdout, ""));
}

#[test]
fn verbose_says_which_ops_ran_where() {
    let arguments = ["run", "-v", "--temp", "0", "-n", "8", "--raw", "Once upon a time"];
    let run = finish(&here(), &arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let of = |word: &str| run.stderr.lines().find(|line| line.trim_start().starts_with(word));
    // Eight batches: the prompt's, and one for each token but the last.
    assert!(of("CPU (").unwrap().contains("in 8 batches of 11 tokens"), "{}", run.stderr);
    // 8 layers.
    let attention: Vec<_> = of("attention").unwrap().split_whitespace().collect();
    assert_eq!(attention[1], "64", "{}", run.stderr);
}

#[test]
fn a_prompt_comes_from_an_argument_a_file_or_a_pipe() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("prompt.txt"), "A bear and a bee\n").unwrap();
    let run = |arguments: &[&str], input: &[u8]| {
        let arguments = [&["run", "--json", "--temp", "0", "-n", "4"], arguments].concat();
        finish_with_input(folder.path(), &arguments, input).json()["prompt_ids"].clone()
    };
    let expected = run(&["A bear and a bee"], b"");
    assert_eq!(run(&["-p", "A bear and a bee"], b""), expected);
    assert_eq!(run(&["-f", "prompt.txt"], b""), expected);
    assert_eq!(run(&["-f", "-"], b"A bear and a bee\n"), expected);
    assert_eq!(run(&[], b"A bear and a bee\n"), expected);
    assert_eq!(run(&["-"], b"A bear and a bee"), expected);
    assert_ne!(run(&["--system", "Be brief.", "A bear and a bee"], b""), expected);
    assert_ne!(run(&["--raw", "A bear and a bee"], b""), expected);
}

#[test]
fn seeds_repeat_an_answer() {
    let run = |seed: &str| {
        let arguments =
            ["run", "--json", "-n", "24", "--temp", "1.5", "-s", seed, "Tell me a story."];
        finish(&here(), &arguments).json()["ids"].clone()
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn answers_stop_where_they_are_told_to() {
    let run = |arguments: &[&str]| {
        let basic = ["run", "--json", "--temp", "0", "--raw", "Once upon a time"];
        finish(&here(), &[&basic, arguments].concat()).json()
    };
    let whole = run(&["-n", "24"]);
    let text = whole["text"].as_str().unwrap();
    let (before, _) = text.split_once(" named").unwrap();
    let stopped = run(&["--stop", "no such text", "--stop", " named"]);
    assert_eq!(
        (stopped["text"].as_str(), stopped["stop_reason"].as_str()),
        (Some(before), Some("stop_string"))
    );
    let full = run(&["-c", "16"]);
    assert_eq!(full["stop_reason"], "context_full");
    let shifted = run(&["-c", "16", "--context-shift", "--ignore-eos", "-n", "40"]);
    assert_eq!(shifted["ids"].as_array().unwrap().len(), 40);
    // A ruled-out token does not come.
    let first = whole["ids"][0].as_u64().unwrap();
    let biased = run(&["-n", "24", "--logit-bias", &format!("{first}-inf")]);
    assert!(!integers(&biased["ids"]).contains(&first));
}

#[test]
fn threads_batches_and_isas_do_not_change_the_answer() {
    let run = |arguments: &[&str]| {
        let basic = ["run", "--json", "--temp", "0", "-n", "32", "Tell me a story about a snail."];
        finish(&here(), &[&basic, arguments].concat()).json()["ids"].clone()
    };
    let expected = run(&[]);
    assert_eq!(run(&["-t", "1"]), expected);
    assert_eq!(run(&["-t", "3", "-b", "5"]), expected);
    for isa in rocmforge::device::Isa::available() {
        assert_eq!(run(&["--isa", isa.name()]), expected, "{isa}");
        assert_eq!(run(&["--tier", isa.name()]), expected, "{isa} by the older name of the flag");
    }
}

#[test]
fn tokens_and_text_convert_both_ways() {
    let text = "Once upon a time,\n there was ünïcödé 🦊";
    let json = finish(&here(), &["tokenize", "--json", text]).json();
    let ids = integers(&json["ids"]);
    assert_eq!(ids.len(), json["tokens"].as_array().unwrap().len());
    let ids: Vec<_> = ids.iter().map(u64::to_string).collect();
    assert_eq!(finish(&here(), &["tokenize", "--decode", &ids.join(" ")]).stdout, text);
    let listed = finish(&here(), &["tokenize", "--ids", text]).stdout;
    assert_eq!(listed, format!("[{}]\n", ids.join(", ")));
    assert_eq!(finish(&here(), &["tokenize", "--decode", listed.trim()]).stdout, text);
    assert_eq!(
        finish(&here(), &["tokenize", "Once upon"]).stdout,
        "   903 -> 'Once'\n   935 -> ' upon'\n"
    );
}

#[test]
fn special_tokens_are_parsed_unless_told_otherwise() {
    let ids = |arguments: &[&str]| {
        integers(&finish(&here(), &[&["tokenize", "--json"], arguments].concat()).json()["ids"])
    };
    assert_eq!(ids(&["<|im_end|>"]), [2]);
    assert!(ids(&["--no-special", "<|im_end|>"]).len() > 1);
    assert_eq!(finish(&here(), &["tokenize", "--decode", "2"]).stdout, "<|im_end|>");
    assert_eq!(finish(&here(), &["tokenize", "--no-special", "--decode", "2"]).stdout, "");
    let outside = finish(&here(), &["tokenize", "--decode", "4096"]);
    let message = "error: token id 4096 is out of range: the vocabulary has 4096 tokens\n";
    assert_eq!((outside.code, outside.stderr.as_str()), (Some(2), message));
}

#[test]
fn vocabularies_can_be_tokenized_and_listed() {
    let Some(vocabs) = shared("vocabs") else { return };
    let vocab = vocabs.join("ggml-vocab-llama-bpe.gguf");
    let vocab = vocab.to_str().unwrap();
    let json = finish(&here(), &["tokenize", "-m", vocab, "--json", "Hello world"]).json();
    assert_eq!(integers(&json["ids"]), [128_000, 9906, 1917]);
    assert_eq!(json["tokens"][1], "Hello");
    let json = finish(&here(), &["info", "--json", vocab]).json();
    assert_eq!(json["tokenizer"]["vocab_size"], 128_256);
    assert_eq!(json["runnable"], false);
}

#[test]
fn info_describes_the_demo_model() {
    let json = finish(&here(), &["info", "--json", "-c", "512"]).json();
    assert_eq!(json["architecture"], "llama");
    assert_eq!(json["parameters"], 7_344_384);
    assert_eq!(json["quantization"], "Q8_0");
    assert_eq!(json["model"]["num_layers"], 8);
    assert_eq!(json["model"]["num_kv_heads"], 2);
    assert_eq!(json["tokenizer"]["chat_template"], true);
    assert_eq!(integers(&json["tokenizer"]["eog_token_ids"]), [0, 2]);
    assert_eq!(json["tensors"].as_array().unwrap().len(), 74);
    assert_eq!(json["memory"]["context_tokens"], 512);
    // 8 layers of 2 × 2 heads of 64 values in two bytes, for 512 tokens
    assert_eq!(json["memory"]["kv_bytes"], 8 * 2 * 2 * 64 * 2 * 512);
    assert_eq!(json["problems"].as_array().unwrap().len(), 0);
    // Without a terminal there are no colours.
    assert_data_eq!(
        transcripts(&here(), &[&["info"]]),
        str![[r#"
$ rf-cli info
built-in demo model (GGUF version 3, 7.58 MiB)
  name            Demo stories 7M
  architecture    llama
  parameters      7.34 M
  quantisation    Q8_0 (8.51 bits per weight)
  licence         MIT OR Apache-2.0
  context         1024 tokens
  layers          8
  width           256, feed-forward 768
  heads           4 of 64 (2 for keys and values)
  rope            theta 10000
  tokenizer       gpt2/qwen2, 4096 tokens, ends with 0 2
  chat template   yes
  memory          [..] MiB = weights 7.55 MiB + KV cache 4.00 MiB (1024 tokens of 4.00 KiB, f16) + buffers [..] MiB
  tensors
    Q8_0              57 tensors     7.44 MiB
    F32               17 tensors    17.00 KiB

"#]]
    );
}

#[test]
fn greedy_answers_are_those_of_the_reference() {
    let (Some(golden), Some(models)) = (shared("golden"), shared("models")) else { return };
    let golden = fs::read_to_string(golden.join("logits-stories-7m.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let folder = TempDir::new().unwrap();
    let f16 = models.join("stories-7m-F16.gguf");
    let f16 = f16.to_str().unwrap();
    assert_eq!(finish(folder.path(), &["quantize", f16, "bf16.gguf", "BF16"]).code, Some(0));
    let question = "Tell me a story about a fox and a lost key.";
    for model in [f16, "bf16.gguf"] {
        for name in ["story", "docs", "chat"] {
            let prompt = &golden["prompts"][name];
            let text = prompt["text"].as_str().unwrap();
            // The template makes the third prompt from the question.
            let arguments = if name == "chat" { ["--chat", question] } else { ["--raw", text] };
            let basic = ["run", "-m", model, "--json", "--temp", "0", "-n", "48", "--ignore-eos"];
            let json = finish(folder.path(), &[&basic[..], &arguments].concat()).json();
            assert_eq!(json["prompt_ids"], prompt["ids"], "{name}");
            let expected = &golden["models"]["stories-7m-F16.gguf"]["exact"][name]["greedy"];
            assert_eq!(json["ids"], *expected, "{model}: {name}");
        }
    }
}

#[test]
fn perplexity_is_that_of_the_reference() {
    let (Some(golden), Some(models)) = (shared("golden"), shared("models")) else { return };
    let golden = fs::read_to_string(golden.join("logits-stories-7m.json")).unwrap();
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let folder = TempDir::new().unwrap();
    let ids = golden["prompts"]["text"]["ids"].to_string();
    fs::write(folder.path().join("ids.txt"), ids).unwrap();
    for name in ["stories-7m-F16.gguf", "stories-7m-Q4_K_M.gguf"] {
        let model = models.join(name);
        let arguments = ["-f", "ids.txt", "--ids", "-c", "1024", "--json"];
        let arguments = [&["perplexity", "-m", model.to_str().unwrap()], &arguments[..]].concat();
        let json = finish(folder.path(), &arguments).json();
        assert_eq!(json["tokens"], 999);
        let nll = json["mean_nll"].as_f64().unwrap();
        let expected = golden["models"][name]["exact"]["text"]["mean_nll"].as_f64().unwrap();
        assert!((nll / expected - 1.0).abs() < 0.005, "{name}: {nll}, expected {expected}");
        assert!((json["perplexity"].as_f64().unwrap() - nll.exp()).abs() < 1e-9);
    }
}

#[test]
fn perplexity_takes_windows_of_the_context() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("ids.txt"), "[460, 464, 11, 265, 460, 464, 11]").unwrap();
    // The last one is bounded by the text: it takes no memory for a hundred million tokens.
    for (context, scored) in [("4", 5), ("3", 4), ("7", 6), ("512", 6), ("100000000", 6)] {
        let arguments = ["perplexity", "-f", "ids.txt", "--ids", "-c", context, "--json"];
        assert_eq!(finish(folder.path(), &arguments).json()["tokens"], scored);
    }
}

#[test]
fn bench_draws_its_results() {
    let folder = TempDir::new().unwrap();
    let run = |plot: &str| {
        let arguments = ["bench", "-p", "8", "-n", "2", "-r", "2", "--plot", plot];
        let ran = finish(folder.path(), &arguments);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stderr
    };
    assert_eq!(run("speed.svg"), "speed.svg: open it in a browser\n");
    let svg = fs::read_to_string(folder.path().join("speed.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("threads, pp8<"), "{svg}");
    // A bar per test, and a dot per repetition.
    assert_eq!((svg.matches("class=\"bar\"").count(), svg.matches("<circle").count()), (2, 4));
    let text = run("-");
    assert_eq!(text.lines().count(), 2);
    assert!(text.lines().all(|line| line.contains('█') && line.ends_with(" t/s")), "{text}");
    fs::copy(demo_model(), folder.path().join("m.gguf")).unwrap();
    let arguments = ["bench", "-m", "m.gguf", "--plot", "m.gguf"];
    let message =
        "error: the output 'm.gguf' is a model, which it would replace: give another file\n";
    assert_eq!(finish(folder.path(), &arguments).stderr, message);
}

/// In llama-bench's order.
const BENCH_FIELDS: &str = "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,\
    model_size,model_n_params,n_batch,n_ubatch,n_threads,cpu_mask,cpu_strict,poll,type_k,type_v,n_gpu_layers,\
    n_cpu_moe,split_mode,main_gpu,no_kv_offload,flash_attn,devices,tensor_split,tensor_buft_overrides,load_mode,\
    lazy_mode,embeddings,no_op_offload,no_host,repack,fit_target,fit_min_ctx,n_prompt,n_gen,n_depth,test_time,\
    avg_ns,stddev_ns,avg_ts,stddev_ts";

#[test]
fn bench_prints_the_fields_of_llama_bench() {
    let arguments = ["bench", "-p", "8,16", "-n", "2", "-d", "0,4", "-r", "3", "-o"];
    let run = |format| finish(&here(), &[&arguments[..], &[format]].concat());
    let json = run("json").json();
    let rows = json.as_array().unwrap();
    let tests: Vec<_> = rows
        .iter()
        .map(|row| ["n_prompt", "n_gen", "n_depth"].map(|field| row[field].as_u64().unwrap()))
        .collect();
    assert_eq!(tests, [[8, 0, 0], [16, 0, 0], [0, 2, 0], [8, 0, 4], [16, 0, 4], [0, 2, 4]]);
    for row in rows {
        let names: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names.join(","), format!("{BENCH_FIELDS},samples_ns,samples_ts"));
        assert_eq!(row["samples_ns"].as_array().unwrap().len(), 3);
        assert!(row["avg_ts"].as_f64().unwrap() > 0.0);
        assert_eq!(row["model_type"], "llama 7.3M Q8_0");
        assert_eq!(row["model_n_params"], 7_344_384);
        assert!(row["test_time"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(run("jsonl").stdout.lines().count(), 6);
    let csv = run("csv").stdout;
    assert_eq!(csv.lines().next(), Some(BENCH_FIELDS));
    assert_eq!(csv.lines().count(), 7);
}

#[test]
fn bench_prints_the_table_of_llama_bench() {
    let arguments = ["bench", "-p", "8", "-n", "0", "-pg", "8,2", "-d", "4", "-r", "2", "-t", "1"];
    assert_data_eq!(
        finish(&here(), &arguments).stdout,
        str![[r#"
| model                          |       size |     params | backend    | threads |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: | -------------------: |
| llama 7.3M Q8_0                |   7.45 MiB |     7.34 M | CPU        |       1 |        pp8 @ d4 |[..] ± [..] |
| llama 7.3M Q8_0                |   7.45 MiB |     7.34 M | CPU        |       1 |    pp8+tg2 @ d4 |[..] ± [..] |

build: [..]

"#]]
    );
}

#[test]
fn every_shell_gets_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let finished = finish(&here(), &["completions", shell]);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        assert!(finished.stdout.contains("perplexity"), "{shell}");
    }
}

#[test]
fn the_version_says_what_was_built() {
    let expected = format!(
        "rf-cli {0} (revision [..], build [..])\n\
         built for [..] ([..]) with rustc [..]\n\
         CPU: {1} of portable[..]\n\
         demo model: built in\n\
         rf-cli {0}\n",
        env!("CARGO_PKG_VERSION"),
        rocmforge::device::Isa::best()
    );
    let versions = ["--version", "-V"].map(|flag| finish(&here(), &[flag]).stdout);
    assert_data_eq!(versions.concat(), expected);
}

#[test]
fn an_adapter_changes_the_answer_as_its_scale_says() {
    let cases = rf_testing::golden_adapters();
    let case = cases.iter().find(|case| case.name == "llama_attention").unwrap();
    let (model, adapter) = (case.model.path(), case.adapters[0].0.to_str().unwrap());
    let ids = |flags: &[&str]| {
        let run = ["run", "--raw", "--json", "--temp", "0", "-n", "8", "-m"];
        let arguments = [&run[..], &[model.to_str().unwrap(), "x"], flags].concat();
        finish(&here(), &arguments).json()["ids"].clone()
    };
    let (plain, full) = (ids(&[]), ids(&["--lora", adapter]));
    assert_ne!(plain, full);
    assert_eq!(ids(&["--lora", &format!("{adapter}:0")]), plain);
    assert_eq!(ids(&["--lora-scaled", &format!("{adapter}:0.5,{adapter}:0.5")]), full);

    let info = finish(&here(), &["info", "--json", adapter]).json();
    let expected = serde_json::json!({ "type": "lora", "alpha": 8.0, "ranks": [4, 4], "changed_tensors": 8, "layers": 2, "hidden_size": 32 });
    assert_eq!((&info["adapter"], &info["problems"]), (&expected, &serde_json::json!([])));
}
