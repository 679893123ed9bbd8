//! A slow-down planted in some ops, for tests of what is to find slow-downs. Only with the feature `slow-down`.
//!
//! `ROCFORGE_SLOW_DOWN=matmul:Q4_0=1.5,attention=3` makes every product with a `Q4_0` weight take half as long again, and
//! every attention three times as long. An op is named as in profiles ([`Op::name`]); the format is that of one of its
//! weights or, of what reads or writes the cache, that of the cache.

use std::env;
use std::hint::spin_loop;
use std::time::Instant;

use rf_graph::{BackendError, DType, Op, Program, WeightId};

const VARIABLE: &str = "ROCFORGE_SLOW_DOWN";

/// How many times longer each step takes.
pub(super) struct SlowDown {
    /// By step.
    factors: Vec<f64>,
}

impl SlowDown {
    /// What the environment asks for.
    ///
    /// # Errors
    ///
    /// [`BackendError::Device`] where it asks for nothing that can be understood.
    pub(super) fn from_env(program: &Program) -> Result<Self, BackendError> {
        let text = match env::var(VARIABLE) {
            Ok(text) => text,
            Err(env::VarError::NotPresent) => String::new(),
            Err(error) => return Err(BackendError::Device(format!("{VARIABLE}: {error}"))),
        };
        let rules = parse(&text).map_err(|rule| {
            let form = "OP=FACTOR or OP:FORMAT=FACTOR, the factor from 1 on";
            BackendError::Device(format!("{VARIABLE}: '{rule}' is not {form}"))
        })?;
        let factors = program.graph.ops().iter().map(|op| factor(&rules, op, program)).collect();
        Ok(Self { factors })
    }

    /// Lets the time pass that a member's part of a step is to take beyond what it did since `started`: before the
    /// barrier behind the step, so that all wait for the slowest.
    pub(super) fn prolong(&self, step: usize, started: Instant) {
        let factor = self.factors[step];
        if factor > 1.0 {
            let until = started + started.elapsed().mul_f64(factor);
            while Instant::now() < until {
                spin_loop();
            }
        }
    }
}

/// `op[:format]=factor`.
#[derive(Debug, PartialEq)]
struct Rule<'a> {
    op: &'a str,
    format: Option<&'a str>,
    factor: f64,
}

/// Rules between commas, or the one that is none.
fn parse(text: &str) -> Result<Vec<Rule<'_>>, &str> {
    let rules = text.split(',').filter(|_| !text.is_empty()).map(|rule| {
        let (what, factor) = rule.split_once('=').ok_or(rule)?;
        let (op, format) = match what.split_once(':') {
            Some((op, format)) => (op, Some(format)),
            None => (what, None),
        };
        let factor: f64 = factor.parse().map_err(|_| rule)?;
        // A factor beyond this would be a hang.
        let sensible = (1.0..=1000.0).contains(&factor);
        let named = !op.is_empty() && format != Some("");
        if sensible && named { Ok(Rule { op, format, factor }) } else { Err(rule) }
    });
    rules.collect()
}

fn factor(rules: &[Rule<'_>], op: &Op, program: &Program) -> f64 {
    let of_weight = |id: &WeightId| program.weights[id.index()].dtype();
    let formats: Vec<&str> = match op {
        Op::Embed { table, .. } => vec![of_weight(table).name()],
        Op::MatMul(m) => m.projections.iter().map(|p| of_weight(&p.weight).name()).collect(),
        Op::ExpertMatMul { weights, .. } => {
            weights.iter().map(of_weight).map(DType::name).collect()
        }
        Op::Attention { .. } | Op::KvAppend { .. } | Op::RopeAppend { .. } => {
            vec![program.kv.dtype.name()]
        }
        _ => Vec::new(),
    };
    let applies = |rule: &&Rule<'_>| {
        let has = |wanted: &str| formats.iter().any(|format| format.eq_ignore_ascii_case(wanted));
        rule.op == op.name() && rule.format.is_none_or(has)
    };
    rules.iter().filter(applies).map(|rule| rule.factor).product()
}

#[cfg(test)]
mod tests {
    use rf_graph::conformance::cases;

    use super::*;

    #[test]
    fn rules_are_read() {
        let rule = |op, format, factor| Rule { op, format, factor };
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(parse("matmul=2"), Ok(vec![rule("matmul", None, 2.0)]));
        let two = [rule("rms_norm+matmul", Some("Q4_0"), 1.5), rule("attention", None, 3.0)];
        assert_eq!(parse("rms_norm+matmul:Q4_0=1.5,attention=3"), Ok(two.into()));
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for rule in ["matmul", "=2", "matmul:=2", "matmul=", "matmul=fast", "matmul=0.5"] {
            assert_eq!(parse(rule), Err(rule));
            assert_eq!(parse(&format!("add=2,{rule}")), Err(rule));
        }
        for factor in ["NaN", "inf", "-1", "1e9"] {
            assert!(parse(&format!("matmul={factor}")).is_err(), "{factor}");
        }
        assert_eq!(parse("matmul=2,"), Err(""));
    }

    #[test]
    fn a_rule_is_for_the_ops_and_formats_that_it_names() {
        let factors = |case: &str, rules: &str| -> Vec<(&'static str, f64)> {
            let case = cases().into_iter().find(|c| c.name() == case).unwrap();
            let (program, rules) = (case.program(), parse(rules).unwrap());
            let ops = program.graph.ops().iter();
            ops.map(|op| (op.name(), factor(&rules, op, &program))).collect()
        };
        let product = "matmul/Q4_0/1x96";
        assert_eq!(factors(product, "matmul=2"), [("embed", 1.0), ("matmul", 2.0)]);
        assert_eq!(factors(product, "matmul:q4_0=2,matmul=3")[1], ("matmul", 6.0));
        assert_eq!(factors(product, "matmul:Q8_0=2,attention=2")[1], ("matmul", 1.0));
        let attention = factors("attention/sinks/q8_0", "attention:q8_0=2,kv_append:f16=2");
        assert!(attention.contains(&("attention", 2.0)) && attention.contains(&("kv_append", 1.0)));
    }
}
