//! The prompt and the model among the arguments that are no flags.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::Result;
use rocmforge::hub::ShortName;

use crate::failure::bad_input;
use crate::{demo, escapes, flags, sources, terminal};

/// The arguments that are no flags.
pub(super) struct Words {
    pub(super) model: Option<PathBuf>,
    pub(super) prompt: Option<String>,
}

/// The flags about the prompt.
pub(super) struct PromptSource<'a> {
    /// A file with text.
    pub(super) file: Option<&'a Path>,
    /// The answer is printed as JSON.
    pub(super) json: bool,
    /// The model continues the text, without a chat template.
    pub(super) raw: bool,
}

/// The words that are no flags: a model file, and a prompt.
///
/// `flag` is the value of `-p`, and `is_demo` is true if no flag names a model.
pub(super) fn words(words: &[String], flag: Option<&str>, is_demo: bool) -> Result<Words> {
    let (model, prompt) = match words {
        [] => (None, None),
        [first, rest @ ..] if is_demo && is_model(first) => {
            (Some(PathBuf::from(first)), rest.first())
        }
        [name, ..] if is_demo && is_ollama_name(name) => {
            return Err(bad_input!(
                "'{name}' is not a name that this program knows: `rf-cli list --all` shows the \
                 names. Or give a file with -m, or a repository of the Hugging Face hub with -hf"
            ));
        }
        [prompt] => (None, Some(prompt)),
        [_, second, ..] => {
            return Err(bad_input!(
                "unexpected argument '{}': put the prompt in quotation marks, and give the \
                 model with -m",
                terminal::shown(second)
            ));
        }
    };
    let prompt = match (prompt, flag) {
        (Some(_), Some(_)) => return Err(bad_input!("there are two prompts: leave out -p")),
        (Some(prompt), None) => Some(prompt.clone()),
        (None, flag) => flag.map(escapes::resolved),
    };
    Ok(Words { model, prompt })
}

/// The prompt; `None` for a chat at the terminal. An instruction comes before the texts of the
/// file and of standard input.
pub(super) fn prompt(
    source: &PromptSource<'_>,
    instruction: Option<&str>,
    is_demo: bool,
) -> Result<Option<String>> {
    let instruction = instruction.filter(|text| *text != "-");
    let file = source.file.map(sources::file_text).transpose()?;
    let piped = match &file {
        Some(_) => None,
        None => sources::piped_text()?,
    };
    let is_interactive = io::stdout().is_terminal() && !source.json && !source.raw;
    if instruction.is_none() && file.is_none() && piped.is_none() && is_interactive {
        return Ok(None);
    }
    let texts = [file, piped].into_iter().flatten().map(|text| {
        let text = text.strip_suffix('\n').unwrap_or(&text);
        text.strip_suffix('\r').unwrap_or(text).to_owned()
    });
    let texts = instruction.map(str::to_owned).into_iter().chain(texts);
    let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
    let text = texts.join("\n\n");
    let is_empty = if source.raw { text.is_empty() } else { text.trim().is_empty() };
    if instruction.is_some() && is_empty {
        return Err(bad_input!(
            "the prompt is empty: write a text between the quotation marks (a variable of the shell may be \
             empty), or leave it out"
        ));
    }
    if text.is_empty() && is_demo && source.file.is_none() && !source.raw {
        terminal::note(format_args!(
            "no prompt given, so the demo model answers: {}",
            demo::PROMPT
        ));
        return Ok(Some(demo::PROMPT.to_owned()));
    }
    Ok(Some(text))
}

/// Returns true if the word is a model file, has the name of one, or is a short name.
fn is_model(word: &str) -> bool {
    let one_word = !word.contains(char::is_whitespace);
    (one_word && flags::is_gguf_name(word.as_ref()))
        || ShortName::find(word).is_some()
        || sources::is_gguf(Path::new(word))
}

/// Returns true if a word is a name such as `qwen3:8b` or `llama3.2:latest`. Other words with a
/// colon are prompts.
fn is_ollama_name(word: &str) -> bool {
    let is_part = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
        part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(known)
    };
    let is_tag = |tag: &str| tag == "latest" || tag.starts_with(|c: char| c.is_ascii_digit());
    word.split_once(':').is_some_and(|(name, tag)| is_part(name) && is_part(tag) && is_tag(tag))
}

/// Returns true if a prompt may be meant as a model: `llama3`, `owner/model`.
pub(super) fn looks_like_model_name(prompt: &str) -> bool {
    let is_one_word = !prompt.contains(char::is_whitespace);
    is_one_word && prompt.contains(|c: char| c.is_ascii_digit() || c == '/')
}
