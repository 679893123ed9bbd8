//! Embeddings and reranking from the command line.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::path::Path;

use program::{demo_model, finish, finish_with_input, rf_cli, transcripts};
use serde_json::Value;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

/// A golden model by its file's name.
fn model(file: &str) -> String {
    let path = rf_testing::golden_model(file.strip_suffix(".gguf").unwrap());
    path.to_str().unwrap().to_owned()
}

/// A reranker with a vocabulary of word pieces, whose texts begin and end with marks. The golden
/// models share a byte-level vocabulary without marks.
fn wordpiece() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/wordpiece_rank.gguf");
    rf_testing::plain_or_unpacked(&path).to_str().unwrap().to_owned()
}

/// The ids of a golden model, and the stored embedding or score.
fn golden(name: &str) -> (String, Vec<f32>) {
    let models = rf_testing::golden_models();
    let model = models.iter().find(|model| model.name() == name).unwrap();
    (serde_json::to_string(&model.ids()).unwrap(), model.results())
}

/// Little-endian f32.
fn numbers(bytes: &[u8]) -> Vec<f32> {
    assert_eq!(bytes.len() % 4, 0);
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn floats(vector: &Value) -> Vec<f32> {
    vector.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn assert_close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn embeddings_are_those_of_the_reference_as_json_and_as_bytes() {
    let folder = TempDir::new().unwrap();
    for name in ["nomic_bert", "bert_rank"] {
        let (ids, expected) = golden(name);
        let file = model(&format!("{name}.gguf"));
        let basic = ["embed", "-m", &file, "--ids", &ids];
        let json = finish(folder.path(), &[&basic[..], &["--json"]].concat()).json();
        assert_eq!(json["embeddings"].as_array().unwrap().len(), 1);
        let vector = floats(&json["embeddings"][0]);
        assert_close(&vector, &expected);
        let output = rf_cli(folder.path(), &basic).output().unwrap();
        assert_eq!(numbers(&output.stdout), vector, "JSON has all digits");
        let kind = if name == "nomic_bert" {
            "1 x 32 numbers, pooling mean\n"
        } else {
            "1 x 1 numbers, pooling rank\n"
        };
        assert_eq!(String::from_utf8(output.stderr).unwrap(), kind);
    }
}

#[test]
fn texts_come_from_arguments_lines_of_a_file_or_a_pipe() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("lines.txt"), "the kernel\n\nruns on two cards\n").unwrap();
    let file = wordpiece();
    let run = |arguments: &[&str], input: &str| {
        let arguments = [&["embed", "--json", "-m", &file], arguments].concat();
        finish_with_input(folder.path(), &arguments, input.as_bytes()).json()["embeddings"].clone()
    };
    let expected = run(&["the kernel", "", "runs on two cards"], "");
    assert_eq!(expected.as_array().unwrap().len(), 3);
    assert_ne!(expected[0], expected[2]);
    assert_eq!(run(&["-f", "lines.txt"], ""), expected);
    assert_eq!(run(&["-f", "-"], "the kernel\n\nruns on two cards"), expected);
    assert_eq!(run(&[], "the kernel\n\nruns on two cards\n"), expected);
    // Batches, threads and a larger context do not change the vectors.
    assert_eq!(run(&["-f", "lines.txt", "-b", "1", "-t", "1", "-c", "0"], ""), expected);
}

#[test]
fn texts_of_a_recurrent_model_do_not_depend_on_each_other() {
    for name in ["lfm2", "mamba2", "qwen35"] {
        let Some(model) = rf_testing::shared(&format!("golden/arch/{name}.gguf")) else { return };
        let embed = |texts: &[&str]| {
            let arguments = [&["embed", "--json", "-m", model.to_str().unwrap()], texts].concat();
            finish(&std::env::temp_dir(), &arguments).json()["embeddings"].clone()
        };
        let both = embed(&["one", "two"]);
        assert_eq!([&both[0], &both[1]], [&embed(&["one"])[0], &embed(&["two"])[0]], "{name}");
    }
}

#[test]
fn pooling_and_normalisation_are_as_asked_for() {
    let folder = TempDir::new().unwrap();
    let (ids, _) = golden("nomic_bert");
    let file = model("nomic_bert.gguf");
    let run = |arguments: &[&str]| {
        let basic = ["embed", "--json", "-m", &file, "--ids", &ids];
        floats(&finish(folder.path(), &[&basic[..], arguments].concat()).json()["embeddings"][0])
    };
    let plain = run(&["--normalize", "-1"]);
    let length = plain.iter().map(|x| x * x).sum::<f32>().sqrt();
    let scaled = |factor: f32| plain.iter().map(|x| x * factor).collect::<Vec<_>>();
    assert!((length - 1.0).abs() > 0.1);
    assert_close(&run(&[]), &scaled(1.0 / length));
    assert_close(&run(&["--embd-normalize", "2"]), &scaled(1.0 / length));
    assert_close(
        &run(&["--normalize", "1"]),
        &scaled(1.0 / plain.iter().map(|x| x.abs()).sum::<f32>()),
    );
    let largest = run(&["--normalize", "0"]).iter().fold(0.0, |m: f32, x| m.max(x.abs()));
    assert!((largest - 32_760.0).abs() < 0.1);
    let [mean, cls, last] = ["mean", "cls", "last"].map(|pooling| run(&["--pooling", pooling]));
    assert_eq!(mean, run(&[]));
    assert!(mean != cls && cls != last && last != mean);
}

#[test]
fn without_a_pooling_every_token_has_an_embedding() {
    let folder = TempDir::new().unwrap();
    let (ids, _) = golden("nomic_bert");
    let count = serde_json::from_str::<Vec<u32>>(&ids).unwrap().len();
    let file = model("nomic_bert.gguf");
    let basic = ["embed", "-m", &file, "--ids", &ids, "--normalize", "-1", "--pooling"];
    let run = |pooling: &str| {
        let json = finish(folder.path(), &[&basic[..], &[pooling, "--json"]].concat()).json();
        json["embeddings"][0].clone()
    };
    let tokens = run("none");
    let tokens: Vec<Vec<f32>> = tokens.as_array().unwrap().iter().map(floats).collect();
    assert_eq!(tokens.len(), count);
    assert_eq!(tokens[0], floats(&run("cls")));
    assert_eq!(tokens[count - 1], floats(&run("last")));
    let mean: Vec<f32> = (0..tokens[0].len())
        .map(|index| tokens.iter().map(|token| token[index]).sum::<f32>() / count as f32)
        .collect();
    assert_close(&floats(&run("mean")), &mean);
    let output = rf_cli(folder.path(), &[&basic[..], &["none"]].concat()).output().unwrap();
    assert_eq!(numbers(&output.stdout), tokens.concat());
    let note = format!("{count} x 32 numbers, pooling none\n");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), note);
    // Each token is normalised by itself.
    let arguments = ["embed", "-m", &file, "--ids", &ids, "--json", "--pooling", "none"];
    let normalized = finish(folder.path(), &arguments).json()["embeddings"][0].clone();
    for token in normalized.as_array().unwrap() {
        let length = floats(token).iter().map(|x| x * x).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
}

#[test]
fn a_model_that_generates_embeds_the_last_token_too() {
    let demo = demo_model();
    let arguments = ["embed", "--json", "-m", demo.to_str().unwrap(), "Once upon a time"];
    let folder = TempDir::new().unwrap();
    let json = finish(folder.path(), &arguments).json();
    assert_eq!(json["embeddings"][0].as_array().unwrap().len(), 256);
    let last = finish(folder.path(), &[&arguments[..], &["--pooling", "last"]].concat()).json();
    assert_eq!(json, last);
}

#[test]
fn documents_are_ordered_by_their_scores() {
    let folder = TempDir::new().unwrap();
    let documents = ["the cards", "a model of the kernel", "two"];
    fs::write(folder.path().join("documents.txt"), documents.join("\n")).unwrap();
    let file = wordpiece();
    let basic = ["rerank", "-m", &file, "kernel"];
    let json = finish(folder.path(), &[&basic[..], &["--json"], &documents].concat()).json();
    let results = json["results"].as_array().unwrap();
    let scores: Vec<f64> =
        results.iter().map(|result| result["relevance_score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a > b), "{scores:?}");
    // The score of a pair is that of its tokens, marked as BERT has them.
    for result in results {
        let document = documents[result["index"].as_u64().unwrap() as usize];
        let ids = |text: &str| {
            let json = finish(folder.path(), &["tokenize", "-m", &file, "--json", text]).json();
            let ids = json["ids"].as_array().unwrap().iter().map(Value::to_string);
            ids.collect::<Vec<_>>()
        };
        let pair = [ids("kernel"), ids(document)[1..].to_vec()].concat().join(" ");
        let alone = finish(folder.path(), &["embed", "-m", &file, "--json", "--ids", &pair]).json();
        assert_eq!(alone["embeddings"][0][0], result["relevance_score"]);
    }
    let plain = finish(folder.path(), &[&basic[..], &["-f", "documents.txt"]].concat());
    let lines: Vec<&str> = plain.stdout.lines().collect();
    let best = documents[results[0]["index"].as_u64().unwrap() as usize];
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], format!("{:>10.4}  {best}", scores[0]));
}

#[test]
fn what_cannot_be_embedded_is_named() {
    let folder = TempDir::new().unwrap();
    let (encoder, reranker) = (model("nomic_bert.gguf"), model("bert_rank.gguf"));
    let long = vec!["7"; 65].join(" ");
    for (arguments, message) in [
        (
            &["run", "-m", &encoder, "Hello"][..],
            "architecture 'nomic-bert' with pooling 'mean' does not generate text: it computes \
             embeddings or scores: use `rf-cli embed` or `rf-cli rerank`",
        ),
        (
            &["rerank", "-m", &encoder, "a", "b"],
            "the model is not a reranker (its pooling is not rank): give a reranker, or compare \
             embeddings of `rf-cli embed`",
        ),
        (
            &["embed", "-m", &encoder, "--pooling", "rank", "a"],
            "the file has no tensor 'cls.output.weight': convert the model again",
        ),
        (
            &["embed", "-m", &reranker, "--ids", "2 3", &long],
            "text 2 has 65 tokens and there is room for 64: split it",
        ),
        (
            &["embed", "-m", &reranker, "--ids", "2 3", ""],
            "text 2 has no tokens: leave out empty texts",
        ),
        (
            &["embed", "-m", &reranker, "--ids", "2 600"],
            "token id 600 is not in the vocabulary of 272",
        ),
        (
            &["embed", "-m", &reranker, "--normalize", "-2", "a"],
            "normalisation -2 is not supported: give a P of 0 or more, or -1 for none",
        ),
        (
            &["embed", "-m", &reranker, "-f", "no.txt"],
            "file 'no.txt' does not exist: check the path",
        ),
        (
            &["embed", "-m", &reranker],
            "no text: give it as an argument, with -f FILE, or by a pipe",
        ),
    ] {
        let finished = finish(folder.path(), arguments);
        assert_eq!(finished.stderr, format!("error: {message}\n"));
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""));
    }
    let printed = transcripts(folder.path(), &[&["embed", "--pooling", "median", "a"]]);
    assert_data_eq!(
        printed,
        str![[r#"
$ rf-cli embed --pooling median a
error: invalid value 'median' for '--pooling <POOLING>': expected one of none, mean, cls, last, rank
? 2

"#]]
    );
}

#[test]
fn info_shows_the_pooling() {
    let folder = TempDir::new().unwrap();
    let json = finish(folder.path(), &["info", "--json", &model("bert_rank.gguf")]).json();
    assert_eq!(json["pooling"], "rank");
    assert_eq!(json["runnable"], true);
    assert_eq!(json["problems"].as_array().unwrap().len(), 0);
    assert_eq!(json["memory"]["context_tokens"], 64);
}
