//! Random command lines of the commands that end quickly: no panic, and an exit code that has a
//! meaning.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;

use program::{TinyModel, demo_model, finish, rf_cli};
use rf_quant::DType;
use rf_testing::SplitMix64;
use tempfile::TempDir;

/// Lines per run, unless this variable has another number.
const RUNS: (&str, usize) = ("ROCFORGE_COMMAND_RUNS", 40);

const COMMANDS: [&str; 12] = [
    "info",
    "tokenize",
    "quantize",
    "list",
    "completions",
    "gguf split",
    "gguf merge",
    "gguf edit",
    "gguf diff",
    "gguf",
    "fit --no-measure",
    "complete-models",
];

const WORDS: [&str; 24] = [
    "m.gguf",
    "m.gguf",
    "demo.gguf",
    "t.txt",
    "no.gguf",
    ".",
    "",
    "-",
    "--",
    "-1",
    "0",
    "3",
    "1.5",
    "zzz",
    "99999999999999999999",
    "😀",
    "\u{1b}[31m",
    "Q4_0",
    "general.name=x",
    "a=u8:5",
    "a=b",
    "1M",
    "bash",
    "[1, 2]",
];

#[test]
fn random_lines_of_quick_commands_end_with_a_meaning() {
    let (variable, most) = RUNS;
    let count = std::env::var(variable).map_or(most, |count| count.parse().unwrap());
    let folder = TempDir::new().unwrap();
    let tensors = vec![("token_embd.weight", vec![256, 4], DType::F32)];
    let tiny = TinyModel { architecture: "llama", tensors }.bytes();
    let options = COMMANDS.map(|command| options(&folder, command));
    let mut random = SplitMix64::new(2);
    for _ in 0..count {
        // A line may have replaced them.
        fs::write(folder.path().join("m.gguf"), &tiny).unwrap();
        fs::copy(demo_model(), folder.path().join("demo.gguf")).unwrap();
        fs::write(folder.path().join("t.txt"), "A fox and a key.").unwrap();
        let index = random.below(COMMANDS.len());
        let mut line: Vec<&str> = COMMANDS[index].split(' ').collect();
        for _ in 0..random.below(5) {
            let option = options[index].get(random.below(options[index].len()));
            if let Some(option) = option.filter(|_| random.below(2) == 0) {
                line.push(option);
            }
            line.push(WORDS[random.below(WORDS.len())]);
        }
        let mut command = rf_cli(folder.path(), &line);
        let output = command.env("HF_HUB_OFFLINE", "1").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0..=2)), "{line:?}: {output:?}");
        assert!(!stderr.contains("panicked"), "{line:?}: {stderr}");
        assert!(!stderr.contains('\u{1b}'), "{line:?}: {stderr}");
    }
    println!("{count} random lines were run");
}

/// The options in the help of a command.
fn options(folder: &TempDir, command: &str) -> Vec<String> {
    let words = command.split(' ').filter(|word| !word.starts_with('-')).chain(["--help"]);
    let help = finish(folder.path(), &words.collect::<Vec<_>>());
    assert_eq!(help.code, Some(0), "{}", help.stderr);
    let options = help.stdout.split_whitespace().filter(|word| word.starts_with("--"));
    let options = options.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-'));
    let options = options.filter(|word| word.len() > 2 && *word != "--help");
    options.map(str::to_owned).collect()
}
