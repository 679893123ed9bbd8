//! Command lines that nobody would type: the program says what is wrong, and never panics.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use rf_testing::SplitMix64;

use crate::cli::Cli;
use crate::{failure, flags, usage};

/// Random lines per run, unless this variable has another number.
const LINES: (&str, usize) = ("ROCFORGE_COMMAND_LINES", 1000);

/// Values that are wrong for most options.
const ODD: [&str; 30] = [
    "zzz",
    "",
    " ",
    "-",
    "--",
    "-1",
    "-0",
    "0",
    "1",
    "1.5",
    "1e99",
    "NaN",
    "-inf",
    "0x10",
    "1,2",
    "99999999999999999999",
    "-99999999999999999999",
    "½",
    "٣",
    "😀",
    "\u{1b}[31m",
    "a=b",
    "=",
    "a:b",
    "@no-file",
    "m.gguf",
    "no/such/folder/x",
    "on",
    "{\"a\": 1}",
    "root ::= \"a\"",
];

/// Words of libraries, which name neither the kind of the value nor the cure.
const RAW: [&str; 9] = [
    "invalid digit",
    "invalid float",
    "cannot parse",
    "too large to fit",
    "too small to fit",
    "provided string was",
    " is not in ",
    "NoExtensionBias",
    "ParseIntError",
];

#[test]
fn wrong_values_of_every_option_are_named_in_our_words() {
    let cli = flags::configured(Cli::command());
    let mut refused = 0;
    for (words, command) in commands(&cli) {
        for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let Some(long) = arg.get_long() else { continue };
            for value in ODD {
                let flag = format!("--{long}={value}");
                let line = words.iter().map(String::as_str).chain([&*flag]);
                let line: Vec<_> = ["rf-cli"].into_iter().chain(line).map(OsString::from).collect();
                if let Some(message) = refusal(&cli, &line) {
                    refused += usize::from(value == "zzz");
                    let is_named = message.contains(&format!("--{long}"));
                    let is_raw = RAW.iter().any(|raw| message.contains(raw));
                    assert!(
                        is_named && !is_raw && !message.contains('\u{1b}'),
                        "{line:?}: {message}"
                    );
                }
            }
        }
    }
    assert!(refused > 200, "{refused} options refuse a word that is no value");
}

/// The message for a value that is refused. Other errors, such as a missing argument, are none.
fn refusal(cli: &Command, line: &[OsString]) -> Option<String> {
    let arguments = flags::prepare(line.to_vec(), cli).ok()?;
    let error = cli.clone().try_get_matches_from(&arguments).err()?;
    let is_value = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
    let explained = usage::explained(&error, cli, &arguments).filter(|_| is_value)?;
    assert_eq!(failure::exit_code(&explained), 2, "{line:?}");
    Some(failure::sentence(&explained))
}

#[test]
fn random_lines_are_understood_or_explained() {
    let (variable, most) = LINES;
    let count = std::env::var(variable).map_or(most, |count| count.parse().expect("a number"));
    let cli = flags::configured(Cli::command());
    let all = commands(&cli);
    let mut random = SplitMix64::new(47);
    let mut understood = 0;
    for _ in 0..count {
        let line = random_line(&all, &mut random);
        let code = catch_unwind(AssertUnwindSafe(|| exit_code(&cli, &line)));
        let code = code.unwrap_or_else(|_| panic!("a panic: {line:?}"));
        assert!(matches!(code, 0 | 2), "{code}: {line:?}");
        understood += usize::from(code == 0);
    }
    println!("{count} random lines, {understood} of them understood");
    assert!(understood > count / 50, "{understood} of {count}");
}

/// The exit code of a line as far as its arguments decide it: 0 if a command would run.
fn exit_code(cli: &Command, line: &[OsString]) -> i32 {
    let explained = |error| {
        assert!(!failure::sentence(&error).is_empty());
        i32::from(failure::exit_code(&error))
    };
    let arguments = match flags::prepare(line.to_vec(), cli) {
        Ok(arguments) => arguments,
        Err(error) => return explained(error),
    };
    match cli.clone().try_get_matches_from(&arguments) {
        Ok(matches) => {
            Cli::from_arg_matches(&matches).map_or_else(|error| error.exit_code(), |_| 0)
        }
        Err(error) => match usage::explained(&error, cli, &arguments) {
            Some(error) => explained(error),
            None => error.exit_code(),
        },
    }
}

/// The words of every command, each before those within it.
fn commands(cli: &Command) -> Vec<(Vec<String>, &Command)> {
    let inner = cli.get_subcommands().flat_map(|command| {
        let name = command.get_name().to_owned();
        let within = commands(command).into_iter().map({
            let name = name.clone();
            move |(words, command)| ([vec![name.clone()], words].concat(), command)
        });
        [(vec![name], command)].into_iter().chain(within).collect::<Vec<_>>()
    });
    inner.collect()
}

fn random_line(commands: &[(Vec<String>, &Command)], random: &mut SplitMix64) -> Vec<OsString> {
    let (words, command) = &commands[random.below(commands.len())];
    let mut line = vec!["rf-cli".to_owned()];
    // Now and then without a command, or with that of another line.
    match random.below(20) {
        0 => {}
        1 => line.extend(commands[random.below(commands.len())].0.iter().cloned()),
        _ => line.extend(words.iter().cloned()),
    }
    let args: Vec<&Arg> = command.get_arguments().collect();
    for _ in 0..random.below(6) {
        let odd = ODD[random.below(ODD.len())].to_owned();
        let Some(arg) = args.get(random.below(args.len())).filter(|_| random.below(5) > 0) else {
            line.push(odd);
            continue;
        };
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        let flag = if random.below(3) == 0 { short.or(long) } else { long.or(short) };
        let default = arg.get_default_values().first().and_then(|value| value.to_str());
        let value = match (default, random.below(2)) {
            (Some(default), 0) => default.to_owned(),
            (None, 0) => "5".to_owned(),
            _ => odd,
        };
        match (flag, random.below(4)) {
            (Some(flag), 0) => line.push(format!("{flag}={value}")),
            (Some(flag), 1) => line.push(flag),
            (Some(flag), _) if arg.get_action().takes_values() => line.extend([flag, value]),
            (Some(flag), _) => line.push(flag),
            (None, _) => line.push(value),
        }
    }
    let mut line: Vec<_> = line.into_iter().map(OsString::from).collect();
    if random.below(50) == 0 {
        use std::os::unix::ffi::OsStringExt;
        line.push(OsString::from_vec(vec![b'-', 0xff, b'x']));
    }
    line
}
