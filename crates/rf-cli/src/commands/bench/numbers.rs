//! Values of options: numbers and ranges of numbers.

use std::str::FromStr;

/// A number, or a range of numbers as in llama-bench: `first-last`, `first-last+step` or
/// `first-last*factor`.
#[derive(Clone, Debug)]
pub(super) struct Numbers(Vec<i64>);

impl Numbers {
    /// The numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        self.0.iter().copied()
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MOST: usize = 1000;
        const EXPECTED: &str =
            "expected a number, or a range as in 512-2048, 128-512+128 or 1-64*2";
        let number = |text: &str| text.trim().parse::<i64>().map_err(|_| EXPECTED.to_owned());
        let dash = text.char_indices().skip(1).find(|(_, c)| *c == '-').map(|(at, _)| at);
        let Some(dash) = dash else { return Ok(Self(vec![number(text)?])) };
        let (first, rest) = (number(&text[..dash])?, &text[dash + 1..]);
        let (last, next): (i64, Box<dyn Fn(i64) -> Option<i64>>) =
            if let Some((last, step)) = rest.split_once('+') {
                let step = number(step)?;
                (number(last)?, Box::new(move |value| value.checked_add(step)))
            } else if let Some((last, factor)) = rest.split_once('*') {
                let factor = number(factor)?;
                (number(last)?, Box::new(move |value| value.checked_mul(factor)))
            } else {
                (number(rest)?, Box::new(|value| value.checked_add(1)))
            };
        let mut numbers = vec![first];
        while let Some(value) = next(numbers[numbers.len() - 1]).filter(|value| *value <= last) {
            if value <= numbers[numbers.len() - 1] {
                return Err(format!("the range {text} never reaches its end"));
            }
            if numbers.len() == MOST {
                return Err(format!("the range {text} has more than {MOST} numbers"));
            }
            numbers.push(value);
        }
        if first > last {
            Err(format!("the range {text} ends before it begins"))
        } else {
            Ok(Self(numbers))
        }
    }
}

/// The numbers of all ranges, which must not be negative.
pub(super) fn counts(numbers: &[Numbers]) -> Vec<usize> {
    let all = numbers.iter().flat_map(|numbers| &numbers.0);
    all.map(|&number| usize::try_from(number).unwrap_or(0)).collect()
}

/// Parses `512,128`.
pub(super) fn prompt_gen(text: &str) -> Result<(usize, usize), &'static str> {
    const EXPECTED: &str = "expected two numbers, as in 512,128";
    let (prompt, gen_) = text.split_once(',').ok_or(EXPECTED)?;
    let number = |text: &str| text.trim().parse().map_err(|_| EXPECTED);
    Ok((number(prompt)?, number(gen_)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_steps_and_factors() {
        let numbers = |text: &str| text.parse::<Numbers>().map(|numbers| numbers.0);
        assert_eq!(numbers("512"), Ok(vec![512]));
        assert_eq!(numbers("-1"), Ok(vec![-1]));
        assert_eq!(numbers("1-4"), Ok(vec![1, 2, 3, 4]));
        assert_eq!(numbers("512-1024+512"), Ok(vec![512, 1024]));
        assert_eq!(numbers("1-9*2"), Ok(vec![1, 2, 4, 8]));
        for bad in
            ["", "x", "1-", "-", "1-5+0", "0-8*2", "1-5*1", "5-1", "1-9999999", "1-5+x", "4*2"]
        {
            assert!(numbers(bad).is_err(), "{bad}");
        }
    }
}
