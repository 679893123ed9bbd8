//! A trie over the bytes of tokens: finds all tokens that start at one position of a text.

use std::collections::VecDeque;
use std::ops::Range;

use crate::vocab::Vocab;

/// The nodes in breadth-first order, so that the children of a node are adjacent.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

/// A prefix of tokens.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// The token with exactly this text, or [`NO_TOKEN`].
    token: u32,
    first_child: u32,
    /// At most 256, sorted by `byte`.
    num_children: u16,
    /// The last byte of the prefix.
    byte: u8,
}

const NO_TOKEN: u32 = u32::MAX;

impl Trie {
    /// The trie of the texts of `ids`.
    pub(crate) fn new(vocab: &Vocab, ids: impl Iterator<Item = u32>) -> Self {
        let text = |id: u32| vocab.text(id).unwrap_or_default().as_bytes();
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable_by(|&a, &b| text(a).cmp(text(b)));

        let node = |byte| Node { token: NO_TOKEN, first_child: 0, num_children: 0, byte };
        let mut nodes = vec![node(0)];
        // The tokens below each node whose children are missing, and the length of its prefix.
        let mut open: VecDeque<(Range<usize>, usize)> = [(0..ids.len(), 0)].into();
        let mut at = 0;
        while let Some((mut range, depth)) = open.pop_front() {
            // A text sorts before its extensions.
            if ids.get(range.start).is_some_and(|&id| text(id).len() == depth) {
                nodes[at].token = ids[range.start];
                range.start += 1;
            }
            nodes[at].first_child = nodes.len() as u32;
            while !range.is_empty() {
                let byte = text(ids[range.start])[depth];
                let same = |&id: &u32| text(id)[depth] == byte;
                let end = range.start + ids[range.clone()].partition_point(same);
                nodes.push(node(byte));
                open.push_back((range.start..end, depth + 1));
                nodes[at].num_children += 1;
                range.start = end;
            }
            at += 1;
        }
        Self { nodes }
    }

    /// Length and id of each token that `text` starts with, the shortest first.
    pub(crate) fn prefixes<'a>(
        &'a self,
        text: &'a [u8],
    ) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let walk = text.iter().scan(self.nodes[0], |node, &byte| {
            *node = *self.child(node, byte)?;
            Some(node.token)
        });
        (1..).zip(walk).filter(|&(_, token)| token != NO_TOKEN)
    }

    fn child(&self, node: &Node, byte: u8) -> Option<&Node> {
        let first = node.first_child as usize;
        let children = &self.nodes[first..first + usize::from(node.num_children)];
        children.binary_search_by_key(&byte, |child| child.byte).ok().map(|index| &children[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tokens_at_a_position_are_found() {
        let texts = ["b", "a", "abc", "ab", "ß", "abcde", "\u{FF}"];
        let vocab = Vocab::new(texts.map(str::to_owned).into(), vec![], &[]).unwrap();
        let trie = Trie::new(&vocab, 0..vocab.len());
        let found = |text: &str| trie.prefixes(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(found("abcd"), [(1, 1), (2, 3), (3, 2)]);
        assert_eq!(found("ba"), [(1, 0)]);
        assert_eq!(found("ß"), [(2, 4)]);
        assert_eq!(found("\u{FF}"), [(2, 6)]);
        assert!(found("x").is_empty() && found("").is_empty());
        assert!(Trie::new(&vocab, 0..0).prefixes(b"a").next().is_none());
    }
}
