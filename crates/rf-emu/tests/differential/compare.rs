//! Which differences between two emulators are allowed, and a report of all.

use std::collections::BTreeMap;
use std::fmt;

use rf_emu::isa::{Form, OperandType};

use crate::generate::Case;
use crate::inputs::{self, WORDS, WORKGROUPS};

/// The state that a kernel leaves in both emulators: registers, then memory; or why it did not run.
pub(crate) struct Outcome {
    pub(crate) ours: Result<Vec<u32>, String>,
    pub(crate) theirs: Result<Vec<u32>, String>,
}

/// The comparison of a case.
#[derive(Default)]
pub(crate) struct Judgement {
    /// The number of values of the destination that are equal, and that differ as allowed.
    equal: u64,
    allowed: u64,
    /// The differences in which the other emulator contradicts the manual, or the manual LLVM.
    explained: u64,
    /// The other differences, and some of them as text.
    different: u64,
    examples: Vec<String>,
    /// Why the other emulator refuses it.
    refused: Option<String>,
}

/// The distance in units of the last place that a form may have, because the manual gives bounds
/// and not bits.
fn tolerance(form: &str) -> u64 {
    let functions = ["_exp_f", "_log_f", "_rcp_", "_rsq_", "_sqrt_", "_sin_", "_cos_"];
    if functions.iter().any(|function| form.contains(function)) { 2 } else { 0 }
}

/// The forms in which the other emulator is wrong, or the manual leaves the bits open, by the
/// start of their names.
const REASONS: [(&str, &str); 30] = [
    ("s_bfe_i32", "fields of more than 32 bits: the other takes the sign from beyond the value"),
    ("s_cmov_b64", "the other clears the upper half of the destination"),
    ("s_bitset0_b64", "the other changes only the lower half"),
    ("s_bitset1_b64", "the other changes only the lower half"),
    ("v_cvt_i32_f64", "the other does not saturate"),
    ("v_cvt_u32_f64", "the other does not saturate"),
    ("v_cvt_nearest_i32_f32", "the manual rounds the sum with 0.5, the other does not"),
    ("v_rndne_f64", "the other loses the sign of zero, which rint() keeps"),
    ("v_rndne_f16", "the other loses the sign of zero, which rint() keeps"),
    ("v_log_f32", "denormals are read as zero"),
    ("v_sin_", "the other is less exact"),
    ("v_cos_", "the other is less exact"),
    ("v_frexp_", "zero and denormals: frexp() of LLVM is this instruction alone"),
    ("v_fract_", "the result is below 1"),
    ("v_min3_f", "the other treats quiet NaN or zeros not as two minima do"),
    ("v_max3_f", "the other treats quiet NaN or zeros not as two maxima do"),
    ("v_med3_f", "the other treats quiet NaN or zeros not as the manual does"),
    ("v_minmax_f", "the other treats quiet NaN or zeros not as the manual does"),
    ("v_maxmin_f", "the other treats quiet NaN or zeros not as the manual does"),
    ("v_pk_min_f16", "the other ignores signaling NaN in pairs"),
    ("v_pk_max_f16", "the other ignores signaling NaN in pairs"),
    ("v_div_fixup_", "underflow is zero when rounding to nearest; NaN stands for overflow"),
    ("v_ldexp_", "the other multiplies zero with infinity"),
    ("v_div_scale_", "operands that are neither numerator nor denominator"),
    ("v_div_fmas_f32", "rounded once, after scaling"),
    ("v_mad_u64_u32", "the other does not write the carry"),
    ("v_mad_i64_i32", "the other does not write the carry"),
    ("v_dot2_bf16_bf16", "the other computes f16"),
    ("v_exp_f32", "results below the normal range are zero"),
    ("v_cvt_pk_rtz_f16_f32", "the other drops the modifiers of DPP"),
];

fn reason(case: &Case) -> Option<&'static str> {
    let (form, text) = (&*case.form, &*case.text);
    let known = REASONS.iter().find(|(start, _)| form.starts_with(start));
    Some(match known {
        Some((_, reason)) => reason,
        None if form.contains("_co_ci_") => "inactive lanes have no carry",
        None if form.ends_with("_nc_i16") && text.contains("clamp") => {
            "the other does not saturate"
        }
        None if text.contains("clamp") => "a clamped -0 is 0, as the median with 0 and 1 is",
        None if text.contains("op_sel")
            && (form.contains("_dot") || form.starts_with("v_mad_")) =>
        {
            "operands that are not pairs have no halves"
        }
        None if text.contains("neg_") && form.starts_with("v_dot2_f32_") => {
            "the third operand is one f32, with one sign"
        }
        None if text.contains("neg_")
            && (form.starts_with("v_pk_") && !form.ends_with("f16")
                || form.starts_with("v_dot")) =>
        {
            "integers are not negated"
        }
        None if form.starts_with("v_fma_mix") && text.contains(".0") => {
            "a constant that is read as f32 is an f32, the other takes an f16"
        }
        None if form.starts_with("v_pk_fmac") && text.contains('|') => {
            "what DPP's modifiers do to pairs is not documented"
        }
        None if ["min", "max"].iter().any(|op| {
            form.contains(&format!("atomic_{op}_f32"))
                || form.starts_with(&format!("ds_{op}_")) && form.ends_with("f32")
        }) =>
        {
            "a number replaces NaN in memory, as LLVM's atomicrmw fmin and fmax define"
        }
        None => return None,
    })
}

/// The position of a float among all floats, or `None` for NaN.
fn rank(bits: u64, width: u32, mantissa: u32) -> Option<i64> {
    let sign = 1 << (width - 1);
    let magnitude = bits & (sign - 1);
    let infinity = (sign - 1) >> mantissa << mantissa;
    if magnitude > infinity {
        return None;
    }
    Some(if bits & sign == 0 { magnitude as i64 } else { -(magnitude as i64) })
}

/// Returns true if two values of a type are near enough or both NaN.
fn is_near(ours: u64, theirs: u64, (width, mantissa): (u32, u32), tolerance: u64) -> bool {
    match (rank(ours, width, mantissa), rank(theirs, width, mantissa)) {
        (None, None) => true,
        (Some(a), Some(b)) => ours == theirs || tolerance > 0 && a.abs_diff(b) <= tolerance,
        _ => false,
    }
}

/// Compares what a case left.
pub(crate) fn judge(case: &Case, outcome: &Outcome) -> Judgement {
    let mut judgement = Judgement::default();
    let (ours, theirs) = match (&outcome.ours, &outcome.theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (_, Err(reason)) => {
            judgement.refused = Some(reason.lines().next().unwrap_or_default().to_owned());
            return judgement;
        }
        (Err(reason), _) => {
            judgement.different = 1;
            judgement.examples.push(format!("{}: we refuse it: {reason}", case.text));
            return judgement;
        }
    };
    for (at, (&a, &b)) in ours.iter().zip(theirs).enumerate() {
        let place = at % WORDS;
        let is_result = at < WORDS * WORKGROUPS && place < 32 * usize::from(case.dst.registers());
        if a == b {
            judgement.equal += u64::from(is_result);
        } else if is_allowed(case, at, is_result, ours, theirs) {
            judgement.allowed += 1;
        } else if reason(case).is_some() {
            judgement.explained += 1;
        } else {
            judgement.different += 1;
            if judgement.examples.len() < 2 {
                judgement.examples.push(example(case, at, a, b));
            }
        }
    }
    judgement
}

/// The bits and the mantissa of the floats that a case leaves in a register, and whether it leaves
/// them in memory and other registers too.
fn format(case: &Case) -> Option<((u32, u32), bool)> {
    let is_update = ["ds_", "v_dual_"].iter().any(|start| case.form.starts_with(start))
        || case.form.contains("atomic_");
    let name = case.form.split("_rtn").next().unwrap_or_default();
    let last = if name.starts_with("v_wmma") {
        name.split('_').nth(2)
    } else if name.starts_with("v_dual_") || case.form.contains("_f32") && is_update {
        // One half of each pair is a multiplication.
        Some("f32")
    } else if name.contains("pk_fmac") || name.contains("pk_rtz_f16") {
        Some("f16")
    } else {
        match case.dst {
            OperandType::F32 => Some("f32"),
            OperandType::F16 | OperandType::PackedF16 => Some("f16"),
            OperandType::F64 => Some("f64"),
            _ if name.ends_with("bf16_bf16") => Some("bf16"),
            _ => None,
        }
    };
    let format = match last? {
        "f64" => (64, 52),
        "f32" => (32, 23),
        "f16" => (16, 10),
        "bf16" => (16, 7),
        _ => return None,
    };
    Some((format, is_update))
}

fn is_allowed(case: &Case, at: usize, is_result: bool, ours: &[u32], theirs: &[u32]) -> bool {
    let Some((format, everywhere)) = format(case) else { return false };
    if !is_result && !everywhere {
        return false;
    }
    let most = tolerance(&case.form);
    let near = |shift: u32| {
        let part = |word: u32| u64::from(word) >> shift & ((1 << format.0) - 1);
        is_near(part(ours[at]), part(theirs[at]), format, most)
    };
    match format.0 {
        64 => {
            let low = if at % WORDS < 32 { at } else { at - 32 };
            let value = |words: &[u32]| u64::from(words[low]) | u64::from(words[low + 32]) << 32;
            is_near(value(ours), value(theirs), format, most)
        }
        32 => near(0),
        _ => near(0) && near(16),
    }
}

fn example(case: &Case, at: usize, ours: u32, theirs: u32) -> String {
    if at >= WORDS * WORKGROUPS {
        return format!("{}: memory {at}: {ours:08x}, theirs {theirs:08x}", case.text);
    }
    let (workgroup, place) = (at / WORDS, at % WORDS);
    let input = inputs::registers();
    let of = |place: usize| input[workgroup * WORDS + place];
    let name = match (place / 32, place % 32) {
        (register @ 0..32, lane) => format!("v{}, lane {lane}", register + 8),
        (32, at) => format!("s{}", at + 16),
        (_, at) => ["exec", "scc", "vcc", "m0"].get(at).unwrap_or(&"?").to_string(),
    };
    let lane = place % 32;
    let vectors: Vec<_> = [8, 9, 16, 17, 24, 25, 32, 33]
        .iter()
        .map(|register| format!("v{register} {:08x}", of((register - 8) * 32 + lane)))
        .collect();
    let scalars: Vec<_> = [16, 17, 20, 21, 22, 23, 24, 25, 28]
        .iter()
        .map(|register| format!("s{register} {:08x}", of(1024 + register - 16)))
        .collect();
    format!(
        "{}: {name}: {ours:08x}, theirs {theirs:08x} ({}, {}, vcc {:08x}, scc {}, exec {:08x})",
        case.text,
        vectors.join(", "),
        scalars.join(", "),
        of(1024 + 32),
        of(1024 + 34),
        of(1024 + 35),
    )
}

/// The sums of a class of forms.
#[derive(Default)]
struct Class {
    forms: usize,
    cases: u64,
    refused: u64,
    equal: u64,
    allowed: u64,
    explained: u64,
    different: u64,
}

/// The table of classes, and every difference without an explanation.
#[derive(Default)]
pub(crate) struct Report {
    classes: BTreeMap<String, Class>,
    refusals: BTreeMap<String, u64>,
    explained: BTreeMap<(&'static str, String), u64>,
    pub(crate) unexplained: Vec<String>,
}

impl Report {
    pub(crate) fn new(forms: &[Form], cases: &[Case], judgements: &[Judgement]) -> Self {
        let encodings: BTreeMap<_, _> =
            forms.iter().map(|form| (&form.name, format!("{:?}", form.encoding))).collect();
        let mut report = Self::default();
        let mut last = "";
        for (case, judgement) in cases.iter().zip(judgements) {
            let class = report.classes.entry(encodings[&case.form].clone()).or_default();
            class.forms += usize::from(last != case.form);
            last = &case.form;
            class.cases += 1;
            class.equal += judgement.equal;
            class.allowed += judgement.allowed;
            class.explained += judgement.explained;
            class.different += judgement.different;
            if judgement.explained > 0 {
                let reason = reason(case).unwrap_or_default();
                let entry = report.explained.entry((reason, case.form.clone()));
                *entry.or_default() += judgement.explained;
            }
            if let Some(reason) = &judgement.refused {
                class.refused += 1;
                let cause = reason.rsplit(": ").next().unwrap_or(reason);
                let kind = cause.split(" in 0x").next().unwrap_or_default().to_owned();
                *report.refusals.entry(kind).or_default() += 1;
            }
            report.unexplained.extend(judgement.examples.iter().cloned());
        }
        report
    }

    /// The instructions that the other emulator ran.
    pub(crate) fn compared(&self) -> usize {
        self.classes.values().map(|class| (class.cases - class.refused) as usize).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| encoding | forms | instructions | refused | equal | allowed | explained | other |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|")?;
        for (name, class) in &self.classes {
            let Class { forms, cases, refused, equal, allowed, explained, different } = class;
            write!(f, "| {name} | {forms} | {cases} | {refused} | {equal} | {allowed} ")?;
            writeln!(f, "| {explained} | {different} |")?;
        }
        writeln!(f, "explained differences:")?;
        for ((reason, form), count) in &self.explained {
            writeln!(f, "  {reason}: {form}: {count}")?;
        }
        writeln!(f, "refused by the other emulator:")?;
        for (reason, count) in &self.refusals {
            writeln!(f, "  {count} x {reason}")?;
        }
        Ok(())
    }
}
