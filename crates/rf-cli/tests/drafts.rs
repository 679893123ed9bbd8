//! Speculative decoding with the commands: the speed changes and the text does not.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;

use program::{demo_model, finish};
use serde_json::Value;
use snapbox::{assert_data_eq, str};
use tempfile::TempDir;

#[test]
fn drafts_change_the_speed_only() {
    let folder = TempDir::new().unwrap();
    let story = "Once upon a time, there was a fox. The fox lost a key in the garden. ";
    fs::write(folder.path().join("story.txt"), story.repeat(3)).unwrap();
    let demo = demo_model();
    let demo = demo.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let basic = ["run", "--json", "--raw", "-n", "20", "-t", "1", "-f", "story.txt"];
        finish(folder.path(), &[&basic, arguments].concat()).json()
    };
    let of = |json: &Value, name: &str| json["timings"][name].as_u64().unwrap();
    let fixed = ["--draft-max", "4", "--draft-min", "4"];
    // A bias makes a text that repeats.
    let greedy = ["--temp", "0", "--logit-bias", "903+100"];
    let sampled = ["--temp", "1", "-s", "3", "--logit-bias", "903+100"];
    for sampling in [&greedy[..], &sampled] {
        let without = run(&[sampling, &["--spec", "off"]].concat());
        assert_eq!(of(&without, "drafted_tokens"), 0);
        for drafts in [&["--spec", "ngram"][..], &["-md", demo], &["--spec", "auto"]] {
            let with = run(&[sampling, drafts, &fixed].concat());
            assert_eq!(with["ids"], without["ids"], "{drafts:?}");
            assert!(of(&with, "drafted_tokens") > 0, "{drafts:?}");
        }
    }
    // The model as its own draft model is always right.
    let itself = ["--temp", "0", "--ignore-eos", "-md", demo, "--draft", "4"];
    let itself = run(&[&itself[..], &["--draft-n-min", "4"]].concat());
    assert_eq!(of(&itself, "accepted_tokens"), of(&itself, "drafted_tokens"));

    let bench =
        ["bench", "-p", "0", "-n", "16", "-r", "2", "-t", "1", "-f", "story.txt", "-md", demo];
    let json = finish(folder.path(), &[&bench[..], &["-o", "json"], &fixed].concat()).json();
    let rows: Vec<_> = json.as_array().unwrap().iter().collect();
    let drafted = |row: &Value| row["n_drafted"].as_u64().unwrap() > 0;
    assert_eq!(rows.iter().map(|row| drafted(row)).collect::<Vec<_>>(), [false, false, true]);
    assert!(rows.iter().all(|row| row["speculative"] == drafted(row) && row["n_gen"] == 16));
    let table = finish(folder.path(), &[&bench[..], &fixed].concat()).stdout;
    assert_data_eq!(
        table,
        str![[r#"
| model                          |       size |     params | backend    | threads |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: | -------------------: |
| llama 7.3M Q8_0                |   7.45 MiB |     7.34 M | CPU        |       1 |            tg16 |[..] ± [..] |
| llama 7.3M Q8_0                |   7.45 MiB |     7.34 M | CPU        |       1 | tg16 @ d64 text |[..] ± [..] |
| llama 7.3M Q8_0                |   7.45 MiB |     7.34 M | CPU        |       1 | tg16 @ d64 text drafts [..] % |[..] ± [..] |

build: [..]

"#]]
    );
}

#[test]
fn a_model_drafts_with_its_own_head() {
    let model = rf_testing::golden_model("glm4moe");
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("text.txt"), "Some text that has no meaning.").unwrap();
    let model = ["-m", model.to_str().unwrap(), "-f", "text.txt", "-t", "1"];
    let run = |arguments: &[&str]| {
        let basic = ["run", "--json", "--raw", "--ignore-eos", "-n", "20", "--temp", "0"];
        finish(folder.path(), &[&basic, &model[..], arguments].concat()).json()
    };
    let of = |json: &Value, name: &str| json["timings"][name].as_u64().unwrap();
    let without = run(&["--spec", "off"]);
    assert_eq!(of(&without, "drafted_tokens"), 0);
    let fixed = ["--draft-max", "2", "--draft-min", "2"];
    // The text does not repeat, so that only the head has drafts.
    for drafts in [["--spec", "mtp"], ["--spec", "auto"], ["--spec-type", "draft-mtp"]] {
        let with = run(&[&drafts[..], &fixed].concat());
        assert_eq!(with["ids"], without["ids"], "{drafts:?}");
        assert!(of(&with, "drafted_tokens") >= 30, "{drafts:?}: {with}");
    }
    let bench = ["bench", "-p", "0", "-n", "16", "-r", "1", "-o", "json", "--spec", "mtp"];
    let json = finish(folder.path(), &[&bench, &model[..], &fixed].concat()).json();
    let drafted = json.as_array().unwrap().iter().map(|row| row["n_drafted"].as_u64().unwrap());
    let drafted: Vec<_> = drafted.collect();
    assert!(matches!(drafted[..], [0, 0, drafted] if drafted >= 20), "{drafted:?}");
}
