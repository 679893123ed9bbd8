/** Divides a text that arrives piece by piece into sentences for a screen reader. */
export class Sentences {
  private taken = 0;
  /** Up to here there is no further end of a sentence. */
  private searched = 0;

  /** Sentences that are complete and were not returned before; all of the rest at the end. */
  next(text: string, isComplete: boolean): string[] {
    const found: string[] = [];
    // A mark with a space after it, or the end of a line. Languages without spaces have marks of their own.
    const ends = /[.!?…]["'”’)\]]*\s+|[。！？]|\n+/g;
    ends.lastIndex = this.searched;
    for (let match = ends.exec(text); match; match = ends.exec(text)) {
      const next = match.index + match[0].length;
      const sentence = plainText(text.slice(this.taken, next));
      // "1. " and "e.g. " are no sentences.
      if (sentence.length < 12 && !match[0].includes("\n") && !/[。！？]/.test(match[0])) continue;
      if (sentence) found.push(sentence);
      this.taken = next;
    }
    // A mark at the end may be followed by a space.
    this.searched = Math.max(this.taken, text.length - 8);
    if (isComplete) {
      const last = plainText(text.slice(this.taken));
      if (last) found.push(last);
      this.taken = text.length;
      this.searched = text.length;
    }
    return found;
  }
}

/** Markdown without its marks. */
export function plainText(text: string): string {
  return text
    .replace(/^ {0,3}(`{3,}|~{3,}).*$/gm, "")
    .replace(/!?\[([^\]\n]*)\]\([^)\n]*\)/g, "$1")
    .replace(/^\s*(?:#{1,6}|>+|[-*+])\s+/gm, "")
    .replace(/[*_`~]{1,3}/g, "")
    .replace(/\|/g, " ")
    .replace(/\s+/g, " ")
    .trim();
}
