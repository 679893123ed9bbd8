/** Divides a text that arrives piece by piece into sentences for a screen reader. */
export class Sentences {
  private taken = 0;

  /** Sentences that are complete and were not returned before; all of the rest at the end. */
  next(text: string, isComplete: boolean): string[] {
    const rest = text.slice(this.taken);
    const found: string[] = [];
    let end = 0;
    // A mark with a space after it, or the end of a line. Languages without spaces have marks of their own.
    for (const match of rest.matchAll(/[.!?…]["'”’)\]]*\s+|[。！？]|\n+/g)) {
      const next = match.index + match[0].length;
      const sentence = plainText(rest.slice(end, next));
      if (!sentence && match[0].trim()) continue;
      // "1. " and "e.g. " are no sentences.
      if (sentence.length < 12 && !match[0].includes("\n") && !/[。！？]/.test(match[0])) continue;
      if (sentence) found.push(sentence);
      end = next;
    }
    if (isComplete) {
      const last = plainText(rest.slice(end));
      if (last) found.push(last);
      end = rest.length;
    }
    this.taken += end;
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
