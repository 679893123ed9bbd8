//! Published data of cards: compute units, clocks, memory.

use serde::Deserialize;

use crate::{Arch, ProcessorFamily};

/// The published data of a card.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Card {
    /// The name without the vendor: `RX 7900 XTX`.
    pub name: String,
    /// The processor: `gfx1100`.
    pub arch: String,
    /// Compute units, of two SIMDs each.
    pub compute_units: u64,
    /// The clock in MHz that the vendor expects under load (game frequency).
    pub clock_mhz: u64,
    /// The bits of the memory's bus.
    pub bus_bits: u64,
    /// Bits per second of each of them, in 10⁹.
    pub gbps: f64,
}

/// A list of cards.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cards {
    card: Vec<Card>,
}

/// Why a list of cards, or a card, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CardsError {
    /// The text is not a list of cards.
    #[error("not a list of cards: {0}")]
    Syntax(String),
    /// A card of the list has an unknown processor.
    #[error("card '{card}': no processor '{arch}'")]
    UnknownProcessor {
        /// The card.
        card: String,
        /// Processor of the card.
        arch: String,
    },
    /// The list has no such card.
    #[error("no card '{name}', only {known}")]
    UnknownCard {
        /// The name.
        name: String,
        /// The names of the list.
        known: String,
    },
}

impl Cards {
    /// The cards that the crate knows.
    ///
    /// # Errors
    ///
    /// None with the list of this crate; a test reads it.
    pub fn known() -> Result<Self, CardsError> {
        Self::parse(include_str!("cards.toml"))
    }

    /// Reads a list in TOML: tables `[[card]]` with the fields of [`Card`].
    ///
    /// # Errors
    ///
    /// [`CardsError::Syntax`], [`CardsError::UnknownProcessor`].
    pub fn parse(text: &str) -> Result<Self, CardsError> {
        let cards: Self =
            toml::from_str(text).map_err(|error| CardsError::Syntax(error.to_string()))?;
        match cards.card.iter().find(|card| Arch::from_name(&card.arch).is_none()) {
            Some(Card { name, arch, .. }) => {
                Err(CardsError::UnknownProcessor { card: name.clone(), arch: arch.clone() })
            }
            None => Ok(cards),
        }
    }

    /// All cards.
    pub fn iter(&self) -> impl Iterator<Item = &Card> {
        self.card.iter()
    }

    /// The card of a name, which may begin with the vendor's.
    ///
    /// # Errors
    ///
    /// [`CardsError::UnknownCard`].
    pub fn named(&self, name: &str) -> Result<&Card, CardsError> {
        let short = name.trim_start_matches("AMD ").trim_start_matches("Radeon ");
        let found = self.iter().find(|card| card.name.eq_ignore_ascii_case(short));
        found.ok_or_else(|| {
            let known: Vec<_> = self.iter().map(|card| card.name.as_str()).collect();
            CardsError::UnknownCard { name: name.to_owned(), known: known.join(", ") }
        })
    }
}

impl Card {
    /// The instruction set; RDNA 2 if the processor is unknown, which [`Cards::parse`] refuses.
    pub fn family(&self) -> ProcessorFamily {
        Arch::from_name(&self.arch).map_or(ProcessorFamily::Rdna2, Arch::family)
    }

    /// Cycles per second.
    pub fn clock(&self) -> f64 {
        self.clock_mhz as f64 * 1e6
    }

    /// Bytes of memory per second.
    pub fn memory_bandwidth(&self) -> f64 {
        self.bus_bits as f64 * self.gbps * 1e9 / 8.0
    }

    /// Bytes of L2 per second: 64 per cycle and channel of 16 bits (white paper of RDNA).
    pub fn l2_bandwidth(&self) -> f64 {
        self.bus_bits as f64 / 16.0 * 64.0 * self.clock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_cards_have_the_bandwidth_of_their_product_pages() {
        let cards = Cards::known().unwrap();
        let bandwidth = |name| cards.named(name).unwrap().memory_bandwidth() / 1e9;
        assert!((bandwidth("AMD Radeon RX 7900 XTX") - 960.0).abs() < 0.5);
        assert!((bandwidth("RX 6600 XT") - 256.0).abs() < 0.5);
        assert!(cards.iter().all(|card| card.clock_mhz > 1000 && card.compute_units > 0));
    }

    #[test]
    fn unusable_lists_and_names_are_refused() {
        let cards = Cards::known().unwrap();
        let error = cards.named("RX 1").unwrap_err().to_string();
        assert!(error.starts_with("no card 'RX 1', only RX 6600 XT, "), "{error}");
        assert!(matches!(Cards::parse("[[card]]\nname = 1"), Err(CardsError::Syntax(_))));
        let text = include_str!("cards.toml").replacen("gfx1032", "gfx9", 1);
        let error = Cards::parse(&text).unwrap_err().to_string();
        assert_eq!(error, "card 'RX 6600 XT': no processor 'gfx9'");
    }
}
