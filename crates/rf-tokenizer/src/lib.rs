//! Text to token ids and back, special tokens, chat templates.
