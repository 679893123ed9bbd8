//! Completion in the shells themselves: commands, options and values.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;

use program::{demo_model, shell};
use tempfile::TempDir;

/// Ends of lines, and words that must be among the candidates, in every shell.
const CASES: &[(&str, &[&str])] = &[
    ("rf-cli ", &["run", "serve", "pull", "gguf"]),
    ("rf-cli perp", &["perplexity"]),
    ("rf-cli run --sp", &["--spec"]),
    ("rf-cli gguf ", &["split", "merge", "edit", "diff"]),
    ("rf-cli gguf split --split-max-", &["--split-max-size", "--split-max-tensors"]),
    ("rf-cli bench -o ", &["md", "json", "jsonl", "csv"]),
    ("rf-cli run --cache-type q8", &["q8_0"]),
    ("rf-cli run --split-mode ", &["none", "layer", "tensor"]),
    ("rf-cli run --chat-template chat", &["chatml"]),
    ("rf-cli embed --device ", &["cpu", "gpu"]),
    ("rf-cli run -m ", &["m.gguf", "qwen3.5:4b"]),
    ("rf-cli run qwen3.5", &["qwen3.5:4b"]),
    ("rf-cli serve --po", &["--port"]),
    ("rf-cli completions ", &["bash", "fish", "zsh"]),
    ("rf-cli quantize m.gguf Q4_K", &["Q4_K_M"]),
    ("rf-cli launch ", &["claude", "codex", "opencode", "aider", "zed", "open-webui"]),
    ("rf-cli launch open", &["opencode", "open-webui"]),
    ("rf-cli launch claude -m ", &["m.gguf", "qwen3.5:4b"]),
];

/// Completes as bash does.
const BASH: &str = r#"
source <(rf-cli completions bash)
COMP_WORDBREAKS=$' \t\n"\'@><=;|&(:'
COMP_LINE="$LINE" COMP_POINT=${#LINE}
IFS=' ' read -ra COMP_WORDS <<< "$LINE"
if [[ "$LINE" == *" " ]]; then COMP_WORDS+=(""); fi
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
entry=$(complete -p rf-cli); entry="${entry#*-F }"; entry="${entry%% *}"
"$entry" rf-cli "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// Prints the candidates of fish, without their descriptions.
const FISH: &str = "
rf-cli completions fish | source
complete -C \"$LINE\" | string split -f 1 \\t
";

/// Presses Tab in an interactive zsh at a pseudo terminal. `compadd`, through which all candidates
/// pass, also writes them to a file.
const ZSH: &str = r#"
zmodload zsh/zpty || exit 9
rf-cli completions zsh > _rf-cli
cat > rc <<'END'
fpath=($PWD $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {
    # These forms filter candidates, and add none.
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    local -a found
    builtin compadd -O found "$@"
    print -rl -- $found >> candidates
    builtin compadd "$@"
}
tab() { zle complete-word; print > done; zle kill-buffer }
zle -N tab
bindkey '^I' tab
unset zle_bracketed_paste
print > ready
END
wait_for() { for i in {1..1200}; do [[ -e $1 ]] && return; sleep 0.1; done; exit 8 }
zpty shell zsh -f -i
zpty -w shell 'source ./rc'
wait_for ready
zpty -w -n shell "$LINE"$'\t'
wait_for done
zpty -d shell
cat candidates
"#;

/// The candidates of a shell at the end of a line, or `None` without the shell.
fn completed(folder: &TempDir, (name, script): (&str, &str), line: &str) -> Option<Vec<String>> {
    let command = format!("command -v {name} > found || exit 7; exec {name} -c \"$SCRIPT\"");
    let mut command = shell(folder.path(), &command);
    // The user's own settings have no part in this.
    command.env("HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path()).env("TERM", "xterm");
    let output = command.env("SCRIPT", script).env("LINE", line).output().unwrap();
    if output.status.code() == Some(7) {
        return None;
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.is_empty(), "{name}, '{line}', {:?}: {stderr}", output.status);
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// Completes all lines in a shell.
fn check(shell: (&str, &str), others: &[(&str, &[&str])]) {
    for (line, expected) in CASES.iter().chain(others) {
        let folder = TempDir::new().unwrap();
        fs::copy(demo_model(), folder.path().join("m.gguf")).unwrap();
        let Some(words) = completed(&folder, shell, line) else {
            rf_testing::skip!("no {}", shell.0);
            return;
        };
        let missing: Vec<_> =
            expected.iter().filter(|word| !words.contains(&(**word).into())).collect();
        assert!(missing.is_empty(), "{}, '{line}': {missing:?} of {words:?}", shell.0);
    }
}

#[test]
fn bash_completes_commands_options_and_values() {
    // Bash ends words at colons, so a candidate begins after the last one.
    let others = [("rf-cli bench -m qwen3.5:4", &["4b"][..]), ("rf-cli pull qwen3.5:", &["4b"])];
    check(("bash", BASH), &others);
}

#[test]
fn fish_completes_commands_options_and_values() {
    check(("fish", FISH), &[("rf-cli pull qwen3.5:", &["qwen3.5:4b"])]);
}

#[test]
fn zsh_completes_commands_options_and_values() {
    check(("zsh", ZSH), &[("rf-cli pull qwen3.5:", &["qwen3.5:4b"])]);
}
