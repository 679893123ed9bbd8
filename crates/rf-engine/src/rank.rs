//! The input of a reranker: a query and a document as one sequence of tokens.

use rf_tokenizer::EncodeOptions;

use crate::error::Error;
use crate::model::Model;

impl Model {
    /// The tokens of a query and a document, for [`Engine::embed`](crate::Engine::embed) with
    /// [`Pooling::Rank`](crate::Pooling::Rank): the file's template for reranking, or else, as BERT
    /// has it, `[CLS] query [SEP] document [SEP]`, with the marks that the tokenizer adds.
    ///
    /// # Errors
    ///
    /// If the template or a key of the tokenizer is no text or flag.
    pub fn rank_ids(&self, query: &str, document: &str) -> Result<Vec<u32>, Error> {
        let (metadata, tokenizer) = (self.gguf().metadata(), self.tokenizer());
        if let Some(template) = metadata.str("tokenizer.chat_template.rerank")? {
            let options = EncodeOptions::PLAIN.with_parse_special(true);
            return Ok(tokenizer.encode(&filled(template, query, document), options));
        }
        let options = EncodeOptions::PLAIN.with_add_special(true);
        let mut ids = tokenizer.encode(query, options);
        // RoBERTa has a second mark between the texts.
        let has_second_mark = metadata.bool("tokenizer.ggml.add_sep_token")?.unwrap_or(false);
        let ends_with_eos = tokenizer.adds_eos() && ids.last().copied() == tokenizer.eos();
        ids.extend(tokenizer.sep().filter(|_| has_second_mark && ends_with_eos));
        let document = tokenizer.encode(document, options);
        ids.extend(document.into_iter().skip(usize::from(tokenizer.adds_bos())));
        Ok(ids)
    }
}

/// The template with both texts in place. Names within the texts stay as they are.
fn filled(template: &str, query: &str, document: &str) -> String {
    let parts = template.split("{query}").map(|part| part.replace("{document}", document));
    parts.collect::<Vec<_>>().join(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_look_like_the_template_stay_as_they_are() {
        let text = filled("Q: {query} D: {document} ({query})", "{document}?", "{query}!");
        assert_eq!(text, "Q: {document}? D: {query}! ({document}?)");
    }
}
