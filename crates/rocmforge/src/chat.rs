//! Requests: a conversation to answer, or a text to continue.

use std::borrow::Cow;

use rf_chat::{Conversation, Message, Prompt, Tool, ToolChoice};
use rf_engine::sampling::SamplerConfig;
use rf_engine::scheduler::Constraint;
use rf_engine::{AdapterScales, GenerateOptions};
use rf_grammar::Grammar;

use crate::answer::{Answer, AnswerStream};
use crate::error::Error;
use crate::generation::Job;
use crate::media::{Media, marked_text, media_marker};
use crate::model::Model;

/// A conversation with a model, and how to continue it.
///
/// ```
/// # fn main() -> Result<(), rocmforge::Error> {
/// let model = rocmforge::Model::demo()?;
/// let mut chat = model.chat().user("Tell me a story about a fox.").max_tokens(8);
/// let answer = chat.answer()?;
/// chat = chat.assistant(&answer).user("And then?");
/// assert!(!chat.answer()?.content.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Chat {
    model: Model,
    conversation: Conversation,
    /// The pictures and sounds of all messages.
    files: Vec<Media>,
    /// The marks of files that the next message of the user has.
    marks: String,
    settings: Settings,
}

/// A text and how to continue it, without a chat template.
#[derive(Clone, Debug)]
pub struct Completion {
    model: Model,
    prompt: String,
    files: Vec<Media>,
    settings: Settings,
}

impl Model {
    /// A conversation with the model.
    pub fn chat(&self) -> Chat {
        Chat::new(self.clone())
    }

    /// The continuation of a text, without a chat template.
    pub fn complete(&self, prompt: impl Into<String>) -> Completion {
        Completion::new(self.clone(), prompt.into())
    }
}

/// How to continue a prompt.
#[derive(Clone, Debug)]
struct Settings {
    options: GenerateOptions,
    grammar: Option<Grammar>,
    logprobs: Option<usize>,
    priority: i32,
    adapters: Option<AdapterScales>,
}

impl Settings {
    fn new(model: &Model) -> Self {
        let sampler = model.sampler().clone();
        let options = GenerateOptions::default().with_sampler(sampler);
        Self { options, grammar: None, logprobs: None, priority: 0, adapters: None }
    }

    /// The calls that the answer must have, else the form of its content.
    fn constraint(
        &self,
        model: &Model,
        prompt: Option<&Prompt>,
    ) -> Result<Option<Box<dyn Constraint>>, Error> {
        let demands_call = prompt.is_some_and(|prompt| prompt.tool_choice.demands_call());
        if !demands_call && self.grammar.is_none() {
            return Ok(None);
        }
        let compiler = model.grammar_compiler()?;
        let constraint = compiler.compile_output(prompt, self.grammar.as_ref(), true)?;
        Ok(constraint.map(|constraint| Box::new(constraint) as Box<dyn Constraint>))
    }
}

/// The settings that conversations and texts share.
macro_rules! settings {
    () => {
        /// Generates at most so many tokens. Default: until the model ends or the context is full.
        #[must_use]
        pub fn max_tokens(mut self, tokens: usize) -> Self {
            self.settings.options.max_tokens = Some(tokens);
            self
        }

        /// Divides logits by this temperature; 0 always takes the most probable token.
        #[must_use]
        pub fn temperature(mut self, temperature: f32) -> Self {
            self.settings.options.sampler.temperature = temperature;
            self
        }

        /// Seeds the random numbers, so that the answer can be repeated.
        #[must_use]
        pub fn seed(mut self, seed: u64) -> Self {
            self.settings.options.sampler.seed = Some(seed);
            self
        }

        /// Ends the answer before this text.
        #[must_use]
        pub fn stop(mut self, text: impl Into<String>) -> Self {
            self.settings.options.stop.push(text.into());
            self
        }

        /// Replaces all parameters of sampling.
        #[must_use]
        pub fn sampler(mut self, config: SamplerConfig) -> Self {
            self.settings.options.sampler = config;
            self
        }

        /// Replaces all options of the generation, sampling included.
        #[must_use]
        pub fn options(mut self, options: GenerateOptions) -> Self {
            self.settings.options = options;
            self
        }

        /// Restricts the answer to a JSON schema, a grammar, a regular expression or choices.
        #[must_use]
        pub fn grammar(mut self, grammar: Grammar) -> Self {
            self.settings.grammar = Some(grammar);
            self
        }

        /// Returns the log probability of each token, with so many alternatives.
        #[must_use]
        pub fn logprobs(mut self, alternatives: usize) -> Self {
            self.settings.logprobs = Some(alternatives);
            self
        }

        /// Starts before requests of a lower priority. Default 0.
        #[must_use]
        pub fn priority(mut self, priority: i32) -> Self {
            self.settings.priority = priority;
            self
        }

        /// Sets how much each adapter of the model changes the answer. Default:
        /// [`Model::adapter_scales`].
        #[must_use]
        pub fn adapters(mut self, scales: AdapterScales) -> Self {
            self.settings.adapters = Some(scales);
            self
        }

        /// Starts the answer. It arrives piece by piece, for an iterator or an async stream.
        ///
        /// # Errors
        ///
        /// If the prompt is invalid or does not fit, an option is invalid, a schema is not
        /// supported, or too many requests wait.
        pub fn stream(&self) -> Result<AnswerStream, Error> {
            let job = self.job()?;
            Ok(AnswerStream::new(self.model.submit(vec![job])?))
        }

        /// Waits for the whole answer. It blocks the thread.
        ///
        /// # Errors
        ///
        /// The errors of [`stream`](Self::stream), and if the model fails.
        pub fn answer(&self) -> Result<Answer, Error> {
            self.stream()?.answer()
        }

        /// The whole answer, for async code. It needs no particular runtime.
        ///
        /// # Errors
        ///
        /// The errors of [`answer`](Self::answer).
        pub async fn answer_async(&self) -> Result<Answer, Error> {
            self.stream()?.answer_async().await
        }
    };
}

impl Chat {
    pub(crate) fn new(model: Model) -> Self {
        let settings = Settings::new(&model);
        let (conversation, files, marks) = (Conversation::default(), Vec::new(), String::new());
        Self { model, conversation, files, marks, settings }
    }

    settings!();

    /// Adds a system message.
    #[must_use]
    pub fn system(self, text: impl Into<String>) -> Self {
        self.message(Message::new("system", text))
    }

    /// Adds a message of the user.
    #[must_use]
    pub fn user(mut self, text: impl Into<String>) -> Self {
        let marks = std::mem::take(&mut self.marks);
        self.message(Message::new("user", marks + &text.into()))
    }

    /// Adds a picture, the bytes of a PNG, JPEG, WebP, GIF or BMP file, to the next message of the
    /// user, before its text. The model needs a projector: see
    /// [`Loader::mmproj`](crate::Loader::mmproj).
    ///
    /// ```no_run
    /// let model = rocmforge::Model::load("Qwen3-VL-8B-Instruct-Q4_K_M.gguf")?;
    /// let picture = std::fs::read("cat.jpg")?;
    /// let answer = model.chat().image(picture).user("What is on this picture?").answer()?;
    /// println!("{}", answer.content);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn image(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push(Media::image(bytes.into()));
        self.marks.push_str(media_marker());
        self
    }

    /// Adds a sound, the bytes of a WAV or MP3 file, to the next message of the user, before its
    /// text. The model needs a projector with an audio encoder: see
    /// [`Loader::mmproj`](crate::Loader::mmproj).
    ///
    /// ```no_run
    /// let model = rocmforge::Model::load("ultravox-v0_5-llama-3_1-8b-Q4_K_M.gguf")?;
    /// let sound = std::fs::read("question.wav")?;
    /// let answer = model.chat().audio(sound).user("Answer the question.").answer()?;
    /// println!("{}", answer.content);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn audio(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push(Media::audio(bytes.into()));
        self.marks.push_str(media_marker());
        self
    }

    /// Adds an answer of the model, with its reasoning and its tool calls.
    #[must_use]
    pub fn assistant(self, answer: &Answer) -> Self {
        self.message(answer.clone().into())
    }

    /// Adds the result of a tool call.
    #[must_use]
    pub fn tool_result(self, call_id: impl Into<String>, result: impl Into<String>) -> Self {
        let tool_call_id = Some(call_id.into());
        self.message(Message { tool_call_id, ..Message::new("tool", result) })
    }

    /// Adds a message.
    #[must_use]
    pub fn message(mut self, message: Message) -> Self {
        self.conversation.messages.push(message);
        self
    }

    /// Offers a tool, which the answer may call.
    #[must_use]
    pub fn tool(mut self, tool: Tool) -> Self {
        self.conversation.tools.push(tool);
        self
    }

    /// Says which calls the answer may or must have. Default: the model decides.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.conversation.tool_choice = choice;
        self
    }

    /// Says how much the model reasons, as in `low` or `none`, if its template knows that.
    #[must_use]
    pub fn reasoning_effort(mut self, effort: impl Into<String>) -> Self {
        self.conversation.reasoning_effort = Some(effort.into());
        self
    }

    /// Replaces the whole conversation.
    #[must_use]
    pub fn conversation(mut self, conversation: Conversation) -> Self {
        self.conversation = conversation;
        self
    }

    /// The prompt: the text that the chat template makes of the conversation. The first thing to
    /// look at when a model answers strangely.
    ///
    /// ```
    /// # fn main() -> Result<(), rocmforge::Error> {
    /// # #[cfg(feature = "demo-model")] {
    /// let chat = rocmforge::Model::demo()?.chat().user("Hello!");
    /// assert!(chat.prompt()?.contains("Hello!"));
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the template fails, or the model has none.
    pub fn prompt(&self) -> Result<String, Error> {
        Ok(self.model.file().rendered_prompt(&self.whole_conversation())?.text)
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.conversation.messages
    }

    /// Answers with a value of a Rust type: the schema of the type restricts the answer. It blocks
    /// the thread.
    ///
    /// # Errors
    ///
    /// The errors of [`answer`](Self::answer), and if the answer is cut off before its end.
    #[cfg(feature = "schema")]
    pub fn generate<T>(&self) -> Result<T, Error>
    where
        T: schemars::JsonSchema + serde::de::DeserializeOwned,
    {
        self.clone().with_schema_of::<T>().answer()?.value()
    }

    /// [`generate`](Self::generate) for async code.
    ///
    /// # Errors
    ///
    /// The errors of [`generate`](Self::generate).
    #[cfg(feature = "schema")]
    pub async fn generate_async<T>(&self) -> Result<T, Error>
    where
        T: schemars::JsonSchema + serde::de::DeserializeOwned,
    {
        self.clone().with_schema_of::<T>().answer_async().await?.value()
    }

    #[cfg(feature = "schema")]
    fn with_schema_of<T: schemars::JsonSchema>(self) -> Self {
        use schemars::generate::SchemaSettings;
        use schemars::transform::RecursiveTransform;

        let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(closed));
        let schema = settings.into_generator().into_root_schema_for::<T>();
        self.grammar(Grammar::JsonSchema(schema.to_value()))
    }

    /// The conversation, with a last message of the pictures after which no text came.
    fn whole_conversation(&self) -> Cow<'_, Conversation> {
        let mut conversation = Cow::Borrowed(&self.conversation);
        if !self.marks.is_empty() {
            let message = Message::new("user", self.marks.as_str());
            conversation.to_mut().messages.push(message);
        }
        conversation
    }

    fn job(&self) -> Result<Job, Error> {
        let prompt = self.model.file().chat_prompt(&self.whole_conversation())?;
        let constraint = self.settings.constraint(&self.model, Some(&prompt.prompt))?;
        let mixed = match &*self.files {
            [] => prompt.ids.clone().into(),
            files => self.model.prompt_with_media(&prompt.prompt.text, files)?,
        };
        let Settings { options, logprobs, priority, adapters, .. } = &self.settings;
        let job = Job::chat(prompt, options.clone()).with_adapters(adapters.clone());
        Ok(Job { prompt: mixed, constraint, logprobs: *logprobs, priority: *priority, ..job })
    }
}

/// Allows no other properties than those of the type. They would be read into nothing, and a small
/// model continues to invent them.
#[cfg(feature = "schema")]
fn closed(schema: &mut schemars::Schema) {
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
}

impl Completion {
    pub(crate) fn new(model: Model, prompt: String) -> Self {
        let settings = Settings::new(&model);
        Self { model, prompt, files: Vec::new(), settings }
    }

    /// Adds a picture, which takes the place of the next `<__media__>` in the text. Without any,
    /// pictures and sounds are before the text.
    #[must_use]
    pub fn image(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push(Media::image(bytes.into()));
        self
    }

    /// Adds a sound, as [`Self::image`] adds a picture.
    #[must_use]
    pub fn audio(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push(Media::audio(bytes.into()));
        self
    }

    settings!();

    fn job(&self) -> Result<Job, Error> {
        let Settings { options, logprobs, priority, adapters, .. } = &self.settings;
        let prompt = match &*self.files {
            [] => self.model.file().text_ids(&self.prompt).into(),
            files => {
                let text = marked_text(&self.prompt, files.len());
                self.model.prompt_with_media(&text, files)?
            }
        };
        let constraint = self.settings.constraint(&self.model, None)?;
        let job = Job::text(prompt, options.clone()).with_adapters(adapters.clone());
        Ok(Job { constraint, logprobs: *logprobs, priority: *priority, ..job })
    }
}
