//! A chat at a pseudo terminal.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::rf_cli;
use super::terminal::Terminal;

/// A chat with answers of two tokens, or as the other arguments say. Its prompt is shown.
pub(crate) fn chat(folder: &TempDir, arguments: &[&str]) -> Terminal {
    let arguments = [&["run", "-q", "-t", "1", "-n", "2", "--temp", "0"], arguments].concat();
    let mut command = rf_cli(folder.path(), &arguments);
    command.env("XDG_STATE_HOME", folder.path());
    let mut chat = Terminal::start(command, "xterm");
    chat.wait_for(">>> ");
    chat
}

/// Types a line, and waits for a text and the next prompt.
pub(crate) fn say(chat: &mut Terminal, line: &str, expected: &str) {
    chat.press(format!("{line}\r").as_bytes());
    // The editor shows the line first.
    chat.wait_for("\n");
    if !expected.is_empty() {
        chat.wait_for(expected);
    }
    chat.wait_for(">>> ");
}

/// Saves and ends a chat; returns its messages.
pub(crate) fn saved(folder: &TempDir, mut chat: Terminal) -> Vec<(String, String)> {
    chat.press(b"/save chat.json\r/exit\r");
    let (code, screen) = chat.finish();
    assert_eq!(code, Some(0), "{screen}");
    let text = fs::read(folder.path().join("chat.json")).unwrap();
    let saved: Value = serde_json::from_slice(&text).unwrap();
    let field = |message: &Value, name: &str| message[name].as_str().unwrap().to_owned();
    let messages = saved["messages"].as_array().unwrap().iter();
    messages.map(|message| (field(message, "role"), field(message, "content"))).collect()
}

/// The messages of the user in a saved chat.
pub(crate) fn questions(folder: &TempDir, chat: Terminal) -> Vec<String> {
    let messages = saved(folder, chat).into_iter();
    messages.filter(|(role, _)| role == "user").map(|(_, text)| text).collect()
}
