// Markdown to HTML as text. The result is not safe yet: `render.ts` sanitises it.
import { Marked, type Tokens } from "marked";

const escapes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
export const escape = (text: string): string => text.replace(/[&<>"']/g, (found) => escapes[found] ?? found);

const SAFE_LINK = /^(?:https?:|mailto:)/i;
const SAFE_IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;

interface MathToken extends Tokens.Generic {
  text: string;
  display: boolean;
}

// Not before a digit, and not with spaces inside, so that prices stay text.
const FORMULAS: [RegExp, boolean][] = [
  [/^\$\$([^$]+?)\$\$/, true],
  [/^\\\[([^]+?)\\\]/, true],
  [/^\\\(([^]+?)\\\)/, false],
  [/^\$((?!\s)(?:[^$\\\n]|\\.)+?(?<!\s))\$(?!\d)/, false],
];

const parser = new Marked({
  gfm: true,
  extensions: [
    {
      name: "math",
      level: "inline",
      start: (text) => {
        const found = text.search(/\$|\\[([]/);
        return found < 0 ? undefined : found;
      },
      tokenizer: (text) => {
        for (const [pattern, display] of FORMULAS) {
          const match = pattern.exec(text);
          if (match) return { type: "math", raw: match[0], text: match[1] ?? "", display };
        }
        return undefined;
      },
      renderer: (token) => {
        const { text, display } = token as MathToken;
        return `<span data-math="${escape(text)}" data-display="${display ? "block" : "inline"}">${escape(text)}</span>`;
      },
    },
  ],
  renderer: {
    // Only a line break, which models write in tables, is taken as HTML.
    html({ text }) {
      return /^<br\s*\/?>$/i.test(text.trim()) ? "<br>" : escape(text);
    },
    link({ href, tokens }) {
      const text = this.parser.parseInline(tokens);
      return SAFE_LINK.test(href) ? `<a href="${escape(href)}">${text}</a>` : text;
    },
    image({ href, text }) {
      if (SAFE_IMAGE.test(href)) return `<img src="${escape(href)}" alt="${escape(text)}">`;
      const label = escape(text || href);
      return SAFE_LINK.test(href) ? `<a href="${escape(href)}">${label}</a>` : label;
    },
    code({ text, lang }) {
      return `<pre data-language="${escape(lang?.split(/\s/)[0] ?? "")}"><code>${escape(text)}</code></pre>`;
    },
  },
});

/** Markers of quotes and lists that one line may have, and the deepest indentation of an item. */
const MOST_MARKERS = /^(?:[ \t]*(?:>|[-*+](?=[ \t])|\d{1,9}[.)](?=[ \t]))){17}|^[ \t]{65,}(?:[-*+>]|\d+[.)])/m;
/** A longer block that is neither a paragraph nor code is shown as it is. */
const LONGEST_BLOCK = 65_536;
/** Markers of one kind in a row or in a text, beyond which emphasis and links mean nothing. */
const MARKER_RUN = /([*_`~[\]!(<])\1{31,}/;

/** The HTML of a block; null if it is to be shown as plain text. */
export function toHtml(text: string, joins: boolean): string | null {
  if (text.length > LONGEST_BLOCK || MOST_MARKERS.test(text) || MARKER_RUN.test(text)) return null;
  try {
    return joins ? parser.parseInline(text, { async: false }) : parser.parse(text, { async: false });
  } catch {
    return null;
  }
}
