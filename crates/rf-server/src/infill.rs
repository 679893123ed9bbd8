//! Prompts that fill a gap in a text, for models whose vocabulary has tokens for it.

use rocmforge::engine::{EncodeOptions, Model};

use crate::error::ApiError;
use crate::longest_token::TextLimit;

/// Another file that the model should know: its name and text.
pub(crate) struct ExtraFile {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The prompt for the text between `prefix` and `suffix`.
pub(crate) fn ids(
    model: &Model,
    limit: TextLimit,
    (prefix, suffix): (&str, &str),
    files: &[ExtraFile],
) -> Result<Vec<u32>, ApiError> {
    let tokenizer = model.tokenizer();
    let (Some(fim_pre), Some(fim_suf), Some(fim_mid)) =
        (tokenizer.fim_pre(), tokenizer.fim_suf(), tokenizer.fim_mid())
    else {
        return Err(ApiError::invalid(
            "the model cannot fill gaps: its vocabulary has no tokens for prefix, suffix and middle",
        ));
    };
    [prefix, suffix].into_iter().try_for_each(|text| limit.check(text))?;
    files.iter().try_for_each(|file| limit.check(&file.text))?;
    let encode = |text: &str| tokenizer.encode(text, EncodeOptions::PLAIN);
    let mut ids: Vec<u32> = tokenizer.bos().filter(|_| tokenizer.adds_bos()).into_iter().collect();
    for file in files {
        match tokenizer.fim_sep() {
            Some(fim_sep) => {
                ids.push(fim_sep);
                ids.extend(encode(&format!("{}\n", file.name)));
            }
            None => ids.extend(encode(&format!("\n\n--- {} ---\n\n", file.name))),
        }
        ids.extend(encode(&file.text));
    }
    ids.push(fim_pre);
    ids.extend(encode(prefix));
    ids.push(fim_suf);
    ids.extend(encode(suffix));
    ids.push(fim_mid);
    Ok(ids)
}
