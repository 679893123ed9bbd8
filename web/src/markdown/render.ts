// Shows Markdown that arrives piece by piece. Finished blocks are appended once; only the block
// that is still open is made again.
import DOMPurify from "dompurify";

import { copyButton, h } from "../dom";
import { highlight } from "./code";
import { showFormula } from "./math";
import { toHtml } from "./parse";
import { type Block, Splitter } from "./split";

const TAGS = [
  "p",
  "br",
  "hr",
  "h1",
  "h2",
  "h3",
  "h4",
  "h5",
  "h6",
  "ul",
  "ol",
  "li",
  "input",
  "blockquote",
  "pre",
  "code",
  "em",
  "strong",
  "del",
  "a",
  "img",
  "table",
  "thead",
  "tbody",
  "tr",
  "th",
  "td",
  "span",
];
const ATTRIBUTES = [
  "href",
  "src",
  "alt",
  "start",
  "align",
  "type",
  "checked",
  "disabled",
  "class",
  "data-math",
  "data-display",
  "data-language",
];

function sanitised(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    // Formulas may look like addresses of unknown schemes.
    ADD_URI_SAFE_ATTR: ["data-math"],
    RETURN_DOM_FRAGMENT: true,
  });
}

const OWN_DIRECTION = "p, li, h1, h2, h3, h4, h5, h6, blockquote, td, th";

function fragmentOf(html: string): DocumentFragment {
  const fragment = sanitised(html);
  for (const element of fragment.querySelectorAll(OWN_DIRECTION)) element.setAttribute("dir", "auto");
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
    if (!/^(?:https?|mailto):$/.test(link.protocol)) link.removeAttribute("href");
  }
  for (const box of fragment.querySelectorAll("input")) {
    box.setAttribute("aria-label", box.checked ? "done" : "to do");
    box.closest("li")?.classList.add("task");
  }
  for (const place of fragment.querySelectorAll<HTMLElement>("[data-math]")) {
    showFormula(place.dataset.math ?? "", place.dataset.display === "block", place);
  }
  for (const table of fragment.querySelectorAll("table")) {
    const frame = h("div", { class: "table", attributes: { tabindex: 0, role: "region", "aria-label": "Table" } });
    table.replaceWith(frame);
    frame.append(table);
  }
  for (const pre of fragment.querySelectorAll("pre")) {
    const figure = new CodeView(pre.dataset.language ?? "");
    figure.finish(pre.textContent ?? "");
    pre.replaceWith(figure.element);
  }
  return fragment;
}

/** A block of code. While it is open, text is only appended; colours come at its end. */
class CodeView {
  readonly element: HTMLElement;
  private readonly code = h("code");
  private readonly text = document.createTextNode("");

  constructor(private readonly language: string) {
    this.code.append(this.text);
    const copy = copyButton("Copy code", () => this.code.textContent ?? "");
    const head = h("div", { class: "code-head" }, h("span", { text: language || "text" }), copy);
    const pre = h("pre", {
      attributes: { dir: "ltr", tabindex: 0, role: "region", "aria-label": `Code${language ? ` in ${language}` : ""}` },
    });
    pre.append(this.code);
    this.element = h("div", { class: "code" }, head, pre);
  }

  update(text: string): void {
    if (
      text.length > this.text.length &&
      text.startsWith(this.text.data.slice(-64), Math.max(0, this.text.length - 64))
    ) {
      this.text.appendData(text.slice(this.text.length));
    } else if (text.length !== this.text.length) this.text.data = text;
  }

  finish(text: string): void {
    const code = text.replace(/\n$/, "");
    const html = highlight(code, this.language);
    if (html === null) {
      this.text.data = code;
      this.code.replaceChildren(this.text);
    } else this.code.replaceChildren(sanitised(html));
  }
}

function plain(text: string): HTMLElement {
  return h("p", { class: "plain", text, attributes: { dir: "auto" } });
}

/** The least time between two renderings of an open block, in proportion to what one takes. */
const REST = 4;
/** The most characters at once of blocks that came together. */
const SLICE = 100_000;
/** Parts of a long paragraph that become one element. The layout of an element costs its length. */
const PARTS = 8;

export class MarkdownView {
  readonly element = h("div", { class: "markdown" });
  private splitter = new Splitter();
  private text = "";
  private isComplete = false;
  private shown = 0;
  private openNodes: ChildNode[] = [];
  private openCode: CodeView | null = null;
  private paragraph: HTMLElement | null = null;
  private parts = 0;
  private notBefore = 0;
  private timer = 0;

  /** Shows a text. `isComplete` says that no more will come. */
  update(text: string, isComplete: boolean): void {
    if (isComplete && this.isComplete && text === this.text && !this.timer) return;
    this.isComplete = isComplete;
    if (!text.startsWith(this.text)) this.reset();
    this.text = text;
    this.splitter.advance(text);
    const { blocks } = this.splitter;
    const hasNew = this.shown < blocks.length;
    const open = this.splitter.open(text);
    if (open?.kind === "code" && !isComplete && !hasNew && this.openCode) {
      this.openCode.update(open.text);
      return;
    }
    const now = performance.now();
    clearTimeout(this.timer);
    this.timer = 0;
    if (!hasNew && !isComplete && now < this.notBefore) {
      // No further text may come for a while.
      this.later(this.notBefore - now);
      return;
    }
    this.clearOpen();
    let characters = 0;
    while (this.shown < blocks.length) {
      const block = blocks[this.shown++] as Block;
      this.append(block, this.element);
      characters += block.text.length;
      // A megabyte at once would stop the page for half a second.
      if (characters > SLICE && this.shown < blocks.length) {
        this.later(0);
        return;
      }
    }
    if (open) this.appendOpen(open, isComplete);
    const end = performance.now();
    this.notBefore = end + REST * (end - now);
  }

  private later(ms: number): void {
    this.timer = window.setTimeout(() => this.update(this.text, this.isComplete), ms);
  }

  private reset(): void {
    this.element.replaceChildren();
    this.splitter = new Splitter();
    this.shown = 0;
    this.openNodes = [];
    this.openCode = null;
    this.paragraph = null;
  }

  private clearOpen(): void {
    for (const node of this.openNodes) node.remove();
    this.openNodes = [];
    this.openCode = null;
  }

  private appendOpen(block: Block, isComplete: boolean): void {
    if (block.kind === "code") {
      const view = new CodeView(block.language);
      if (isComplete) view.finish(block.text);
      else {
        view.update(block.text);
        this.openCode = view;
      }
      this.element.append(view.element);
      this.openNodes = [view.element];
      return;
    }
    if (block.joins && this.paragraph && this.parts < PARTS) {
      const part = h("span");
      const html = toHtml(block.text, true);
      part.append(html === null ? block.text : fragmentOf(html));
      this.paragraph.append(part);
      this.openNodes = [part];
      return;
    }
    const before = this.element.lastChild;
    const { paragraph, parts } = this;
    this.append(block, this.element);
    [this.paragraph, this.parts] = [paragraph, parts];
    const nodes = [...this.element.childNodes];
    this.openNodes = nodes.slice(before ? nodes.lastIndexOf(before) + 1 : 0);
  }

  /** Appends a finished block. */
  private append(block: Block, to: HTMLElement): void {
    if (block.kind === "code") {
      const view = new CodeView(block.language);
      view.finish(block.text);
      to.append(view.element);
    } else if (block.kind === "math") {
      const place = h("div", { class: "formula" });
      showFormula(block.text.trim(), true, place);
      to.append(place);
    } else if (block.joins) this.join(block, to);
    else {
      const html = toHtml(block.text, false);
      to.append(html === null ? plain(block.text) : fragmentOf(html));
      this.parts = 1;
      this.paragraph = to.lastElementChild instanceof HTMLParagraphElement ? to.lastElementChild : null;
    }
  }

  private join(block: Block, to: HTMLElement): void {
    const html = toHtml(block.text, true);
    const content = html === null ? block.text : fragmentOf(html);
    if (!this.paragraph || this.parts >= PARTS) {
      this.paragraph = h("p", { class: "joined", attributes: { dir: "auto" } });
      this.parts = 0;
      to.append(this.paragraph);
    }
    this.parts += 1;
    this.paragraph.append(content);
  }
}
