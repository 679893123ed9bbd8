//! Token ids of prompts.

use rf_chat::{ChatPrompt, Conversation, Prompt};
use rf_tokenizer::EncodeOptions;

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

    /// The prompt of a conversation as text, and how to read the answer.
    ///
    /// # Errors
    ///
    /// If the model has no chat template, or a malformed one, or if the template fails or refuses
    /// the conversation.
    pub fn rendered_prompt(&self, conversation: &Conversation) -> Result<Prompt, Error> {
        let template = self.chat_template().ok_or_else(|| Error::NoChatTemplate {
            reason: self.chat_template_error().map(ToString::to_string).unwrap_or_default(),
        })?;
        Ok(conversation.prompt(template)?)
    }

    /// The prompt of a conversation: its ids, and how to read the answer.
    ///
    /// # Errors
    ///
    /// The errors of [`rendered_prompt`](Self::rendered_prompt).
    pub fn chat_prompt(&self, conversation: &Conversation) -> Result<ChatPrompt, Error> {
        Ok(self.rendered_prompt(conversation)?.tokenized(self.tokenizer()))
    }

    /// The ids of a piece of such a prompt that does not begin it.
    pub fn piece_ids(&self, text: &str) -> Vec<u32> {
        self.tokenizer().encode(text, EncodeOptions::PLAIN.with_parse_special(true))
    }

    /// The ids of a prompt that a chat template rendered.
    pub fn rendered_ids(&self, text: &str) -> Vec<u32> {
        self.tokenizer().encode_rendered(text)
    }
}
