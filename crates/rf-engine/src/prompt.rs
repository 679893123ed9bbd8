//! Token ids of prompts.

use rf_tokenizer::{EncodeOptions, Message, RenderOptions};

use crate::error::Error;
use crate::model::Model;

impl Model {
    /// The ids of a text to continue. An empty text starts from BOS, if the model has one.
    pub fn text_ids(&self, text: &str) -> Vec<u32> {
        let tokenizer = self.tokenizer();
        let mut ids = tokenizer.encode(text, EncodeOptions::PROMPT);
        // EOS would end the text that is to be continued.
        if tokenizer.adds_eos() {
            ids.pop();
        }
        if ids.is_empty() {
            ids.extend(tokenizer.bos());
        }
        ids
    }

    /// The ids of a conversation, rendered with the chat template.
    ///
    /// # Errors
    ///
    /// If the model has no chat template, or a malformed one, or if the template fails or refuses
    /// the messages.
    pub fn chat_ids(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Vec<u32>, Error> {
        let template = self.chat_template().ok_or_else(|| Error::NoChatTemplate {
            reason: self.chat_template_error().map(ToString::to_string).unwrap_or_default(),
        })?;
        Ok(self.rendered_ids(&template.render(messages, options)?))
    }

    /// The ids of a conversation that a chat template rendered.
    pub fn rendered_ids(&self, text: &str) -> Vec<u32> {
        let tokenizer = self.tokenizer();
        let options = EncodeOptions { add_special: false, parse_special: true };
        let mut ids = tokenizer.encode(text, options);
        // Most templates write the BOS token themselves, and two of them would confuse the model.
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.adds_bos())
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }
}
