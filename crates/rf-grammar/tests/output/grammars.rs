//! Regular expressions, choices, Lark and GBNF.

use std::sync::Arc;

use rf_engine::scheduler::Constraint;
use rf_grammar::{Error, Grammar, GrammarCompiler, Tokenizer};
use rf_testing::SplitMix64 as Random;
use rf_tokenizer::{EncodeOptions, VocabConfig};
use serde_json::json;

use crate::sampling::{COMPILER, TOKENIZER, sample};

/// Returns true if the grammar accepts the whole text, byte by byte.
fn accepts(grammar: &Grammar, text: &str) -> bool {
    let mut constraint = COMPILER.compile(grammar).unwrap();
    for byte in text.bytes() {
        let ids = TOKENIZER.encode_bytes(&[byte], EncodeOptions::PLAIN);
        if constraint.is_finished() || constraint.accept(ids[0]).is_err() {
            return false;
        }
    }
    constraint.is_finished() || constraint.allowed().unwrap().allows(TOKENIZER.eos().unwrap())
}

fn check(grammar: &Grammar, accepted: &[&str], rejected: &[&str]) {
    for text in accepted {
        assert!(accepts(grammar, text), "{grammar:?} does not accept {text:?}");
    }
    for text in rejected {
        assert!(!accepts(grammar, text), "{grammar:?} accepts {text:?}");
    }
}

#[test]
fn regular_expressions_and_choices() {
    let regex = Grammar::Regex(r"[a-z]+/\d{2}|é".to_owned());
    check(&regex, &["ab/12", "é"], &["ab/1", "ab/123", "", "è"]);
    let choice = Grammar::Choice(["yes", "no \"never\"\n", "yes sir"].map(String::from).into());
    check(&choice, &["yes", "yes sir", "no \"never\"\n"], &["no", "yes ", "y"]);
    assert!(matches!(COMPILER.compile(&Grammar::Choice(vec![])), Err(Error::NoChoice)));
}

#[test]
fn gbnf_accepts_what_llama_cpp_accepts() {
    let gbnf = |text: &str| {
        let grammar = Grammar::of_text(text);
        assert!(matches!(grammar, Grammar::Gbnf(_)));
        grammar
    };
    // The parts overlap: only trying all of them finds the fitting one.
    check(&gbnf("root ::= [a-z]* \"abc\""), &["abc", "abcabc", "xyzabc"], &["ab", "abcd"]);
    check(&gbnf("root ::= (\"ab\" | \"abc\") \"c\"?"), &["ab", "abc", "abcc"], &["a", "abccc"]);
    check(
        &gbnf(
            "root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= num | \"(\" expr \")\"\nnum ::= [0-9]+",
        ),
        &["1", "12+(3*4)", "((1))"],
        &["", "1+", "(1", "1)"],
    );
    check(
        &gbnf("root ::= \"é\" [^\\n\"] . \"x\"{2,3}\n# the end"),
        &["éabxx", "é🦙\nxxx"],
        &["é\nbxx", "éabx", "éabxxxx"],
    );
    check(&gbnf("root ::= \"\" | \"a\"{2,}"), &["", "aa", "aaaa"], &["a"]);
    check(
        &gbnf("root ::= list\nlist ::= \"- \" item+\nitem ::= [^\\n]+ \"\\n\""),
        &["- a b\n", "- a\nb\n"],
        &["- \n", "- a"],
    );
}

#[test]
fn lark_grammars() {
    let lark = Grammar::of_text("start: \"a\" NUMBER\nNUMBER: /[0-9]+/");
    check(&lark, &["a1", "a123"], &["a", "1"]);
    check(&Grammar::of_text("start: \"x ::= 1\""), &["x ::= 1"], &["x"]);
    let error = COMPILER.compile(&Grammar::of_text("start: \"a\"\n  | nothing(")).unwrap_err();
    assert!(matches!(&error, Error::Lark(problem) if problem.contains("2(")), "{error}");
    assert!(COMPILER.compile(&Grammar::Regex("(".to_owned())).is_err());
}

#[test]
fn small_grammars_that_take_long_to_compile_are_refused() {
    let intersection = |parts: usize| {
        let parts: Vec<_> = (0..parts).map(|i| format!("/(.*a{i}.*b)+/")).collect();
        Grammar::Lark(format!("start: S\nS: {}", parts.join(" & ")))
    };
    let patterns = |count: usize| {
        let parts: Vec<_> = (0..count).map(|i| json!({ "pattern": format!("x{i}") })).collect();
        Grammar::JsonSchema(json!({ "type": "string", "allOf": parts }))
    };
    let references = (0..1990).fold("root ::= r0\n".to_owned(), |rules, i| {
        let parts: Vec<_> = (0..12).map(|j| format!("r{}", (i * 7 + j * 13 + 1) % 1990)).collect();
        rules + &format!("r{i} ::= {} | \"a\"\n", parts.join(" | "))
    });
    for (grammar, limit) in [
        (intersection(20), "the number of operators & and ~"),
        (intersection(3000), "the number of operators & and ~"),
        (patterns(30), "the number of merged patterns"),
        (
            Grammar::Regex("(a|b)?".repeat(40_000)),
            "the number of repetitions in a regular expression",
        ),
        (
            Grammar::Lark(format!("start: /{}/", "(a|b)?".repeat(2000))),
            "the number of repetitions in a regular expression",
        ),
        (
            Grammar::JsonSchema(json!({ "pattern": "(a|b)?".repeat(2000) })),
            "the number of repetitions in a regular expression",
        ),
        (
            Grammar::Gbnf(format!("root ::= \"a\"{}", "*".repeat(200_000))),
            "the number of repetitions in a row",
        ),
        (
            Grammar::Gbnf(format!("root ::= {}", "(\"a\" | \"b\")?".repeat(20_000))),
            "the number of repetitions",
        ),
        (Grammar::Gbnf(references), "the number of references to rules"),
    ] {
        match COMPILER.compile(&grammar) {
            Err(Error::TooLarge { quantity, .. }) => assert_eq!(quantity, limit),
            other => panic!("{limit}: {other:?}"),
        }
    }
    COMPILER.compile(&patterns(5)).unwrap();
    check(
        &Grammar::Lark("start: S\nS: /[a-f]+/ & /[d-z]+/ & ~/e+/".into()),
        &["d", "fe"],
        &["a", "e"],
    );
}

#[test]
fn copies_of_a_constraint_go_their_own_way() {
    let mut first = COMPILER.compile(&Grammar::Regex("[ab]c|dc".to_owned())).unwrap();
    let mut second = first.fork();
    let id = |text: &str| TOKENIZER.id_of(text).unwrap();
    first.accept(id("a")).unwrap();
    assert!(second.allowed().unwrap().allows(id("d")));
    assert!(!first.allowed().unwrap().allows(id("d")));
    assert_eq!(first.forced(), [id("c")]);
    second.accept(id("d")).unwrap();
    second.accept(id("c")).unwrap();
    assert!(second.is_finished() && !first.is_finished());
    assert!(first.accept(id("a")).is_err());
}

#[test]
fn no_text_is_forced_that_the_vocabulary_cannot_write() {
    let tokens = ["</s>", "a", "b", "c"];
    let tokenizer = Tokenizer::new(
        VocabConfig::default()
            .with_model("gpt2")
            .with_tokens(tokens.map(String::from).into())
            .with_merges(vec!["a b".into()])
            .with_eos_token_id(Some(0)),
    );
    let compiler = GrammarCompiler::new(&Arc::new(tokenizer.unwrap())).unwrap();
    // No token has the x, which encoding leaves out.
    let mut constraint = compiler.compile(&Grammar::Regex("[ab]xc".into())).unwrap();
    constraint.accept(1).unwrap();
    assert!(constraint.forced().is_empty());
    assert!(constraint.allowed().is_err());
}

#[test]
fn control_tokens_are_no_text() {
    let mut random = Random::new(3);
    for _ in 0..20 {
        let text =
            sample(COMPILER.compile(&Grammar::Regex(".{1,200}".into())).unwrap(), &mut random);
        assert!(!text.contains("[TOOL_CALLS]") && !text.contains("<|im_end|>"), "{text}");
    }
}
