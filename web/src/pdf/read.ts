// The text of PDF files. Full readers also draw, which takes half a megabyte of code; this one reads
// what common programs write, and says what it cannot read.
import { PdfFile } from "./file";
import type { Font } from "./font";
import { PdfProblem, Stream, type Dict, type Value } from "./objects";
import { PageReader } from "./page";

export { PdfProblem };

const MOST_PAGES = 5000;
const DEEPEST_TREE = 50;
const MOST_PICTURES = 8;
/** Letters below which a page is a picture with a number or a stamp on it. */
const FEW = 20;

export interface PdfText {
  text: string;
  pages: number;
  /** The share of glyphs whose text is not known. */
  unread: number;
  /** Pictures of pages without text, in the form of JPEG. */
  pictures: Uint8Array[];
}

/** Reads a file. Throws a `PdfProblem` for one that cannot be read. */
export async function readPdf(bytes: Uint8Array): Promise<PdfText> {
  const file = new PdfFile(bytes);
  const pages = pagesOf(file);
  if (!pages.length) throw new PdfProblem("has no pages");
  const fonts = new Map<Dict, Font>();
  const texts: string[] = [];
  const pictures: Uint8Array[] = [];
  let [glyphs, unread] = [0, 0];
  for (const { content, resources } of pages) {
    const reader = new PageReader(file, fonts);
    reader.run(contentOf(file, content), resources);
    glyphs += reader.glyphs;
    unread += reader.unread;
    const text = reader.lines.text();
    texts.push(text);
    if (text.length < FEW) pictures.push(...reader.pictures.slice(0, MOST_PICTURES - pictures.length));
    // The page stays alive.
    await new Promise((resolve) => setTimeout(resolve));
  }
  const withText = texts.filter(Boolean).length;
  const numbered = texts.map((text, index) => (text && pages.length > 1 ? `[page ${index + 1}]\n${text}` : text));
  return {
    text: withText ? numbered.filter(Boolean).join("\n\n") : "",
    pages: pages.length,
    unread: glyphs ? unread / glyphs : 0,
    pictures,
  };
}

interface Page {
  content: Value | undefined;
  resources: Dict;
}

function pagesOf(file: PdfFile): Page[] {
  const pages: Page[] = [];
  const seen = new Set<Dict>();
  const visit = (node: Dict, inherited: Dict, depth: number): void => {
    if (seen.has(node) || depth > DEEPEST_TREE) return;
    seen.add(node);
    const resources = node.has("Resources") ? file.dict(node.get("Resources")) : inherited;
    if (node.has("Kids")) {
      for (const kid of file.array(node.get("Kids"))) visit(file.dict(kid), resources, depth + 1);
    } else if (pages.length >= MOST_PAGES) throw new PdfProblem(`has more than ${MOST_PAGES} pages`);
    else pages.push({ content: node.get("Contents"), resources });
  };
  visit(file.dict(file.catalogue().get("Pages")), new Map(), 0);
  return pages;
}

/** The content of a page, whose parts may be cut between any two words. */
function contentOf(file: PdfFile, content: Value | undefined): Uint8Array {
  const found = file.get(content);
  const streams = (Array.isArray(found) ? found : [found]).map((part) => file.get(part));
  const parts = streams
    .map((part) => (part instanceof Stream ? file.data(part) : null))
    .filter((part) => part !== null);
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length + 1, 0)).fill(10);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length + 1;
  }
  return whole;
}
