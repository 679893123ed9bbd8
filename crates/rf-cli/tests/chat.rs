//! Chats at a terminal: commands, keys, and what reaches the screen.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;

use program::chat::{chat, questions, saved, say};
use program::terminal::Terminal;
use program::{demo_model, finish, rf_cli};
use tempfile::TempDir;

#[test]
fn text_of_a_model_is_harmless_at_a_terminal_and_unchanged_in_a_pipe() {
    let folder = TempDir::new().unwrap();
    let grammar = r#"root ::= "\x1b[31mred \x1b]0;pwned\x07 \x1b[2J \x9b5n done""#;
    let arguments = ["run", "-q", "--raw", "--grammar", grammar, "Once"];
    let screen = Terminal::start(rf_cli(folder.path(), &arguments), "xterm").finish().1;
    assert!(screen.contains("\\u{1b}]0;pwned\\u{7} \\u{1b}[2J \\u{9b}5n done"), "{screen}");
    for hostile in ["\x1b[31m", "\x1b]", "\x07", "\x1b[2J", "\u{9b}"] {
        assert!(!screen.contains(hostile), "{}", screen.escape_debug());
    }
    let piped = finish(folder.path(), &arguments).stdout;
    assert_eq!(piped, "\x1b[31mred \x1b]0;pwned\x07 \x1b[2J \u{9b}5n done\n");
}

#[test]
fn lines_of_an_answer_break_at_words_unless_it_is_plain() {
    let folder = TempDir::new().unwrap();
    let arguments = ["run", "-q", "-t", "1", "--temp", "0", "-n", "60", "Tell me a story."];
    let text = finish(folder.path(), &arguments).stdout;
    let shown = |arguments: &[&str]| {
        let command = rf_cli(folder.path(), arguments);
        Terminal::of_width(command, "xterm", 30).finish().1.replace("\r\n", "\n")
    };
    let wrapped = shown(&arguments);
    assert!(wrapped.lines().count() > text.lines().count());
    assert!(wrapped.lines().all(|line| line.chars().count() <= 30), "{wrapped}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&wrapped), words(&text));
    assert_eq!(shown(&[&arguments[..], &["--plain"]].concat()), text);
}

#[test]
fn ctrl_c_stops_a_long_prompt_after_a_batch_and_returns_to_the_chat() {
    let folder = TempDir::new().unwrap();
    // Small batches, so that many follow the first one.
    let mut chat = chat(&folder, &["-ub", "2"]);
    let long = "A fox and a key. ".repeat(100);
    chat.press(format!("{long}\r").as_bytes());
    chat.wait_for(" tokens ");
    chat.wait_for("t/s, ");
    chat.interrupt();
    chat.wait_for("(stopped before the answer: the message is left out)");
    chat.wait_for(">>> ");
    say(&mut chat, "Hi", "");
    assert_eq!(questions(&folder, chat), ["Hi"]);
}

#[test]
fn turns_can_be_retried_edited_and_undone() {
    let folder = TempDir::new().unwrap();
    let mut chat = chat(&folder, &[]);
    say(&mut chat, "/undo", "there is no message to forget");
    say(&mut chat, "/retry", "there is no message to answer");
    say(&mut chat, "/copy", "there is no answer to copy");
    say(&mut chat, "one", "");
    say(&mut chat, "two", "");
    say(&mut chat, "/undo", "the last message is forgotten: 2 messages left");
    say(&mut chat, "three", "");
    chat.press(b"/edit\r");
    chat.wait_for("three");
    // The line is there to be changed.
    say(&mut chat, " foxes", "");
    say(&mut chat, "/retry", "");
    // The sequence of the answer's text, which a terminal puts on its clipboard.
    say(&mut chat, "/copy", "\x1b]52;c;");
    assert_eq!(questions(&folder, chat), ["one", "three foxes"]);
}

#[test]
fn unknown_commands_are_never_sent_and_quoted_messages_are() {
    let folder = TempDir::new().unwrap();
    let mut chat = chat(&folder, &[]);
    say(&mut chat, "/sett temp 5", "unknown command /sett");
    say(&mut chat, "/foo", "unknown command /foo");
    say(&mut chat, "/save", "use it as /save FILE");
    chat.press(b"\"\"\"\r/foo is\r\x1b\ra path\"\"\"\r");
    chat.wait_for("path");
    chat.wait_for(">>> ");
    // Alt-Enter breaks the line.
    say(&mut chat, "two\x1b\rlines", "");
    assert_eq!(questions(&folder, chat), ["/foo is\n\na path", "two\nlines"]);
}

#[test]
fn options_are_set_in_a_chat() {
    let folder = TempDir::new().unwrap();
    let mut chat = chat(&folder, &[]);
    say(&mut chat, "/set", "top-k K");
    say(&mut chat, "/set top_k -1", "set for the next answers: top_k -1");
    say(&mut chat, "/set temp warm", "temp: expected a number, as in 0.8");
    say(&mut chat, "/set warmth 1", "there is no option warmth");
    say(&mut chat, "/set temp", "a value is missing");
    say(&mut chat, "/set top-p 7", "top_p");
    say(&mut chat, "/set predict 1", "set for");
    say(&mut chat, "Hi", "");
    let short = saved(&folder, chat)[1].1.clone();
    let mut chat = program::chat::chat(&folder, &[]);
    say(&mut chat, "Hi", "");
    let long = saved(&folder, chat)[1].1.clone();
    assert!(long.len() > short.len() && long.starts_with(&short), "{long:?} {short:?}");
}

#[test]
fn another_model_continues_the_conversation() {
    let folder = TempDir::new().unwrap();
    fs::copy(demo_model(), folder.path().join("m.gguf")).unwrap();
    let mut chat = chat(&folder, &[]);
    say(&mut chat, "one", "");
    say(&mut chat, "/model", "built-in: ");
    say(&mut chat, "/model missing.gguf", "file 'missing.gguf' does not exist");
    say(&mut chat, "/model m.gguf", "tokens of context");
    say(&mut chat, "/model", "m.gguf: ");
    say(&mut chat, "/image m.gguf", "the model reads no pictures");
    say(&mut chat, "two", "");
    assert_eq!(questions(&folder, chat), ["one", "two"]);
}

#[test]
fn tab_completes_commands_and_files() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("talk.json"), r#"{"messages": []}"#).unwrap();
    let mut chat = chat(&folder, &[]);
    say(&mut chat, "/lo\t ta\t", "the conversation has 0 messages");
    say(&mut chat, "/set freq\t 0.5", "set for the next answers: frequency-penalty 0.5");
    assert!(saved(&folder, chat).is_empty());
}

#[test]
fn a_full_context_forgets_half_and_later_turns_are_cheap() {
    let folder = TempDir::new().unwrap();
    let arguments = ["run", "-t", "1", "-n", "4", "--temp", "0", "-c", "256"];
    let mut command = rf_cli(folder.path(), &arguments);
    command.env("XDG_STATE_HOME", folder.path());
    let mut chat = Terminal::start(command, "xterm");
    chat.wait_for(">>> ");
    let mut computed = Vec::new();
    for turn in 0..30 {
        chat.press(format!("Tell me about fox number {turn}.\r").as_bytes());
        let metrics = chat.wait_for_line("prompt ");
        let tokens = metrics.split_whitespace().next().unwrap();
        computed.push(tokens.parse::<usize>().unwrap());
        chat.wait_for(">>> ");
    }
    chat.press(b"/exit\r");
    let (code, screen) = chat.finish();
    assert_eq!(code, Some(0));
    assert_eq!(screen.matches("from now on the model forgets").count(), 1);
    // Most turns find what came before them in the cache.
    let expensive = computed.iter().filter(|tokens| **tokens > 60).count();
    assert!((1..=6).contains(&expensive), "{computed:?}");
}

#[test]
fn random_keys_do_not_end_a_chat() {
    // Not those that suspend the program, stop the output, or end the chat. Ctrl-C drops what was
    // typed ahead, and three quotation marks hide the end of the test in a text.
    let keys: [&[u8]; 22] = [
        b"a",
        b" ",
        b"fox",
        b"/",
        b"/set temp 1",
        b"/retry",
        b"/undo",
        b"/edit",
        b"/zzz",
        b"\r",
        b"\t",
        b"\x01",
        b"\x05",
        b"\x07",
        b"\x0b",
        b"\x12",
        b"\x17",
        b"\x7f",
        b"\x1b",
        b"\x1b[A",
        b"\x1b[D",
        "\u{e9}\u{1f600}\u{202e}".as_bytes(),
    ];
    let count = std::env::var("ROCFORGE_CHAT_KEYS").map_or(120, |count| count.parse().unwrap());
    let folder = TempDir::new().unwrap();
    let mut random = rf_testing::SplitMix64::new(9);
    let mut chat = chat(&folder, &[]);
    for pressed in 0..count {
        chat.press(keys[random.below(keys.len())]);
        // A terminal drops keys that are not read for long, so the program catches up now and then:
        // the terminal itself echoes a command, but only the program answers it. Ctrl-G ends a
        // search, and Ctrl-U removes what is left in the line.
        if pressed % 20 == 19 {
            chat.press(format!("\x07\x07\r\x05\x15/mark{pressed}\r").as_bytes());
            chat.wait_for(&format!("unknown command /mark{pressed}:"));
        }
    }
    // The conversation is still there, and nothing but questions and their answers is in it.
    chat.press(b"\x07\x07\r");
    let messages = saved(&folder, chat);
    let roles: Vec<_> = messages.iter().map(|(role, _)| &**role).collect();
    assert!(roles.chunks(2).all(|turn| turn == ["user", "assistant"]), "{roles:?}");
}

#[test]
fn an_answer_of_a_chat_goes_on_where_the_context_shifts() {
    let folder = TempDir::new().unwrap();
    for (flags, expected) in [
        (&["--context-shift"][..], "generated 90 tokens"),
        (&[], "the context of 64 tokens is full"),
    ] {
        let arguments = [&["--ignore-eos", "-c", "64"], flags].concat();
        let mut chat = chat(&folder, &arguments);
        say(&mut chat, "/set predict 90", "set for");
        chat.press(b"Tell me a story.\r/stats\r");
        chat.wait_for(expected);
        assert_eq!(questions(&folder, chat), ["Tell me a story."]);
    }
}
