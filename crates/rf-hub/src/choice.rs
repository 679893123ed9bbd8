//! Chooses the files of a repository that are the requested model.

use std::collections::BTreeMap;

use crate::Error;

/// The quantisations that are taken if the user names none, the best first.
const PREFERRED: [&str; 2] = ["Q4_K_M", "Q8_0"];

/// Prefixes of quantisation names; a digit follows.
const FORMATS: [&str; 9] = ["Q", "IQ", "TQ", "BF1", "F1", "F3", "FP", "MXFP", "NVFP"];

/// A variant of unsloth, which precedes the name of the format.
pub(crate) const VARIANT: &str = "UD-";

/// A model of a repository, in one file or several.
#[derive(Debug)]
struct Model<'a> {
    /// The quantisation, or the name of the file if it contains none.
    label: String,
    /// The files by number.
    parts: BTreeMap<u32, &'a str>,
    part_count: u32,
}

impl Model<'_> {
    fn is_complete(&self) -> bool {
        (1..=self.part_count).eq(self.parts.keys().copied())
    }
}

/// Chooses among the `files` of a repository: the given quantisation, or else [`PREFERRED`], or
/// else the first one. Returns all parts in order.
pub(crate) fn choose<'a>(
    repo: &str,
    files: &[&'a str],
    quant: Option<&str>,
) -> Result<Vec<&'a str>, Error> {
    let models = models(files);
    if models.is_empty() {
        return Err(Error::NoGguf { repo: repo.to_owned(), files: first_of(files) });
    }
    let complete: Vec<&Model<'a>> = models.iter().filter(|model| model.is_complete()).collect();
    let Some(&first) = complete.first() else {
        return Err(Error::MissingParts { repo: repo.to_owned() });
    };
    let chosen = match quant {
        Some(quant) => labelled(&complete, quant).ok_or_else(|| {
            let mut labels: Vec<&str> = complete.iter().map(|model| &*model.label).collect();
            labels.dedup();
            Error::UnknownQuant {
                repo: repo.to_owned(),
                quant: quant.to_owned(),
                available: labels.join(", "),
            }
        })?,
        None => PREFERRED.iter().find_map(|quant| labelled(&complete, quant)).unwrap_or(first),
    };
    Ok(chosen.parts.values().copied().collect())
}

/// The projector of a repository among its `files`, if there is one. Projectors are small beside
/// their models, so precision comes first.
pub(crate) fn projector<'a>(files: &[&'a str]) -> Option<&'a str> {
    let is_projector =
        |file: &&&str| stem(file).is_some_and(|stem| name_of(stem).contains("mmproj"));
    let projectors: Vec<&'a str> = files.iter().filter(is_projector).copied().collect();
    let labelled = |wanted: &str| {
        projectors.iter().find(|file| stem(file).is_some_and(|stem| label(stem) == wanted))
    };
    ["F16", "BF16", "F32", "Q8_0"].into_iter().find_map(labelled).or(projectors.first()).copied()
}

/// The complete models among `files`: the quantisation of each, and its files in order.
pub(crate) fn complete<'a>(files: &[&'a str]) -> Vec<(String, Vec<&'a str>)> {
    let complete = models(files).into_iter().filter(Model::is_complete);
    complete.map(|model| (model.label, model.parts.into_values().collect())).collect()
}

/// The first model in `quant`; one without the prefix of a variant comes first.
fn labelled<'m, 'a>(models: &[&'m Model<'a>], quant: &str) -> Option<&'m Model<'a>> {
    let find = |prefix: &str| {
        let wanted = format!("{prefix}{quant}");
        models.iter().find(|model| model.label.eq_ignore_ascii_case(&wanted)).copied()
    };
    find("").or_else(|| find(VARIANT))
}

/// The models among `files`, ordered by name.
fn models<'a>(files: &[&'a str]) -> Vec<Model<'a>> {
    let mut models: BTreeMap<(&str, u32), Model<'a>> = BTreeMap::new();
    for &file in files {
        let Some(stem) = stem(file).filter(|stem| !is_companion(stem)) else { continue };
        let (stem, index, count) = split_name(stem).unwrap_or((stem, 1, 1));
        let model = models.entry((stem, count)).or_insert_with(|| Model {
            label: label(stem),
            parts: BTreeMap::new(),
            part_count: count,
        });
        model.parts.insert(index, file);
    }
    models.into_values().collect()
}

/// The path of a GGUF file without its extension.
fn stem(file: &str) -> Option<&str> {
    let at = file.len().checked_sub(".gguf".len())?;
    let (stem, extension) = file.split_at_checked(at)?;
    extension.eq_ignore_ascii_case(".gguf").then_some(stem)
}

/// Returns true if the file is part of a model's equipment, and no language model: a projector for
/// images, or statistics for quantising.
fn is_companion(stem: &str) -> bool {
    let name = name_of(stem);
    name.contains("mmproj") || name.contains("imatrix")
}

/// The name without folders, in lower case.
fn name_of(stem: &str) -> String {
    stem.rsplit('/').next().unwrap_or(stem).to_ascii_lowercase()
}

/// The name, number and count of `NAME-00001-of-00003`.
fn split_name(stem: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, index) = rest.rsplit_once('-')?;
    let number = |digits: &str| {
        let valid = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| valid)
    };
    Some((name, number(index)?, number(count)?))
}

/// The last quantisation in the name, else the name of the file.
fn label(stem: &str) -> String {
    let mut words = stem.rsplit(['-', '.', '/']);
    while let Some(word) = words.next() {
        if let Some(format) = format_of(word) {
            let variant = words.next().is_some_and(|word| word.eq_ignore_ascii_case("UD"));
            return format!("{}{format}", if variant { VARIANT } else { "" });
        }
    }
    stem.rsplit('/').next().unwrap_or(stem).to_owned()
}

/// The format that `word` is, or ends with after an underscore, in upper case.
fn format_of(word: &str) -> Option<String> {
    let word = word.to_ascii_uppercase();
    let starts = std::iter::once(0).chain(word.match_indices('_').map(|(at, _)| at + 1));
    let mut tails = starts.map(|start| &word[start..]);
    let is_format = |text: &str| {
        FORMATS.iter().any(|prefix| {
            let digits = text.strip_prefix(prefix);
            digits.is_some_and(|digits| digits.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    tails.find(|tail| is_format(tail)).map(str::to_owned)
}

/// The first names, separated by commas.
fn first_of(files: &[&str]) -> String {
    const SHOWN: usize = 10;
    let names = files[..files.len().min(SHOWN)].join(", ");
    match files.len().saturating_sub(SHOWN) {
        0 if files.is_empty() => "none".to_owned(),
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPO: [&str; 11] = [
        "README.md",
        "mmproj-F16.gguf",
        "model-BF16-00001-of-00002.gguf",
        "model-BF16-00002-of-00002.gguf",
        "model-IQ4_XS.gguf",
        "model-Q4_K_M.gguf",
        "model-Q8_0.gguf",
        "model-UD-Q4_K_M.gguf",
        "model-UD-Q4_K_XL.gguf",
        "Q6_K/model-00001-of-00002.gguf",
        "broken-Q2_K-00002-of-00002.gguf",
    ];

    #[test]
    fn the_most_precise_projector_is_chosen() {
        assert_eq!(projector(&REPO), Some("mmproj-F16.gguf"));
        let files = ["a.gguf", "mmproj-Q8_0.gguf", "sub/model.MMPROJ-bf16.gguf", "mmproj.txt"];
        assert_eq!(projector(&files), Some("sub/model.MMPROJ-bf16.gguf"));
        assert_eq!(projector(&["mmproj-Q4_0.gguf", "a-Q8_0.gguf"]), Some("mmproj-Q4_0.gguf"));
        assert_eq!(projector(&["a-F16.gguf"]), None);
    }

    #[test]
    fn the_quantisation_chooses_the_files() {
        for (quant, expected) in [
            (None, &["model-Q4_K_M.gguf"][..]),
            (Some("Q8_0"), &["model-Q8_0.gguf"]),
            (Some("q8_0"), &["model-Q8_0.gguf"]),
            (Some("Q4_K_M"), &["model-Q4_K_M.gguf"]),
            (Some("UD-Q4_K_M"), &["model-UD-Q4_K_M.gguf"]),
            (Some("Q4_K_XL"), &["model-UD-Q4_K_XL.gguf"]),
            (Some("bf16"), &["model-BF16-00001-of-00002.gguf", "model-BF16-00002-of-00002.gguf"]),
        ] {
            assert_eq!(choose("o/r", &REPO, quant).unwrap(), expected, "{quant:?}");
        }
    }

    #[test]
    fn without_a_quantisation_there_is_an_order() {
        for (files, expected) in [
            (&["m-F16.gguf", "m-Q8_0.gguf", "m-q4_k_m.gguf"][..], "m-q4_k_m.gguf"),
            (&["m-F16.gguf", "m-Q6_K.gguf", "m.Q8_0.gguf"], "m.Q8_0.gguf"),
            (&["m-Q6_K.gguf", "m-F16.gguf"], "m-F16.gguf"),
            (&["m_Q8_0.gguf", "m-F16.gguf"], "m_Q8_0.gguf"),
            (&["m-Q2_K.gguf", "m-UD-Q4_K_M.gguf"], "m-UD-Q4_K_M.gguf"),
            (&["config.json", "tiny.GGUF"], "tiny.GGUF"),
        ] {
            assert_eq!(choose("o/r", files, None).unwrap(), [expected], "{files:?}");
        }
    }

    #[test]
    fn labels_are_read_from_names() {
        for (stem, expected) in [
            ("Llama-3.2-1B-Instruct-Q4_K_M", "Q4_K_M"),
            ("mixtral-8x7b-v0.1.Q5_K_S", "Q5_K_S"),
            ("qwen2.5-0.5b-instruct-fp16", "FP16"),
            ("gpt-oss-20b-mxfp4", "MXFP4"),
            ("Phi-3-mini-4k-instruct-q4", "Q4"),
            ("model-UD-IQ1_S", "UD-IQ1_S"),
            ("UD-Q2_K_XL/model", "UD-Q2_K_XL"),
            ("model_q4_0", "Q4_0"),
            ("Qwen3-Falcon-7B", "Qwen3-Falcon-7B"),
        ] {
            assert_eq!(label(stem), expected);
        }
    }

    #[test]
    fn an_unknown_quantisation_is_answered_with_those_that_exist() {
        let message = choose("o/r", &REPO, Some("Q3_K")).unwrap_err().to_string();
        let expected = "repository 'o/r' has no quantisation 'Q3_K': choose one of BF16, IQ4_XS, Q4_K_M, \
                        Q8_0, UD-Q4_K_M, UD-Q4_K_XL";
        assert_eq!(message, expected);
    }

    #[test]
    fn a_repository_without_a_whole_model_is_an_error() {
        let message = choose("o/r", &["a.txt", "mmproj.gguf"], None).unwrap_err().to_string();
        let expected = "repository 'o/r' has no GGUF model (files: a.txt, mmproj.gguf): choose a repository with \
                        .gguf files";
        assert_eq!(message, expected);
        for files in
            [&["m-00001-of-00002.gguf"][..], &["m-00001-of-99999.gguf", "m-00000-of-00000.gguf"]]
        {
            let error = choose("o/r", files, None).unwrap_err();
            assert!(matches!(error, Error::MissingParts { .. }), "{error}");
        }
    }
}
