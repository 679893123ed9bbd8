//! Byte-level byte-pair encoding: merges of the lowest rank first.
//!
//! Text is processed as bytes. The merge table maps a pair of symbols to the merged symbol. A
//! symbol is a token id; ids beyond the vocabulary are texts that occur only in merges.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;

use crate::pre_tokenizer::{ByteForm, PreTokenizer};
use crate::vocab::Vocab;
use crate::{byte_map, spm};

/// A BPE tokenizer for one vocabulary.
#[derive(Debug)]
pub(crate) struct Bpe {
    pre_tokenizer: PreTokenizer,
    /// The ranks of the pairs that merge.
    ranks: HashMap<Pair, u32>,
    /// The merged symbol of the pair of each rank.
    merged: Vec<u32>,
    /// The symbol of each byte; unused with raw UTF-8.
    bytes: Box<[u32; 256]>,
    /// Symbols of merge texts that are not tokens. Empty for valid vocabularies.
    extra: HashMap<Box<str>, u32>,
}

/// Two neighbouring symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Pair {
    left: u32,
    right: u32,
}

/// The symbol of a byte or character that no token and no merge contains.
const NO_SYMBOL: u32 = u32::MAX;

/// Repeats of pieces up to this length are copied from their first encoding.
const LONGEST_REPEAT: usize = 48;

impl Bpe {
    /// Builds the merge table. Lines without a space and repeated lines have no effect.
    pub(crate) fn new(vocab: &Vocab, merges: &[String], pre_tokenizer: PreTokenizer) -> Self {
        let mut symbols = Symbols { vocab, extra: HashMap::new() };
        let mut ranks = HashMap::with_capacity(merges.len());
        let mut results = Vec::with_capacity(merges.len());
        for (rank, (line, known)) in merges.iter().zip(look_up_merges(vocab, merges)).enumerate() {
            let Some((left, right)) = split_merge(line) else {
                results.push(NO_SYMBOL);
                continue;
            };
            let or_new = |symbol, text: &str, symbols: &mut Symbols<'_>| match symbol {
                NO_SYMBOL => symbols.of(text),
                known => known,
            };
            let left_id = or_new(known.left, left, &mut symbols);
            let right_id = or_new(known.right, right, &mut symbols);
            results.push(match known.merged {
                NO_SYMBOL => symbols.of(&format!("{left}{right}")),
                known => known,
            });
            ranks.entry(Pair { left: left_id, right: right_id }).or_insert(rank as u32);
        }
        let mut bytes = Box::new([NO_SYMBOL; 256]);
        for (byte, symbol) in (0..=255).zip(bytes.iter_mut()) {
            let stand_in = byte_map::char_of(byte).to_string();
            *symbol = symbols.find(&stand_in).unwrap_or(NO_SYMBOL);
        }
        Self { pre_tokenizer, ranks, merged: results, bytes, extra: symbols.extra }
    }

    /// The representation of bytes in the vocabulary.
    pub(crate) fn form(&self) -> ByteForm {
        self.pre_tokenizer.flags.form
    }

    /// Tokenizes `text` and appends the ids to `ids`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &[u8], ids: &mut Vec<u32>) {
        let mut scratch = Scratch::default();
        let mut seen: HashMap<&[u8], (usize, usize)> = HashMap::new();
        let mut start = 0;
        for end in self.pre_tokenizer.split(text) {
            let piece = &text[start..end];
            start = end;
            if let Some(&(from, to)) = seen.get(piece) {
                ids.extend_from_within(from..to);
                continue;
            }
            let from = ids.len();
            self.encode_piece(vocab, piece, &mut scratch, ids);
            if piece.len() <= LONGEST_REPEAT {
                seen.insert(piece, (from, ids.len()));
            }
        }
    }

    fn encode_piece(&self, vocab: &Vocab, piece: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
        let flags = self.pre_tokenizer.flags;
        let whole = flags.ignore_merges
            || (flags.form == ByteForm::Gemma && piece.iter().all(|&b| b == b'\n'));
        if whole && let Some(id) = self.whole_piece(vocab, piece, &mut scratch.text) {
            ids.push(id);
            return;
        }
        scratch.symbols.clear();
        if flags.form == ByteForm::StandIns {
            scratch.symbols.extend((0..piece.len()).map(|start| Symbol {
                id: self.bytes[usize::from(piece[start])],
                start,
                len: 1,
                previous: start.wrapping_sub(1),
                next: start + 1,
            }));
        } else {
            self.push_characters(vocab, piece, &mut scratch.symbols);
        }
        if let Some(last) = scratch.symbols.last_mut() {
            last.next = NONE;
        }
        self.merge(scratch);
        for symbol in scratch.symbols.iter().filter(|symbol| symbol.len > 0) {
            if symbol.id < vocab.len() {
                ids.push(symbol.id);
            } else {
                let bytes = &piece[symbol.start..symbol.start + symbol.len];
                ids.extend(bytes.iter().filter_map(|&byte| self.byte_token(vocab, byte)));
            }
        }
    }

    /// The id of a piece that is a token as a whole.
    fn whole_piece(&self, vocab: &Vocab, piece: &[u8], text: &mut String) -> Option<u32> {
        if self.form() != ByteForm::StandIns {
            return vocab.id_of(piece);
        }
        // Each byte becomes a character of at least one byte.
        if piece.len() > vocab.longest() {
            return None;
        }
        text.clear();
        byte_map::encode_into(piece, text);
        vocab.id_of(text.as_bytes())
    }

    fn push_characters(&self, vocab: &Vocab, piece: &[u8], symbols: &mut Vec<Symbol>) {
        let mut start = 0;
        while start < piece.len() {
            let len = spm::char_len(piece[start]).min(piece.len() - start);
            let bytes = &piece[start..start + len];
            let extra = || self.extra.get(std::str::from_utf8(bytes).ok()?).copied();
            let id = vocab.id_of(bytes).or_else(extra).unwrap_or(NO_SYMBOL);
            let previous = symbols.len().wrapping_sub(1);
            symbols.push(Symbol { id, start, len, previous, next: symbols.len() + 1 });
            start += len;
        }
    }

    /// Encodes a byte that is part of no merge. A byte without a token is dropped.
    fn byte_token(&self, vocab: &Vocab, byte: u8) -> Option<u32> {
        if self.form() != ByteForm::StandIns {
            return spm::byte_token(vocab, byte);
        }
        Some(self.bytes[usize::from(byte)]).filter(|&id| id < vocab.len())
    }

    /// Merges neighbours until no pair of them is in the table: lowest rank first, ties from
    /// the left. Time is O(n log n).
    fn merge(&self, scratch: &mut Scratch) {
        let Scratch { symbols, queue, .. } = scratch;
        queue.clear();
        for left in 0..symbols.len() {
            queue.extend(self.candidate(symbols, left));
        }
        while let Some(Reverse(best)) = queue.pop() {
            let left = symbols[best.left];
            let Some(&right) = symbols.get(left.next) else { continue };
            // One of the two has already merged with another symbol.
            if left.len == 0 || (Pair { left: left.id, right: right.id }) != best.pair {
                continue;
            }
            symbols[best.left] = Symbol {
                id: self.merged[best.rank as usize],
                len: left.len + right.len,
                next: right.next,
                ..left
            };
            symbols[left.next].len = 0;
            if let Some(next) = symbols.get_mut(right.next) {
                next.previous = best.left;
            }
            if left.previous != NONE {
                queue.extend(self.candidate(symbols, left.previous));
            }
            queue.extend(self.candidate(symbols, best.left));
        }
    }

    fn candidate(&self, symbols: &[Symbol], left: usize) -> Option<Reverse<Candidate>> {
        let first = symbols[left];
        let second = symbols.get(first.next)?;
        let pair = Pair { left: first.id, right: second.id };
        let rank = *self.ranks.get(&pair)?;
        Some(Reverse(Candidate { rank, left, pair }))
    }
}

/// Buffers that pieces share.
#[derive(Debug, Default)]
struct Scratch {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<Candidate>>,
    text: String,
}

/// A part of a piece, in a doubly linked list; merged into its left neighbour when `len` is 0.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    id: u32,
    start: usize,
    len: usize,
    previous: usize,
    next: usize,
}

/// The index for no neighbour, equal to `0_usize.wrapping_sub(1)`.
const NONE: usize = usize::MAX;

/// Two neighbours that could merge; ordered by rank, then position.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    rank: u32,
    left: usize,
    pair: Pair,
}

/// The ids of the texts of a merge, [`NO_SYMBOL`] for texts that are not tokens.
#[derive(Debug, Clone, Copy)]
struct KnownMerge {
    left: u32,
    right: u32,
    merged: u32,
}

/// Looks up the texts of all merges. This takes most of the loading time, waiting for memory, and
/// is therefore split among threads. The system takes longer to count its processors than a small
/// table takes.
fn look_up_merges(vocab: &Vocab, merges: &[String]) -> Vec<KnownMerge> {
    const LEAST_PER_THREAD: usize = 4096;
    let processors = || std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let threads = if merges.len() > LEAST_PER_THREAD { processors() } else { 1 };
    let chunk_len = merges.len().div_ceil(threads).max(LEAST_PER_THREAD);
    let unknown = KnownMerge { left: NO_SYMBOL, right: NO_SYMBOL, merged: NO_SYMBOL };
    let mut known = vec![unknown; merges.len()];
    std::thread::scope(|scope| {
        let mut chunks = merges.chunks(chunk_len).zip(known.chunks_mut(chunk_len));
        let own = chunks.next();
        for (lines, known) in chunks {
            let work = move || look_up_chunk(vocab, lines, known);
            // If the thread cannot start, the caller looks up the chunk.
            drop(std::thread::Builder::new().spawn_scoped(scope, work));
        }
        if let Some((lines, known)) = own {
            look_up_chunk(vocab, lines, known);
        }
    });
    known
}

fn look_up_chunk(vocab: &Vocab, lines: &[String], known: &mut [KnownMerge]) {
    let mut merged = String::new();
    let mut last = 0;
    for (line, known) in lines.iter().zip(known) {
        let Some((left, right)) = split_merge(line) else { continue };
        merged.clear();
        merged.push_str(left);
        merged.push_str(right);
        // Merges are in the order of the tokens that they produce, one or several per token.
        let guess = [last, last + 1].into_iter().find(|&id| vocab.text(id) == Some(&merged));
        let found = guess.or_else(|| vocab.id_of(merged.as_bytes()));
        *known = KnownMerge {
            left: vocab.id_of(left.as_bytes()).unwrap_or(NO_SYMBOL),
            right: vocab.id_of(right.as_bytes()).unwrap_or(NO_SYMBOL),
            merged: found.unwrap_or(NO_SYMBOL),
        };
        last = found.unwrap_or(last);
    }
}

/// Splits a line of merges at the first space that is not its first byte.
fn split_merge(line: &str) -> Option<(&str, &str)> {
    let space = memchr::memchr(b' ', line.as_bytes().get(1..)?)? + 1;
    Some((&line[..space], &line[space + 1..]))
}

/// Assigns symbols to merge texts.
struct Symbols<'a> {
    vocab: &'a Vocab,
    extra: HashMap<Box<str>, u32>,
}

impl Symbols<'_> {
    fn find(&self, text: &str) -> Option<u32> {
        self.vocab.id_of(text.as_bytes()).or_else(|| self.extra.get(text).copied())
    }

    fn of(&mut self, text: &str) -> u32 {
        self.find(text).unwrap_or_else(|| {
            let symbol = self.vocab.len() + self.extra.len() as u32;
            self.extra.insert(text.into(), symbol);
            symbol
        })
    }
}
